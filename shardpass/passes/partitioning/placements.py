"""Where the values of a module lie, whatever op says so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, sdy, stablehlo

from shardpass.canon import TensorSharding
from shardpass.canon.axes import DimSharding
from shardpass.diagnostics import SourceLocation
from shardpass.mlir import (
    SDY_SHARDING,
    EntryValue,
    Shardings,
    argument_attributes,
    arguments_of,
    locate,
    operations,
    result_attributes,
    results_of,
    where_written,
)
from shardpass.mlir.element_types import static_shape
from shardpass.passes.identities import COLLECTIVES, CONSTRAINTS
from shardpass.passes.manual_axes import axes_of

_CARRYING = (stablehlo.WhileOp,)


@dataclass(frozen=True)
class Placement:
    """A value that somebody has written a sharding for.

    Attributes:
      type: its type; with global shapes, outside of manual axes.
      sharding: what is written.
      owner: the op that gives it, or the function that it is an argument or a result of.
      entry: the argument or result, if it is one.
    """

    type: ir.Type
    sharding: TensorSharding
    owner: ir.OpView
    entry: EntryValue | None = None

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Its static shape, or ``None`` where it has none."""
        return static_shape(self.type)

    @property
    def location(self) -> SourceLocation | None:
        """The line that it is written on."""
        if self.entry:
            assert isinstance(self.owner, func.FuncOp)
            return where_written(self.owner, self.entry)
        return locate(self.owner)

    def __str__(self) -> str:
        if self.entry is None:
            return f"the result of {self.owner.operation.name}"
        assert isinstance(self.owner, func.FuncOp)
        return f"{self.entry} of @{self.owner.name.value}"


class Placements:
    """The shardings of one module's values. Made once per look: it remembers what it has read."""

    def __init__(self, root: ir.Operation) -> None:
        self._root = root
        self._shardings = Shardings(root)
        self._arguments: dict[str, list[ir.DictAttr]] = {}

    def __iter__(self) -> Iterator[Placement]:
        """All of them: arguments and results of functions first, results of ops in order."""
        for op in operations(self._root):
            if isinstance(op, func.FuncOp):
                yield from self._of_function(op)
                continue
            for result, sharding in zip(op.results, self._of_results(op), strict=False):
                if sharding is not None:
                    yield Placement(result.type, sharding, op)
            if isinstance(op, sdy.ManualComputationOp):
                yield from self._of_border(op)

    def of(self, value: ir.Value) -> TensorSharding | None:
        """The sharding of ``value``; ``None`` if nothing is said, so that it is whole."""
        owner = value.owner
        if not isinstance(owner, ir.Block):
            return _at(self._of_results(owner.opview), ir.OpResult(value).result_number)
        index, holder = ir.BlockArgument(value).arg_number, owner.owner.opview
        if isinstance(holder, func.FuncOp):
            name = holder.name.value
            if name not in self._arguments:
                # A list of attributes is made anew by each asking.
                self._arguments[name] = argument_attributes(holder)
            entries = self._arguments[name][index]
            return self._shardings.read(entries[SDY_SHARDING]) if SDY_SHARDING in entries else None
        if isinstance(holder, sdy.ManualComputationOp):
            inside = self._shardings.read_per_value(holder.attributes["in_shardings"])[index]
            return _without(inside, set(axes_of(holder)))
        if isinstance(holder, _CARRYING):
            return _at(self._of_results(holder), index)
        return None

    def cuts(self, value: ir.Value) -> tuple[int, ...]:
        """Into how many pieces each dimension of ``value`` is cut; empty where none is known."""
        sharding = self.of(value)
        return sharding.tiles() if sharding is not None else ()

    def is_cut(self, value: ir.Value) -> bool:
        """Whether a device holds less than the whole of ``value``."""
        return any(pieces > 1 for pieces in self.cuts(value))

    def _of_results(self, op: ir.OpView) -> tuple[TensorSharding, ...]:
        attributes = op.attributes
        if isinstance(op, CONSTRAINTS):
            return (self._shardings.read(attributes["sharding"]),)
        if isinstance(op, COLLECTIVES):
            return (self._shardings.read(attributes["out_sharding"]),)
        if isinstance(op, sdy.ManualComputationOp):
            return self._shardings.read_per_value(attributes["out_shardings"])
        if SDY_SHARDING in attributes:
            return self._shardings.read_per_value(attributes[SDY_SHARDING])
        return ()

    def _of_border(self, op: sdy.ManualComputationOp) -> Iterator[Placement]:
        placed = self._shardings.read_per_value(op.attributes["in_shardings"])
        for operand, sharding in zip(op.operands, placed, strict=True):
            yield Placement(operand.type, sharding, op)

    def _of_function(self, function: func.FuncOp) -> Iterator[Placement]:
        for values, attributes in (
            (arguments_of, argument_attributes(function)),
            (results_of, result_attributes(function)),
        ):
            placed = [i for i, entries in enumerate(attributes) if SDY_SHARDING in entries]
            named = values(function) if placed else []
            for i in placed:
                sharding = self._shardings.read(attributes[i][SDY_SHARDING])
                yield Placement(named[i].type, sharding, function, named[i])


def _at(shardings: tuple[TensorSharding, ...], index: int) -> TensorSharding | None:
    return shardings[index] if index < len(shardings) else None


def _without(sharding: TensorSharding, axes: set[str]) -> TensorSharding:
    """``sharding`` as it is seen where ``axes`` are manual."""
    return TensorSharding(
        sharding.mesh,
        tuple(
            DimSharding(tuple(axis for axis in dim.axes if axis.name not in axes), dim.open)
            for dim in sharding.dims
        ),
    )
