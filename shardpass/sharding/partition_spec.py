# A tuple and a spec of JAX at once has two answers to some members; ours are given below.
# pyright: reportIncompatibleVariableOverride=false, reportIncompatibleMethodOverride=false
"""``PartitionSpec``: which mesh axes cut each dimension of an array.

The reference says that a partition spec is a tuple. Today's JAX has made its own a class that is
not one, cannot be subclassed, and is kept unique by content; every API of JAX asks
``isinstance(spec, PartitionSpec)``. So ours *is* a tuple of the entries and *holds* JAX's spec:

* ``__class__`` answers with JAX's class, which is what ``isinstance`` goes by, so that every JAX
  API takes it;
* what JAX reads from a spec (public or not) is read from the one that is held;
* it is equal to JAX's spec, both ways, with the same hash. Since one hash cannot serve two
  equalities, it is *not* equal to a plain tuple, as JAX's is not.

It is a leaf to ``jax.tree``, as JAX's is, because a subclass of tuple without ``_fields`` is one.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NoReturn, SupportsIndex, TypeAlias, overload

import jax

from shardpass.diagnostics import ShardingError
from shardpass.sharding.persistence import persistent
from shardpass.sharding.saved import Saved

JaxPartitionSpec = jax.sharding.PartitionSpec

UNCONSTRAINED: Final = JaxPartitionSpec.UNCONSTRAINED
"""The entry of a dimension that propagation may cut as it likes (Shardy's ``?``)."""

Entry: TypeAlias = Any
"""``None`` | an axis name | a tuple of axis names, major to minor | :data:`UNCONSTRAINED`."""


#: The specs of entries alone, as JAX keeps its own: unique, so that making one again is a look-up.
_plain_specs: dict[tuple[Entry, ...], PartitionSpec] = {}
_MOST_KEPT: Final = 4096

if TYPE_CHECKING:
    # What it answers to, so that a type checker lets it pass where JAX wants its own.
    # (The run-time classes could not be combined, which is what the ignored complaint says.)
    class _Standing(tuple[Entry, ...], JaxPartitionSpec): ...  # pyright: ignore[reportGeneralTypeIssues]

else:
    _Standing = tuple


@persistent
class PartitionSpec(_Standing):
    """How each dimension of an array is cut over the axes of a mesh.

    Args:
      partitions: one entry per dimension: ``None`` (not cut), an axis name, a tuple of axis names
        from major to minor, or ``PartitionSpec.UNCONSTRAINED``. Dimensions beyond the last entry
        are not cut.
      unreduced: axes over which the value is a partial result, still to be summed.
      reduced: axes over which the value's cotangent is unreduced.
      unreduced_kind: a ``jax.sharding.UnreducedKind``, on a JAX that has it (0.12 on; there an
        unreduced value without a kind is one to be summed).

    Raises:
      ShardingError: ``bad-spec``, for any other entry.

    ``P('x', ('y', 'z'))`` cuts dimension 0 over ``x`` and dimension 1 over ``y`` and, within each
    of its pieces, over ``z``. As in JAX ``P(('x',)) == P('x')``, ``P(()) == P(None)``, and
    ``P('x') != P('x', None)``, although both mean the same on two dimensions.
    """

    UNCONSTRAINED: Final = UNCONSTRAINED  # pyright: ignore[reportIncompatibleVariableOverride]

    def __new__(
        cls,
        *partitions: Entry,
        unreduced: Iterable[str] = frozenset(),
        reduced: Iterable[str] = frozenset(),
        unreduced_kind: Any = None,
    ) -> PartitionSpec:
        """Check the entries and build JAX's spec of them."""
        plain = not unreduced and not reduced and unreduced_kind is None
        if plain:
            try:
                return _plain_specs[partitions]
            except (KeyError, TypeError):  # It is new, or an entry is a list.
                pass
        made = cls._holding(_build(partitions, unreduced, reduced, unreduced_kind))
        if plain and made.partitions == partitions:
            if len(_plain_specs) >= _MOST_KEPT:
                _plain_specs.clear()
            _plain_specs[partitions] = made
        return made

    @classmethod
    def _holding(cls, held: JaxPartitionSpec) -> PartitionSpec:
        self = tuple.__new__(cls, held.partitions)
        self.__dict__["_held"] = held
        return self

    @classmethod
    def from_jax(cls, spec: JaxPartitionSpec) -> PartitionSpec:
        """``spec`` as one of ours; one of ours is given back as it is.

        Raises:
          ShardingError: ``abstract-type`` for what is no spec, ``bad-spec`` for an entry of JAX's
            that no mesh axis can be named (JAX takes any hashable object).
        """
        if type(spec) is PartitionSpec:
            return spec
        if type(spec) is not JaxPartitionSpec:
            raise ShardingError(
                "abstract-type",
                f"a PartitionSpec is needed, not {type(spec).__name__} {spec!r}",
                help=f"write PartitionSpec{_as_arguments(spec)}",
            )
        for position, entry in enumerate(spec.partitions):
            _check_entry(position, entry)
        return cls._holding(spec)

    def to_jax(self) -> JaxPartitionSpec:
        """JAX's own spec, the same object for equal specs."""
        return self.__dict__["_held"]

    @property
    def partitions(self) -> tuple[Entry, ...]:
        """The entries as a plain tuple, also where :attr:`unreduced` forbids iteration."""
        return self.to_jax().partitions

    @property
    def unreduced(self) -> frozenset[str]:
        """The axes over which the value is still to be reduced."""
        return self.to_jax().unreduced

    @property
    def reduced(self) -> frozenset[str]:
        """The axes over which the value's cotangent is unreduced."""
        return self.to_jax().reduced

    @property
    def unreduced_kind(self) -> Any:
        """JAX's ``UnreducedKind``, or ``None`` (always on a JAX without it)."""
        return getattr(self.to_jax(), "unreduced_kind", None)

    def update(self, partitions: Iterable[Entry] | None = None, **changes: Any) -> PartitionSpec:
        """A copy with other ``partitions``, ``unreduced``, ``reduced`` or ``unreduced_kind``."""
        options = {
            "unreduced": self.unreduced,
            "reduced": self.reduced,
            "unreduced_kind": self.unreduced_kind,
        }
        options.update(changes)
        if not options["unreduced"]:
            options["unreduced_kind"] = None
        return PartitionSpec(*(self.partitions if partitions is None else partitions), **options)

    # What makes it one of JAX's -------------------------------------------------------------------

    @property
    def __class__(self) -> type:
        return JaxPartitionSpec

    def __getattr__(self, name: str) -> Any:
        # JAX reads more from a spec than it documents. Protocols such as __array__ or _fields
        # (a named tuple, to pytrees) must go on being absent, and JAX's spec has neither.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.to_jax(), name)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"cannot assign to field {name!r}")

    def __eq__(self, other: object) -> bool:
        if type(other) is PartitionSpec:
            return self.to_jax() is other.to_jax()
        return self.to_jax() is other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.to_jax())

    # What makes it a tuple ------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Entry]:
        self._refuse_to_drop("iterate over", "*spec.partitions")
        return super().__iter__()

    @overload
    def __getitem__(self, key: SupportsIndex, /) -> Entry: ...
    @overload
    def __getitem__(self, key: slice, /) -> tuple[Entry, ...]: ...
    def __getitem__(self, key: SupportsIndex | slice, /) -> Entry:
        self._refuse_to_drop("index", "spec.partitions[...]")
        return super().__getitem__(key)

    def __add__(self, other: Any, /) -> PartitionSpec:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _joined(self, other)

    def __radd__(self, other: Any, /) -> PartitionSpec:
        return _joined(other, self)

    def index(self, value: Entry, *span: SupportsIndex) -> int:
        """The first dimension with this entry; ``('x',)`` is ``'x'``."""
        return self.partitions.index(_normal_entry(value), *span)

    def count(self, value: Entry, /) -> int:
        """How many dimensions have this entry; ``('x',)`` is ``'x'``."""
        return self.partitions.count(_normal_entry(value))

    def _refuse_to_drop(self, verb: str, instead: str) -> None:
        # As JAX does: the axes would be lost without a word in PartitionSpec(*spec).
        if self.unreduced or self.reduced:
            raise ShardingError(
                "bad-spec",
                f"cannot {verb} {self!r}: its unreduced and reduced axes would be lost",
                help=f"write {instead}",
            )

    # Showing and keeping --------------------------------------------------------------------------

    def __repr__(self) -> str:
        pieces = [_entry_text(entry) for entry in self.partitions]
        for name, axes in (("unreduced", self.unreduced), ("reduced", self.reduced)):
            if axes:
                pieces.append(f"{name}={{{', '.join(map(repr, sorted(axes)))}}}")
        # A sum is what is meant where nothing is said, and the only kind that jax 0.10 knows.
        if self.unreduced_kind is not None and self.unreduced_kind.name != "sum":
            pieces.append(f"unreduced_kind={self.unreduced_kind}")
        return f"PartitionSpec({', '.join(pieces)})"

    def _saved_state(self) -> dict[str, Any]:
        state: dict[str, Any] = {"partitions": [_saved_entry(entry) for entry in self.partitions]}
        for name, axes in (("unreduced", self.unreduced), ("reduced", self.reduced)):
            if axes:
                state[name] = sorted(axes)
        if self.unreduced_kind is not None and self.unreduced_kind.name != "sum":
            state["unreduced_kind"] = self.unreduced_kind.name
        return state

    @classmethod
    def _from_saved(cls, saved: Saved) -> PartitionSpec:
        fields = saved.fields(("partitions",), ("unreduced", "reduced", "unreduced_kind"))
        options: dict[str, Any] = {
            name: frozenset(axis.text() for axis in fields[name].items())
            for name in ("unreduced", "reduced")
            if name in fields
        }
        if "unreduced_kind" in fields:
            options["unreduced_kind"] = fields["unreduced_kind"].one_of(
                {"sum": None, **_unreduced_kinds()}, "kind of reduction", f"jax {jax.__version__}"
            )
        entries = [_entry_from(entry) for entry in fields["partitions"].items()]
        with saved.building():
            return PartitionSpec(*entries, **options)


P = PartitionSpec
"""Short for :class:`PartitionSpec`, as everybody writes it."""


def is_ours(spec: object) -> bool:
    """Whether ``spec`` is truly ours: ``isinstance`` sees JAX's class as well."""
    return type(spec) is PartitionSpec


def _unreduced_kinds() -> dict[str, Any]:
    kinds = getattr(jax.sharding, "UnreducedKind", None)
    return dict(kinds.__members__) if kinds else {}


def _build(
    partitions: tuple[Entry, ...], unreduced: Iterable[str], reduced: Iterable[str], kind: Any
) -> JaxPartitionSpec:
    for position, entry in enumerate(partitions):
        _check_entry(position, entry)
    unreduced = _axis_set("unreduced", unreduced)
    reduced = _axis_set("reduced", reduced)
    cutting = {axis for entry in partitions for axis in axes_of(entry)}
    for what, both in (
        ("both unreduced and reduced", unreduced & reduced),
        ("both a cut and unreduced", cutting & unreduced),
        ("both a cut and reduced", cutting & reduced),
    ):
        if both:
            raise ShardingError("bad-spec", f"axis {_listed(both)} cannot be {what}")
    options: dict[str, Any] = {"unreduced": unreduced, "reduced": reduced}
    if kind is not None:
        _check_kind(kind, unreduced)
        options["unreduced_kind"] = kind
    return JaxPartitionSpec(*partitions, **options)


def _check_kind(kind: Any, unreduced: frozenset[str]) -> None:
    kinds = _unreduced_kinds()
    if not kinds:
        raise ShardingError(
            "bad-spec",
            f"unreduced_kind {kind!r}: jax {jax.__version__} knows sums alone",
            help="leave unreduced_kind out, or install jax 0.12 or newer",
        )
    if kind not in kinds.values():
        raise ShardingError(
            "bad-spec",
            f"unreduced_kind {kind!r} is no jax.sharding.UnreducedKind",
            help=f"use one of {', '.join(f'UnreducedKind.{name}' for name in kinds)}",
        )
    if not unreduced:
        raise ShardingError("bad-spec", f"unreduced_kind {kind} without unreduced axes")


def _check_entry(position: int, entry: Entry) -> None:
    if entry is None or entry is UNCONSTRAINED or isinstance(entry, str):
        if entry == "":
            raise ShardingError("bad-spec", f"entry {position} is an empty axis name")
        return
    if not isinstance(entry, (tuple, list)):
        raise ShardingError(
            "bad-spec",
            f"entry {position} is {entry!r}, of type {type(entry).__name__}",
            help="use None, an axis name, a tuple of axis names, or PartitionSpec.UNCONSTRAINED",
        )
    for axis in entry:
        if not isinstance(axis, str) or not axis:
            raise ShardingError(
                "bad-spec",
                f"entry {position} is {entry!r}, and {axis!r} within it is no axis name",
                help="a tuple holds axis names, from major to minor, and nothing else",
            )


def _axis_set(name: str, axes: Iterable[str]) -> frozenset[str]:
    if isinstance(axes, str):
        raise ShardingError(
            "bad-spec", f"{name}={axes!r} is text", help=f"write {name}={{{axes!r}}}"
        )
    found = frozenset(axes)
    for axis in found:
        if not isinstance(axis, str) or not axis:
            raise ShardingError("bad-spec", f"{name} holds {axis!r}, which is no axis name")
    return found


def axes_of(entry: Entry) -> tuple[str, ...]:
    """The axes that an entry names, major to minor; none for ``None`` and ``UNCONSTRAINED``."""
    if entry is None or entry is UNCONSTRAINED:
        return ()
    return (entry,) if isinstance(entry, str) else tuple(entry)


def _normal_entry(entry: Entry) -> Entry:
    """An entry as JAX keeps it: no lists, no tuples of fewer than two."""
    if not isinstance(entry, (tuple, list)):
        return entry
    return tuple(entry) if len(entry) > 1 else (entry[0] if entry else None)


def _joined(first: Any, second: Any) -> PartitionSpec:
    if not all(isinstance(side, (JaxPartitionSpec, tuple)) for side in (first, second)):
        return NotImplemented
    left, right = (
        PartitionSpec.from_jax(side) if isinstance(side, JaxPartitionSpec) else PartitionSpec(*side)
        for side in (first, second)
    )
    if left.unreduced and right.unreduced and left.unreduced_kind != right.unreduced_kind:
        raise ShardingError(
            "bad-spec",
            f"cannot join {left!r} and {right!r}: they are unreduced by different kinds",
        )
    return PartitionSpec(
        *left.partitions,
        *right.partitions,
        unreduced=left.unreduced | right.unreduced,
        reduced=left.reduced | right.reduced,
        unreduced_kind=left.unreduced_kind or right.unreduced_kind,
    )


def _saved_entry(entry: Entry) -> Any:
    if entry is UNCONSTRAINED:
        return {"unconstrained": True}
    return list(entry) if isinstance(entry, tuple) else entry


def _entry_from(saved: Saved) -> Entry:
    value = saved.value
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        return tuple(axis.text() for axis in saved.items())
    if type(value) is dict and list(value) == ["unconstrained"] and value["unconstrained"] is True:
        return UNCONSTRAINED
    raise saved.error(
        f"no entry of a spec: {reprlib.repr(value)}",
        help='write null, an axis name, a list of names, or {"unconstrained": true}',
    )


def _entry_text(entry: Entry) -> str:
    return "PartitionSpec.UNCONSTRAINED" if entry is UNCONSTRAINED else repr(entry)


def _as_arguments(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(repr, value))})"
    return "()" if value is None else f"({value!r})"


def _listed(axes: Iterable[str]) -> str:
    return ", ".join(f'"{axis}"' for axis in sorted(axes))
