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

from shardpass.canon import TensorSharding
from shardpass.canon.axes import DimSharding
from shardpass.canon.shapes import sizes_that_fit
from shardpass.diagnostics import Sink
from shardpass.mlir import locate, operations
from shardpass.passes.partitioning.chlo_calls import hidden_name
from shardpass.passes.partitioning.combining import wrongly_combined
from shardpass.passes.partitioning.placements import Placements
from shardpass.passes.shardy.chlo_rules import RULE
from shardpass.passes.shardy.expansion import expand

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


def refuse_before_exchange(root: ir.Operation, sink: Sink) -> None:
    """Report values and ops that the passes behind reshard insertion cannot take apart.

    Sharding rules must stand on the ops (``sdy-populate-op-sharding-rules``).
    """
    _refuse_values(root, sink)
    _refuse_ops(root, sink)


def refuse_before_conversion(root: ir.Operation, sink: Sink) -> None:
    """Report values that collectives give, and collectives, that the converter cannot write."""
    _refuse_values(root, sink)
    _refuse_collectives(root, sink)


def _refuse_values(root: ir.Operation, sink: Sink) -> None:
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
        for dimension, (size, pieces) in enumerate(
            zip(shape or (), sharding.tiles(), strict=False)
        ):
            if size % pieces:
                sink.error(
                    "indivisible",
                    f"{placement}, dimension {dimension}: {size} elements into {pieces} pieces",
                    location=placement.location,
                    path=path,
                    notes=[f"sharding is {sharding.dims_text()} on {sharding.mesh.describe()}"],
                    help=f"{sizes_that_fit(size, pieces)}, or drop an axis",
                )


def _refuse_ops(root: ir.Operation, sink: Sink) -> None:
    """Report each op that cannot be taken apart."""
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


def _refuse_collectives(root: ir.Operation, sink: Sink) -> None:
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
#: By whether the jaxlib that failed is the newer one.
_OTHER: Final = {False: "use jaxlib 0.12, or keep it whole on every device", True: _WHOLE}


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
            reason = _against_rule(op, placements)
            if reason:
                yield reason, _WHOLE
    for checks, remedy in ((_ALWAYS, _WHOLE), (_IN_NEWER if newer else _IN_OLDER, _OTHER[newer])):
        check = checks.get(op.operation.name)
        reason = check(op, placements) if check else None
        if reason:
            yield reason, remedy


def _against_rule(op: ir.OpView, placements: Placements) -> str | None:
    """What of ``op`` is cut against its sharding rule.

    A factor that needs replication must be whole. Rules that somebody has written by hand, as JAX
    does for custom calls, are left to their word by Shardy, which moves nothing for such ops: what
    is cut there must run through all operands and results alike.
    """
    rule = sdy.OpShardingRuleAttr(op.attributes[RULE])
    whole = set(rule.need_replication_factors)
    if not whole and not rule.is_custom:
        return None
    tensors = [
        (f"{word} {index}", _cut_factors(rule, mapping, placements.of(value)))
        for word, values, mappings in (
            ("operand", op.operands, rule.operand_mappings),
            ("result", op.results, rule.result_mappings),
        )
        for index, (value, mapping) in enumerate(zip(values, mappings, strict=True))
    ]
    for name, cut in tensors:
        for factor, (dimension, _) in cut.items():
            if factor in whole:
                return f"dimension {dimension} of {name} has to be whole and is cut"
    through = [{factor: dim for factor, (_, dim) in cut.items()} for _, cut in tensors]
    if rule.is_custom and any(cut != through[0] for cut in through):
        return "what its sharding rule says runs through it is not cut everywhere alike"
    return None


def _cut_factors(
    rule: sdy.OpShardingRuleAttr, mapping: ir.Attribute, sharding: TensorSharding | None
) -> dict[int, tuple[int, DimSharding]]:
    """Factor -> the dimension that it is cut in, and how; major factors of a dimension first."""
    found: dict[int, tuple[int, DimSharding]] = {}
    if sharding is None:
        return found
    sizes = list(rule.factor_sizes)
    dims = sdy.TensorMappingAttr(mapping).dim_mappings
    for dimension, (cut, dim) in enumerate(zip(sharding.dims, dims, strict=False)):
        done, pieces = 1, cut.tiles(sharding.mesh)
        for factor in sdy.DimMappingAttr(dim).factor_indices:
            if done < pieces:
                found[factor] = dimension, cut
            done *= sizes[factor]
    return found


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


def _pad(op: ir.OpView, placements: Placements) -> str | None:
    """Shardy takes a dimension that keeps its size for one that is not padded."""
    before, after = _shape(op.operands[0]), _shape(op.results[0])
    for dimension in _padded(op, placements):
        if before[dimension] == after[dimension]:
            return f"dimension {dimension} is cut, and moved by as much as it is cropped"
    return None


def _padded_twice(op: ir.OpView, placements: Placements) -> str | None:
    if len(_padded(op, placements)) > 1:
        return "more than one dimension is cut and padded"
    return None


def _padded(op: ir.OpView, placements: Placements) -> list[int]:
    """The dimensions that are cut, and padded or cropped."""
    amounts = (
        list(ir.DenseI64ArrayAttr(op.attributes[side]))
        for side in ("edge_padding_low", "edge_padding_high", "interior_padding")
    )
    cuts = placements.cuts(op.operands[0]) or placements.cuts(op.results[0])
    return [
        dimension
        for dimension, (pieces, *added) in enumerate(zip(cuts, *amounts, strict=False))
        if pieces > 1 and any(added)
    ]


def _loop(op: ir.OpView, placements: Placements) -> str | None:
    return "what it carries is cut, and Shardy of this jaxlib leaves loops as they are"


def _branches(op: ir.OpView, placements: Placements) -> str | None:
    for region in op.regions:
        *_, end = region.blocks[0].operations
        for given, result in zip(end.operands, op.results, strict=True):
            if placements.cuts(given) != placements.cuts(result) and (
                placements.is_cut(given) or placements.is_cut(result)
            ):
                return "a branch leaves a value that is cut otherwise than the result"
    return None


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
#: Op -> what is wrong with it, if anything, whatever jaxlib there is.
_ALWAYS: Final[dict[str, _Check]] = {
    "stablehlo.pad": _pad,
    "stablehlo.reshape": _reshape,
    "stablehlo.rng": _random,
}
#: What jaxlib 0.12 gets wrong where it exchanges borders; 0.10.2 gathers there.
_IN_NEWER: Final[dict[str, _Check]] = {
    "stablehlo.pad": _padded_twice,
    "stablehlo.slice": _strided_slice,
}
#: What the converter of jaxlib 0.10.2 does not know.
_IN_OLDER: Final[dict[str, _Check]] = {
    "stablehlo.case": _branches,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _dynamic_update,
    "stablehlo.gather": _gather,
    "stablehlo.if": _branches,
    "stablehlo.rng_bit_generator": _random,
    "stablehlo.while": _loop,
}
