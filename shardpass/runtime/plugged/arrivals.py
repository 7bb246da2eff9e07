"""Where a function's arguments lie when they arrive, beside what the plan has for them.

An argument that is bound to the mesh keeps its sharding as the executable's: JAX's fast path does
not look at it again, and an executable that wants another one ends in a crash at the second call
(jaxlib 0.10.2) or an error (0.12.0.1). So such an argument comes in as it lies, and is moved inside
the program, by a constraint in front of everything else.

Where no rule speaks of an argument, how it lies is the only word there is on it, and the plan takes
it for settled. An argument that is whole on every device is open: JAX makes that of what was never
placed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import jax
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, sdy
from jax.sharding import NamedSharding

from shardpass.canon import DimSharding, MeshShape, TensorSharding
from shardpass.canon.respelling import Respelling
from shardpass.diagnostics import ShardingError, Sink
from shardpass.mlir import (
    SDY_SHARDING,
    Writer,
    argument_attributes,
    entries_of,
    entry_function,
    set_argument_attributes,
    with_entry,
)
from shardpass.mlir.entry import ALIASING_OUTPUT, BUFFER_DONOR
from shardpass.passes import Pass
from shardpass.passes.annotate import Annotate
from shardpass.passes.units import Step
from shardpass.sharding.convert import to_named


def layout_of(sharding: jax.sharding.Sharding, rank: int, mesh: MeshShape) -> TensorSharding:
    """``sharding`` of a value of ``rank`` dimensions, over the axes of ``mesh`` if they can say it.

    Raises:
      ShardingError: what no named axes say, as tiles of a manual computation.
    """
    layout = to_named(sharding, ndim=rank).canonical(rank)
    try:
        return Respelling.between(layout.mesh, mesh).sharding(layout)
    except ShardingError:
        return layout


@dataclass(frozen=True, kw_only=True)
class KeepArrivals(Pass):
    """Take how arguments arrive for their sharding, where nothing speaks of them yet.

    Order: behind the rules, before propagation.
    """

    name: ClassVar[str] = "shardpass-keep-arrivals"

    layouts: Mapping[int, TensorSharding] = field(default_factory=dict)
    """Place among the module's arguments -> layout."""

    def run(self, root: ir.Operation, sink: Sink) -> None:
        """Annotate those arguments that are not."""
        function = entry_function(root)
        entries = argument_attributes(function)
        open_ones = {p: v for p, v in self.layouts.items() if SDY_SHARDING not in entries[p]}
        write = Writer(root)
        for place, layout in open_ones.items():
            padded = _padded(layout, function, place)
            entries[place] = with_entry(entries[place], SDY_SHARDING, write(padded))
        if open_ones:
            set_argument_attributes(function, entries)


def with_arrivals(pipeline: Sequence[Step], layouts: Mapping[int, TensorSharding]) -> list[Step]:
    """``pipeline`` with :class:`KeepArrivals` behind its rules, or in front where it has none."""
    cut = {place: layout for place, layout in layouts.items() if any(d.axes for d in layout.dims)}
    if not cut:
        return list(pipeline)
    behind = next((n + 1 for n, step in enumerate(pipeline) if isinstance(step, Annotate)), 0)
    return [*pipeline[:behind], KeepArrivals(layouts=cut), *pipeline[behind:]]


@dataclass(frozen=True)
class Moved:
    """An argument that a program takes as it lies, and moves.

    Attributes:
      place: its place among the module's arguments.
      arrives: its sharding as JAX knows it.
      layout: the same in the module.
    """

    place: int
    arrives: jax.sharding.Sharding
    layout: TensorSharding


def move_inside(root: ir.Operation, moved: Sequence[Moved]) -> None:
    """Let each argument come in as it lies, and constrain it to what its annotation says.

    One that was to give its buffer to a result of another layout does not, as its shards may have
    another size.
    """
    if not moved:
        return
    function = entry_function(root)
    entries = argument_attributes(function)
    write = Writer(root)
    for one in moved:
        before = entries[one.place]
        if SDY_SHARDING in before:
            _constrain(function.arguments[one.place], before[SDY_SHARDING])
        kept = {
            name: value
            for name, value in entries_of(before).items()
            if name not in (ALIASING_OUTPUT, BUFFER_DONOR)
        }
        after = ir.DictAttr.get(kept, root.context)
        layout = _padded(one.layout, function, one.place)
        entries[one.place] = with_entry(after, SDY_SHARDING, write(layout))
    set_argument_attributes(function, entries)


def is_equivalent(one: Any, other: Any, rank: int) -> bool:
    """Whether two shardings of JAX's put the same on each device."""
    return one is other or (
        isinstance(one, jax.sharding.Sharding)
        and isinstance(other, jax.sharding.Sharding)
        and one.is_equivalent_to(other, rank)
    )


def is_cut(sharding: Any) -> bool:
    """Whether a sharding by names cuts anything."""
    return isinstance(sharding, NamedSharding) and any(sharding.spec)


def _constrain(argument: ir.Value, attribute: ir.Attribute) -> None:
    block = argument.owner
    assert isinstance(block, ir.Block)
    with ir.InsertionPoint.at_block_begin(block), argument.location:
        constraint = sdy.ShardingConstraintOp(argument, sdy.TensorShardingAttr(attribute))
    argument.replace_all_uses_except(constraint.results[0], constraint.operation)


def _padded(layout: TensorSharding, function: func.FuncOp, place: int) -> TensorSharding:
    """With the dimensions that a random key has in a module and not in JAX."""
    kind = function.type.inputs[place]
    missing = ir.RankedTensorType(kind).rank - layout.rank
    return replace(layout, dims=(*layout.dims, *[DimSharding()] * missing)) if missing else layout
