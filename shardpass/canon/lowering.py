"""Named axes into tiles.

Goes over the device order as strides (:mod:`shardpass.canon.layout`): a mesh is one mode per axis,
a sub-axis is a cut of its mode, and a tile assignment is the modes that its dimensions use, one
after the other, then those of the subgroups. It takes as long as there are axes, whatever their
sizes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from shardpass.canon import layout
from shardpass.canon.axes import AxisRef
from shardpass.canon.hlo_sharding import HloSharding, SubgroupType
from shardpass.canon.mesh import MeshShape
from shardpass.canon.named_hlo import NamedHlo
from shardpass.canon.tensor_sharding import TensorSharding
from shardpass.canon.tile_assignment import TileAssignment


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


def _lower(named: NamedHlo) -> HloSharding:
    sharding, manual, order = named.sharding, named.manual, named.order
    mesh = sharding.mesh
    if mesh.device_id is not None:
        return HloSharding.maximal(mesh.device_id)
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
