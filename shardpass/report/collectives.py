"""The collectives of a compiled program: how many, how large, how often.

The unit is one run of the program on one device. An instruction inside a loop counts as often as
the loop runs; of the branches of a conditional, the one that moves most counts, since one of them
runs. The bytes of a collective are its payload: the larger of what goes in and what comes out on
one device, which is the gathered array of an all-gather and the unreduced one of a reduce-scatter.
What travels over a wire depends on the algorithm and is not guessed here. The asynchronous forms
(``all-gather-start``, ``all-gather-done``) are one collective.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardpass.report.hlo_text import (
    Computation,
    HloText,
    Instruction,
    read_hlo,
    shape_bytes,
    tuple_elements,
)
from shardpass.report.trip_count import trip_count

KINDS = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)
"""XLA's opcodes, in the order in which reports list them."""

_CALLING = frozenset(
    ("async-start", "call", "conditional", "custom-call", "fusion", "map", "while")
)


@dataclass(frozen=True, slots=True)
class CollectiveRow:
    """All collectives of one kind.

    Attributes:
      kind: XLA's opcode, without ``-start``.
      count: how often one runs, per device and run of the program.
      bytes: payload of all of these runs, per device.
      instructions: how many stand in the program's text.
      at_least: whether some stand in a loop of unknown length, whose body is counted once.
    """

    kind: str
    count: int
    bytes: int
    instructions: int
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Collectives:
    """The collectives of a program by kind, and the loops whose length is not known."""

    rows: tuple[CollectiveRow, ...] = ()
    unknown_loops: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """Runs of all kinds."""
        return sum(row.count for row in self.rows)

    @property
    def bytes(self) -> int:
        """Payload of all kinds."""
        return sum(row.bytes for row in self.rows)

    def by_kind(self) -> Mapping[str, CollectiveRow]:
        """Kind -> row, for the kinds that occur."""
        return {row.kind: row for row in self.rows}


def read_collectives(hlo_text: str) -> Collectives:
    """Read the text of ``compiled.as_text()``; no collectives for a text that is no HLO."""
    counter = _Counter(read_hlo(hlo_text))
    return counter.collectives()


@dataclass(frozen=True, slots=True)
class _Tally:
    count: int = 0
    bytes: int = 0
    instructions: int = 0
    at_least: bool = False

    def plus(self, other: _Tally, times: int = 1, unknown: bool = False) -> _Tally:
        return _Tally(
            self.count + times * other.count,
            self.bytes + times * other.bytes,
            self.instructions + other.instructions,
            self.at_least or other.at_least or (unknown and other.instructions > 0),
        )


class _Counter:
    """Adds up the call graph from the entry computation; each computation is read once."""

    def __init__(self, hlo: HloText) -> None:
        self._hlo = hlo
        self._known: dict[str, dict[str, _Tally]] = {}
        self._unknown_loops: dict[str, None] = {}

    def collectives(self) -> Collectives:
        total = self._total(self._hlo.entry) if self._hlo.entry else {}
        return Collectives(
            tuple(
                CollectiveRow(kind, t.count, t.bytes, t.instructions, t.at_least)
                for kind in KINDS
                if (t := total.get(kind))
            ),
            tuple(self._unknown_loops),
        )

    def _total(self, name: str) -> dict[str, _Tally]:
        known = self._known.get(name)
        if known is not None:
            return known
        # Entered empty first: HLO has no recursion, but a garbled text may seem to.
        total = self._known[name] = {}
        computation = self._hlo.computations.get(name)
        for op in computation.instructions.values() if computation else ():
            kind = op.opcode.removesuffix("-start")
            if kind in KINDS and computation:
                payload = _payload(computation, op, kind)
                _add(total, {kind: _Tally(1, payload, 1)})
            elif op.opcode in _CALLING and computation:
                self._add_callees(total, computation, op)
        return total

    def _add_callees(self, total: dict[str, _Tally], where: Computation, op: Instruction) -> None:
        callees = op.callees()
        if op.opcode == "while":
            body = self._sum(callees.get("body", []))
            condition = self._sum(callees.get("condition", []))
            if not body and not condition:
                return
            times = trip_count(self._hlo, where, op)
            if times is None:
                self._unknown_loops[op.name] = None
                _add(total, body, unknown=True)
                _add(total, condition, unknown=True)
                return
            _add(total, body, times)
            _add(total, condition, times + 1)
            return
        if op.opcode == "conditional":
            branches = [self._total(name) for name in callees.get("branches", [])]
            if branches:
                _add(total, max(branches, key=_weight))
            return
        for names in callees.values():
            _add(total, self._sum(names))

    def _sum(self, names: list[str]) -> dict[str, _Tally]:
        total: dict[str, _Tally] = {}
        for name in names:
            _add(total, self._total(name))
        return total


def _add(
    total: dict[str, _Tally], more: Mapping[str, _Tally], times: int = 1, unknown: bool = False
) -> None:
    for kind, tally in more.items():
        total[kind] = total.get(kind, _Tally()).plus(tally, times, unknown)


def _weight(tallies: Mapping[str, _Tally]) -> tuple[int, int]:
    return sum(t.bytes for t in tallies.values()), sum(t.count for t in tallies.values())


def _payload(where: Computation, op: Instruction, kind: str) -> int:
    """Bytes of the larger side of a collective.

    An asynchronous start gives back ``(operands, results, context...)``, except that of an
    all-reduce, which gives the results alone. Source: XLA's ``hlo_instructions`` and its verifier.
    """
    result = op.bytes
    if op.opcode.endswith("-start") and kind != "all-reduce":
        elements = tuple_elements(op.shape)
        result = shape_bytes(elements[1]) if len(elements) > 1 else result
    operands = sum(
        operand.bytes for name in op.operands if (operand := where.instructions.get(name))
    )
    return max(result, operands)
