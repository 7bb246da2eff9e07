"""Logical names: what a dimension means to the model, mapped to the mesh axes that cut it.

The mapping follows Flax Linen's ``logical_to_mesh_axes`` and T5X: it is a list in order of
priority, a name may have several lines, and a line can be used while none of its mesh axes is taken
by the same spec. So ``[("mlp", "model"), ("embed", "model"), ("embed", "data")]`` cuts a weight
with the dimensions ``embed, mlp`` over ``data, model``, and a vector of ``embed`` over ``model``. A
name without a line that can be used is not sharded. Where Flax refuses one name in two dimensions,
the first dimension has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shardpass.diagnostics import ShardingError
from shardpass.partition_rules.spec import Spec


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
        """The mesh axes of each dimension of ``spec``, with no axis in two places.

        Names without a logical meaning are mesh axes already, and are taken first.
        """
        logical = self.names
        if logical.isdisjoint(spec.names()):
            return tuple(dim.names for dim in spec.dims)
        taken = {name for name in spec.names() if name not in logical}
        chosen: dict[str, tuple[str, ...]] = {}
        wanted = logical.intersection(spec.names())
        for name, axes in self.pairs:
            if name in wanted and name not in chosen and taken.isdisjoint(axes):
                chosen[name] = axes
                taken.update(axes)
        return tuple(
            tuple(axis for n in dim.names for axis in (chosen.pop(n, ()) if n in logical else (n,)))
            for dim in spec.dims
        )


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
