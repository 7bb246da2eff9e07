"""Rules from a TOML file::

    conflicts = "error"          # default "first"
    indivisible = "replicate"    # default "error"

    [mesh]
    data = 2
    model = 4

    [logical]
    batch = "data"
    embed = []

    [[rule]]
    match = 'attn\\.qkv\\.kernel$'
    spec = [[], "model"]

    [[rule]]
    op = "stablehlo.dot_general"
    loc = "mlp/"
    spec = ["batch", "?"]

All faults of a file come in one error, each with its line.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, get_args

from shardpass.canon import MeshShape
from shardpass.diagnostics import (
    Diagnostic,
    Excerpt,
    ShardingError,
    Sink,
    SourceLocation,
    did_you_mean,
)
from shardpass.partition_rules.logical import LogicalAxes
from shardpass.partition_rules.resolve import OnIndivisible, axes_on_mesh, check_logical
from shardpass.partition_rules.rule import Rule, placing
from shardpass.partition_rules.rules import (
    OnConflict,
    PartitionRules,
    as_mesh,
    check_option,
)
from shardpass.partition_rules.source import Origin, SourceText

_TOP_LEVEL = ("mesh", "logical", "rule", "conflicts", "indivisible")
_RULE_KEYS = ("match", "op", "loc", "rank", "shape", "spec")
_POSITION = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def load(path: str | os.PathLike[str], *, mesh: Any = None) -> PartitionRules:
    """Read a file; see :meth:`PartitionRules.load`."""
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            data = file.read()
    except OSError as error:
        raise ShardingError(
            "unreadable", f"cannot read the rules file {name}: {error.strerror}"
        ) from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ShardingError(
            "unreadable",
            f"the rules file {name} is not text: byte {error.start} is not UTF-8",
            help="save it as UTF-8",
            location=SourceLocation(name, data.count(b"\n", 0, error.start) + 1),
        ) from error
    return loads(text, name, mesh=mesh)


def loads(text: str, name: str, *, mesh: Any = None) -> PartitionRules:
    """Read the text of a file; see :meth:`PartitionRules.loads`."""
    text = text.replace("\r\n", "\n")
    reader = _Reader(SourceText(name, text), _parse(text, name))
    own_mesh, logical, options = reader.mesh(), reader.logical(), reader.options()
    chosen = own_mesh if mesh is None else as_mesh(mesh)
    rules = reader.rules(chosen, reader.known_on(chosen, logical))
    if reader.sink.has_errors:
        raise ShardingError.of(sorted(reader.sink, key=_line))
    return PartitionRules(rules, chosen, logical, **options).written_with(own_mesh)


def _parse(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _POSITION.search(str(error))
        lines = text.split("\n")
        if found and found[1]:
            line, column = int(found[1]), int(found[2])
            # tomllib reports the character behind the two of a bad escape.
            column -= 2 if lines[line - 1][column - 3 : column - 2] == "\\" else 0
        else:
            line, column = len(lines), len(lines[-1]) + 1
        message = str(error)[: found.start()] if found else str(error)
        raise ShardingError(
            "syntax",
            f"not TOML: {message[:1].lower()}{message[1:]}",
            help=r"regular expressions go in single quotes: match = 'kernel\.value$'"
            if "\\" in lines[line - 1]
            else None,
            location=SourceLocation(name, line, column),
            excerpt=Excerpt(lines[line - 1], column),
        ) from None


@dataclass
class _Reader:
    """Reads the tables one by one; faults go to the sink, so that the rest is read as well."""

    source: SourceText
    data: dict[str, Any]
    sink: Sink = field(default_factory=Sink)

    def mesh(self) -> MeshShape | None:
        """The ``[mesh]`` table."""
        table = self._table("mesh", "lines like data = 2")
        if table is None:
            return None
        origin = self.source.table("mesh")
        sound: list[tuple[str, int]] = []
        for name, size in table.items():
            with self._collecting(origin, name):
                _check_size(name, size)
                sound.append((name, size))
        if len(sound) == len(table):
            with self._collecting(origin, None):
                return MeshShape(tuple(sound))
        return None

    def logical(self) -> LogicalAxes:
        """The ``[logical]`` table."""
        table = self._table("logical", 'lines like embed = "model"')
        pairs: list[tuple[str, tuple[str, ...]]] = []
        for name, value in (table or {}).items():
            axes: tuple[str, ...] = ()
            with self._collecting(self.source.table("logical"), name):
                ((_, axes),) = LogicalAxes.of({name: value}).pairs
            pairs.append((name, axes))
        return LogicalAxes(tuple(pairs))

    def options(self) -> dict[str, Any]:
        """The top-level options, after a look for keys that nobody knows."""
        top = self.source.table("")
        for key in self.data:
            if key not in _TOP_LEVEL:
                value = self.data[key]
                is_table = isinstance(value, dict) or (
                    isinstance(value, list) and any(isinstance(v, dict) for v in value)
                )
                origin = self.source.table(key) if is_table else top
                with self._collecting(origin, key):
                    raise _unknown(key, _TOP_LEVEL)
        options: dict[str, Any] = {}
        for key, allowed in (("conflicts", OnConflict), ("indivisible", OnIndivisible)):
            if key in self.data:
                with self._collecting(top, key):
                    options[key] = check_option(key, self.data[key], get_args(allowed))
        return options

    def known_on(self, mesh: MeshShape | None, logical: LogicalAxes) -> LogicalAxes:
        """``logical`` without the axes that ``mesh`` lacks, which the rules need not repeat."""
        if mesh is None:
            return logical
        pairs: list[tuple[str, tuple[str, ...]]] = []
        for name, axes in logical.pairs:
            with self._collecting(self.source.table("logical"), name):
                check_logical(name, axes, mesh)
                pairs.append((name, axes))
                continue
            pairs.append((name, ()))
        return LogicalAxes(tuple(pairs))

    def rules(self, mesh: MeshShape | None, logical: LogicalAxes) -> list[Rule]:
        """The ``[[rule]]`` tables."""
        tables = self.data.get("rule", [])
        if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
            with self._collecting(self.source.table("rule"), "rule"):
                raise ShardingError("bad-rules", "rules are tables", help="write [[rule]]")
            return []
        if not tables and not self.sink.has_errors:
            with self._collecting(self.source.table(""), None):
                raise ShardingError("bad-rules", "the file has no rule", help="write [[rule]]")
        rules: list[Rule] = []
        for index, table in enumerate(tables):
            origin = self.source.table("rule", index)
            strange = [key for key in table if key not in _RULE_KEYS]
            for key in strange:
                with self._collecting(origin, key):
                    raise _unknown(key, _RULE_KEYS)
            # What was misspelt may be what seems to be missing.
            with self._collecting(origin, None):
                if "spec" not in table and not strange:
                    raise ShardingError(
                        "bad-rules", "a rule without a spec", help="write spec = [] for replicated"
                    )
            known = {key: value for key, value in table.items() if key not in strange}
            if strange and not known.keys() - {"spec"}:
                known["match"] = ""
            with self._collecting(origin, None):
                rule = Rule(**known, origin=origin)
                rules.append(rule)
                with placing(origin, "spec"):
                    rule.spec.refuse_repeated(logical.names)
                    if mesh is not None:
                        axes_on_mesh(rule.spec, mesh, logical)
        return rules

    def _table(self, name: str, example: str) -> Mapping[str, Any] | None:
        value = self.data.get(name)
        if value is None or isinstance(value, dict):
            return value
        with self._collecting(self.source.table(""), name):
            raise ShardingError(
                "bad-rules",
                f"{name} is a table, not {value!r}",
                help=f"write [{name}] and {example}",
            )
        return None

    @contextmanager
    def _collecting(self, origin: Origin, key: str | None) -> Iterator[None]:
        """Send an error to the sink, at the line of ``key`` unless it has a place already."""
        try:
            yield
        except ShardingError as error:
            for diagnostic in error.diagnostics:
                self.sink.report(
                    diagnostic if diagnostic.location else origin.place(diagnostic, key)
                )


def _line(diagnostic: Diagnostic) -> int:
    return diagnostic.location.line if diagnostic.location else 0


def _check_size(name: str, size: Any) -> None:
    if not isinstance(size, int) or isinstance(size, bool):
        raise ShardingError(
            "bad-mesh",
            f'the size of mesh axis "{name}" is a whole number, not {size!r}',
            help=f"write {name} = 2",
        )
    if size < 1:
        raise ShardingError(
            "bad-mesh", f'mesh axis "{name}" has size {size}, below 1', help=f"write {name} = 1"
        )


def _unknown(key: str, known: Sequence[str]) -> ShardingError:
    return ShardingError(
        "bad-rules",
        f'unknown key "{key}"',
        help=did_you_mean(key, known) or f"the keys are {', '.join(known)}",
    )
