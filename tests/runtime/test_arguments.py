"""Arguments of the public functions that are of the wrong kind: one clean error each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from shardpass.diagnostics import ShardingError
from shardpass.mlir import Module
from shardpass.runtime import check, devices_for, input_source, request_cpu_devices


@pytest.mark.parametrize(
    ("name", "value", "slug"),
    [
        ("tolerance", -1.0, "usage"),
        ("tolerance", float("nan"), "usage"),
        ("tolerance", float("inf"), "usage"),
        ("tolerance", 1.0, "usage"),
        ("tolerance", "a", "usage"),
        ("tolerance", True, "usage"),
        ("inputs", 3, "bad-inputs"),
        ("seed", -1, "usage"),
        ("seed", 0.5, "usage"),
        ("devices", "8", "usage"),
        ("devices", 8.0, "usage"),
        ("devices", [0, 1], "usage"),
    ],
)
def test_a_value_that_is_none(layer: Callable[..., Module], name: str, value: object, slug: str):
    with pytest.raises(ShardingError) as caught:
        check(layer(), **{name: value})  # pyright: ignore[reportArgumentType]
    assert caught.value.slug == slug
    assert caught.value.diagnostic.help


def test_numpys_numbers_are_numbers(layer: Callable[..., Module]):
    assert check(layer(), tolerance=np.float32(0.5), seed=np.int64(3)).ok  # pyright: ignore[reportArgumentType]
    assert len(devices_for(np.int64(3))) == 3  # pyright: ignore[reportArgumentType]


def test_one_argument_under_two_names(layer: Callable[..., Module], tmp_path: Path):
    """One of the two was dropped without a word."""
    a, w = np.ones((8, 16), np.float32), np.ones((16, 32), np.float32)
    np.savez(tmp_path / "twice.npz", arg0=a, arg1=w, arr_1=2 * w)
    with pytest.raises(ShardingError, match='"arg1" and "arr_1", which are both arg') as caught:
        input_source(layer(), tmp_path / "twice.npz")
    assert caught.value.slug == "bad-inputs"


def test_more_cpu_devices_than_xla_can_start():
    with pytest.raises(ShardingError, match="4000 devices asked for; XLA makes up to 1024"):
        request_cpu_devices(4000)
