"""How often a loop of the optimized HLO runs its body.

XLA writes what it knows into the loop's ``backend_config`` (``"known_trip_count":{"n":"12"}``).
Where it does not, the usual shape of a counted loop is looked for: the condition compares one
element of the loop's state with a constant, the body adds a constant to it, and its first value is
a constant. Anything else is unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from shardpass.report.hlo_text import Computation, HloText, Instruction

_KNOWN = re.compile(r"known_trip_count\W+n\W+(\d{1,18})")
_INDEX = re.compile(r"\bindex=(\d{1,9})")
_DIRECTION = re.compile(r"\bdirection=(\w+)")
_INTEGER = re.compile(r"-?\d{1,18}", re.ASCII)
_UNDERSTOOD = frozenset(
    (
        "constant",
        "parameter",
        "get-tuple-element",
        "add",
        "subtract",
        "compare",
        "fusion",
        "call",
        "bitcast",
        "convert",
        "copy",
        "reshape",
    )
)


@dataclass(frozen=True, slots=True)
class _State:
    """The whole loop state (``element`` is ``None``) or one element of it, plus a constant."""

    element: int | None = None
    plus: int = 0


@dataclass(frozen=True, slots=True)
class _Compare:
    direction: str
    left: _Value
    right: _Value


_Value: TypeAlias = "int | _State | _Compare | None"


def trip_count(hlo: HloText, where: Computation, loop: Instruction) -> int | None:
    """How often ``loop``, an instruction of ``where``, runs its body; ``None`` if unknown."""
    if found := _KNOWN.search(loop.attributes):
        return int(found[1])
    roles = loop.callees()
    evaluator = _Evaluator(hlo)
    condition = evaluator.result(roles.get("condition", [""])[0])
    counted = _counted(condition) if isinstance(condition, _Compare) else None
    if counted is None:
        return None
    element, bound = counted
    first = evaluator.element(where, loop.operands[0] if loop.operands else "", element)
    body = hlo.computations.get(roles.get("body", [""])[0])
    after = evaluator.element(body, body.root.name, element) if body and body.root else None
    if not isinstance(first, int) or not isinstance(after, _State) or not after.plus:
        return None
    if after.element != element:
        return None
    return max(0, -(-(bound - first) // after.plus))


def _counted(condition: _Compare) -> tuple[int, int] | None:
    """``(element, bound)`` with the loop running while ``element < bound`` (or ``>`` downwards)."""
    left, right, direction = condition.left, condition.right, condition.direction
    if isinstance(left, int):
        flipped = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}
        left, right, direction = right, left, flipped.get(direction, direction)
    if not isinstance(left, _State) or left.element is None or not isinstance(right, int):
        return None
    inclusive = {"LT": 0, "LE": 1, "GT": 0, "GE": -1, "NE": 0}
    if direction not in inclusive:
        return None
    return left.element, right + inclusive[direction] - left.plus


class _Evaluator:
    """Evaluates the few instructions that count loops; the rest is ``None``."""

    def __init__(self, hlo: HloText) -> None:
        self._hlo = hlo
        # Counting takes a dozen steps. A condition that computes at length is no counter, and may
        # share its subterms so often that following all of them would not end.
        self._steps_left = 1000

    def result(self, name: str, arguments: list[_Value] | None = None) -> _Value:
        """What computation ``name`` gives back."""
        computation = self._hlo.computations.get(name)
        root = computation.root if computation else None
        return self.value(computation, root.name, arguments) if computation and root else None

    def element(self, where: Computation, name: str, element: int) -> _Value:
        """Element ``element`` of the tuple ``name``."""
        made = where.instructions.get(name)
        if not made or made.opcode != "tuple" or element >= len(made.operands):
            return None
        return self.value(where, made.operands[element], None)

    def value(self, where: Computation, name: str, arguments: list[_Value] | None) -> _Value:
        """What instruction ``name`` is.

        ``arguments`` stand for the parameters; without any, the one parameter is the loop's state.
        """
        self._steps_left -= 1
        op = where.instructions.get(name)
        if op is None or op.opcode not in _UNDERSTOOD or self._steps_left < 0:
            return None
        if op.opcode == "constant":
            return int(op.literal) if _INTEGER.fullmatch(op.literal) else None
        if op.opcode == "parameter":
            if arguments is None:
                return _State()
            number = int(op.literal) if _INTEGER.fullmatch(op.literal) else len(arguments)
            return arguments[number] if number < len(arguments) else None
        operands = [self.value(where, operand, arguments) for operand in op.operands]
        match op.opcode, operands:
            case "get-tuple-element", [_State(element=None)]:
                index = _INDEX.search(op.attributes)
                return _State(int(index[1])) if index else None
            case "add", [left, right]:
                return _sum(left, right, 1)
            case "subtract", [left, right]:
                return _sum(left, right, -1)
            case "compare", [left, right]:
                direction = _DIRECTION.search(op.attributes)
                return _Compare(direction[1], left, right) if direction else None
            case (("fusion" | "call"), _):
                callees = [callee for names in op.callees().values() for callee in names]
                return self.result(callees[0], operands) if callees else None
            case (("bitcast" | "convert" | "copy" | "reshape"), [operand]):
                return operand
            case _:
                return None


def _sum(left: _Value, right: _Value, sign: int) -> _Value:
    if isinstance(left, int) and isinstance(right, _State) and sign > 0:
        left, right = right, left
    if not isinstance(right, int):
        return None
    if isinstance(left, int):
        return left + sign * right
    if isinstance(left, _State) and left.element is not None:
        return _State(left.element, left.plus + sign * right)
    return None
