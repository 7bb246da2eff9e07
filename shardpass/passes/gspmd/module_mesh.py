"""The mesh on which the tile assignments of a module are said."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from shardpass.canon import (
    AxisRef,
    HloKind,
    HloSharding,
    MeshShape,
    common_mesh,
    from_hlo,
    manual_axes,
)
from shardpass.diagnostics import ShardingError


def mesh_for(
    values: Sequence[HloSharding],
    wanted: MeshShape | None,
    count: int | None,
    declared: Sequence[MeshShape] = (),
) -> MeshShape | None:
    """The mesh on which all of ``values`` are to be said; ``None`` where none is needed.

    Args:
      values: every sharding of a module, none a tuple.
      wanted: the user's mesh.
      count: the devices that the module states.
      declared: meshes to take if they fit: the first that has all over whole axes, or the first
        that has the parts of axes for it.

    Raises:
      ShardingError: ``not-expressible`` and ``device-count``, as :func:`shardpass.canon.from_hlo`
        for the user's mesh and :func:`shardpass.canon.common_mesh` without one.
    """
    distinct = list(dict.fromkeys(values))
    if wanted is not None:
        for sharding in distinct:
            from_hlo(sharding, _rank_said(sharding), wanted)
        return wanted
    axes = {mesh: _axes_on(mesh, distinct) for mesh in declared} if distinct else {}
    fitting = {mesh: used for mesh, used in axes.items() if used is not None}
    if fitting:
        whole = (mesh for mesh, used in fitting.items() if all(axis.is_full for axis in used))
        return next(whole, next(iter(fitting)))
    # A named sharding says more than its tiles do. Where the first has axes for all, they are kept.
    named = [sharding for sharding in distinct if sharding.named is not None]
    for sharding in sorted(named, key=lambda sharding: sharding.tile is None):
        mesh = from_hlo(sharding, _rank_said(sharding)).mesh
        if mesh.axes:
            with contextlib.suppress(ShardingError):
                return mesh_for(distinct, mesh, count)
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
