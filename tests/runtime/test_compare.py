"""The one number that says how far a result is from the one it should be."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from shardpass.canon import HloSharding
from shardpass.runtime.compare import all_finite, error_of, only_value, tolerance_of
from shardpass.runtime.placement import Layout

ROWS = HloSharding.parse("{devices=[2,1,4]<=[8] last_tile_dim_replicate}")


def error(reference: np.ndarray, found: np.ndarray) -> float:
    layout = Layout(ROWS, reference.shape, 8)
    return error_of(reference, layout, layout.cut(found))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16, np.complex64])
def test_relative_l2_norm(dtype: type):
    generator = np.random.default_rng(0)
    one = generator.standard_normal((6, 5)).astype(dtype)
    other = (one * 1.25).astype(dtype)
    wide = (np.asarray(x).astype(np.complex128) for x in (one, other))
    a, b = wide
    assert error(one, other) == pytest.approx(np.linalg.norm(a - b) / np.linalg.norm(a))


def test_integers_and_booleans_count_what_differs():
    one = np.arange(12).reshape(6, 2)
    other = one.copy()
    other[0] += 100
    assert error(one, other) == pytest.approx(2 / 12)
    assert error(one > 3, one > 4) == pytest.approx(1 / 12)
    assert error(one, one) == 0.0


def test_the_worst_copy_counts():
    reference = np.ones((4, 2), np.float32)
    layout = Layout(ROWS, (4, 2), 8)
    blocks = layout.cut(reference)
    blocks[6] = blocks[6] * 2
    blocks[7] = blocks[7] * 4
    assert error_of(reference, layout, blocks) == pytest.approx(math.sqrt(4 * 9 / 8))


def test_padding_does_not_count():
    reference = np.ones((3, 2), np.float32)
    layout = Layout(ROWS, (3, 2), 8)
    blocks = [block.copy() for block in layout.cut(reference)]
    for device in range(4, 8):
        blocks[device][1] = np.nan
    assert error_of(reference, layout, blocks) == 0.0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_infinitely_far(value: float):
    reference = np.ones((4, 2), np.float32)
    found = reference.copy()
    found[3, 1] = value
    assert error(reference, found) == math.inf
    assert not all_finite(found)


def test_zeros():
    zeros = np.zeros((4, 2), np.float32)
    assert error(zeros, zeros) == 0.0
    assert error(zeros, zeros + 1e-30) == math.inf


def test_numbers_whose_squares_overflow_their_own_type():
    reference = np.full((4, 2), 1e30, np.float32)
    assert error(reference, reference * np.float32(2)) == pytest.approx(1.0)


def test_only_value():
    assert only_value(np.full((3, 2), 7)) == 7
    assert only_value(np.arange(3)) is None
    assert only_value(np.zeros((0, 2))) is None
    assert only_value(np.full(3, np.nan)) is None


def test_tolerances_follow_the_unit_of_the_type():
    for dtype in (np.float64, np.float32, np.float16, ml_dtypes.bfloat16):
        unit = float(ml_dtypes.finfo(dtype).eps)
        assert 4 * unit < tolerance_of(np.dtype(dtype)) < 512 * unit
    assert tolerance_of(np.dtype(ml_dtypes.float8_e5m2)) == 0.25
    assert tolerance_of(np.dtype(np.int32)) == tolerance_of(np.dtype(bool)) == 0.0
