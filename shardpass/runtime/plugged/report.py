"""What plugin mode did: functions that were compiled with a plan, and those left alone."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from jax.sharding import NamedSharding

from shardpass.diagnostics import Diagnostic, Severity, ShardingError
from shardpass.mlir import EntryValue
from shardpass.runtime.jitted.policy import spec_text
from shardpass.runtime.lowering.calls import Call
from shardpass.runtime.plugged.adapters import Names
from shardpass.runtime.plugged.exempt import LeftAlone, Why
from shardpass.runtime.plugged.rewriting import Planned

#: Reasons of which only the number is told: there are hundreds, and nobody expected otherwise.
_COUNTED: Final = (Why.JAX, Why.NOTHING)
#: What the passes say of one function, and what may be otherwise in the next.
_OF_ONE_FUNCTION: Final = ("unused-rule", "unmatched", "already-annotated")


@dataclass(frozen=True)
class Place:
    """Where an argument or a result lies.

    Attributes:
      path: its name, as rules see it.
      spec: its spec on the mesh, as JAX prints it, or another sharding that it arrives with;
        ``None`` where XLA is to find it.
      moved: whether it arrives in another place, and is moved inside the program.
    """

    path: str
    spec: str | None
    moved: bool = False


@dataclass(frozen=True)
class Compiled:
    """A function that was compiled with a plan.

    Attributes:
      name: the function's.
      place: where it is written.
      arguments: where its arguments lie.
      results: where its results lie.
      paths_from: who told the arguments' names, where it was not the function's signature:
        ``flax.nnx.jit`` or ``equinox.filter_jit``.
      hidden_paths: names that JAX knows of arguments and no user does, since nobody could tell
        better ones: rules by path do not see them.
      times: how often it was lowered like this.
    """

    name: str
    place: str
    arguments: tuple[Place, ...]
    results: tuple[Place, ...]
    paths_from: str | None = None
    hidden_paths: tuple[str, ...] = ()
    times: int = 1


@dataclass(frozen=True)
class Failed:
    """A function that could not be compiled with a plan, of which its caller was told.

    Attributes:
      name: the function's.
      place: where it is written.
      message: what is wrong with it.
    """

    name: str
    place: str
    message: str


@dataclass(frozen=True)
class PluginReport:
    """What a block has done so far.

    Attributes:
      mesh: the mesh, as messages describe it.
      compiled: functions that were compiled with a plan. One that was compiled before, under a
        policy of the same content, is called without the block's hearing of it.
      left_alone: functions that were not, and how often each was lowered.
      failed: functions that raised an error instead, and how often each did.
      unused_rules: rules that matched nothing in any function that was looked at.
      unused_names: names to leave alone that no function had.
      diagnostics: what else the passes said.
    """

    mesh: str
    compiled: tuple[Compiled, ...]
    left_alone: tuple[tuple[LeftAlone, int], ...]
    failed: tuple[tuple[Failed, int], ...]
    unused_rules: tuple[str, ...]
    unused_names: tuple[str, ...]
    diagnostics: tuple[Diagnostic, ...]

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """What to say when all is done: rules and names that had no use."""
        rules = [
            Diagnostic(
                Severity.WARNING,
                "unused-rule",
                f"in no function that was compiled: {rule}",
                help="the report shows the paths that there were",
            )
            for rule in self.unused_rules
        ]
        names = [
            Diagnostic(
                Severity.WARNING,
                "unused-name",
                f'no function that JAX compiled is called "{name}", which was to be left alone',
                help="give the name of a function under jax.jit, a method's with its class "
                "(Trainer.step), or a regex for the whole of it; the report shows the functions",
            )
            for name in self.unused_names
        ]
        return (*rules, *names)

    def to_json(self) -> dict[str, Any]:
        """The same as values that JSON has."""
        return {
            "mesh": self.mesh,
            "compiled": [asdict(each) for each in self.compiled],
            "left_alone": [
                {
                    "name": each.name,
                    "place": each.place,
                    "why": each.why.name.lower(),
                    "detail": each.detail,
                    "times": times,
                }
                for each, times in self.left_alone
            ],
            "failed": [{**asdict(each), "times": times} for each, times in self.failed],
            "unused_rules": list(self.unused_rules),
            "unused_names": list(self.unused_names),
            "diagnostics": [str(each) for each in self.diagnostics],
        }

    def __str__(self) -> str:
        lines = [f"shardpass plugin on mesh {self.mesh}"]
        lines.append(f"compiled with a plan: {_number(self.compiled, 'function')}")
        for each in self.compiled:
            lines += _shown(each)
        told = [(each, times) for each, times in self.left_alone if each.why not in _COUNTED]
        lines.append(f"left alone: {_number(told, 'function')}")
        for each, _ in told:
            detail = f": {each.detail}" if each.detail else ""
            lines.append(f"  {each.place or each.name}: {each.why.value}{detail}")
        for why in _COUNTED:
            count = sum(1 for each, _ in self.left_alone if each.why is why)
            if count:
                lines.append(f"  and {count}: {why.value}")
        if self.failed:
            lines.append(f"not compiled: {_number(self.failed, 'function')}")
            lines += [f"  {each.place or each.name}: {each.message}" for each, _ in self.failed]
        lines += [f"no function has what this speaks of: {rule}" for rule in self.unused_rules]
        lines += [f"no function to leave alone has this name: {name}" for name in self.unused_names]
        return "\n".join(lines)


class Record:
    """A report in the making; several threads may compile at once."""

    def __init__(self, mesh: str, names: Mapping[str, None]) -> None:
        """Begin one, where ``names`` are those to leave alone that no function has had yet."""
        self._mesh = mesh
        self._names = names
        self._lock = threading.Lock()
        self._compiled: dict[Compiled, int] = {}
        self._left_alone: Counter[LeftAlone] = Counter()
        self._failed: Counter[Failed] = Counter()
        self._unused: dict[str, None] | None = None
        self._diagnostics: dict[Diagnostic, None] = {}

    def compiled(
        self, call: Call, planned: Planned, names: Names, brought: frozenset[int]
    ) -> list[Diagnostic]:
        """Note a plan, and give back what is new in what the passes said.

        ``brought`` are the places of arguments that JAX brings to the mesh from one device.
        """
        row = Compiled(
            call.name,
            call.place,
            _places(planned.arguments, planned.places, planned.moved | brought),
            _places(planned.results, planned.result_places, frozenset()),
            names.source,
            names.hidden,
        )
        with self._lock:
            self._compiled[row] = self._compiled.get(row, 0) + 1
            self._note_rules(planned.diagnostics)
            said = [d for d in planned.diagnostics if d.slug not in _OF_ONE_FUNCTION]
            new = [d for d in said if d not in self._diagnostics]
            self._diagnostics |= dict.fromkeys(new)
        return [d for d in new if d.severity is Severity.WARNING]

    def leave_alone(self, outcome: LeftAlone) -> bool:
        """Note a function that is left alone; whether that is news."""
        with self._lock:
            self._left_alone[outcome] += 1
            return self._left_alone[outcome] == 1

    def failed(self, call: Call, error: ShardingError) -> None:
        """Note a function whose plan is at fault."""
        with self._lock:
            self._failed[Failed(call.name, call.place, str(error.diagnostic.message))] += 1

    def looked_at(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Note what the passes said of a function that came to nothing."""
        with self._lock:
            self._note_rules(diagnostics)

    def _note_rules(self, diagnostics: Iterable[Diagnostic]) -> None:
        unused = {d.message: None for d in diagnostics if d.slug == "unused-rule"}
        if self._unused is not None:
            unused = {rule: None for rule in self._unused if rule in unused}
        self._unused = unused

    @property
    def _heard_of_any(self) -> bool:
        """Whether there was a function of the user's at all."""
        theirs = any(each.why is not Why.JAX for each in self._left_alone)
        return theirs or bool(self._compiled or self._failed)

    def report(self) -> PluginReport:
        """The report so far."""
        with self._lock:
            return PluginReport(
                self._mesh,
                tuple(replace(row, times=times) for row, times in self._compiled.items()),
                tuple(self._left_alone.items()),
                tuple(self._failed.items()),
                tuple(self._unused or ()),
                tuple(self._names) if self._heard_of_any else (),
                tuple(self._diagnostics),
            )


def _places(
    values: Iterable[EntryValue], places: Iterable[Any], moved: frozenset[int]
) -> tuple[Place, ...]:
    return tuple(
        Place(value.path, _spec(place), value.index in moved)
        for value, place in zip(values, places, strict=True)
    )


def _spec(place: Any) -> str | None:
    if place is None:
        return None
    if isinstance(place, NamedSharding):
        return spec_text(place.spec)
    return " ".join(str(place).split())


def _shown(row: Compiled) -> list[str]:
    times = f" ({row.times} times)" if row.times > 1 else ""
    source = f"; paths from {row.paths_from}" if row.paths_from else ""
    lines = [f"  {row.place or row.name}{times}{source}"]
    width = max((len(each.path) for each in row.arguments), default=0)
    for each in row.arguments:
        moved = ", moved when it arrives" if each.moved else ""
        lines.append(f"    {each.path:<{width}}  {each.spec or 'left to XLA'}{moved}")
    if row.hidden_paths:
        hidden = ", ".join(row.hidden_paths[:3])
        lines.append(f"    rules by path do not see {_number(row.hidden_paths, 'name')}: {hidden}")
    return lines


def _number(things: Any, what: str) -> str:
    return f"{len(things)} {what}" + ("" if len(things) == 1 else "s")
