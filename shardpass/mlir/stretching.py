"""Broadcasts that stretch a dimension of one element, as XLA is to read them.

On the way to HLO, XLA makes three instructions of such a ``stablehlo.broadcast_in_dim``, and gives
the first of them, which still has the dimension of one element, the sharding of the op. GSPMD then
cuts that one element over the devices of the stretched dimension, and puts it together again with
permutations and sums. Source: ``BroadcastInDim`` in ``xla/hlo/builder/xla_builder.cc``.
"""

from __future__ import annotations

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardpass.mlir.attributes import MHLO_SHARDING


def is_stretching(op: stablehlo.BroadcastInDimOp) -> bool:
    """Whether ``op`` carries an ``mhlo.sharding`` and stretches a dimension of one element."""
    return MHLO_SHARDING in op.attributes and bool(_stretched(op))


def reshape_before(op: stablehlo.BroadcastInDimOp) -> None:
    """Take the stretched dimensions off the operand in front of ``op``, which adds them anew.

    That is what XLA itself does behind its first instruction. The operand without them carries no
    annotation, as there; it has the layout of the operand.
    """
    stretched = _stretched(op)
    operand = ir.RankedTensorType(op.operand.type)
    kept = [index for index in range(operand.rank) if index not in stretched]
    shape = [operand.get_dim_size(index) for index in kept]
    dimensions = list(op.broadcast_dimensions)
    with ir.InsertionPoint(op), op.location:
        bare = stablehlo.ReshapeOp(
            ir.RankedTensorType.get(shape, operand.element_type, operand.encoding), op.operand
        )
    op.operation.operands[0] = bare.result
    op.attributes["broadcast_dimensions"] = ir.DenseI64ArrayAttr.get(
        [dimensions[index] for index in kept], op.operation.context
    )


def _stretched(op: stablehlo.BroadcastInDimOp) -> frozenset[int]:
    """The dimensions of the operand that have one element, and more in the result."""
    operand, result = op.operand.type, op.result.type
    if not isinstance(operand, ir.RankedTensorType) or not operand.has_static_shape:
        return frozenset()
    if not isinstance(result, ir.RankedTensorType) or not result.has_static_shape:
        return frozenset()
    return frozenset(
        index
        for index, dimension in enumerate(op.broadcast_dimensions)
        if operand.get_dim_size(index) == 1 and result.get_dim_size(dimension) != 1
    )
