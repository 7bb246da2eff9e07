"""GSPMD's manual regions as ``sdy.manual_computation``.

GSPMD has no op for a region: values enter one through ``@SPMDFullToShardShape`` and leave it
through ``@SPMDShardToFullShape``, and what lies between has local shapes. The ops between are found
by following values from one to the other; regions that share a value are one. A constant, or what
is computed from constants alone, belongs to whoever uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from shardpass.canon import HloKind, MeshShape, TensorSharding, manual_axes
from shardpass.diagnostics import Diagnostic, ShardingError
from shardpass.mlir import (
    MHLO_SHARDING,
    locate,
    operations,
    read_mhlo,
)
from shardpass.passes.gspmd.local_shapes import Crossing, check_local_shapes
from shardpass.passes.identities import (
    ENTER_MANUAL,
    LEAVE_MANUAL,
    MANUAL_CALLS,
    call_target,
    is_sharding_call,
)
from shardpass.passes.inlining import Inliner, callees_of, functions_of
from shardpass.passes.manual_regions import all_operands

#: What a call says of the value that it gives.
Placed = Callable[[ir.OpView], TensorSharding]
#: Shardings as the attribute of a manual computation.
Written = Callable[[Sequence[TensorSharding]], ir.Attribute]


@dataclass(eq=False)
class _Region:
    """The ops of one region, in program order.

    Attributes:
      axes: manual in it and not around it.
      enters: the calls through which whole values come in.
      leaves: the calls through which values go out whole.
      members: what lies between.
    """

    axes: tuple[str, ...]
    enters: list[ir.OpView] = field(default_factory=list)
    leaves: list[ir.OpView] = field(default_factory=list)
    members: list[ir.OpView] = field(default_factory=list)


class ManualImport:
    """Makes the regions of one module, whose shardings are said on ``mesh``."""

    def __init__(
        self,
        mesh: MeshShape,
        placed: Placed,
        written: Written,
    ) -> None:
        self._mesh = mesh
        self._placed = placed
        self._written = written
        self._faults: list[Diagnostic] = []

    def module(self, root: ir.Operation) -> None:
        """Rewrite every region in ``root``.

        Raises:
          ShardingError: ``not-supported`` for borders that do not fit together,
            ``missing-sharding`` for a value that enters and has none, ``shape-mismatch`` for one
            that is inside what a device does not hold; with the place.
        """
        functions = functions_of(root)
        inliner = Inliner(functions)
        called = {name for function in functions.values() for name in callees_of(function)}
        waiting = [name for name in functions if name not in called]
        done: set[str] = set()
        while waiting:
            name = waiting.pop(0)
            if name in done or name not in functions:
                continue
            done.add(name)
            for block in list(_blocks(functions[name])):
                self._block(block, (), inliner)
            waiting += callees_of(functions[name])
        inliner.erase_uncalled()
        if self._faults:
            raise ShardingError.of(self._faults)

    def _block(self, block: ir.Block, around: tuple[str, ...], inliner: Inliner) -> None:
        if not any(call_target(op) in MANUAL_CALLS for op in block.operations):
            return
        for region in _Search(self, block, around).regions():
            try:
                body = self._make(region)
            except ShardingError as error:
                self._faults += error.diagnostics
                continue
            inliner.into(body)
            self._block(body, around + region.axes, inliner)

    def axes_of(self, border: ir.OpView, around: tuple[str, ...]) -> tuple[str, ...]:
        """The axes that are manual for the result of a border, but for those manual around it."""
        axes = manual_axes(read_mhlo(border.attributes[MHLO_SHARDING]), self._mesh)
        for axis in axes:
            if not axis.is_full:
                _refuse(border, f"{axis}, a part of an axis, would be manual")
        return tuple(axis.name for axis in axes if axis.name not in around)

    def _make(self, region: _Region) -> ir.Block:
        """Put the ops of ``region`` into an op, and give its body."""
        first = region.leaves[0]
        operands, in_shardings = self._entered(region)
        out_shardings = [self._placed(leave) for leave in region.leaves]
        _check_shapes(region, in_shardings, out_shardings)
        with first.context, (region.enters or region.leaves)[0].location:
            axes = sdy.ManualAxesAttr.get([ir.StringAttr.get(axis) for axis in region.axes])
            with ir.InsertionPoint(first.operation):
                made = sdy.ManualComputationOp(
                    [leave.results[0].type for leave in region.leaves],
                    operands,
                    self._written(in_shardings),
                    self._written(out_shardings),
                    axes,
                )
            body = made.regions[0].blocks.append(*(e.results[0].type for e in region.enters))
            for enter, argument in zip(region.enters, body.arguments, strict=True):
                enter.results[0].replace_all_uses_with(argument)
            for member in region.members:
                body.append(member.operation)
            given = [
                self._given(leave, sharding, region.axes)
                for leave, sharding in zip(region.leaves, out_shardings, strict=True)
            ]
            with ir.InsertionPoint(body):
                sdy.ReturnOp(given)
            _own_constants(body)
        for leave, result in zip(region.leaves, made.results, strict=True):
            leave.results[0].replace_all_uses_with(result)
        for border in (*region.leaves, *region.enters):
            source = border.operands[0].owner
            border.operation.erase()
            if not isinstance(source, ir.Block) and is_sharding_call(source.opview):
                _erase_if_idle(source)
        return body

    def _given(self, leave: ir.OpView, whole: TensorSharding, axes: Sequence[str]) -> ir.Value:
        """What the body returns; a ``@Sharding`` call there mostly repeats what ``leave`` says."""
        value = leave.operands[0]
        source = value.owner
        if isinstance(source, ir.Block) or not is_sharding_call(source.opview):
            return value
        if read_mhlo(source.attributes[MHLO_SHARDING]).kind is HloKind.MANUAL:
            return source.operands[0]
        local = tuple(
            (tuple(axis for axis in dim.axes if axis.name not in axes), dim.open)
            for dim in whole.dims
        )
        said = tuple((dim.axes, dim.open) for dim in self._placed(source.opview).dims)
        return source.operands[0] if said == local else value

    def _entered(self, region: _Region) -> tuple[list[ir.Value], list[TensorSharding]]:
        """What goes in, and how it lies: a ``@Sharding`` call in front says it."""
        values: list[ir.Value] = []
        shardings: list[TensorSharding] = []
        for enter in region.enters:
            value = enter.operands[0]
            source = value.owner
            if isinstance(source, ir.Block) or MHLO_SHARDING not in source.attributes:
                raise ShardingError(
                    "missing-sharding",
                    f"what enters a manual region by @{ENTER_MANUAL} carries no mhlo.sharding",
                    location=locate(enter),
                    help="put a @Sharding call in front",
                )
            call = source.opview
            shardings.append(self._placed(call))
            values.append(call.operands[0] if is_sharding_call(call) else value)
        return values, shardings


class _Search:
    """The regions of one block."""

    def __init__(self, owner: ManualImport, block: ir.Block, around: tuple[str, ...]) -> None:
        self._owner = owner
        self._around = around
        self._ops = list(block.operations)
        self._places = {op.operation: place for place, op in enumerate(self._ops)}
        self._region_of: dict[ir.Value, _Region] = {}

    def regions(self) -> list[_Region]:
        """All, in the order in which they begin."""
        for op in self._ops:
            inside = [self._region_of[v] for v in all_operands(op) if v in self._region_of]
            target = call_target(op)
            if target == ENTER_MANUAL and not inside:
                region = _Region(self._owner.axes_of(op, self._around), [op])
            elif target == LEAVE_MANUAL and not self._owner.axes_of(op, self._around):
                self._one(inside or [self._of_constants(op)], op).leaves.append(op)
                continue
            elif inside:
                region = self._one(inside, op)
                region.members.append(op)
            else:
                continue
            for result in op.results:
                self._region_of[result] = region
        found = list(dict.fromkeys(self._region_of.values()))
        for region in found:
            self._check(region)
        return found

    def _one(self, regions: Sequence[_Region], op: ir.OpView) -> _Region:
        """The one region of all ``regions``, which ``op`` shows to be one."""
        first, *others = dict.fromkeys(regions)
        for other in others:
            if first.axes and other.axes and set(first.axes) != set(other.axes):
                _refuse(op, f"it meets values for which {first.axes} and {other.axes} are manual")
            first.axes = first.axes or other.axes
            first.enters += other.enters
            first.leaves += other.leaves
            first.members += other.members
            for value, region in self._region_of.items():
                if region is other:
                    self._region_of[value] = first
        for ops in (first.enters, first.leaves, first.members) if others else ():
            ops.sort(key=lambda member: self._place_of(member.operation))
        return first

    def _of_constants(self, leave: ir.OpView) -> _Region:
        """A region that nothing enters: what ``leave`` gives out is made of constants."""
        members: list[ir.OpView] = []
        waiting = [leave.operands[0]]
        axes: tuple[str, ...] = ()
        while waiting:
            value = waiting.pop()
            owner = value.owner
            if isinstance(owner, ir.Block):
                _refuse(leave, "what leaves the manual region has not entered it")
            op = owner.opview
            if op in members:
                continue
            members.append(op)
            waiting += all_operands(op)
            if is_sharding_call(op):
                axes = axes or self._owner.axes_of(op, self._around)
        members.sort(key=lambda member: self._place_of(member.operation))
        region = _Region(axes, members=members)
        for op in members:
            for result in op.results:
                self._region_of[result] = region
        return region

    def _check(self, region: _Region) -> None:
        """Raise unless all of ``region`` can stand where its first result is made."""
        if not region.leaves:
            _refuse(region.enters[0], "nothing leaves it again")
        first = self._place_of(region.leaves[0].operation)
        for enter in region.enters:
            source = enter.operands[0].owner
            if not isinstance(source, ir.Block) and is_sharding_call(source.opview):
                source = source.operands[0].owner
            if not isinstance(source, ir.Block) and self._place_of(source) >= first:
                _refuse(enter, "it is entered again after a value has left it")

    def _place_of(self, op: ir.Operation) -> int:
        return self._places.get(op, -1)


def _check_shapes(
    region: _Region, ins: Sequence[TensorSharding], outs: Sequence[TensorSharding]
) -> None:
    entered = (
        Crossing(call, call.operands[0].type, call.results[0].type, sharding)
        for call, sharding in zip(region.enters, ins, strict=True)
    )
    left = (
        Crossing(call, call.results[0].type, call.operands[0].type, sharding)
        for call, sharding in zip(region.leaves, outs, strict=True)
    )
    check_local_shapes((*entered, *left), region.axes)


def _blocks(op: ir.Operation | ir.OpView) -> Iterator[ir.Block]:
    """Every block inside ``op``, outer ones first."""
    for region in op.regions:
        for block in region.blocks:
            yield block
            for inner in block.operations:
                yield from _blocks(inner)


def _own_constants(body: ir.Block) -> None:
    """Give ``body`` its own of every value from outside, all of which are constants."""
    inside: set[ir.Value] = set()
    for block in _blocks(body.owner):
        inside.update(block.arguments, *(op.results for op in block.operations))
    first = body.operations[0]
    cloned: dict[ir.Value, ir.Value] = {}

    def own(value: ir.Value, user: ir.OpView) -> ir.Value:
        if value in inside:
            return value
        if value not in cloned:
            owner = value.owner
            if isinstance(owner, ir.Block) or not owner.name.startswith(("stablehlo.", "chlo.")):
                _refuse(user, "it uses a value that has not entered")
            operands = [own(operand, user) for operand in owner.operands]
            copy = owner.clone(ir.InsertionPoint(first))
            for place, operand in enumerate(operands):
                copy.operands[place] = operand
            cloned.update(zip(owner.results, copy.results, strict=True))
        return cloned[value]

    for op in list(operations(body.owner)):
        for place, operand in enumerate(op.operands):
            if operand not in inside:
                op.operands[place] = own(operand, op)


def _erase_if_idle(op: ir.Operation) -> None:
    if not any(True for result in op.results for _ in result.uses):
        op.erase()


def _refuse(op: ir.OpView, why: str) -> NoReturn:
    raise ShardingError(
        "not-supported",
        f"{op.operation.name} in or at a manual region: {why}",
        location=locate(op),
        help="export the program with Shardy on, or keep it in GSPMD's notation",
    )
