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
    SDY_SHARDING,
    argument_attributes,
    locate,
    mesh_ops,
    operations,
    result_attributes,
    set_argument_attributes,
    set_num_partitions,
    set_result_attributes,
    with_entry,
)
from shardpass.passes.base import Pass
from shardpass.passes.frontend_attributes import without_sdy_attributes
from shardpass.passes.identities import (
    MANUAL_CALLS,
    call_target,
    is_annotation,
    is_constant,
    replace_by_constant,
    replace_by_operand,
)

_ON_OPS = (SDY_SHARDING, MHLO_SHARDING, "sdy.sharding_rule", "sdy.manual_axes")


@dataclass(frozen=True, kw_only=True)
class Strip(Pass):
    """Remove every sharding annotation, in both notations, and the meshes.

    Attributes of arguments, results and ops go; ops that only say how a value is laid out
    (``sdy.sharding_constraint``, ``sdy.reshard``, ``@Sharding`` calls, sharding groups, Shardy's
    collectives on global values) give way to what they were applied to; ``mhlo.num_partitions``
    becomes 1. The program computes what it computed before.

    Leaves alone: donation, aliasing, locations. A manual computation is an error, since its body is
    written in local shapes.
    Order: anywhere; in front of ``sp-annotate`` to start afresh.
    """

    name: ClassVar[str] = "sp-strip"

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
        without_sdy_attributes(root)
        if NUM_PARTITIONS in root.attributes:
            set_num_partitions(root, 1)


def _strip_op(op: ir.OpView) -> None:
    attributes = op.attributes
    for name in _ON_OPS:
        if name in attributes:
            del attributes[name]
    without_sdy_attributes(op)


def _strip_function(function: func.FuncOp) -> None:
    without_sdy_attributes(function)
    for read, write in (
        (argument_attributes, set_argument_attributes),
        (result_attributes, set_result_attributes),
    ):
        before = read(function)
        after = []
        for entries in before:
            for name in (SDY_SHARDING, MHLO_SHARDING):
                if name in entries:
                    entries = with_entry(entries, name, None)
            after.append(entries)
        if after != before:
            write(function, after)
