"""Named axes to tiles, and tiles back to named axes.

Both ways go over the device order as strides (:mod:`shardpass.canon.layout`): a mesh is one mode
per axis, a sub-axis is a cut of its mode, and a tile assignment is the modes that its dimensions
use, one after the other, then those of the subgroups.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from shardpass.canon import layout
from shardpass.canon.axes import AxisRef, DimSharding
from shardpass.canon.hlo_sharding import HloKind, HloSharding, SubgroupType
from shardpass.canon.mesh import MeshShape
from shardpass.canon.named_hlo import NamedHlo
from shardpass.canon.shapes import check_rank
from shardpass.canon.tensor_sharding import TensorSharding
from shardpass.canon.tile_assignment import MOST_LISTED, TileAssignment
from shardpass.diagnostics import ShardingError


def to_hlo(sharding: TensorSharding, manual_axes: Sequence[str | AxisRef] = ()) -> HloSharding:
    """The tiles of ``sharding``; exact for placement, in time of its axes, not of its devices.

    What only guides propagation is dropped: open dimensions, priorities, explicit replication. A
    mesh with explicit ``device_ids`` gives a V1 list, as Shardy's export does.

    Args:
      sharding: what is to be said.
      manual_axes: axes inside whose manual region the value lives, in any order.

    Raises:
      ShardingError: ``unknown-axis``; ``duplicate-axis`` for a manual axis that is used.
    """
    mesh = sharding.mesh
    manual = [AxisRef(axis) if isinstance(axis, str) else axis for axis in manual_axes]
    manual.sort(key=lambda axis: (mesh.axis_index(axis.name), axis.bounds(mesh)[0]))
    return _lower(NamedHlo(sharding, tuple(manual)))


def named_to_hlo(named: NamedHlo) -> HloSharding:
    """The tiles of a V3 sharding, which remembers that it was one."""
    return replace(_lower(named), named=named)


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
            "not-expressible", f"{sharding} is a tuple, not the sharding of one value"
        )
    if sharding.kind is HloKind.MAXIMAL and sharding.device is not None:
        return TensorSharding(MeshShape.maximal(sharding.device), ())
    if sharding.named is not None and mesh in (None, _full_mesh(sharding.named)):
        return _from_named(sharding.named, rank)
    if sharding.tile is not None:
        check_rank(rank, len(sharding.data_tiles), str(sharding))
        groups, mesh = _groups_on(sharding, mesh)
        return _of_groups(sharding, groups, mesh)
    if sharding.kind is HloKind.UNREDUCED:
        if mesh is None:
            raise ShardingError(
                "not-expressible",
                "{unreduced} does not say over how many devices",
                help="give the mesh",
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
    if SubgroupType.MANUAL not in sharding.subgroup_types:
        return ()
    groups, _ = _groups_on(sharding, mesh)
    index = len(sharding.data_tiles) + sharding.subgroup_types.index(SubgroupType.MANUAL)
    return _axes_of(layout.coalesce(layout.ascending(groups[index])), mesh, sharding)


def _lower(named: NamedHlo) -> HloSharding:
    sharding, manual, order = named.sharding, named.manual, named.order
    mesh = sharding.mesh
    if mesh.is_maximal and mesh.device_ids:
        return HloSharding.maximal(mesh.device_ids[0])
    # What is the whole mesh is said so even where the mesh is one device, as XLA says it.
    if named.is_manual:
        return HloSharding.manual()
    if named.is_unreduced:
        return HloSharding.unreduced(sharding.reduction)
    if mesh.size == 1:
        return HloSharding.replicated()

    pieces = _pieces(mesh, [*sharding.used_axes(), *sharding.unreduced, *manual])
    grouped = [dim.axes for dim in sharding.dims] + [manual, sharding.unreduced]
    taken = [[index for axis in axes for index in pieces.within(axis)] for axes in grouped]
    used = {index for group in taken for index in group}
    taken.append([index for index in range(len(pieces.sizes)) if index not in used])

    dims = tuple(math.prod(pieces.sizes[index] for index in group) for group in taken)
    flat_order = [index for group in taken for index in group]
    tile = _ordered(mesh, order, pieces.sizes, flat_order, dims)
    return HloSharding.tiled(tile, tuple(SubgroupType), sharding.reduction)


class _Pieces:
    """The axes of a mesh, cut so finely that every axis in use is a whole number of pieces."""

    def __init__(self, mesh: MeshShape, cuts: dict[str, list[int]]) -> None:
        self._mesh = mesh
        self.sizes: list[int] = []
        self._starts: dict[tuple[str, int], int] = {}
        for name, _ in mesh.axes:
            bounds = cuts[name]
            for start, end in itertools.pairwise(bounds):
                self._starts[name, start] = len(self.sizes)
                self.sizes.append(end // start)

    def within(self, axis: AxisRef) -> range:
        """The indices of the pieces that ``axis`` is made of, major to minor."""
        start, end = axis.bounds(self._mesh)
        if start == end:
            return range(0)
        first = last = self._starts[axis.name, start]
        reached = start
        while reached < end:
            reached *= self.sizes[last]
            last += 1
        return range(first, last)


def _pieces(mesh: MeshShape, axes: Iterable[AxisRef]) -> _Pieces:
    cuts = {name: {1, size} for name, size in mesh.axes}
    for axis in axes:
        cuts[axis.name].update(axis.bounds(mesh))
    return _Pieces(mesh, {name: sorted(bounds) for name, bounds in cuts.items()})


def _ordered(
    mesh: MeshShape,
    order: TileAssignment | None,
    sizes: Sequence[int],
    flat_order: Sequence[int],
    dims: tuple[int, ...],
) -> TileAssignment:
    """The devices of ``mesh`` with its pieces put in ``flat_order``, cut into ``dims``."""
    if mesh.device_ids is not None:
        return _listed(mesh.device_array(), sizes, flat_order, dims)
    modes = layout.of_iota(mesh.sizes, range(len(mesh.sizes))) if order is None else order.modes
    groups = layout.split(modes or (), sizes)
    if groups is None:
        return _listed(
            order.device_array() if order else mesh.device_array(), sizes, flat_order, dims
        )
    return TileAssignment.of_modes(dims, tuple(m for index in flat_order for m in groups[index]))


def _listed(
    ids: np.ndarray, sizes: Sequence[int], flat_order: Sequence[int], dims: tuple[int, ...]
) -> TileAssignment:
    return TileAssignment.of_array(ids.reshape(sizes).transpose(flat_order).reshape(dims))


def _full_mesh(named: NamedHlo) -> MeshShape:
    if named.order is None:
        return named.sharding.mesh
    return MeshShape(named.sharding.mesh.axes, tuple(named.order.flat_devices().tolist()))


def _from_named(named: NamedHlo, rank: int) -> TensorSharding:
    sharding = named.sharding
    if sharding.dims:
        check_rank(rank, len(sharding.dims), named.to_text())
    return TensorSharding(
        _full_mesh(named),
        sharding.dims or (DimSharding(),) * rank,
        sharding.replicated,
        sharding.unreduced,
        sharding.reduction,
    )


def _groups_on(
    sharding: HloSharding, mesh: MeshShape | None
) -> tuple[list[layout.Modes], MeshShape]:
    """The modes of each dimension of the tile assignment, in positions on a mesh.

    Without a mesh, one is made whose axes are just those modes.
    """
    tile = sharding.tile
    assert tile is not None
    if mesh is not None and mesh.size != tile.size:
        raise ShardingError(
            "not-expressible",
            f"{sharding} is for {tile.size} devices, the mesh {mesh.describe()} has {mesh.size}",
        )
    if mesh is not None and mesh.device_ids is not None:
        tile = _positions(tile, mesh)
        if SubgroupType.REPLICATED in sharding.subgroup_types:
            tile = tile.with_sorted_last()  # replicas were sorted by id, not by position
    formula = tile.as_iota()
    modes = formula.modes if formula else None
    groups = layout.split(modes, tile.dims) if modes else None
    if groups is not None:
        groups = [layout.coalesce(group) for group in groups]
        return groups, mesh or _mesh_of_modes(m for group in groups for m in group)
    if mesh is not None:
        raise ShardingError(
            "not-expressible", f"no cut of the axes {mesh.describe()} gives {sharding}"
        )
    return _mesh_with_ids(sharding, tile)


def _mesh_of_modes(modes: Iterable[tuple[int, int]]) -> MeshShape:
    sizes = [size for size, _ in layout.ascending(tuple(modes))]
    return MeshShape(tuple((f"_axis_{index}", size) for index, size in enumerate(sizes)))


def _mesh_with_ids(
    sharding: HloSharding, tile: TileAssignment
) -> tuple[list[layout.Modes], MeshShape]:
    """A mesh that has the tiles for axes and their order for device ids."""
    if tile.size > MOST_LISTED:
        raise ShardingError(
            "not-expressible", f"{sharding} needs a mesh with a list of {tile.size} device ids"
        )
    ids = tile.flat_devices()
    if ids.max() >= ids.size:
        raise ShardingError(
            "not-expressible",
            f"{sharding} names device {ids.max()}, a mesh of its size has 0..{ids.size - 1}",
        )
    sizes = [size for size in tile.dims if size > 1]
    axes = tuple((f"_axis_{index}", size) for index, size in enumerate(sizes))
    modes = layout.of_iota(tile.dims, range(len(tile.dims)))
    return [layout.coalesce((mode,)) for mode in modes], MeshShape(axes, tuple(ids.tolist()))


def _positions(tile: TileAssignment, mesh: MeshShape) -> TileAssignment:
    """``tile`` with every device id replaced by its row-major position on ``mesh``."""
    where = np.empty(mesh.size, dtype=np.int64)
    where[mesh.device_array().ravel()] = np.arange(mesh.size)
    ids = tile.flat_devices()
    if ids.max() >= mesh.size:
        raise ShardingError(
            "not-expressible", f"{tile} names device {ids.max()}, the mesh has {mesh.size} devices"
        )
    return TileAssignment.of_array(where[ids].reshape(tile.dims))


def _of_groups(
    sharding: HloSharding, groups: Sequence[layout.Modes], mesh: MeshShape
) -> TensorSharding:
    data = len(sharding.data_tiles)
    dims = tuple(DimSharding(_axes_of(group, mesh, sharding)) for group in groups[:data])
    unreduced: tuple[AxisRef, ...] = ()
    if SubgroupType.UNREDUCED in sharding.subgroup_types:
        group = groups[data + sharding.subgroup_types.index(SubgroupType.UNREDUCED)]
        unreduced = _axes_of(layout.coalesce(layout.ascending(group)), mesh, sharding)
    return TensorSharding(mesh, dims, unreduced=unreduced, reduction=sharding.reduction)


def _axes_of(modes: layout.Modes, mesh: MeshShape, sharding: HloSharding) -> tuple[AxisRef, ...]:
    """The axes and sub-axes of ``mesh`` whose digits are ``modes``, major to minor.

    A mode ``(size, stride)`` covers the strides from ``stride`` to ``size * stride``, an axis those
    from its own stride to its size times that; where they meet is a sub-axis.
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
                    f'{sharding} does not cut axis "{name}"={axis_size} into whole sub-axes',
                    notes=(f"the mesh is {mesh.describe()}",),
                )
            whole = top // bottom == axis_size
            axes.append(AxisRef(name) if whole else AxisRef(name, pre_size, top // bottom))
    return tuple(axes)
