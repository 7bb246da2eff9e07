"""``shardpass.jit`` on the devices of several processes."""

from typing import Any

import numpy as np
import pytest

from tests.runtime.processes import training
from tests.runtime.processes.launch import launch


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    """What one process finds."""
    return training.train()


@pytest.fixture(scope="module")
def two() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What each of two processes with four devices finds."""
    return launch(training.train_and_place, count=2)


def _are_those_of(alone: dict[str, Any], found: list[dict[str, Any]]) -> None:
    """The losses, layouts and programs of one process, in each of several."""
    for one in found:
        np.testing.assert_allclose(one["losses"], alone["losses"], rtol=1e-5)
        assert one["specs"] == {"w1": (None, "model"), "b1": ("model",), "w2": ("model",)}
        for text in {"plan without locations", "program"} & one.keys():
            assert one[text].encode() == alone[text].encode()
        # What depends on how many processes there are, or says who called, is the same in all.
        for known in {"losses", "plan", "hlo"} & one.keys():
            assert one[known] == found[0][known]
    assert alone["losses"][-1] < alone["losses"][0] / 2


def test_a_training_step_on_two_processes(alone: dict[str, Any], two: list[Any]):
    assert len(two) == 2
    _are_those_of(alone, [trained for trained, _ in two])


def test_a_training_step_on_four_processes(alone: dict[str, Any]):
    found = launch(training.train_on_both_roads, count=4)
    assert len(found) == 4
    _are_those_of(alone, [decorated for decorated, _ in found])
    _are_those_of(training.train_plugged(), [plugged for _, plugged in found])


@pytest.mark.parametrize(
    "kind",
    ["numpy", "integers", "jax", "another layout", "keys", "one device's, wanted whole"],
)
def test_values_that_every_process_has_are_placed(kind: str, two: list[Any]):
    assert [placed[kind] for _, placed in two] == [True, True]


@pytest.mark.parametrize(
    ("kind", "argument"),
    [
        ("one device", '0 ("a")'),
        ("own mesh", '0 ("a")'),
        ("own mesh's, wanted whole", '1 ("b")'),
    ],
)
def test_an_array_of_one_process_is_refused(kind: str, argument: str, two: list[Any]):
    for number, (_, placed) in enumerate(two):
        slug, text = placed[kind]
        assert slug == "process-local"
        assert f"argument {argument} lies on devices of process {number} alone" in text
        assert "jax.make_array_from_process_local_data" in text


def test_only_what_moves_is_said_to(two: list[Any]):
    for _, placed in two:
        (moved,) = [text for text in placed["warnings"] if "[moved]" in text]
        assert "argument 0 (\"a\") arrives as P('model',)" in moved
