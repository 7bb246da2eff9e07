"""Long lists made short: rows that differ in layer numbers alone become one.

The twelve rows ``h.0.fc.kernel`` ... ``h.11.fc.kernel``, all of one type and one layout, are shown
as ``h.{0..11}.fc.kernel``. Rows are folded only where every combination of the numbers in braces is
there, so a folded list says exactly what the long one says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from shardpass.report.model import ValueRow

_NUMBER = re.compile(r"\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class FoldedRow:
    """Rows of one layout, under one path with braces; ``rows`` are in their order."""

    path: str
    rows: tuple[ValueRow, ...]

    @property
    def example(self) -> ValueRow:
        """The first of the rows, which speaks for all."""
        return self.rows[0]

    @property
    def bytes(self) -> int:
        """Of all the whole arrays."""
        return sum(row.bytes for row in self.rows)

    @property
    def bytes_per_device(self) -> int | None:
        """Of one device's share of all; ``None`` where that is not known."""
        shares = [row.bytes_per_device for row in self.rows]
        known = [share for share in shares if share is not None]
        return sum(known) if len(known) == len(shares) else None


def fold(rows: Sequence[ValueRow]) -> list[FoldedRow]:
    """Fold ``rows``; the result is ordered by the first row of each fold."""
    groups: dict[object, list[ValueRow]] = {}
    for row in rows:
        words = tuple(_NUMBER.split(row.path))
        laid_out = (row.spec, row.mesh, row.shard_shape, row.decided_by)
        alike = (row.dtype, row.shape, *laid_out, row.donated, row.alias_of is not None)
        groups.setdefault((words, alike), []).append(row)
    folded = [one for group in groups.values() for one in _fold_alike(group)]
    return sorted(folded, key=lambda one: one.example.index)


def unfolded(rows: Sequence[ValueRow]) -> list[FoldedRow]:
    """One entry per row."""
    return [FoldedRow(row.path, (row,)) for row in rows]


def _fold_alike(rows: list[ValueRow]) -> list[FoldedRow]:
    """Fold rows whose paths differ in numbers alone."""
    if len(rows) == 1:
        return unfolded(rows)
    numbers = [tuple(_NUMBER.findall(row.path)) for row in rows]
    columns = [sorted(set(column), key=_by_value) for column in zip(*numbers, strict=True)]
    if math.prod(map(len, columns)) == len(set(numbers)) == len(rows):
        return [FoldedRow(_braced(rows[0].path, columns), tuple(rows))]
    if len(set(numbers)) < len(rows):
        return unfolded(rows)
    position = next(i for i, column in enumerate(columns) if len(column) > 1)
    parts: dict[str, list[ValueRow]] = {}
    for row, found in zip(rows, numbers, strict=True):
        parts.setdefault(found[position], []).append(row)
    return [one for part in parts.values() for one in _fold_alike(part)]


def _by_value(number: str) -> tuple[int, str]:
    return int(number), number


def _braced(path: str, columns: Sequence[Sequence[str]]) -> str:
    words = _NUMBER.split(path)
    text = words[0]
    for word, column in zip(words[1:], columns, strict=True):
        text += _range(column) + word
    return text


def _range(numbers: Sequence[str]) -> str:
    if len(numbers) == 1:
        return numbers[0]
    first, last = int(numbers[0]), int(numbers[-1])
    if len(numbers) > 2 and [str(n) for n in range(first, last + 1)] == list(numbers):
        return f"{{{first}..{last}}}"
    return f"{{{','.join(numbers)}}}"
