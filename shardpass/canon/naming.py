"""Tiles back into named axes.

Each dimension of a tile assignment is a few modes of the device order
(:mod:`shardpass.canon.layout`); an axis of a mesh is the range of strides from its own to its size
times that. Where a mode and an axis meet is a sub-axis, if it is a whole number of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from shardpass.canon import layout
from shardpass.canon.axes import AxisRef, DimSharding
from shardpass.canon.hlo_sharding import HloKind, HloSharding, SubgroupType
from shardpass.canon.mesh import MOST_LISTED, MeshShape
from shardpass.canon.named_hlo import NamedHlo
from shardpass.canon.shapes import check_rank
from shardpass.canon.tensor_sharding import TensorSharding
from shardpass.canon.tile_assignment import TileAssignment
from shardpass.diagnostics import ShardingError


def from_hlo(sharding: HloSharding, rank: int, mesh: MeshShape | None = None) -> TensorSharding:
    """The same placement said with named axes.

    Manual subgroups become axes that no dimension uses (:func:`manual_axes` names them);
    ``{manual}`` and ``{replicated}`` closed dimensions, ``{unknown}`` open ones;
    ``{maximal device=3}`` rank 0 on the mesh of that device: all as XLA's own importer has it.

    Args:
      sharding: not a tuple.
      rank: dimensions of the value.
      mesh: whose axes to use, cut into sub-axes where that is needed. Without one, a named (V3)
        sharding keeps its mesh, and others get axes ``_axis_0``, ``_axis_1``, ... as XLA names
        them, or the mesh without axes where nothing is tiled.

    Raises:
      ShardingError: ``rank-mismatch``; ``not-expressible`` for a tuple, for tiles that no cut of
        the axes gives, for another number of devices than the mesh has, and for ``{unreduced}``
        without a mesh.
    """
    if sharding.is_tuple:
        raise ShardingError(
            "not-expressible", f"{sharding.describe()} is a tuple, not the sharding of one value"
        )
    if sharding.kind is HloKind.MAXIMAL and sharding.device is not None:
        return TensorSharding(MeshShape.maximal(sharding.device), ())
    if sharding.named is not None and mesh in (None, _full_mesh(sharding.named)):
        return _from_named(sharding.named, rank)
    if sharding.tile is not None:
        check_rank(rank, len(sharding.data_tiles), sharding.describe())
        groups, mesh = _groups_on(sharding, sharding.tile, mesh)
        return _as_open(_of_groups(sharding, groups, mesh), sharding.named)
    if sharding.kind is HloKind.UNREDUCED:
        if mesh is None or not mesh.axes:
            raise ShardingError(
                "not-expressible",
                "{unreduced} does not say over which axes",
                help="give a mesh that has some",
            )
        every_axis = tuple(AxisRef(name) for name in mesh.names)
        return TensorSharding(
            mesh, (DimSharding(),) * rank, unreduced=every_axis, reduction=sharding.reduction
        )
    dim = DimSharding(open=sharding.kind is HloKind.UNKNOWN)
    return TensorSharding(mesh or MeshShape(), (dim,) * rank)


def manual_axes(sharding: HloSharding, mesh: MeshShape) -> tuple[AxisRef, ...]:
    """The axes of ``mesh`` that ``sharding`` holds manual, in mesh order.

    Raises:
      ShardingError: ``not-expressible``, as :func:`from_hlo`.
    """
    if sharding.kind is HloKind.MANUAL:
        return tuple(AxisRef(name) for name in mesh.names)
    if sharding.tile is None or SubgroupType.MANUAL not in sharding.subgroup_types:
        return ()
    groups, _ = _groups_on(sharding, sharding.tile, mesh)
    index = len(sharding.data_tiles) + sharding.subgroup_types.index(SubgroupType.MANUAL)
    return axes_of(layout.coalesce(layout.ascending(groups[index])), mesh, sharding.describe)


def _full_mesh(named: NamedHlo) -> MeshShape:
    if named.order is None:
        return named.sharding.mesh
    return MeshShape(named.sharding.mesh.axes, tuple(named.order.flat_devices().tolist()))


def _as_open(sharding: TensorSharding, named: NamedHlo | None) -> TensorSharding:
    """``sharding``, open where the V3 text that it comes from is: the tiles do not say it."""
    given = named.sharding.dims if named else ()
    if not any(dim.open for dim in given):
        return sharding
    dims = zip(sharding.dims, given, strict=True)
    return replace(sharding, dims=tuple(replace(dim, open=said.open) for dim, said in dims))


def _from_named(named: NamedHlo, rank: int) -> TensorSharding:
    sharding = named.sharding
    if sharding.dims:
        check_rank(rank, len(sharding.dims), str(sharding))
    return TensorSharding(
        _full_mesh(named),
        sharding.dims or (DimSharding(),) * rank,
        sharding.replicated,
        sharding.unreduced,
        sharding.reduction,
    )


def _groups_on(
    sharding: HloSharding, tile: TileAssignment, mesh: MeshShape | None
) -> tuple[list[layout.Modes], MeshShape]:
    """The modes of each dimension of ``tile``, which is ``sharding``'s, in positions on a mesh.

    Without a mesh, one is made whose axes are just those modes.
    """
    if mesh is not None and mesh.size != tile.size:
        raise ShardingError(
            "not-expressible",
            f"{sharding.describe()} is for {tile.size} devices, "
            f"the mesh {mesh.describe()} has {mesh.size}",
        )
    if mesh is not None and mesh.device_ids is not None:
        tile = _positions(sharding, tile, mesh)
        if SubgroupType.REPLICATED in sharding.subgroup_types:
            tile = tile.with_sorted_last()  # replicas were sorted by id, not by position
    groups = tile.groups()
    if groups is not None:
        return groups, mesh or _mesh_of_modes(m for group in groups for m in group)
    if mesh is not None:
        raise ShardingError(
            "not-expressible", f"no cut of the axes {mesh.describe()} gives {sharding.describe()}"
        )
    return _mesh_with_ids(sharding, tile)


def _mesh_of_modes(modes: Iterable[tuple[int, int]]) -> MeshShape:
    sizes = [size for size, _ in layout.ascending(tuple(modes))]
    return MeshShape(tuple((f"_axis_{index}", size) for index, size in enumerate(sizes)))


def ids_for_a_mesh(sharding: HloSharding, tile: TileAssignment) -> np.ndarray:
    """The ids of ``tile``, which is ``sharding``'s, in row-major order.

    Raises:
      ShardingError: ``not-expressible`` for more than a mesh may list, or not each of its own.
    """
    if tile.size > MOST_LISTED:
        raise ShardingError(
            "not-expressible",
            f"{sharding.describe()} needs a mesh with a list of {tile.size} device ids",
        )
    ids = tile.flat_devices()
    if ids.max() >= ids.size:
        raise ShardingError(
            "not-expressible",
            f"{sharding.describe()} names device {ids.max()}, "
            f"a mesh of its size has 0..{ids.size - 1}",
        )
    return ids


def _mesh_with_ids(
    sharding: HloSharding, tile: TileAssignment
) -> tuple[list[layout.Modes], MeshShape]:
    """A mesh that has the tiles for axes and their order for device ids."""
    ids = ids_for_a_mesh(sharding, tile)
    sizes = [size for size in tile.dims if size > 1]
    axes = tuple((f"_axis_{index}", size) for index, size in enumerate(sizes))
    modes = layout.of_iota(tile.dims, range(len(tile.dims)))
    return [layout.coalesce((mode,)) for mode in modes], MeshShape(axes, tuple(ids.tolist()))


def _positions(sharding: HloSharding, tile: TileAssignment, mesh: MeshShape) -> TileAssignment:
    """``tile`` with every device id replaced by its row-major position on ``mesh``."""
    ids = tile.flat_devices()
    if ids.max() >= mesh.size:
        raise ShardingError(
            "not-expressible",
            f"{sharding.describe()} names device {ids.max()}, the mesh has {mesh.size} devices",
        )
    return tile.renumbered(mesh.device_array().ravel())


def _of_groups(
    sharding: HloSharding, groups: Sequence[layout.Modes], mesh: MeshShape
) -> TensorSharding:
    data = len(sharding.data_tiles)
    dims = tuple(DimSharding(axes_of(group, mesh, sharding.describe)) for group in groups[:data])
    unreduced: tuple[AxisRef, ...] = ()
    if SubgroupType.UNREDUCED in sharding.subgroup_types:
        group = groups[data + sharding.subgroup_types.index(SubgroupType.UNREDUCED)]
        unreduced = axes_of(layout.coalesce(layout.ascending(group)), mesh, sharding.describe)
    return TensorSharding(mesh, dims, unreduced=unreduced, reduction=sharding.reduction)


def axes_of(
    modes: layout.Modes, mesh: MeshShape, describe: Callable[[], str]
) -> tuple[AxisRef, ...]:
    """The axes and sub-axes of ``mesh`` whose digits are ``modes``, major to minor.

    A mode ``(size, stride)`` covers the strides from ``stride`` to ``size * stride``, an axis those
    from its own stride to its size times that; where they meet is a sub-axis.

    Args:
      modes: over positions in ``mesh``, coalesced.
      mesh: whose axes to use.
      describe: what the modes are of, for the message.

    Raises:
      ShardingError: ``not-expressible``, where a boundary falls inside an axis that it does not
        divide.
    """
    axes: list[AxisRef] = []
    strides = [stride for _, stride in layout.of_iota(mesh.sizes, range(len(mesh.sizes)))]
    for size, stride in modes:
        for (name, axis_size), axis_stride in zip(mesh.axes, strides, strict=True):
            top = min(size * stride, axis_size * axis_stride)
            bottom = max(stride, axis_stride)
            if bottom >= top:
                continue
            pre_size, rest = divmod(axis_size * axis_stride, top)
            if rest or top % bottom or bottom % axis_stride:
                raise ShardingError(
                    "not-expressible",
                    f'{describe()} does not cut "{name}"={axis_size} into whole sub-axes',
                    notes=(f"the mesh is {mesh.describe()}",),
                )
            whole = top // bottom == axis_size
            axes.append(AxisRef(name) if whole else AxisRef(name, pre_size, top // bottom))
    return tuple(axes)
