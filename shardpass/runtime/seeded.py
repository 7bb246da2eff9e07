"""Made-up arguments that make a program compute something that a wrong layout would spoil.

Every value is drawn independently, so no block of an array resembles another, and no argument
another of the same shape. What the program demands of an argument
(:mod:`shardpass.runtime.demands`) decides what is drawn:

* integers that reach an index: from 0 up to the size that they index; other integers of rank 0, the
  step counters of this world: 1 to 5; other integers: 1 to 100; unsigned integers of a PRNG key's
  shape, and all others that index nothing: any bits;
* floats that reach a square root, a logarithm or a divisor: between 0.5 and 1.5 (below 1 where
  1 - x has to be positive as well); floats that a matrix product sums up n at a time: normal with
  variance 1/n, so that deep networks neither overflow nor die out; others: normal;
* floats that are only decayed and added to, an optimizer's moments: the same, times 1e-4, or 1e-8
  where they have to be positive, as if training had just begun. Moments of size 1 would bury the
  gradients, and with them every fault of the backward pass;
* booleans: true with probability 3/4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shardpass.mlir import EntryValue, Module
from shardpass.runtime.demands import ArgumentDemands, demands_of
from shardpass.runtime.element_types import dtype_of, is_complex, is_float, is_integer

_TRUE_SHARE = 0.75
_MOST_COUNTED = 100
_MOST_STEPS = 5
_MOMENT_SCALE = 1e-4
_CHUNK = 1 << 22


@dataclass(frozen=True)
class SeededInputs:
    """Arguments drawn from ``seed``; equal seeds give equal arguments, on every platform."""

    arguments: tuple[EntryValue, ...]
    demands: tuple[ArgumentDemands, ...]
    seed: int

    @classmethod
    def of(cls, module: Module, seed: int = 0) -> SeededInputs:
        """The made-up arguments of ``module``'s entry function."""
        return cls(tuple(module.arguments), tuple(demands_of(module.root)), seed)

    def array(self, index: int) -> np.ndarray:
        """Argument ``index``."""
        value, demands = self.arguments[index], self.demands[index]
        dtype = dtype_of(value)
        generator = np.random.Generator(np.random.PCG64([self.seed, index]))
        if dtype == np.bool_:
            return generator.random(value.shape) < _TRUE_SHARE
        if is_integer(dtype):
            return _integers(generator, value.shape, dtype, demands)
        if is_complex(dtype):
            return _complex(generator, value.shape, dtype, demands)
        if is_float(dtype):
            return _floats(generator, value.shape, dtype, demands)
        raise AssertionError(f"{dtype} is neither boolean, integer, float nor complex")


def _integers(
    generator: np.random.Generator,
    shape: tuple[int, ...],
    dtype: np.dtype,
    demands: ArgumentDemands,
) -> np.ndarray:
    low, high = _range_of(dtype)
    if demands.below is not None:
        low, high = 0, min(demands.below - 1, high)
    elif not shape:
        low, high = 1, min(_MOST_STEPS, high)
    elif "uint" not in dtype.name:
        low, high = 1, min(_MOST_COUNTED, high)
    if demands.positive:
        low = min(max(low, 1), high)
    wide = np.uint64 if low == 0 and high > np.iinfo(np.int64).max else np.int64
    return generator.integers(low, high, shape, wide, endpoint=True).astype(dtype)


def _range_of(dtype: np.dtype) -> tuple[int, int]:
    bits = int("".join(c for c in dtype.name if c.isdigit()))
    if "uint" in dtype.name:
        return 0, (1 << bits) - 1
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def _floats(
    generator: np.random.Generator,
    shape: tuple[int, ...],
    dtype: np.dtype,
    demands: ArgumentDemands,
) -> np.ndarray:
    drawn = np.dtype(np.float64) if dtype == np.float64 else np.dtype(np.float32)
    whole = np.empty(math.prod(shape), dtype)
    scale = _scale(dtype, demands)
    # In pieces: one draw of a narrow type would hold the array twice.
    for start in range(0, whole.size, _CHUNK):
        piece = whole[start : start + _CHUNK]
        if demands.positive:
            values = generator.random(piece.size, drawn)
            values = 0.1 + 0.8 * values if demands.unit else 0.5 + values
        else:
            values = generator.standard_normal(piece.size, drawn)
        values *= scale
        piece[:] = values.astype(dtype)
    return whole.reshape(shape)


def _scale(dtype: np.dtype, demands: ArgumentDemands) -> float:
    # Types with five bits of exponent and fewer have no room for a second moment.
    if demands.decayed and dtype.name in ("float64", "float32", "bfloat16"):
        return _MOMENT_SCALE**2 if demands.positive else _MOMENT_SCALE
    if demands.positive or demands.terms < 2:
        return 1.0
    return 1.0 / math.sqrt(demands.terms)


def _complex(
    generator: np.random.Generator,
    shape: tuple[int, ...],
    dtype: np.dtype,
    demands: ArgumentDemands,
) -> np.ndarray:
    part = np.dtype(np.float64) if dtype == np.complex128 else np.dtype(np.float32)
    real = _floats(generator, shape, part, demands)
    return (real + 1j * _floats(generator, shape, part, demands)).astype(dtype)
