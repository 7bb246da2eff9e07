"""Ops that say where a value lies and change nothing about it.

On the global value each of them is the identity: a constraint or a reshard moves data, Shardy's
collectives move or combine shards of the same global value, a barrier stops propagation. A pass
that takes annotations away, or writes them in another notation, replaces them by their operand.
"""

from __future__ import annotations

from typing import Final

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy, stablehlo

from shardpass.mlir.collectives import COLLECTIVES as COLLECTIVES

#: GSPMD's constraint.
SHARDING_CALL: Final = "Sharding"
#: GSPMD's borders of a manual region.
ENTER_MANUAL: Final = "SPMDFullToShardShape"
LEAVE_MANUAL: Final = "SPMDShardToFullShape"
MANUAL_CALLS: Final = frozenset({ENTER_MANUAL, LEAVE_MANUAL})

#: Ops with one operand, one result of the same type, and the target under ``sharding``.
CONSTRAINTS: Final = (sdy.ShardingConstraintOp, sdy.ReshardOp)
#: Ops with one operand and one result of the same type that ask for nothing: what a data flow edge
#: carries, propagation has found.
MARKS: Final = (sdy.PropagationBarrierOp, sdy.DataFlowEdgeOp, sdy.FuncDataFlowEdgeOp)

_ALL: Final = CONSTRAINTS + COLLECTIVES + MARKS


def call_target(op: ir.OpView) -> str | None:
    """The target of a custom call; ``None`` for any other op."""
    return op.call_target_name.value if isinstance(op, stablehlo.CustomCallOp) else None


def is_sharding_call(op: ir.OpView) -> bool:
    """Whether ``op`` is a ``@Sharding`` custom call, which has one operand and one result."""
    is_call = call_target(op) == SHARDING_CALL
    return is_call and len(op.operands) == len(op.results) == 1


def is_annotation(op: ir.OpView) -> bool:
    """Whether ``op`` is the identity on its one operand."""
    return isinstance(op, _ALL) or is_sharding_call(op)


def replace_by_operand(op: ir.OpView) -> None:
    """Put the operand of ``op`` in place of its result, and erase it."""
    op.results[0].replace_all_uses_with(op.operands[0])
    op.operation.erase()


def is_constant(op: ir.OpView) -> bool:
    """Whether ``op`` is Shardy's constant, which stands in for StableHLO's while it propagates."""
    return isinstance(op, sdy.ConstantOp)


def replace_by_constant(op: ir.OpView) -> stablehlo.ConstantOp:
    """Write Shardy's constant as StableHLO's, without its sharding, and give it back."""
    with op.context, op.location, ir.InsertionPoint(op.operation):
        constant = stablehlo.ConstantOp(ir.Attribute(op.attributes["value"]))
    op.results[0].replace_all_uses_with(constant.results[0])
    op.operation.erase()
    return constant
