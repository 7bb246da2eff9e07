"""The element types of StableHLO as numpy knows them."""

from __future__ import annotations

from typing import Final

import jax  # noqa: F401  (registers bfloat16, float8 and int4 with numpy)
import numpy as np

from shardpass.diagnostics import ShardingError
from shardpass.mlir import EntryValue

_NAMES: Final[dict[str, str]] = {
    "i1": "bool",
    "bf16": "bfloat16",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "complex<f32>": "complex64",
    "complex<f64>": "complex128",
    **{f"i{n}": f"int{n}" for n in (2, 4, 8, 16, 32, 64)},
    **{f"ui{n}": f"uint{n}" for n in (2, 4, 8, 16, 32, 64)},
}


def dtype_of(value: EntryValue) -> np.dtype:
    """The numpy type of an argument's or result's elements; bfloat16 and float8 included.

    Raises:
      ShardingError: ``not-supported``, for an element type that has none (quantised types).
    """
    name = value.element_type
    try:
        # MLIR's f8E4M3FN is numpy's float8_e4m3fn.
        return np.dtype(_NAMES.get(name) or _float_name(name))
    except TypeError as error:
        raise ShardingError(
            "not-supported", f"{value} has elements of type {name}, which numpy lacks"
        ) from error


def _float_name(name: str) -> str:
    bits, _, layout = name[1:].partition("E")
    return f"float{bits}_e{layout.lower()}"


def is_float(dtype: np.dtype) -> bool:
    """Whether ``dtype`` is a real floating-point type, the narrow ones included."""
    return dtype.kind == "f" or (dtype.kind == "V" and "float" in dtype.name)


def is_integer(dtype: np.dtype) -> bool:
    """Whether ``dtype`` is an integer type, the narrow ones included."""
    return dtype.kind in "iu" or (dtype.kind == "V" and "int" in dtype.name)


def is_complex(dtype: np.dtype) -> bool:
    """Whether ``dtype`` is a complex type."""
    return dtype.kind == "c"
