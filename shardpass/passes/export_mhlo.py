"""``sp-export-mhlo``: from Shardy's notation to GSPMD's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, sdy, stablehlo

from shardpass.canon import HloSharding, TensorSharding, to_hlo
from shardpass.diagnostics import Sink
from shardpass.mlir import (
    ADVANCE,
    MHLO_SHARDING,
    SDY_SHARDING,
    Shardings,
    entries_of,
    locate,
    mesh_ops,
    num_partitions,
    set_num_partitions,
    visit,
    write_mhlo,
)
from shardpass.passes.base import Pass
from shardpass.passes.dialect_attributes import is_of_dialect, rewrite_entries
from shardpass.passes.frontend_attributes import FRONTEND_ATTRIBUTES, without_sdy_attributes
from shardpass.passes.identities import (
    COLLECTIVES,
    CONSTRAINTS,
    MARKS,
    SHARDING_CALL,
    replace_by_constant,
    replace_by_operand,
)

_REFUSED = {
    sdy.ManualComputationOp.OPERATION_NAME: "a manual computation",
    sdy.ShardingGroupOp.OPERATION_NAME: "a sharding group",
    sdy.NamedComputationOp.OPERATION_NAME: "a named computation",
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
    Order: behind ``sp-propagate``; in front of ``sp-prepare-for-xla`` where something else than
    ``shardpass run`` compiles the module, since XLA dies of a sharding on a loop that it rewrites.
    """

    name: ClassVar[str] = "sp-export-mhlo"

    def run(self, root: ir.Operation, sink: Sink) -> None:
        """Export ``root``."""
        export = _Export(root, sink)
        visit(root, export.look)
        if sink.has_errors:
            return
        export.rewrite_special()
        devices = max((mesh.size for mesh in export.shardings.meshes.values()), default=None)
        for mesh in mesh_ops(root):
            mesh.operation.erase()
        if devices is not None and num_partitions(root) in (None, 1):
            set_num_partitions(root, devices)


@lru_cache(1024)
def _lowered(sharding: TensorSharding) -> HloSharding:
    """Remembered: arguments, results and ops carry the same few."""
    return to_hlo(sharding)


class _Export:
    """One module's shardings on their way out; each distinct attribute is converted once."""

    def __init__(self, root: ir.Operation, sink: Sink) -> None:
        self.shardings = Shardings(root)
        self._sink = sink
        self._special: list[ir.Operation] = []
        self._context = root.context
        self._of_value: dict[ir.Attribute, ir.StringAttr] = {}
        self._of_op: dict[ir.Attribute, ir.StringAttr] = {}

    def of_value(self, attribute: ir.Attribute) -> ir.StringAttr:
        """The ``mhlo.sharding`` for a ``#sdy.sharding``."""
        found = self._of_value.get(attribute)
        if found is None:
            sharding = _lowered(self.shardings.read(attribute))
            found = self._of_value[attribute] = write_mhlo(sharding, self._context)
        return found

    def of_op(self, attribute: ir.Attribute) -> ir.StringAttr:
        """The ``mhlo.sharding`` for a ``#sdy.sharding_per_value``."""
        found = self._of_op.get(attribute)
        if found is None:
            parts = [_lowered(s) for s in self.shardings.read_per_value(attribute)]
            whole = parts[0] if len(parts) == 1 else HloSharding.tuple_of(parts)
            found = self._of_op[attribute] = write_mhlo(whole, self._context)
        return found

    def look(self, op: ir.Operation) -> ir.WalkResult:
        """Rewrite the attributes of ``op``, or put it aside if that is not all."""
        name = op.name
        if name in _REWRITES:
            self._special.append(op)
        elif name in _REFUSED:
            self._refuse(op)
        else:
            self._attributes(op)
        return ADVANCE

    def rewrite_special(self) -> None:
        for op in self._special:
            _REWRITES[op.name](self, op.opview)

    def _attributes(self, op: ir.Operation | ir.OpView) -> None:
        attributes = op.attributes
        placed = attributes.get(SDY_SHARDING)
        # Most ops have this one or none, and listing the names costs more than all the rest.
        if len(attributes) > (placed is not None):
            self._other_attributes(op)
        if placed is not None:
            attributes[MHLO_SHARDING] = self.of_op(placed)
            del attributes[SDY_SHARDING]

    def _other_attributes(self, op: ir.Operation | ir.OpView) -> None:
        names = list(op.attributes)
        if SDY_SHARDING in names and MHLO_SHARDING in names:
            self._mixed(op)
        for name in names:
            if is_of_dialect(name) and name != SDY_SHARDING:
                del op.attributes[name]
        if FRONTEND_ATTRIBUTES in names:
            without_sdy_attributes(op)

    def function(self, function: func.FuncOp) -> None:
        rewrite_entries(function, self._entries)
        self._attributes(function)

    def constant(self, op: ir.OpView) -> None:
        placed = op.attributes.get(SDY_SHARDING)
        constant = replace_by_constant(op)
        if placed is not None:
            constant.attributes[MHLO_SHARDING] = self.of_op(placed)

    def constraint(self, op: ir.OpView) -> None:
        self._call(op, op.attributes["sharding"])

    def collective(self, op: ir.OpView) -> None:
        self._call(op, op.attributes["out_sharding"])

    def mark(self, op: ir.OpView) -> None:
        replace_by_operand(op)

    def _refuse(self, op: ir.Operation) -> None:
        self._sink.error(
            "not-supported",
            f"{_REFUSED[op.name]} ({op.name}) cannot be exported to mhlo.sharding yet",
            location=locate(op),
            help="keep the module in Shardy's notation: --notation sdy",
        )

    def _mixed(self, op: ir.Operation | ir.OpView) -> None:
        self._sink.error(
            "mixed-notations",
            f"{op.operation.name} carries both sdy.sharding and mhlo.sharding",
            location=locate(op),
            help="remove one; sp-strip removes both",
        )

    def _call(self, op: ir.OpView, attribute: ir.Attribute) -> None:
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
        found = entries_of(entries)
        kept = {name: value for name, value in found.items() if not is_of_dialect(name)}
        if len(kept) == len(found):
            return entries
        if SDY_SHARDING in found:
            kept[MHLO_SHARDING] = self.of_value(found[SDY_SHARDING])
        return ir.DictAttr.get(kept, context=self._context)


#: What becomes of ops that are more than their attributes, by name.
_REWRITES: dict[str, Callable[[_Export, Any], None]] = {
    func.FuncOp.OPERATION_NAME: _Export.function,
    sdy.ConstantOp.OPERATION_NAME: _Export.constant,
    **{kind.OPERATION_NAME: _Export.constraint for kind in CONSTRAINTS},
    **{kind.OPERATION_NAME: _Export.collective for kind in COLLECTIVES},
    **{kind.OPERATION_NAME: _Export.mark for kind in MARKS},
}


def _open_dimensions(sharding: TensorSharding) -> str:
    """``unspecified_dims=[0,2]``, as GSPMD's custom call spells what Shardy calls open."""
    found = [str(index) for index, dimension in enumerate(sharding.dims) if dimension.open]
    return f"unspecified_dims=[{','.join(found)}]" if found else ""
