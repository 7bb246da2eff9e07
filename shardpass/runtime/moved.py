"""The same arguments, each float moved by one unit in the last place: what a program's noise is.

Two runs of one program on arguments that differ by rounding alone show how much of a difference
rounding makes in its results. AdamW's first step divides a gradient by its own size: 1e-8 in a
gradient becomes 8e-5 in a parameter, sharded or not.

The unit is that of the argument's own type or, in a program that also computes in a narrower type,
of the narrower one: a weight in float32 that is rounded to bfloat16 before each product carries the
noise of bfloat16.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jax.extend.mlir import ir

from shardpass.mlir import Module, operations
from shardpass.runtime.element_types import is_complex, is_float
from shardpass.runtime.inputs import InputSource

_CHUNK = 1 << 22


@dataclass(frozen=True)
class MovedInputs:
    """``source`` with each float, at random, one unit up or down.

    Zeros stay: one unit beside zero is a number that XLA rounds to zero.

    Attributes:
      source: the arguments to move.
      seed: what directions are drawn from.
      mantissa_bits: of the narrowest float type in the program, or ``None`` where each argument
        moves by a unit of its own type.
    """

    source: InputSource
    seed: int
    mantissa_bits: int | None = None

    @classmethod
    def of(cls, source: InputSource, module: Module, seed: int) -> MovedInputs:
        """``source`` moved by the unit of the narrowest float type that ``module`` computes in."""
        return cls(source, seed, narrowest_mantissa(module))

    def array(self, index: int) -> np.ndarray:
        """Argument ``index``, moved if it is of a float or complex type."""
        array = self.source.array(index)
        if is_complex(array.dtype):
            parts = array.view(np.float64 if array.dtype == np.complex128 else np.float32)
            return self._moved(parts, index).view(array.dtype)
        return self._moved(array, index) if is_float(array.dtype) else array

    def _moved(self, array: np.ndarray, index: int) -> np.ndarray:
        generator = np.random.Generator(np.random.PCG64([self.seed, index, 1]))
        bits = np.dtype(f"int{8 * array.dtype.itemsize}")
        # Numbers of one sign are ordered as their bits are: one unit up is one more.
        moved = np.ascontiguousarray(array).reshape(-1).view(bits).copy()
        step = 1 << max(0, _mantissa_of(array.dtype) - (self.mantissa_bits or 1 << 10))
        values = np.ascontiguousarray(array).reshape(-1)
        for start in range(0, moved.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            sign = generator.integers(0, 2, moved[part].size, np.int8).astype(bits) * 2 - 1
            still = (values[part] == 0) | ~np.isfinite(values[part].astype(np.float64))
            moved[part] += np.where(still, 0, sign * step).astype(bits)
        return moved.view(array.dtype).reshape(array.shape)


def narrowest_mantissa(module: Module) -> int | None:
    """The mantissa bits of the narrowest float type that ``module`` computes with.

    What ops take counts, not what they give: a result that is only rounded at the end adds no noise
    to the others.
    """
    widths = {
        _MANTISSAS[str(kind)]
        for op in operations(module.root)
        if not op.operation.name.endswith(".return")
        for operand in op.operands
        if isinstance(operand.type, ir.RankedTensorType)
        and str(kind := operand.type.element_type) in _MANTISSAS
    }
    return min(widths, default=None)


#: Explicit mantissa bits by MLIR's name of the type.
_MANTISSAS = {
    "f64": 52,
    "f32": 23,
    "f16": 10,
    "bf16": 7,
    "f8E5M2": 2,
    "f8E5M2FNUZ": 2,
    "f8E4M3": 3,
    "f8E4M3FN": 3,
    "f8E4M3FNUZ": 3,
    "f8E4M3B11FNUZ": 3,
    "f8E3M4": 4,
}


def _mantissa_of(dtype: np.dtype) -> int:
    named = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}
    if dtype.name in named:
        return named[dtype.name]
    _, _, mantissa = dtype.name.partition("m")
    return int(mantissa[0]) if mantissa else 0
