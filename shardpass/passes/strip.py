"""``sp-strip``: back to a module that nobody annotated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, sdy

from shardpass.diagnostics import Sink
from shardpass.mlir import (
    MHLO_SHARDING,
    NUM_PARTITIONS,
    locate,
    mesh_ops,
    operations,
    set_num_partitions,
    with_entry,
)
from shardpass.passes.base import Pass
from shardpass.passes.dialect_attributes import (
    drop_dialect_attributes,
    rewrite_entries,
    without_dialect_attributes,
)
from shardpass.passes.gspmd.frontend_attributes import without_sdy_attributes, without_sdy_entries
from shardpass.passes.identities import (
    MANUAL_CALLS,
    call_target,
    is_annotation,
    is_constant,
    replace_by_constant,
    replace_by_operand,
)

#: What belongs to an op of its own dialect and names a mesh.
_OF_NAMED_COMPUTATION = ("in_shardings", "out_shardings")


@dataclass(frozen=True, kw_only=True)
class Strip(Pass):
    """Remove every sharding annotation, in both notations, and the meshes.

    Attributes of arguments, results and ops go, with all that propagation noted for reading; ops
    that only say how a value is laid out (``sdy.sharding_constraint``, ``sdy.reshard``,
    ``@Sharding`` calls, sharding groups, Shardy's collectives on global values) give way to what
    they were applied to; ``mhlo.num_partitions`` becomes 1. The program computes what it computed
    before.

    Leaves alone: donation, aliasing, locations. A manual computation is an error, since its body is
    written in local shapes.
    Order: anywhere; in front of ``sp-annotate`` to start afresh.
    """

    name: ClassVar[str] = "sp-strip"
    is_for_gradients: ClassVar[bool] = True

    def run(self, root: ir.Operation, sink: Sink) -> None:
        """Strip ``root``."""
        found = list(operations(root))
        for op in found:
            if isinstance(op, sdy.ManualComputationOp) or call_target(op) in MANUAL_CALLS:
                sink.error(
                    "not-supported",
                    "a manual computation cannot be stripped: its body is written in local shapes",
                    location=locate(op),
                    help="strip the module that it was made from",
                )
        if sink.has_errors:
            return
        for op in found:
            if isinstance(op, func.FuncOp):
                _strip_function(op)
            elif isinstance(op, sdy.ShardingGroupOp):
                op.operation.erase()
            elif is_annotation(op):
                replace_by_operand(op)
            elif is_constant(op):
                replace_by_constant(op)
            else:
                _strip_op(op)
        for mesh in mesh_ops(root):
            mesh.operation.erase()
        drop_dialect_attributes(root)
        without_sdy_attributes(root)
        if NUM_PARTITIONS in root.attributes:
            set_num_partitions(root, 1)


def _strip_op(op: ir.OpView) -> None:
    drop_dialect_attributes(op)
    _drop(op, MHLO_SHARDING)
    if isinstance(op, sdy.NamedComputationOp):
        _drop(op, *_OF_NAMED_COMPUTATION)
    without_sdy_attributes(op)


def _strip_function(function: func.FuncOp) -> None:
    drop_dialect_attributes(function)
    without_sdy_attributes(function)
    rewrite_entries(function, _stripped)


def _stripped(entries: ir.DictAttr) -> ir.DictAttr:
    """The dictionary of an argument or result without what it says of shardings."""
    entries = without_sdy_entries(without_dialect_attributes(entries))
    return with_entry(entries, MHLO_SHARDING, None) if MHLO_SHARDING in entries else entries


def _drop(op: ir.OpView, *names: str) -> None:
    attributes = op.attributes
    for name in names:
        if name in attributes:
            del attributes[name]
