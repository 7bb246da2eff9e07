"""Which sharded arguments a comparison says anything about: measured, a run at a time.

First all of them are rolled at once (:mod:`shardpass.runtime.rolled`), in one run of the unsharded
program. That settles an argument which is handed on, as a weight or a moment is by an optimizer's
step: its result changes by what the argument changed by, and by more than the limit. Shards of one
argument changed by numbers that have nothing to do with another's, so that a result which changes
*along* them does so because of this argument: their cosine is far beyond what chance gives.

All others are rolled alone, a run each. Runs are bounded, by :func:`most_runs`; arguments of one
kind (``h.0.attn.bias``, ``h.1.attn.bias``) wait until every kind has had its turn. What is left was
rolled together with others only, and is reported as that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from shardpass.mlir import EntryValue
from shardpass.runtime.element_types import dtype_of, is_float
from shardpass.runtime.inputs import InputSource
from shardpass.runtime.placement import Layout
from shardpass.runtime.result import ArgumentProof, ArgumentRow
from shardpass.runtime.rolled import RolledInputs

#: Runs the unsharded program; gives each result in turn, whole, beside the reference.
RunPairs = Callable[[InputSource], Iterator[tuple[int, np.ndarray, np.ndarray]]]
#: How far one result is from another: the measure of the check.
Distance = Callable[[int, np.ndarray, np.ndarray], float]

_FEWEST_RUNS: Final = 8
_MOST_RUNS: Final = 128
#: Elements of arguments that a check may place again, all runs taken together.
_MOST_ELEMENTS: Final = 1 << 30
#: How many standard deviations of chance a cosine has to be beyond.
_SIGMAS: Final = 6.0
_CHUNK: Final = 1 << 20
_NUMBER: Final = re.compile(r"\d+")


def most_runs(arguments: Sequence[EntryValue]) -> int:
    """How many runs with a single argument rolled a check may make.

    128 for programs with up to 8 Mi elements of arguments, and 8 for those with more than 128 Mi.
    """
    elements = sum(max(1, argument.size) for argument in arguments)
    return min(_MOST_RUNS, max(_FEWEST_RUNS, _MOST_ELEMENTS // max(1, elements)))


@dataclass
class Probes:
    """Finds out about the sharded arguments of one check.

    Attributes:
      arguments: of the program.
      results: of the program.
      aliases: result -> the donated argument whose buffer it takes.
      layouts: where each argument goes in the sharded program.
      surely: for each result, an error that cannot pass, whatever the program's noise is.
      limits: for each result, the largest error that passes; asked for only where ``surely`` does
        not settle it, since it takes a run to find out.
      source: the arguments' values.
      run: a run of the unsharded program.
      distance: the check's measure.
      furthest: for each result, the largest change that any run made in it.
    """

    arguments: Sequence[EntryValue]
    results: Sequence[EntryValue]
    aliases: Mapping[int, int]
    layouts: Sequence[Layout]
    surely: Sequence[float]
    limits: Callable[[], Sequence[float]]
    source: InputSource
    run: RunPairs
    distance: Distance
    furthest: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.furthest = [0.0] * len(self.results)

    def all_at_once(self, indices: Sequence[int]) -> dict[int, ArgumentRow]:
        """Roll all of them in one run; those that this settles."""
        # By different numbers of shards: a program may not mind all of them moving alike.
        steps = {
            index: 1 + place % max(1, len(self.layouts[index].owners) - 1)
            for place, index in enumerate(indices)
        }
        inputs = RolledInputs(self.source, self.layouts, steps)
        carrying: dict[int, list[int]] = {}
        for index in indices:
            found = self._carrier(self.arguments[index])
            if found is not None:
                carrying.setdefault(found, []).append(index)
        changes: list[float] = []
        carried: dict[int, tuple[int, float]] = {}
        for number, reference, found in self.run(inputs):
            changes.append(self._note(number, reference, found))
            for index in carrying.get(number, []):
                before = self.source.array(index)
                after = inputs.misplaced(index, before)
                carried[index] = number, carried_change(before, after, reference, found)
        if len(indices) == 1 and (shown := self._first_beyond(enumerate(changes))) is not None:
            return {indices[0]: self._row(indices[0], "placed", shown)}
        return {
            index: self._row(index, "placed", number)
            for index, (number, change) in carried.items()
            if change and self._first_beyond([(number, change)]) is not None
        }

    def any_beyond(self) -> bool:
        """Whether any run so far made a result leave its limit."""
        return self._first_beyond(enumerate(self.furthest)) is not None

    def one_at_a_time(self, indices: Sequence[int]) -> Iterator[ArgumentRow]:
        """Roll each alone, as many as there are runs for, those of a new kind first."""
        left = most_runs(self.arguments)
        for index in self._by_kind(indices):
            if left < 2:
                yield ArgumentRow(index, self.arguments[index].path, "together", None)
                continue
            left -= 1
            shown = self._shown_by(RolledInputs(self.source, self.layouts, {index: 1}))
            if shown is not None:
                yield self._row(index, "placed", shown)
                continue
            left -= 1
            shown = self._shown_by(RolledInputs(self.source, self.layouts, {index: 1}, "replaced"))
            yield self._row(index, "none" if shown is None else "counted", shown)

    def _shown_by(self, inputs: InputSource) -> int | None:
        """The first result that leaves its limit with ``inputs``."""
        return self._first_beyond(
            [
                (number, self._note(number, reference, found))
                for number, reference, found in self.run(inputs)
            ]
        )

    def _first_beyond(self, changes: Iterable[tuple[int, float]]) -> int | None:
        """The first result with a change that would not pass."""
        changes = list(changes)
        for number, change in changes:
            if change > self.surely[number]:
                return number
        limits = self.limits() if any(change for _, change in changes) else self.surely
        return next((number for number, change in changes if change > limits[number]), None)

    def _note(self, number: int, reference: np.ndarray, found: np.ndarray) -> float:
        change = self.distance(number, reference, found)
        self.furthest[number] = max(self.furthest[number], change)
        return change

    def _row(self, index: int, proof: ArgumentProof, shown_by: int | None) -> ArgumentRow:
        told = None if shown_by is None else self.results[shown_by].path
        return ArgumentRow(index, self.arguments[index].path, proof, told)

    def _carrier(self, argument: EntryValue) -> int | None:
        """The result that ``argument`` is most likely handed on as: its buffer's, or its name's."""
        if not is_float(dtype_of(argument)):
            return None
        fitting = [
            result
            for result in self.results
            if result.shape == argument.shape and dtype_of(result) == dtype_of(argument)
        ]
        for result in fitting:
            if self.aliases.get(result.index) == argument.index:
                return result.index
        close = {result.index: _common_end(result.path, argument.path) for result in fitting}
        best = max(close, key=lambda index: close[index], default=None)
        return best if best is not None and close[best] else None

    def _by_kind(self, indices: Sequence[int]) -> list[int]:
        """``indices`` with the first of every kind in front, then the second ones, ..."""
        seen: dict[object, int] = {}
        turns: list[tuple[int, int]] = []
        for index in indices:
            argument = self.arguments[index]
            sharding = str(self.layouts[index].sharding)
            kind = (_NUMBER.sub("#", argument.path), str(argument.type), sharding)
            seen[kind] = seen.get(kind, 0) + 1
            turns.append((seen[kind], index))
        return [index for _, index in sorted(turns)]


def carried_change(
    before: np.ndarray, after: np.ndarray, reference: np.ndarray, found: np.ndarray
) -> float:
    """By how much a result changed along what an argument changed by, relative to its size.

    0 where the two have no more in common than chance gives, or the change is not finite.

    Args:
      before: the argument.
      after: the argument, rolled.
      reference: the result, of the argument's shape.
      found: the result with that argument rolled, and maybe others.
    """
    along = moved = changed = size = 0.0
    flat = [np.ascontiguousarray(array).reshape(-1) for array in (before, after, reference, found)]
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, before.size, _CHUNK):
            pieces = (array[start : start + _CHUNK].astype(np.float64) for array in flat)
            old, new, right, wrong = pieces
            new -= old
            wrong -= right
            along += float(np.vdot(new, wrong))
            moved += float(np.vdot(new, new))
            changed += float(np.vdot(wrong, wrong))
            size += float(np.vdot(right, right))
    if not math.isfinite(changed) or not moved or not changed:
        return 0.0
    share = abs(along) / math.sqrt(moved)
    if share / math.sqrt(changed) * math.sqrt(before.size) <= _SIGMAS:
        return 0.0
    return share / math.sqrt(size) if size else math.inf


def _common_end(one: str, other: str) -> int:
    """How many parts two paths have in common at their ends."""
    count = 0
    for mine, its in zip(reversed(one.split(".")), reversed(other.split(".")), strict=False):
        if mine != its:
            break
        count += 1
    return count
