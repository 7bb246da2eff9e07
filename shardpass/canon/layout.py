"""Device orders as strides: the algebra under tile assignments.

XLA writes the order of devices in a tile assignment as ``<=[2,4]T(1,0)``: count 0..7, reshape to
2x4, transpose, flatten. The same order is a list of *modes* ``(size, stride)``, major to minor:
``(4, 1), (2, 4)`` says that the major digit, 0..3, counts for 1 and the minor one, 0..1, for 4.
In this form the operations of the algebra are one-liners: a transpose permutes the modes, a split
cuts one, neighbours merge when ``stride == size * stride`` of the next, and the canonical form is
the one where nothing merges and no size is 1. It is unique: the minor mode must run exactly as far
as the order keeps its first step.

Everything here takes as long as there are modes, except :func:`expand` and :func:`of_list`, which
say so in their names.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

_STRIDE = operator.itemgetter(1)

# (size, stride) pairs, major to minor.
Modes: TypeAlias = tuple[tuple[int, int], ...]


def of_iota(reshape_dims: Sequence[int], perm: Sequence[int]) -> Modes:
    """The modes of ``<=[reshape_dims]T(perm)``."""
    strides: list[int] = []
    stride = 1
    for size in reversed(reshape_dims):
        strides.append(stride)
        stride *= size
    strides.reverse()
    return tuple((reshape_dims[d], strides[d]) for d in perm)


def to_iota(modes: Modes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """``(reshape_dims, transpose_perm)`` in XLA's canonical form; ``((size,), (0,))`` in order."""
    modes = coalesce(modes)
    if len(modes) < 2:
        return (modes[0][0] if modes else 1,), (0,)
    major_first = ascending(modes)
    # No two modes are equal: their strides differ.
    return tuple([size for size, _ in major_first]), tuple(map(major_first.index, modes))


def coalesce(modes: Modes) -> Modes:
    """The canonical modes of the same order: sizes of 1 dropped, what continues merged."""
    merged: list[tuple[int, int]] = []
    for size, stride in modes:
        if size == 1:
            continue
        if merged and merged[-1][1] == size * stride:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    return tuple(merged)


def split(modes: Modes, sizes: Sequence[int]) -> list[Modes] | None:
    """Cut ``modes``, major to minor, into one group of modes for each of ``sizes``.

    Returns:
      Groups whose sizes multiply to ``sizes``, modes cut in two where that is needed; ``None``
      where a boundary falls inside a mode that it does not divide.
    """
    groups: list[Modes] = []
    rest = list(reversed(modes))
    for wanted in sizes:
        group: list[tuple[int, int]] = []
        while wanted > 1:
            size, stride = rest.pop()
            if wanted % size == 0:
                group.append((size, stride))
                wanted //= size
            elif size % wanted == 0:
                inner = size // wanted
                group.append((wanted, stride * inner))
                rest.append((inner, stride))
                wanted = 1
            else:
                return None
        groups.append(tuple(group))
    return groups


def ascending(modes: Modes) -> Modes:
    """The same ids, counted upwards: major strides first."""
    return tuple(sorted(modes, key=_STRIDE, reverse=True))


def expand(modes: Modes) -> np.ndarray:
    """The list of all ids, int64."""
    ids = np.zeros(1, dtype=np.int64)
    for size, stride in modes:
        ids = (ids[:, None] + np.arange(size, dtype=np.int64) * stride).ravel()
    return ids


def of_list(ids: np.ndarray) -> Modes | None:
    """The canonical modes of a list of ids; ``None`` where it is not an iota reshaped and permuted.

    Takes as long as the list. The minor mode is read off the first steps, then the list is thinned
    by it, and so on; a final comparison says whether that was all.
    """
    if not ids.size or ids[0] != 0:
        return None
    modes: list[tuple[int, int]] = []
    rest = ids
    while rest.size > 1:
        stride = int(rest[1])
        if stride < 1:
            return None
        steps = np.flatnonzero(rest != np.arange(rest.size, dtype=np.int64) * stride)
        size = int(steps[0]) if steps.size else rest.size
        if rest.size % size:
            return None
        modes.append((size, stride))
        rest = rest[::size]
    found = coalesce(tuple(reversed(modes)))
    if not _is_iota(found) or not np.array_equal(expand(found), ids):
        return None
    return found


def _is_iota(modes: Modes) -> bool:
    expected = 1
    for size, stride in reversed(ascending(modes)):
        if stride != expected:
            return False
        expected *= size
    return True
