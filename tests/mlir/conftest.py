"""A module of two arguments, as JAX lowers it, in every form that a module has."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import export

from shardpass.mlir import Module, load


def step(params: dict[str, jax.Array], x: jax.Array) -> dict[str, jax.Array]:
    return {"out": jnp.tanh(x @ params["w"])}


SHAPES = ({"w": jax.ShapeDtypeStruct((8, 4), "float32")}, jax.ShapeDtypeStruct((2, 8), "float32"))


@pytest.fixture
def lowered() -> Any:
    return jax.jit(step).lower(*SHAPES)


@pytest.fixture
def module(lowered: Any) -> Module:
    return load(lowered)


@pytest.fixture
def artifact() -> bytes:
    """What ``jax.export`` stores: VHLO in bytecode."""
    return export.export(jax.jit(step))(*SHAPES).mlir_module_serialized
