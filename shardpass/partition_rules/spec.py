"""What a rule says about the dimensions of a value, before any mesh is known.

A :class:`Spec` holds names only: mesh axes, sub-axes (``"x:(1)2"``) and logical names stand side by
side as text, and :mod:`shardpass.partition_rules.resolve` gives them a meaning on a mesh. It is
read from any spelling that people use: JAX's ``PartitionSpec``, ours, plain tuples and lists, and
the arrays of a TOML file. ``str()`` gives the TOML form, which every message quotes.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from shardpass.diagnostics import Diagnostic, Excerpt, ShardingError

OPEN = "?"
"""The entry that leaves a dimension to propagation, as Shardy prints it."""

SpecLike: TypeAlias = Any
"""A ``Spec``, a ``PartitionSpec`` of JAX or ours, or a list or tuple of entries."""

_SUB_AXIS = re.compile(r"(?P<name>.+):\((?P<pre>[0-9]+)\)(?P<size>[0-9]+)")


@dataclass(frozen=True, slots=True)
class SubAxis:
    """A mesh axis, or the part ``name:(pre_size)size`` of one, by name alone."""

    name: str
    pre_size: int | None = None
    size: int | None = None

    @classmethod
    def parse(cls, text: str) -> SubAxis:
        """Read ``x`` or Shardy's ``x:(pre)size``."""
        found = _SUB_AXIS.fullmatch(text)
        if not found:
            return cls(text)
        return cls(found["name"], int(found["pre"]), int(found["size"]))


@dataclass(frozen=True, slots=True)
class DimensionSpec:
    """The names that cut one dimension, major to minor; ``open`` lets propagation add more."""

    names: tuple[str, ...] = ()
    open: bool = False

    def __str__(self) -> str:
        if self.open and not self.names:
            return json.dumps(OPEN)
        if len(self.names) == 1 and not self.open:
            return json.dumps(self.names[0])
        entries = [*self.names, OPEN] if self.open else list(self.names)
        return json.dumps(entries)


@dataclass(frozen=True, slots=True)
class Spec:
    """One :class:`DimensionSpec` per leading dimension; the dimensions after them are not sharded.

    Attributes:
      dims: one entry per dimension, first dimension first.
      unreduced: names over which the value is a sum still to be taken.
    """

    dims: tuple[DimensionSpec, ...] = ()
    unreduced: tuple[str, ...] = ()

    @classmethod
    def of(cls, value: SpecLike) -> Spec:
        """Read any spelling of a spec.

        Args:
          value: a ``Spec``; a ``PartitionSpec`` (JAX's or ours); or a list or tuple whose entries
            are ``"axis"``, a list of axes from major to minor, ``[]`` or ``None`` for not sharded,
            ``"?"`` or ``PartitionSpec.UNCONSTRAINED`` for open. A ``"?"`` that ends an inner list
            leaves that dimension open behind its axes.

        Raises:
          ShardingError: ``bad-spec`` for entries of another type, all of them in one error.
        """
        if isinstance(value, Spec):
            return value
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise ShardingError(
                "bad-spec",
                f"a spec is a list with one entry per dimension, not {_shown(value)}",
                help=f"write [{json.dumps(value)}]"
                if isinstance(value, str)
                else 'write ["x", []]',
            )
        unreduced = tuple(sorted(getattr(value, "unreduced", ())))
        # Iterating over a PartitionSpec with unreduced axes is refused by JAX.
        entries = getattr(value, "partitions", value)
        dims: list[DimensionSpec] = []
        faults: list[Diagnostic] = []
        for index, entry in enumerate(entries):
            try:
                dims.append(_dimension(entry, index))
            except ShardingError as error:
                faults += error.diagnostics
        if faults:
            raise ShardingError.of(faults)
        return cls(tuple(dims), unreduced)

    def names(self) -> Iterator[str]:
        """All names in order, repeated ones too."""
        for dim in self.dims:
            yield from dim.names
        yield from self.unreduced

    def excerpt(self, name: str, occurrence: int = 0) -> Excerpt:
        """This spec's text with ``name`` underlined, at its ``occurrence``-th place from 0."""
        text, quoted = str(self), json.dumps(name)
        offset = -1
        for _ in range(occurrence + 1):
            offset = text.find(quoted, offset + 1)
        return Excerpt(text, max(offset, 0) + 1, len(quoted) if offset >= 0 else len(text))

    def __str__(self) -> str:
        text = (
            "[" + ", ".join(str(dim) if dim.names or dim.open else "[]" for dim in self.dims) + "]"
        )
        return f"{text} unreduced {json.dumps(list(self.unreduced))}" if self.unreduced else text

    def refuse_repeated(self, logical: Container[str] = ()) -> None:
        """Refuse an axis that stands twice; a ``logical`` name may, its first place counts.

        Raises:
          ShardingError: ``duplicate-axis``.
        """
        seen: set[str] = set()
        for name in self.names():
            if name in seen and name not in logical:
                raise ShardingError(
                    "duplicate-axis",
                    f'"{name}" stands twice in {self}',
                    help="one axis can cut one dimension only; drop one of the two",
                    excerpt=self.excerpt(name, 1),
                )
            seen.add(name)


def _dimension(entry: Any, index: int) -> DimensionSpec:
    if entry is None:
        return DimensionSpec()
    if entry == OPEN if isinstance(entry, str) else _is_unconstrained(entry):
        return DimensionSpec(open=True)
    if isinstance(entry, str):
        entry = (entry,)
    if isinstance(entry, DimensionSpec):
        return entry
    if not isinstance(entry, (list, tuple)):
        raise _bad_entry(index, entry)
    names = list(entry)
    is_open = bool(names) and names[-1] == OPEN
    if is_open:
        names.pop()
    for name in names:
        if not isinstance(name, str) or not name or name == OPEN:
            raise _bad_entry(index, name)
    return DimensionSpec(tuple(names), is_open)


def _is_unconstrained(entry: Any) -> bool:
    # The object exists only once jax is imported; importing it here would cost its 0.5 s.
    jax = sys.modules.get("jax")
    return jax is not None and entry is jax.sharding.PartitionSpec.UNCONSTRAINED


def _bad_entry(index: int, entry: Any) -> ShardingError:
    return ShardingError(
        "bad-spec",
        f"entry {index} of a spec cannot hold {_shown(entry)}",
        help='an entry is "axis", ["major", "minor"], [] for not sharded, or "?" for open',
    )


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return f"the text {json.dumps(value)}"
    return f"{value!r} of type {type(value).__name__}"
