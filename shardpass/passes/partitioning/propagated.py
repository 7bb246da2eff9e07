"""What has to hold before anything is made of a propagated module.

Shardy's passes behind propagation take for granted that it has been: they read an open dimension as
a closed one and a value without a sharding as whole, skip ops whose values lie on different meshes,
and stop the process where a size is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, sdy, stablehlo

from shardpass.canon import AxisRef, MeshShape
from shardpass.diagnostics import Sink
from shardpass.mlir import SDY_SHARDING, arguments_of, collect, locate, operations, where_written
from shardpass.passes.base import Look
from shardpass.passes.identities import MARKS
from shardpass.passes.partitioning.placements import Placement, Placements

_HELP: Final = "run sp-propagate first"
#: Ops that propagation consumes.
_CONSUMED: Final = (sdy.NamedComputationOp, sdy.ShardingGroupOp, *MARKS)
#: Some ops whose result lies as their operands do.
_ELEMENTWISE: Final = (
    stablehlo.AbsOp,
    stablehlo.AddOp,
    stablehlo.ConvertOp,
    stablehlo.DivOp,
    stablehlo.ExpOp,
    stablehlo.MaxOp,
    stablehlo.MinOp,
    stablehlo.MulOp,
    stablehlo.NegOp,
    stablehlo.SubtractOp,
    stablehlo.TanhOp,
)


def _check_propagated(root: ir.Operation, sink: Sink) -> None:
    placements = list(Placements(root))
    ops = list(operations(root))
    _open_dimensions(placements, sink)
    _consumed_ops(ops, sink)
    _meshes(placements, sink)
    _dynamic_values(ops, sink)
    if any(placement.sharding.unreduced for placement in placements):
        _partial_results(root, sink)
    if not sink.has_errors:
        _nothing_inside(root, sink)


#: Errors: open dimensions, what propagation consumes, several meshes, single-device tensors, and
#: dimensions without a static size. A warning: arguments are cut and nothing inside has a sharding.
REFUSE_UNPROPAGATED = Look(_check_propagated)


def _open_dimensions(placements: Iterable[Placement], sink: Sink) -> None:
    found = [p for p in placements if any(dim.open for dim in p.sharding.dims)]
    if not found:
        return
    first = found[0]
    others = f", and of {len(found) - 1} more values" if len(found) > 1 else ""
    sink.error(
        "not-propagated",
        f"{first}: {first.sharding.dims_text()} has open dimensions{others}, which propagation "
        "closes",
        location=first.location,
        path=first.entry.path if first.entry else None,
        help=_HELP,
    )


def _consumed_ops(ops: Iterable[ir.OpView], sink: Sink) -> None:
    found = [op for op in ops if isinstance(op, _CONSUMED)]
    if not found:
        return
    others = f", with {len(found) - 1} more such ops" if len(found) > 1 else ""
    sink.error(
        "not-propagated",
        f"{found[0].operation.name} is still there{others}, which propagation consumes",
        location=locate(found[0]),
        help=_HELP,
    )


def _meshes(placements: Iterable[Placement], sink: Sink) -> None:
    """Report values on a second mesh, and tensors that one device alone holds."""
    used: MeshShape | None = None
    reported: set[MeshShape] = set()
    for placement in placements:
        mesh = placement.sharding.mesh
        if mesh in reported or not isinstance(placement.type, ir.RankedTensorType):
            continue
        if mesh.is_maximal:
            sink.error(
                "not-supported",
                f"{placement} is on the single {mesh.describe()}: every device runs the same "
                "program",
                location=placement.location,
                help="put it on the mesh, whole on every device",
            )
        elif placement.sharding.is_fully_replicated:
            continue
        elif used is None or mesh == used:
            used = mesh
            continue
        else:
            sink.error(
                "mesh-mismatch",
                f"{placement} is on mesh {mesh.describe()}, and others are on {used.describe()}"
                f"{_in_another_order(mesh, used)}",
                location=placement.location,
                help="put all on one mesh",
            )
        reported.add(mesh)


def _in_another_order(one: MeshShape, other: MeshShape) -> str:
    return " in another order of devices" if one.axes == other.axes else ""


def _partial_results(root: ir.Operation, sink: Sink) -> None:
    """Report ops at which Shardy loses count of what is still to be reduced, and aborts."""
    placements = Placements(root)
    for op in operations(root):
        if isinstance(op, (func.FuncOp, func.ReturnOp)) or op.operation.name.startswith("sdy."):
            continue
        left = {tuple(map(str, _unreduced(placements, result))) for result in op.results}
        taken = not len(op.results) and any(_unreduced(placements, v) for v in op.operands)
        if len(left) > 1 or (taken and op.operation.name != "stablehlo.return"):
            sink.error(
                "not-supported",
                f"{op.operation.name} takes or gives partial results beside finished ones",
                location=locate(op),
                help="reduce them first (an sdy.sharding_constraint without unreduced axes)",
            )


def _unreduced(placements: Placements, value: ir.Value) -> tuple[AxisRef, ...]:
    sharding = placements.of(value)
    return sharding.unreduced if sharding is not None else ()


def _dynamic_values(ops: Iterable[ir.OpView], sink: Sink) -> None:
    for op in ops:
        for value in _values_of(op):
            kind = value.type
            if isinstance(kind, ir.UnrankedTensorType) or (
                isinstance(kind, ir.RankedTensorType) and not kind.has_static_shape
            ):
                sink.error(
                    "dynamic-shape",
                    f"{op.operation.name} has a value of type {kind}: a dimension without a static "
                    "size cannot be cut",
                    location=locate(op),
                    help="refine the module's shapes first (stablehlo-refine-shapes)",
                )
                break


def _values_of(op: ir.OpView) -> Iterator[ir.Value]:
    if isinstance(op, func.FuncOp):
        if not op.is_external:
            yield from op.arguments
        return
    yield from op.results


def _nothing_inside(root: ir.Operation, sink: Sink) -> None:
    """Warn where an argument is cut, and an elementwise op on it has no sharding.

    Propagation gives each such op one.
    """
    placements = Placements(root)
    for function in collect(root, func.FuncOp):
        if function.is_external:
            continue
        for value, argument in zip(arguments_of(function), function.arguments, strict=True):
            if not placements.is_cut(argument):
                continue
            op = next((use.owner for use in argument.uses if _is_bare(use.owner)), None)
            if op is None:
                continue
            sink.warning(
                "not-propagated",
                f"{value} of @{function.name.value} is cut, and {op.operation.name}, which takes "
                "it, has no sharding, so that it is gathered first",
                location=where_written(function, value),
                path=value.path,
                help=f"if the module has not been propagated, {_HELP}",
            )
            return


def _is_bare(op: ir.OpView) -> bool:
    return isinstance(op, _ELEMENTWISE) and SDY_SHARDING not in op.attributes
