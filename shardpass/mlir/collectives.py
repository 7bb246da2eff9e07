"""Shardy's collectives: what ``sp-explicit-collectives`` writes for people to read."""

from __future__ import annotations

from typing import Final

from jax.extend.mlir.dialects import sdy

#: Ops with one operand, one result of the same type, and the target under ``out_sharding``.
COLLECTIVES: Final = (
    sdy.AllGatherOp,
    sdy.AllReduceOp,
    sdy.AllSliceOp,
    sdy.AllToAllOp,
    sdy.CollectivePermuteOp,
    sdy.ReduceScatterOp,
    sdy.ReplicatedToUnreducedOp,
    sdy.ShardedToUnreducedOp,
)
