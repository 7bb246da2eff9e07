"""Plugin mode on the devices of several processes: whose array is it?"""

from typing import Any

import numpy as np
import pytest

from tests.runtime.processes import plugging
from tests.runtime.processes.launch import launch


@pytest.fixture(scope="module")
def two() -> list[dict[str, Any]]:
    """What each of two processes with four devices finds."""
    return launch(plugging.call, count=2)


@pytest.mark.parametrize("kind", ["own", "own, after"])
def test_an_array_of_one_process_is_not_cut_up(kind: str, two: list[dict[str, Any]]):
    """Also where the program has been compiled for numpy's arrays before."""
    for number, found in enumerate(two):
        slug, text = found[kind]
        assert slug == "process-local"
        assert f'argument 0 ("batch.x") lies on devices of process {number} alone, as' in text
        assert "all 2 processes, as P('data',) on mesh data=2, model=4" in text
        assert "jax.make_array_from_process_local_data" in text


def test_one_that_xla_is_to_place_is_not_either(two: list[dict[str, Any]]):
    for found in two:
        slug, text = found["left to XLA"]
        assert slug == "process-local"
        assert 'argument 1 ("y")' in text
        assert "where XLA wants it" in text


def test_values_that_every_process_has_are_cut(two: list[dict[str, Any]]):
    for found in two:
        assert found["same"] == found["jax"] == 2 * np.arange(32).sum()
        assert found["whole"] == 2 * np.arange(32).sum()


def test_what_has_no_plan_is_computed_by_each_process(two: list[dict[str, Any]]):
    for number, found in enumerate(two, 1):
        assert found["plain"] == 64 * number
        assert found["nothing to plan"] == found["left alone"] == 32 * number


def test_two_devices_of_one_process_are_jaxs_matter(two: list[dict[str, Any]]):
    for found in two:
        who, text = found["two devices"]
        assert who == "JAX's"
        assert "incompatible devices" in text
