"""Meshes that most tests of the objects are about: 2 x 4, devices in order."""

import jax
import numpy as np
import pytest
from jax.sharding import AxisType

from shardpass.sharding import Mesh


@pytest.fixture(scope="module", autouse=True)
def forgetful():
    """JAX keeps the first of equal shardings, so that one of its own decides a class for good."""
    jax.clear_caches()


@pytest.fixture(scope="session")
def devices():
    return np.array(jax.devices()).reshape(2, 4)


@pytest.fixture(scope="session")
def mesh(devices):
    return Mesh(devices, ("x", "y"))


@pytest.fixture(scope="session")
def explicit_mesh(devices):
    return Mesh(devices, ("x", "y"), AxisType.Explicit)
