"""Logical names: what a dimension means to the model, mapped to the mesh axes that cut it.

The mapping follows Flax Linen's ``logical_to_mesh_axes`` and T5X: it is a list in order of
priority, a name may have several lines, and a line can be used while none of its mesh axes is taken
by the same spec. So ``[("mlp", "model"), ("embed", "model"), ("embed", "data")]`` cuts a weight
with the dimensions ``embed, mlp`` over ``data, model``, and a vector of ``embed`` over ``model``. A
name without a line that can be used is not sharded. Where Flax refuses one name in two dimensions,
the first dimension has it.

A spec may also write out a mesh axis. Between that and a logical name that maps to it the one that
stands first in the spec has it, since neither has a priority. Unreduced axes are never given away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shardpass.diagnostics import ShardingError
from shardpass.partition_rules.spec import Spec, SubAxis


@dataclass(frozen=True, slots=True)
class Loss:
    """A name of a spec that brings its dimension no axis.

    Attributes:
      dimension: counted from 0.
      name: a logical name, or a mesh axis that is written out.
      axes: the mesh axes that it stands for, at least one of which is taken.
    """

    dimension: int
    name: str
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LogicalAxes:
    """Pairs (logical name, mesh axes from major to minor), best first; no axes is replicated."""

    pairs: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @classmethod
    def of(cls, value: Any) -> LogicalAxes:
        """Read a mapping, or Flax's list of pairs; an axis entry is a name, a list or ``None``.

        Raises:
          ShardingError: ``bad-rules`` for anything else; ``duplicate-axis`` for an axis twice in
            one entry.
        """
        if value is None:
            return cls()
        if isinstance(value, LogicalAxes):
            return value
        items = value.items() if isinstance(value, Mapping) else value
        if isinstance(items, str) or not isinstance(items, Iterable):
            raise _bad(f"logical names are a mapping or a list of pairs, not {items!r}")
        pairs: list[tuple[str, tuple[str, ...]]] = []
        for item in items:
            if (
                not isinstance(item, (tuple, list))
                or len(item) != 2
                or not isinstance(item[0], str)
            ):
                raise _bad(f"{item!r} is not a pair of a logical name and mesh axes")
            pairs.append((item[0], _axes(item[0], item[1])))
        return cls(tuple(pairs))

    @property
    def names(self) -> frozenset[str]:
        """The logical names."""
        return frozenset(name for name, _ in self.pairs)

    def assign(self, spec: Spec) -> tuple[tuple[str, ...], ...]:
        """The mesh axes of each dimension of ``spec``, with no axis in two places."""
        if self.names.isdisjoint(spec.names()):
            return tuple(dim.names for dim in spec.dims)
        return self._assign(spec)[0]

    def losses(self, spec: Spec) -> tuple[Loss, ...]:
        """The names of ``spec`` that bring their dimension no axis, since all are taken."""
        if self.names.isdisjoint(spec.names()):
            return ()
        return self._assign(spec)[1]

    def _assign(self, spec: Spec) -> tuple[tuple[tuple[str, ...], ...], tuple[Loss, ...]]:
        logical = self.names
        names = [name for dim in spec.dims for name in dim.names]
        place = {name: i for i, name in reversed(list(enumerate(names)))}
        written_out = [name for name in names if name not in logical]
        chosen: dict[str, tuple[str, ...]] = {}
        taken = set(spec.unreduced)
        for name, axes in self.pairs:
            if name not in place or name in chosen:
                continue
            before = {other for other in written_out if place[other] < place[name]}
            if not _overlap(axes, taken | before):
                chosen[name] = axes
                taken.update(axes)
        dims: list[tuple[str, ...]] = []
        losses: list[Loss] = []
        for index, dim in enumerate(spec.dims):
            found: list[str] = []
            for name in dim.names:
                axes = chosen.pop(name, None) if name in logical else (name,)
                if name not in logical and _overlap((name,), taken):
                    axes = None
                if axes is not None:
                    found += axes
                elif wanted := self._wanted(name):
                    losses.append(Loss(index, name, wanted))
            dims.append(tuple(found))
        return tuple(dims), tuple(losses)

    def _wanted(self, name: str) -> tuple[str, ...]:
        """The axes of the best line of ``name`` that has any; itself, if it is a mesh axis."""
        if name not in self.names:
            return (name,)
        return next((axes for other, axes in self.pairs if other == name and axes), ())


def _overlap(axes: Iterable[str], others: Iterable[str]) -> bool:
    """Whether any of ``axes`` is one of ``others``, or has a part in common with it."""
    return any(_share(SubAxis.parse(a), SubAxis.parse(b)) for a in axes for b in others)


def _share(one: SubAxis, other: SubAxis) -> bool:
    if one.name != other.name:
        return False
    if one.pre_size is None or one.size is None or other.pre_size is None or other.size is None:
        return True
    begin, end = max(one.pre_size, other.pre_size), one.pre_size * one.size
    return begin < min(end, other.pre_size * other.size)


def _axes(name: str, value: Any) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    axes = (value,) if isinstance(value, str) else value
    if not isinstance(axes, (tuple, list)) or not all(isinstance(a, str) and a for a in axes):
        raise _bad(
            f'logical name "{name}" maps to {value!r}, neither a mesh axis nor a list of them'
        )
    if len(set(axes)) < len(axes):
        raise ShardingError(
            "duplicate-axis",
            f'logical name "{name}" maps to {list(axes)}, one axis twice',
            help="name each mesh axis once",
        )
    return tuple(axes)


def _bad(message: str) -> ShardingError:
    return ShardingError("bad-rules", message, help='write embed = "model", or [] for replicated')
