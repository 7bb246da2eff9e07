"""``sp-export-mhlo``: from Shardy's notation to GSPMD's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, sdy, stablehlo

from shardpass.canon import HloSharding, TensorSharding, to_hlo
from shardpass.diagnostics import Sink
from shardpass.mlir import (
    MHLO_SHARDING,
    SDY_SHARDING,
    Shardings,
    locate,
    mesh_ops,
    num_partitions,
    operations,
    set_num_partitions,
    with_entry,
    write_mhlo,
)
from shardpass.passes.base import Pass
from shardpass.passes.dialect_attributes import (
    drop_dialect_attributes,
    rewrite_entries,
    without_dialect_attributes,
)
from shardpass.passes.frontend_attributes import without_sdy_attributes
from shardpass.passes.identities import (
    COLLECTIVES,
    CONSTRAINTS,
    MARKS,
    SHARDING_CALL,
    is_constant,
    replace_by_constant,
    replace_by_operand,
)

_REFUSED = {
    sdy.ManualComputationOp: "a manual computation",
    sdy.ShardingGroupOp: "a sharding group",
    sdy.NamedComputationOp: "a named computation",
}


@dataclass(frozen=True, kw_only=True)
class ExportMhlo(Pass):
    """Write every ``sdy.sharding`` as ``mhlo.sharding``, and drop the meshes.

    Attributes of arguments, results and ops are rewritten, as a tuple where an op has several
    results. Constraints, reshards and Shardy's collectives become ``@Sharding`` custom calls, with
    ``unspecified_dims`` for their open dimensions. Placement is kept exactly; what GSPMD's notation
    cannot say (axis names, priorities, openness of arguments) is gone.

    Leaves alone: ops without a sharding.
    An error: manual computations, sharding groups, named computations.
    Order: behind ``sp-propagate``.
    """

    name: ClassVar[str] = "sp-export-mhlo"

    def run(self, root: ir.Operation, sink: Sink) -> None:
        """Export ``root``."""
        found = list(operations(root))
        _refuse(found, sink)
        if sink.has_errors:
            return
        export = _Export(root)
        for op in found:
            if isinstance(op, func.FuncOp):
                export.function(op)
            elif isinstance(op, CONSTRAINTS):
                export.constraint(op, op.attributes["sharding"])
            elif isinstance(op, COLLECTIVES):
                export.constraint(op, op.attributes["out_sharding"])
            elif isinstance(op, MARKS):
                replace_by_operand(op)
            elif is_constant(op):
                export.op(op)
                replace_by_constant(op)
            else:
                export.op(op)
        devices = max((mesh.size for mesh in export.shardings.meshes.values()), default=None)
        for mesh in mesh_ops(root):
            mesh.operation.erase()
        drop_dialect_attributes(root)
        without_sdy_attributes(root)
        if devices is not None and num_partitions(root) in (None, 1):
            set_num_partitions(root, devices)


class _Export:
    """One module's shardings on their way out; each distinct attribute is converted once."""

    def __init__(self, root: ir.Operation) -> None:
        self.shardings = Shardings(root)
        self._context = root.context
        self._of_value: dict[ir.Attribute, ir.StringAttr] = {}
        self._of_op: dict[ir.Attribute, ir.StringAttr] = {}

    def of_value(self, attribute: ir.Attribute) -> ir.StringAttr:
        """The ``mhlo.sharding`` for a ``#sdy.sharding``."""
        found = self._of_value.get(attribute)
        if found is None:
            sharding = to_hlo(self.shardings.read(attribute))
            found = self._of_value[attribute] = write_mhlo(sharding, self._context)
        return found

    def of_op(self, attribute: ir.Attribute) -> ir.StringAttr:
        """The ``mhlo.sharding`` for a ``#sdy.sharding_per_value``."""
        found = self._of_op.get(attribute)
        if found is None:
            parts = [to_hlo(s) for s in self.shardings.read_per_value(attribute)]
            whole = parts[0] if len(parts) == 1 else HloSharding.tuple_of(parts)
            found = self._of_op[attribute] = write_mhlo(whole, self._context)
        return found

    def op(self, op: ir.OpView) -> None:
        attributes = op.attributes
        if SDY_SHARDING in attributes:
            attributes[MHLO_SHARDING] = self.of_op(attributes[SDY_SHARDING])
        drop_dialect_attributes(op)
        without_sdy_attributes(op)

    def function(self, function: func.FuncOp) -> None:
        rewrite_entries(function, self._entries)
        drop_dialect_attributes(function)
        without_sdy_attributes(function)

    def constraint(self, op: ir.OpView, attribute: ir.Attribute) -> None:
        sharding = self.shardings.read(attribute)
        open_dimensions = _open_dimensions(sharding)
        with op.context, op.location, ir.InsertionPoint(op.operation):
            call = stablehlo.CustomCallOp(
                [op.results[0].type],
                [op.operands[0]],
                SHARDING_CALL,
                backend_config=ir.StringAttr.get(open_dimensions) if open_dimensions else None,
            )
        call.attributes[MHLO_SHARDING] = self.of_value(attribute)
        op.results[0].replace_all_uses_with(call.results[0])
        op.operation.erase()

    def _entries(self, entries: ir.DictAttr) -> ir.DictAttr:
        after = without_dialect_attributes(entries)
        if SDY_SHARDING not in entries:
            return after
        return with_entry(after, MHLO_SHARDING, self.of_value(entries[SDY_SHARDING]))


def _open_dimensions(sharding: TensorSharding) -> str:
    """``unspecified_dims=[0,2]``, as GSPMD's custom call spells what Shardy calls open."""
    found = [str(index) for index, dimension in enumerate(sharding.dims) if dimension.open]
    return f"unspecified_dims=[{','.join(found)}]" if found else ""


def _refuse(found: list[ir.OpView], sink: Sink) -> None:
    for op in found:
        what = _REFUSED.get(type(op))
        if what:
            sink.error(
                "not-supported",
                f"{what} ({op.operation.name}) cannot be exported to mhlo.sharding yet",
                location=locate(op),
                help="keep the module in Shardy's notation: --notation sdy",
            )
        elif SDY_SHARDING in op.attributes and MHLO_SHARDING in op.attributes:
            sink.error(
                "mixed-notations",
                f"{op.operation.name} carries both sdy.sharding and mhlo.sharding",
                location=locate(op),
                help="remove one; sp-strip removes both",
            )
