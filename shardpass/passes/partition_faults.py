"""What Shardy's partitioner aborts on, or takes apart wrongly: found beforehand.

``sdy-convert-global-to-local`` changes types and trusts that the rest fits. Where it does not, the
process ends, or each device computes something else than its part of the result. Each kind here was
seen to do so with one jaxlib at least; the converter of 0.10.2 knows fewer ops than that of 0.12
(:data:`KNOWS_CONTROL_FLOW`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, sdy, stablehlo

from shardpass.canon.shapes import sizes_that_fit
from shardpass.diagnostics import Sink
from shardpass.mlir import locate, operations
from shardpass.passes.chlo_calls import hidden_name, is_hidden
from shardpass.passes.chlo_rules import RULE
from shardpass.passes.combining import wrongly_combined
from shardpass.passes.expansion import expand
from shardpass.passes.placements import Placements

#: The native pass that writes the per-device program.
CONVERTER: Final = "sdy-convert-global-to-local"
#: Ops that have no sharding rule and need none: Shardy follows what flows through them.
_FOLLOWED: Final = (
    stablehlo.WhileOp,
    stablehlo.CaseOp,
    stablehlo.IfOp,
    stablehlo.OptimizationBarrierOp,
    stablehlo.ReturnOp,
    stablehlo.ConstantOp,
    stablehlo.IotaOp,
    func.CallOp,
    func.ReturnOp,
)


def knows_control_flow() -> bool:
    """Whether this jaxlib's converter knows loops, calls and sub-axes: that of 0.12 does.

    It is told by an option that came with them.
    """
    return "partition-count" in expand(CONVERTER)[0]


def refuse_values(root: ir.Operation, sink: Sink) -> None:
    """Report each value whose sharding the converter cannot make a local type of."""
    newer = knows_control_flow()
    for placement in Placements(root):
        sharding, shape = placement.sharding, placement.shape
        path = placement.entry.path if placement.entry else None
        if sharding.unreduced:
            sink.error(
                "not-partitionable",
                f"{placement} holds partial results over {', '.join(map(str, sharding.unreduced))}",
                location=placement.location,
                path=path,
                help="reduce it (an sdy.sharding_constraint without unreduced axes)",
            )
        if not newer and any(not axis.is_full for axis in sharding.used_axes()):
            sink.error(
                "not-partitionable",
                f"{placement} is cut by part of an axis, {sharding.dims_text()}, which Shardy of "
                "this jaxlib maps to the wrong devices",
                location=placement.location,
                path=path,
                help="give the mesh an axis for the part, or use jaxlib 0.12",
            )
        for dimension, (size, pieces) in enumerate(zip(shape or (), sharding.tiles(), strict=False)):
            if size % pieces:
                sink.error(
                    "indivisible",
                    f"{placement}, dimension {dimension}: {size} elements into {pieces} pieces",
                    location=placement.location,
                    path=path,
                    notes=[f"sharding is {sharding.dims_text()} on {sharding.mesh.describe()}"],
                    help=f"{sizes_that_fit(size, pieces)}, or drop an axis",
                )


def refuse_ops(root: ir.Operation, sink: Sink) -> None:
    """Report each op that the passes behind reshard insertion cannot take apart.

    Sharding rules must stand on the ops (``sdy-populate-op-sharding-rules``).
    """
    newer = knows_control_flow()
    placements = Placements(root)
    for op in operations(root):
        if isinstance(op, func.FuncOp):
            continue
        reason = next(_reasons(op, placements, newer), None)
        if reason is not None:
            why, remedy = reason
            sink.error(
                "not-partitionable",
                f"{hidden_name(op)}: {why}",
                location=locate(op),
                help=remedy,
            )


def refuse_collectives(root: ir.Operation, sink: Sink) -> None:
    """Report each collective that would combine by something else than the program does."""
    newer = knows_control_flow()
    for op in operations(root):
        wanted = wrongly_combined(op)
        if wanted is not None:
            sink.error(
                "not-partitionable",
                f"partial results are to be combined by {wanted}, and Shardy of this jaxlib "
                f"combines by {'sum, maximum and minimum' if newer else 'the sum'} alone",
                location=locate(op),
                help="keep the reduced dimension whole (an sdy.sharding_constraint)",
            )
        if not newer and isinstance(op, sdy.ReduceScatterOp):
            operand = op.operands[0].owner
            if not isinstance(operand, ir.Block) and isinstance(
                operand.opview, (stablehlo.DotGeneralOp, stablehlo.DotOp)
            ):
                sink.error(
                    "not-partitionable",
                    "a product whose partial results are reduced and scattered at once",
                    location=locate(op),
                    help="partition the propagated module itself, without "
                    "sp-explicit-collectives in front",
                )


_Reason = tuple[str, str]
_WHOLE: Final = "keep it whole on every device (an sdy.sharding_constraint in front of it)"
_NEWER: Final = "use jaxlib 0.12, or keep it whole on every device"


def _reasons(op: ir.OpView, placements: Placements, newer: bool) -> Iterator[_Reason]:
    """Why ``op`` cannot be taken apart, and what to do."""
    values = [*op.operands, *op.results]
    if isinstance(op, sdy.ManualComputationOp) or op.operation.name.startswith("sdy."):
        return
    if not any(placements.is_cut(value) for value in values):
        return
    if not isinstance(op, _FOLLOWED):
        if not (op.operation.name.startswith("stablehlo.")):
            yield "it is not StableHLO, and its values are cut", _WHOLE
        if RULE not in op.attributes:
            yield "Shardy has no sharding rule for it, and its values are cut", _WHOLE
        else:
            dimension = _unshardable(op, placements)
            if dimension is not None:
                yield f"{dimension} has to be whole and is cut", _WHOLE
    checks = _ALWAYS if newer else _ALWAYS | _OLDER
    for kind, check in checks.items():
        if op.operation.name == kind:
            reason = check(op, placements)
            if reason:
                yield reason, _NEWER if kind in _OLDER and check is _OLDER[kind] else _WHOLE


def _unshardable(op: ir.OpView, placements: Placements) -> str | None:
    """A dimension of ``op`` that is cut, though its rule wants it whole."""
    rule = sdy.OpShardingRuleAttr(op.attributes[RULE])
    whole = set(rule.need_replication_factors)
    if not whole:
        return None
    sizes = list(rule.factor_sizes)
    for word, values, mappings in (
        ("operand", op.operands, rule.operand_mappings),
        ("result", op.results, rule.result_mappings),
    ):
        for index, (value, mapping) in enumerate(zip(values, mappings, strict=True)):
            dims = sdy.TensorMappingAttr(mapping).dim_mappings
            for dimension, (pieces, dim) in enumerate(
                zip(placements.cuts(value), dims, strict=False)
            ):
                done = 1
                for factor in sdy.DimMappingAttr(dim).factor_indices:
                    if done < pieces and factor in whole:
                        return f"dimension {dimension} of {word} {index}"
                    done *= sizes[factor]
    return None


def _random(op: ir.OpView, placements: Placements) -> str | None:
    return "each device would draw the same numbers for another part"


def _strided_slice(op: ir.OpView, placements: Placements) -> str | None:
    strides = list(ir.DenseI64ArrayAttr(op.attributes["strides"]))
    for dimension, (stride, pieces) in enumerate(
        zip(strides, placements.cuts(op.operands[0]), strict=False)
    ):
        if stride > 1 and pieces > 1:
            return f"dimension {dimension} is cut and taken in steps of {stride}"
    return None


def _loop(op: ir.OpView, placements: Placements) -> str | None:
    return "what it carries is cut, and Shardy of this jaxlib leaves loops as they are"


def _gather(op: ir.OpView, placements: Placements) -> str | None:
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    indexed = set(numbers.start_index_map) | set(numbers.collapsed_slice_dims)
    cuts = placements.cuts(op.operands[0])
    for dimension in sorted(indexed):
        if dimension < len(cuts) and cuts[dimension] > 1:
            return f"dimension {dimension}, along which it looks up, is cut"
    return None


def _dynamic_slice(op: ir.OpView, placements: Placements) -> str | None:
    return "its sizes stay those of the whole array"


def _dynamic_update(op: ir.OpView, placements: Placements) -> str | None:
    whole, update = (_shape(value) for value in op.operands[:2])
    for dimension, (size, part, pieces) in enumerate(
        zip(whole, update, placements.cuts(op.results[0]), strict=False)
    ):
        if size != part and pieces > 1:
            return f"dimension {dimension} is cut and updated in part"
    return None


def _reshape(op: ir.OpView, placements: Placements) -> str | None:
    counts = [_local_count(value, placements) for value in (op.operands[0], op.results[0])]
    if counts[0] != counts[1]:
        return "operand and result are cut into different numbers of elements"
    return None


def _local_count(value: ir.Value, placements: Placements) -> int:
    return math.prod(_shape(value)) // math.prod(placements.cuts(value))


def _shape(value: ir.Value) -> tuple[int, ...]:
    assert isinstance(value.type, ir.RankedTensorType)
    return tuple(value.type.shape)


_Check = Callable[[ir.OpView, Placements], str | None]
_ALWAYS: Final[dict[str, _Check]] = {
    "stablehlo.rng": _random,
    "stablehlo.reshape": _reshape,
    "stablehlo.slice": _strided_slice,
}
_OLDER: Final[dict[str, _Check]] = {
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _dynamic_update,
    "stablehlo.gather": _gather,
    "stablehlo.rng_bit_generator": _random,
    "stablehlo.while": _loop,
}
