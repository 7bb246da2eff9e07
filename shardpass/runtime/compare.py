"""How far a result is from the one it should be, a block at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from shardpass.runtime.element_types import is_complex, is_float
from shardpass.runtime.placement import Layout

_CHUNK: Final = 1 << 20

#: Relative L2 error within which two runs of one program agree, by element type. About eight units
#: in the last place: sums over thousands of terms in another order stay within it, and the smallest
#: misplaced block is orders of magnitude beyond.
_TOLERANCES: Final[dict[str, float]] = {
    "float64": 1e-13,
    "complex128": 1e-13,
    "float32": 1e-5,
    "complex64": 1e-5,
    "float16": 1e-2,
    "bfloat16": 4e-2,
}
#: For types of eight bits and fewer, whose unit is an eighth to a quarter of the value.
_NARROW_TOLERANCE: Final = 0.25


def tolerance_of(dtype: np.dtype) -> float:
    """The error allowed for results of an element type: 0 for integers and booleans."""
    if not is_float(dtype) and not is_complex(dtype):
        return 0.0
    return _TOLERANCES.get(dtype.name, _NARROW_TOLERANCE)


def error_of(reference: np.ndarray, layout: Layout, blocks: Sequence[np.ndarray]) -> float:
    """How far the blocks of a result are from the whole of another, as one number.

    The relative L2 norm of the difference; for integers and booleans, the share of elements that
    differ. Where several devices hold one block and do not agree bit for bit, the worst of them
    counts. Infinite, where the blocks hold a number that is not finite and the reference does not.
    """
    worst = total = scale = 0.0
    by_owner: dict[int, float] = {}
    for device in layout.owners:
        part = reference[layout.block(device)]
        found = layout.without_padding(device, blocks[device])
        by_owner[device], size = _distance_and_size(part, found)
        total += by_owner[device]
        scale += size
    for device, owner in layout.copies:
        mine = layout.without_padding(device, blocks[device])
        if not _same_bits(mine, layout.without_padding(owner, blocks[owner])):
            distance, _ = _distance_and_size(reference[layout.block(device)], mine)
            worst = max(worst, distance - by_owner[owner])
    return _relative(total + worst, scale, reference)


def all_finite(array: np.ndarray) -> bool:
    """Whether every element is a number."""
    if not is_float(array.dtype) and not is_complex(array.dtype):
        return True
    return all(bool(np.isfinite(_wide(piece)).all()) for piece in _pieces(array))


def only_value(array: np.ndarray) -> object | None:
    """The value that all elements have, or ``None`` where they differ or there are none."""
    flat = array.reshape(-1)
    if flat.size == 0:
        return None
    first = flat[0]
    return first.item() if all(bool((p == first).all()) for p in _pieces(array)) else None


def _relative(total: float, scale: float, reference: np.ndarray) -> float:
    if not math.isfinite(total):
        return math.inf
    if not is_float(reference.dtype) and not is_complex(reference.dtype):
        return total / reference.size if reference.size else 0.0
    if total == 0.0:
        return 0.0
    return math.sqrt(total / scale) if scale else math.inf


def _distance_and_size(reference: np.ndarray, found: np.ndarray) -> tuple[float, float]:
    """The squares of the L2 distance and of the L2 norm of ``reference``.

    For integers and booleans, how many elements differ, and nothing.
    """
    if not is_float(reference.dtype) and not is_complex(reference.dtype):
        return float(np.count_nonzero(reference != found)), 0.0
    distance = size = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for piece, other in zip(_pieces(reference), _pieces(found), strict=True):
            wide = _wide(piece)
            size += float(np.vdot(wide, wide).real)
            wide -= _wide(other)
            distance += float(np.vdot(wide, wide).real)
    return (math.inf if math.isnan(distance) else distance), size


def _wide(piece: np.ndarray) -> np.ndarray:
    return piece.astype(np.complex128 if is_complex(piece.dtype) else np.float64)


def _same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    return all(
        np.array_equal(a.view(np.uint8), b.view(np.uint8))
        for a, b in zip(_pieces(one), _pieces(other), strict=True)
    )


def _pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    flat = np.ascontiguousarray(array).reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        yield flat[start : start + _CHUNK]
