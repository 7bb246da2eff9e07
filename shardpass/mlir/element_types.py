"""How many bytes an element takes, by the name that MLIR or XLA gives its type.

Both spell the width in the name (``f32``, ``bf16``, ``ui8``, ``u8``, ``f8E4M3FN``, ``f8e4m3fn``),
so there is no table to fall behind when a new float appears.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from jax.extend.mlir import ir

_WIDTH = re.compile(r"(?:bf|tf|f|si|ui|i|s|u|q)(\d{1,4})", re.IGNORECASE | re.ASCII)
_MLIR_COMPLEX = re.compile(r"complex<(\w+)>")
#: A quantized type holds elements of its first type, ``!quant.uniform<i8:f32, 2.0:15>``.
_QUANTIZED = re.compile(r"!quant\.\w+<(\w+)")
_XLA_COMPLEX = re.compile(r"c(\d{1,4})", re.ASCII)


def element_bytes(name: str) -> int:
    """Bytes of one element in XLA's plain layout, where a ``pred`` or ``s4`` takes a whole byte.

    0 for what is not data: tokens, opaque handles, types unknown here.
    """
    if name == "pred":
        return 1
    name = _stored(name)
    if found := _MLIR_COMPLEX.fullmatch(name):
        return 2 * element_bytes(found[1])
    if found := _XLA_COMPLEX.fullmatch(name):
        return int(found[1]) // 8
    if found := _WIDTH.match(name):
        return -(-int(found[1]) // 8)
    return 0


def array_bytes(shape: Sequence[int], name: str) -> int:
    """Bytes of an argument or result: XLA packs elements of two and of four bits in those."""
    elements = math.prod(shape)
    name = _stored(name)
    if (found := _WIDTH.match(name)) and int(found[1]) in (2, 4):
        return -(-elements * int(found[1]) // 8)
    return elements * element_bytes(name)


def static_shape(kind: ir.Type) -> tuple[int, ...] | None:
    """The sizes of a tensor in elements; ``None`` for a token or a dynamic shape."""
    if not isinstance(kind, ir.RankedTensorType) or not kind.has_static_shape:
        return None
    return tuple(kind.shape)


def tensor_bytes(kind: ir.Type) -> int:
    """Bytes of a whole tensor; 0 for a token or a dynamic shape."""
    shape = static_shape(kind)
    if shape is None:
        return 0
    return array_bytes(shape, str(ir.RankedTensorType(kind).element_type))


def _stored(name: str) -> str:
    found = _QUANTIZED.match(name)
    return found[1] if found else name
