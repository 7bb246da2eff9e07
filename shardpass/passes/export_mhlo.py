"""``sp-export-mhlo``: from Shardy's notation to GSPMD's."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, sdy, stablehlo

from shardpass.canon import (
    DimSharding,
    HloSharding,
    ShardGroup,
    TensorSharding,
    to_hlo,
    to_named_hlo,
)
from shardpass.diagnostics import ShardingError, Sink
from shardpass.mlir import (
    ADVANCE,
    MHLO_SHARDING,
    SDY_SHARDING,
    Shardings,
    entries_of,
    locate,
    mesh_ops,
    num_partitions,
    read_mhlo,
    set_num_partitions,
    visit,
    write_mhlo,
)
from shardpass.passes.base import Pass, option
from shardpass.passes.dialect_attributes import is_of_dialect, rewrite_entries
from shardpass.passes.gspmd.device_counts import DeviceCounts
from shardpass.passes.gspmd.frontend_attributes import (
    FRONTEND_ATTRIBUTES,
    refuse_round_trip,
    without_sdy_attributes,
)
from shardpass.passes.identities import (
    COLLECTIVES,
    CONSTRAINTS,
    ENTER_MANUAL,
    LEAVE_MANUAL,
    MARKS,
    SHARDING_CALL,
    replace_by_constant,
    replace_by_operand,
)
from shardpass.passes.manual_axes import ManualAxes, axes_of, of_functions
from shardpass.passes.meshes.replica_groups import REPLICA_GROUPS, list_replica_groups

_MANUAL = sdy.ManualComputationOp.OPERATION_NAME
_FUNCTION = func.FuncOp.OPERATION_NAME


@dataclass(frozen=True, kw_only=True)
class ExportMhlo(Pass):
    """Write every ``sdy.sharding`` as ``mhlo.sharding``, and drop the meshes.

    Attributes of arguments, results and ops are rewritten, as a tuple where an op has several
    results. Constraints, reshards and Shardy's collectives become ``@Sharding`` custom calls, with
    ``unspecified_dims`` for their open dimensions; members of a sharding group pass through a call
    with ``shard_as``. The body of a manual computation comes to stand between the custom calls that
    GSPMD knows (``@SPMDFullToShardShape``, ``@SPMDShardToFullShape``). Placement is kept exactly;
    what GSPMD's notation cannot say (axis names, priorities, openness of arguments) is gone.

    With ``v3`` the text is that of jaxlib 0.12 and newer, which keeps the names, openness and
    explicit replication: ``{mesh['x'=2,'y'=4], [{'x'}, {?}]}``.

    Leaves alone: ops without a sharding; markers of other kinds, like those of host offloading.
    An error: a function that holds shardings and is called both inside and outside of a manual
    computation; tiles over another number of devices than the module, or other tiles, are for;
    Shardy's notation as strings, which ``sp-import-mhlo`` reads.
    Order: behind ``sp-propagate``; in front of ``sp-prepare-for-xla`` where something else than
    ``shardpass run`` compiles the module, since XLA dies of a sharding on a loop that it rewrites.
    """

    name: ClassVar[str] = "sp-export-mhlo"
    is_for_gradients: ClassVar[bool] = True

    v3: bool = option(False, help="write shardings with the names of their axes (XLA's V3)")

    def run(self, root: ir.Operation, sink: Sink) -> None:
        """Export ``root``."""
        refuse_round_trip(root, sink)
        lower = _lowered_by_name if self.v3 else _lowered
        counts = DeviceCounts(num_partitions(root), sink)
        export = _Export(Shardings(root), sink, of_functions(root), lower, counts)
        visit(root, export.look)
        largest = max((mesh.size for mesh in export.shardings.meshes.values()), default=None)
        counts.finish(largest)
        if sink.has_errors:
            return
        export.rewrite_special()
        counts.finish(largest)
        devices = counts.devices or largest if export.shardings.meshes else None
        for mesh in mesh_ops(root):
            mesh.operation.erase()
        if devices is not None and num_partitions(root) in (None, 1):
            set_num_partitions(root, devices)


@lru_cache(1024)
def _lowered(sharding: TensorSharding, manual: ManualAxes) -> HloSharding:
    """Remembered: arguments, results and ops carry the same few."""
    return to_hlo(sharding, [axis for axis in manual if axis in sharding.mesh.names])


@lru_cache(1024)
def _lowered_by_name(sharding: TensorSharding, manual: ManualAxes) -> HloSharding:
    return to_named_hlo(sharding, [axis for axis in manual if axis in sharding.mesh.names])


class _Export:
    """One module's shardings on their way out; each distinct attribute is converted once.

    What lies where axes are manual is converted by an export of its own, made by this one.
    """

    def __init__(
        self,
        shardings: Shardings,
        sink: Sink,
        of_functions: Mapping[str, ManualAxes],
        lower: Callable[[TensorSharding, ManualAxes], HloSharding],
        counts: DeviceCounts,
        manual: ManualAxes = (),
    ) -> None:
        self.shardings = shardings
        self._sink = sink
        self._of_functions = of_functions
        self._lower = lower
        self._counts = counts
        self._manual = manual
        self._special: list[ir.Operation] = []
        self._grouped: set[ir.Operation] = set()
        self._inside: list[_Export] = []
        self._of_value: dict[ir.Attribute, ir.StringAttr] = {}
        self._of_op: dict[ir.Attribute, ir.StringAttr] = {}
        self._there: set[ir.Attribute] = set()

    def _tiles(
        self, sharding: TensorSharding, op: ir.Operation | ir.OpView, attribute: ir.Attribute
    ) -> HloSharding:
        found = self._lower(sharding, self._manual)
        self._counts.check(found, op, attribute)
        return found

    def _already(self, attribute: ir.Attribute, op: ir.Operation | ir.OpView) -> None:
        """Count the devices of what is in GSPMD's notation already, where it can be read."""
        if attribute not in self._there:
            self._there.add(attribute)
            with contextlib.suppress(ShardingError):
                whole = read_mhlo(attribute)
                for sharding in whole.elements if whole.is_tuple else (whole,):
                    self._counts.check(sharding, op, attribute)

    def of_value(self, attribute: ir.Attribute, op: ir.OpView) -> ir.StringAttr:
        """The ``mhlo.sharding`` for a ``#sdy.sharding`` that was found at ``op``."""
        found = self._of_value.get(attribute)
        if found is None:
            sharding = self._tiles(self.shardings.read(attribute), op, attribute)
            found = self._of_value[attribute] = write_mhlo(sharding, attribute.context)
        return found

    def of_op(self, attribute: ir.Attribute, op: ir.Operation | ir.OpView) -> ir.StringAttr:
        """The ``mhlo.sharding`` for a ``#sdy.sharding_per_value`` that was found at ``op``."""
        found = self._of_op.get(attribute)
        if found is None:
            given = self.shardings.read_per_value(attribute)
            parts = [self._tiles(sharding, op, attribute) for sharding in given]
            whole = parts[0] if len(parts) == 1 else HloSharding.tuple_of(parts)
            found = self._of_op[attribute] = write_mhlo(whole, attribute.context)
        return found

    def look(self, op: ir.Operation) -> ir.WalkResult:
        """Rewrite the attributes of ``op``, or put it aside if that is not all."""
        name = op.name
        if name == _MANUAL:
            self._special.append(op)
            self._look_inside(op, self._manual + axes_of(op))
            return ir.WalkResult.SKIP
        if name == _FUNCTION and self._of_functions and not self._manual:
            manual = self._of_functions.get(ir.StringAttr(op.attributes["sym_name"]).value)
            if manual:
                self._look_inside(op, manual)._special.append(op)
                return ir.WalkResult.SKIP
        if name in _REWRITES:
            self._special.append(op)
        else:
            self._attributes(op)
        return ADVANCE

    def _look_inside(self, op: ir.Operation, manual: ManualAxes) -> _Export:
        inside = self._with(manual)
        self._inside.append(inside)
        for inner in op.regions[0].blocks[0].operations:
            visit(inner, inside.look)
        return inside

    def _with(self, manual: ManualAxes) -> _Export:
        return _Export(
            self.shardings, self._sink, self._of_functions, self._lower, self._counts, manual
        )

    def rewrite_special(self) -> None:
        for inside in self._inside:
            inside.rewrite_special()
        for op in self._special:
            _REWRITES[op.name](self, op.opview)

    def _attributes(self, op: ir.Operation | ir.OpView) -> None:
        attributes = op.attributes
        placed = attributes.get(SDY_SHARDING)
        # Most ops have this one or none, and listing the names costs more than all the rest.
        if len(attributes) > (placed is not None):
            self._other_attributes(op)
        if placed is not None:
            attributes[MHLO_SHARDING] = self.of_op(placed, op)
            del attributes[SDY_SHARDING]

    def _other_attributes(self, op: ir.Operation | ir.OpView) -> None:
        names = list(op.attributes)
        if SDY_SHARDING in names and MHLO_SHARDING in names:
            self._mixed(op)
        elif MHLO_SHARDING in names:
            self._already(op.attributes[MHLO_SHARDING], op)
        for name in names:
            if is_of_dialect(name) and name != SDY_SHARDING:
                del op.attributes[name]
        if FRONTEND_ATTRIBUTES in names:
            without_sdy_attributes(op)
        if REPLICA_GROUPS in names:
            list_replica_groups(op, self.shardings.meshes)

    def function(self, function: func.FuncOp) -> None:
        rewrite_entries(function, lambda entries: self._entries(entries, function))
        self._attributes(function)

    def constant(self, op: ir.OpView) -> None:
        placed = op.attributes.get(SDY_SHARDING)
        constant = replace_by_constant(op)
        if placed is not None:
            constant.attributes[MHLO_SHARDING] = self.of_op(placed, constant)

    def constraint(self, op: ir.OpView) -> None:
        self._call(op, op.attributes["sharding"])

    def collective(self, op: ir.OpView) -> None:
        self._call(op, op.attributes["out_sharding"])

    def mark(self, op: ir.OpView) -> None:
        replace_by_operand(op)

    def group(self, op: sdy.ShardingGroupOp) -> None:
        """A call that every other use of the value goes through, as JAX writes it for GSPMD."""
        value = op.operands[0]
        member = ShardGroup(ir.IntegerAttr(op.attributes["group_id"]).value, exact=True)
        sharding = replace(HloSharding.unknown(), group=member)
        with op.context, op.location, self._behind(value):
            call = self._custom_call(SHARDING_CALL, value, value.type, str(sharding))
            call.attributes["has_side_effect"] = ir.BoolAttr.get(True)
        self._grouped.add(call.operation)
        value.replace_all_uses_except(call.results[0], [call.operation, op.operation])
        op.operation.erase()

    def _behind(self, value: ir.Value) -> ir.InsertionPoint:
        """Where ``value`` has just been made, so that whatever uses it comes later.

        Arguments of a block are passed through calls in the order of the groups' ops.
        """
        owner = value.owner
        if not isinstance(owner, ir.Block):
            return ir.InsertionPoint.after(owner.operation)
        return ir.InsertionPoint(
            next(op for op in owner.operations if op.operation not in self._grouped)
        )

    def named_computation(self, op: sdy.NamedComputationOp) -> None:
        """The body in place of the op; its shardings are constraints on what goes in and out."""
        body = op.regions[0].blocks[0]
        *ops, end = list(body.operations)
        self._replace(body.arguments, op.operands, op, "in_shardings")
        for inner in ops:
            inner.operation.move_before(op.operation)
        self._replace(op.results, end.operands, op, "out_shardings")
        op.operation.erase()

    def _replace(
        self, old: Iterable[ir.Value], new: Iterable[ir.Value], op: ir.OpView, name: str
    ) -> None:
        attribute = op.attributes.get(name)
        placed = () if attribute is None else self.shardings.read_per_value(attribute)
        with op.context, op.location, ir.InsertionPoint(op.operation):
            for one, other, sharding in itertools.zip_longest(old, new, placed):
                one.replace_all_uses_with(
                    other if sharding is None else self._sharded(other, other.type, sharding)
                )

    def manual_computation(self, op: sdy.ManualComputationOp) -> None:
        """The body in place of the op, between the calls that go from whole values to shards."""
        inside = self._with(self._manual + axes_of(op))
        body = op.regions[0].blocks[0]
        *ops, end = list(body.operations)
        with op.context, op.location, ir.InsertionPoint(op.operation):
            placed = self.shardings.read_per_value(op.attributes["in_shardings"])
            entries = zip(op.operands, placed, body.arguments, strict=True)
            for operand, sharding, argument in entries:
                whole = self._sharded(operand, operand.type, sharding)
                argument.replace_all_uses_with(
                    inside._sharded(whole, argument.type, inside.local(sharding), ENTER_MANUAL)
                )
        for inner in ops:
            inner.operation.move_before(op.operation)
        with op.context, op.location, ir.InsertionPoint(op.operation):
            placed = self.shardings.read_per_value(op.attributes["out_shardings"])
            for local, sharding, result in zip(end.operands, placed, op.results, strict=True):
                shard = inside._sharded(local, local.type, inside.local(sharding))
                result.replace_all_uses_with(
                    self._sharded(shard, result.type, sharding, LEAVE_MANUAL)
                )
        op.operation.erase()

    def local(self, sharding: TensorSharding) -> TensorSharding:
        """What ``sharding`` says of a value's shards: its axes less those that are manual."""
        dims = tuple(
            replace(dim, axes=tuple(axis for axis in dim.axes if axis.name not in self._manual))
            for dim in sharding.dims
        )
        return TensorSharding(sharding.mesh, tuple(_without_idle_priority(dim) for dim in dims))

    def _sharded(
        self,
        value: ir.Value,
        kind: ir.Type,
        sharding: TensorSharding,
        target: str = SHARDING_CALL,
    ) -> ir.Value:
        lowered = self._lower(sharding, self._manual)
        config = _open_dimensions(sharding)
        call = self._custom_call(target, value, kind, str(lowered), config)
        self._counts.check(lowered, call)
        return call.results[0]

    def _custom_call(
        self, target: str, value: ir.Value, kind: ir.Type, sharding: str, config: str = ""
    ) -> stablehlo.CustomCallOp:
        call = stablehlo.CustomCallOp(
            [kind], [value], target, backend_config=ir.StringAttr.get(config) if config else None
        )
        call.attributes[MHLO_SHARDING] = ir.StringAttr.get(sharding)
        return call

    def _mixed(self, op: ir.Operation | ir.OpView) -> None:
        self._sink.error(
            "mixed-notations",
            f"{op.operation.name} carries both sdy.sharding and mhlo.sharding",
            location=locate(op),
            help="remove one; sp-strip removes both",
        )

    def _call(self, op: ir.OpView, attribute: ir.Attribute) -> None:
        sharding = self.shardings.read(attribute)
        with op.context, op.location, ir.InsertionPoint(op.operation):
            moved = self._sharded(op.operands[0], op.results[0].type, sharding)
        op.results[0].replace_all_uses_with(moved)
        op.operation.erase()

    def _entries(self, entries: ir.DictAttr, function: func.FuncOp) -> ir.DictAttr:
        found = entries_of(entries)
        kept = {name: value for name, value in found.items() if not is_of_dialect(name)}
        if MHLO_SHARDING in found:
            self._already(found[MHLO_SHARDING], function)
        if len(kept) == len(found):
            return entries
        if SDY_SHARDING in found:
            kept[MHLO_SHARDING] = self.of_value(found[SDY_SHARDING], function)
        return ir.DictAttr.get(kept, context=entries.context)


#: What becomes of ops that are more than their attributes, by name.
_REWRITES: dict[str, Callable[[_Export, Any], None]] = {
    _FUNCTION: _Export.function,
    _MANUAL: _Export.manual_computation,
    sdy.NamedComputationOp.OPERATION_NAME: _Export.named_computation,
    sdy.ShardingGroupOp.OPERATION_NAME: _Export.group,
    sdy.ConstantOp.OPERATION_NAME: _Export.constant,
    **{kind.OPERATION_NAME: _Export.constraint for kind in CONSTRAINTS},
    **{kind.OPERATION_NAME: _Export.collective for kind in COLLECTIVES},
    **{kind.OPERATION_NAME: _Export.mark for kind in MARKS},
}


def _without_idle_priority(dim: DimSharding) -> DimSharding:
    return dim if dim.axes or dim.open else DimSharding()


def _open_dimensions(sharding: TensorSharding) -> str:
    """``unspecified_dims=[0,2]``, as GSPMD's custom call spells what Shardy calls open."""
    found = [str(index) for index, dimension in enumerate(sharding.dims) if dimension.open]
    return f"unspecified_dims=[{','.join(found)}]" if found else ""
