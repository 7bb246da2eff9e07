"""How large values are."""

from __future__ import annotations

import math
import re

from jax.extend.mlir import ir

_BITS = re.compile(r"^(?:ui|si|i|bf|tf|f)(?P<bits>\d+)")


def element_bits(element_type: ir.Type) -> int:
    """How many bits one element takes: ``i1`` counts as 8, since XLA stores a byte."""
    if isinstance(element_type, ir.ComplexType):
        return 2 * element_bits(element_type.element_type)
    text = str(element_type)
    if text == "index":
        return 64
    # A quantized type is stored as its storage type: !quant.uniform<i8:f32, ...>.
    found = _BITS.match(text.rpartition("<")[2] if text.startswith("!") else text)
    if not found:
        return 0  # Tokens and other types without a size.
    bits = int(found["bits"])
    return 8 if bits == 1 else bits


def tensor_bytes(kind: ir.Type) -> int:
    """The size of a whole tensor, rounded up; 0 for a token or a dynamic shape."""
    if not isinstance(kind, ir.RankedTensorType) or not kind.has_static_shape:
        return 0
    return math.ceil(math.prod(kind.shape) * element_bits(kind.element_type) / 8)


def human_bytes(count: float) -> str:
    """``154.5 MB``: decimal units, as device memory is advertised in."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(count) < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError
