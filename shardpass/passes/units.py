"""What MLIR's pass manager is given to run, one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from shardpass.passes.base import Body, Look, Pass, Stage
from shardpass.passes.shardy.entry import EntryAsMain, needs_main
from shardpass.passes.shardy.survey import REFUSE_RECURSION

#: One thing to run: a pass of ours, or MLIR's text for native ones.
Step: TypeAlias = Pass | str

#: What the steps are called that stand between passes and that nobody asked for by name.
BETWEEN: Final = "shardpass"

_NOTHING: Final = Look(lambda root, sink: None, before_verifier=True)


@dataclass(frozen=True)
class Unit:
    """Something that MLIR runs as one pass, with its verifier behind.

    Attributes:
      name: what MLIR calls it.
      work: native passes as a pipeline's text, or what to call.
      step: which step it is a part of, by its place; ``None`` for several.
    """

    name: str
    work: str | list[Body]
    step: int | None = None


def units_of(
    steps: Sequence[Step], lent: EntryAsMain, *, needs_entry: bool, apart: bool
) -> list[Unit]:
    """The units that ``steps`` come to.

    A look is joined to the steps in Python beside it, since there is nothing to verify between
    them. Around Shardy's passes ``lent`` gives the module what they need; behind the last one it is
    for the caller to take back.

    Args:
      steps: passes, and texts of native ones.
      lent: the main function for passes that ask for one.
      needs_entry: whether a module without an entry is refused in front of such native passes.
      apart: keep each pass by itself, for people who look at what happens between them: the first
        unit of a pass in Python begins where the pass does, and its last one ends there.
    """
    units = _Units(lent, needs_entry=needs_entry)
    for place, step in enumerate(steps):
        if apart:
            units.finish()
        name = step.name if isinstance(step, Pass) else step
        stages: Iterable[Stage] = [step] if isinstance(step, str) else step.stages()
        if apart and isinstance(step, Pass):
            stages = _with_ends(list(stages))
        for stage in stages:
            if isinstance(stage, str):
                units.add_native(place, name, stage, is_native=isinstance(step, str), apart=apart)
            else:
                units.add(place, name, stage)
    units.finish()
    return list(_numbered(units.made)) if apart else units.made


class _Units:
    """Units in the making: the steps in Python that are to run as one are held back."""

    def __init__(self, lent: EntryAsMain, *, needs_entry: bool) -> None:
        self.made: list[Unit] = []
        self._lent = lent
        self._needs_entry = needs_entry
        self._names: list[str] = []
        self._places: set[int] = set()
        self._bodies: list[Look | Body] = []
        self._changed = False
        self._inside = False

    def add_native(self, place: int, name: str, text: str, *, is_native: bool, apart: bool) -> None:
        if not self._inside and needs_main(text):
            if apart:
                self.finish()
            asks = self._needs_entry or not is_native
            enter = self._lent.enter if asks else self._lent.enter_if_any
            self._bodies += [REFUSE_RECURSION, Look(enter, before_verifier=True)]
            self._names = self._names or [BETWEEN]
            self._inside = True
        self.finish()
        self.made.append(Unit(name, text, place))

    def add(self, place: int, name: str, stage: Look | Body) -> None:
        joins = isinstance(stage, Look) and stage.before_verifier
        if self._changed and not joins:
            self.finish()
        if self._inside:
            self._bodies.append(Look(self._lent.leave))
            self._inside = False
        self._bodies.append(stage)
        self._changed = self._changed or not isinstance(stage, Look)
        self._places.add(place)
        if name not in self._names:
            self._names.append(name)

    def finish(self) -> None:
        """What was held back is a unit now."""
        if not self._bodies:
            return
        place = self._places.pop() if len(self._places) == 1 else None
        self.made.append(Unit("+".join(self._names), _asked_once(self._bodies), place))
        self._names, self._places, self._bodies = [], set(), []
        self._changed = False


def _with_ends(stages: list[Stage]) -> list[Stage]:
    """``stages`` with one in Python at either end."""
    first = [_NOTHING] * isinstance(stages[0], str)
    last = [_NOTHING] * isinstance(stages[-1], str)
    return [*first, *stages, *last]


def _numbered(units: Sequence[Unit]) -> Iterator[Unit]:
    """The units of one pass in Python numbered, where it has several: ``sp-propagate(1/3)``."""
    in_python = [unit for unit in units if not isinstance(unit.work, str)]
    counts = Counter(unit.step for unit in in_python)
    seen: Counter[int | None] = Counter()
    for unit in units:
        count = counts[unit.step]
        if isinstance(unit.work, str) or unit.step is None or count == 1:
            yield unit
            continue
        seen[unit.step] += 1
        yield replace(unit, name=f"{unit.name}({seen[unit.step]}/{count})")


def _asked_once(stages: Sequence[Look | Body]) -> list[Body]:
    """What to call, without the looks whose questions another one asks as well."""
    kept: list[Body] = []
    for place, stage in enumerate(stages):
        if not isinstance(stage, Look):
            kept.append(stage)
            continue
        before, behind = (
            [other.asks for other in part if isinstance(other, Look)]
            for part in (stages[:place], stages[place + 1 :])
        )
        asked = any(a > stage.asks for a in before) or any(a >= stage.asks for a in behind)
        if not (stage.asks and asked):
            kept.append(stage.body)
    return kept
