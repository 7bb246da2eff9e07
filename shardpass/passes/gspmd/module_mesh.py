"""The mesh on which the tile assignments of a module are said."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from jax.extend.mlir import ir

from shardpass.canon import (
    AxisRef,
    HloKind,
    HloSharding,
    MeshShape,
    NoCommonMeshError,
    common_mesh,
    from_hlo,
    manual_axes,
)
from shardpass.diagnostics import ShardingError, Sink
from shardpass.mlir import at_place, num_partitions
from shardpass.passes.gspmd.holders import holders_of


def mesh_of(
    root: ir.Operation,
    values: Sequence[HloSharding],
    wanted: MeshShape | None,
    declared: Sequence[MeshShape],
    sink: Sink,
) -> MeshShape | None:
    """The mesh for all that a module says in GSPMD's notation; ``None`` where none is needed.

    Args:
      root: the module.
      values: every sharding of it, none a tuple.
      wanted: the user's mesh.
      declared: as for :func:`mesh_for`.
      sink: is told of every value that ``wanted`` has no axes for, or of two that no mesh has axes
        for, by their names and places.
    """
    distinct = list(dict.fromkeys(values))
    if wanted is not None:
        _report_misfits(root, distinct, wanted, sink)
        return wanted
    try:
        return mesh_for(distinct, num_partitions(root), declared)
    except NoCommonMeshError as error:
        _report_clash(root, error, sink)
        return None


def _report_misfits(
    root: ir.Operation, values: Sequence[HloSharding], wanted: MeshShape, sink: Sink
) -> None:
    faults: dict[HloSharding, ShardingError] = {}
    for sharding in values:
        try:
            from_hlo(sharding, _rank_said(sharding), wanted)
        except ShardingError as error:
            faults[sharding] = error
    if not faults:
        return
    holders, help = holders_of(root), _what_fits(values)
    for sharding, error in faults.items():
        holder = holders[sharding]
        told = error.about(holder.text, location=holder.location, path=holder.path).diagnostic
        sink.report(replace(told, help=told.help or help))


def _what_fits(values: Sequence[HloSharding]) -> str:
    """The sizes of axes that say everything."""
    with contextlib.suppress(ShardingError):
        mesh = common_mesh(values)
        if mesh is not None and mesh.device_ids is None:
            sizes = " x ".join(str(size) for size in mesh.sizes)
            return f"give axes of the sizes {sizes}, in this order, or of products of neighbours"
        return "leave mesh out, and see what the import finds"
    return "no mesh has axes for everything: leave mesh out to see what clashes"


def _report_clash(root: ir.Operation, error: NoCommonMeshError, sink: Sink) -> None:
    """Report at the later of two values; a note for each of them."""
    holders = holders_of(root)
    of_both = [holders[sharding] for sharding in error.between]
    notes = [h.note(sharding) for h, sharding in zip(of_both, error.between, strict=True)]
    order = list(holders)
    last = holders[max(error.between, key=order.index)]
    told = error.diagnostic
    sink.report(
        replace(
            told,
            message=f"{' and '.join(holder.text for holder in of_both)}: {told.message}",
            location=last.location,
            path=last.path,
            notes=(*told.notes, *(at_place(note.message, note.location) for note in notes)),
            attached=tuple(notes),
        )
    )


def mesh_for(
    distinct: Sequence[HloSharding], count: int | None, declared: Sequence[MeshShape] = ()
) -> MeshShape | None:
    """The mesh on which all of ``distinct`` are to be said; ``None`` where none is needed.

    Args:
      distinct: shardings, none a tuple.
      count: the devices that the module states.
      declared: meshes to take if they fit: the first that has all over whole axes, or the first
        that has the parts of axes for it.

    Raises:
      NoCommonMeshError: as :func:`shardpass.canon.common_mesh`.
    """
    axes = {mesh: _axes_on(mesh, distinct) for mesh in declared} if distinct else {}
    fitting = {mesh: used for mesh, used in axes.items() if used is not None}
    if fitting:
        whole = (mesh for mesh, used in fitting.items() if all(axis.is_full for axis in used))
        return next(whole, next(iter(fitting)))
    # A named sharding says more than its tiles do. Where the first has axes for all, they are kept.
    named = [sharding for sharding in distinct if sharding.named is not None]
    for sharding in sorted(named, key=lambda sharding: sharding.tile is None):
        mesh = from_hlo(sharding, _rank_said(sharding)).mesh
        if mesh.axes and _axes_on(mesh, distinct) is not None:
            return mesh
    found = common_mesh(distinct)
    if found is not None:
        return found
    kinds = {sharding.kind for sharding in distinct}
    if count is not None and count > 1 and kinds & {HloKind.MANUAL, HloKind.UNREDUCED}:
        return MeshShape((("_axis_0", count),))
    # For the values beside those of single devices, which are said to be whole.
    return MeshShape() if HloKind.MAXIMAL in kinds else None


def _rank_said(sharding: HloSharding) -> int:
    """The rank of a value that may have ``sharding``."""
    dims = sharding.named.sharding.dims if sharding.named else ()
    return sharding.rank or len(dims)


def _axes_on(mesh: MeshShape, values: Sequence[HloSharding]) -> list[AxisRef] | None:
    """The axes of ``mesh`` that ``values`` are over; ``None`` where it has not all of them.

    Manual axes have to be whole ones.
    """
    axes: list[AxisRef] = []
    with contextlib.suppress(ShardingError):
        for sharding in values:
            manual = manual_axes(sharding, mesh)
            if not all(axis.is_full for axis in manual):
                return None
            axes += from_hlo(sharding, _rank_said(sharding), mesh).used_axes()
        return axes
    return None
