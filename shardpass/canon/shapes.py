"""Sizes: global shapes into shard shapes, and products that stay within 64 bits."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Iterable, Sequence
from typing import Any, Final

from shardpass.canon.scanner import LARGEST_INTEGER
from shardpass.diagnostics import Diagnostic, Severity, ShardingError

_NO_SIZES: Final = (numbers.Number, str, bytes)


def checked_shape(shape: Iterable[Any]) -> tuple[int, ...]:
    """``shape`` as Python's own integers, NumPy's included; JAX's symbolic sizes as they are.

    Raises:
      ShardingError: ``abstract-type`` for what is no whole number, or below zero.
    """
    given = tuple(shape)
    if all(type(size) is int and size >= 0 for size in given):
        return given
    found: list[int] = []
    for size in given:
        try:
            known = operator.index(size)
        except TypeError:
            known = -1 if size is None or isinstance(size, _NO_SIZES) else size
        if isinstance(known, int) and known < 0:
            raise ShardingError(
                "abstract-type",
                f"a shape is made of whole numbers from 0 up, and this is {given!r}",
            )
        found.append(known)
    return tuple(found)


def divide(shape: Sequence[int], tiles: Sequence[int], sharding: str) -> tuple[int, ...]:
    """``shape`` over ``tiles``, dimension by dimension; ``sharding`` is what messages call it.

    Raises:
      ShardingError: ``rank-mismatch``; ``indivisible``, one diagnostic for each such dimension.
    """
    check_rank(len(shape), len(tiles), sharding)
    faults = [
        Diagnostic(
            Severity.ERROR,
            "indivisible",
            f"dimension {index}: {size} elements into {pieces} pieces",
            notes=(f"sharding is {sharding}",),
            help=f"{sizes_that_fit(size, pieces)}, or drop an axis",
        )
        for index, (size, pieces) in enumerate(zip(shape, tiles, strict=True))
        if size % pieces
    ]
    if faults:
        raise ShardingError.of(faults)
    return tuple(size // pieces for size, pieces in zip(shape, tiles, strict=True))


def sizes_that_fit(size: int, pieces: int) -> str:
    """``pad to 20 (nearest sizes that work: 16 and 20)``, for 19 elements into 4 pieces."""
    below = size // pieces * pieces
    above = below if below == size else below + pieces
    nearest = f"{below} and {above}" if 0 < below < above else f"{above}"
    return f"pad to {above} (nearest sizes that work: {nearest})"


def divide_up(shape: Sequence[int], tiles: Sequence[int], sharding: str) -> tuple[int, ...]:
    """As :func:`divide`, rounded up instead of refused.

    Raises:
      ShardingError: ``rank-mismatch``.
    """
    check_rank(len(shape), len(tiles), sharding)
    return tuple(-(-size // pieces) for size, pieces in zip(shape, tiles, strict=True))


def check_rank(rank: int, expected: int, sharding: str) -> None:
    """Raise ``rank-mismatch`` unless a value of ``rank`` dimensions is what ``sharding`` is for."""
    if rank != expected:
        raise ShardingError(
            "rank-mismatch",
            f"{sharding} is for {expected} dimensions, the value has {rank}",
        )


def bounded_product(sizes: Iterable[int]) -> int | None:
    """The product of positive ``sizes``; ``None`` beyond 64 bits, without growing any further."""
    product = 1
    for size in sizes:
        product *= size
        if product > LARGEST_INTEGER:
            return None
    return product
