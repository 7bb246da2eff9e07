"""Named axes into tiles.

Goes over the device order as strides (:mod:`shardpass.canon.layout`): a mesh is one mode per axis,
a sub-axis is a cut of its mode, and a tile assignment is the modes that its dimensions use, one
after the other, then those of the subgroups. It takes as long as there are axes, whatever their
sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shardpass.canon import layout
from shardpass.canon.axes import AxisRef
from shardpass.canon.hlo_sharding import HloKind, HloSharding, SubgroupType
from shardpass.canon.mesh import MeshShape
from shardpass.canon.named_hlo import NamedHlo
from shardpass.canon.tensor_sharding import TensorSharding
from shardpass.canon.tile_assignment import TileAssignment

_REPLICATED = [SubgroupType.REPLICATED]


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
    return _lower(_named(sharding, manual_axes))


def to_named_hlo(
    sharding: TensorSharding, manual_axes: Sequence[str | AxisRef] = ()
) -> HloSharding:
    """As :func:`to_hlo`, for text that keeps the names (V3), as jaxlib 0.12 writes it.

    Open dimensions and explicit replication are kept as well; priorities are not.
    """
    return named_to_hlo(_named(sharding, manual_axes))


def _named(sharding: TensorSharding, manual_axes: Sequence[str | AxisRef]) -> NamedHlo:
    if not manual_axes:
        return NamedHlo(sharding)
    mesh = sharding.mesh
    manual = [AxisRef(axis) if isinstance(axis, str) else axis for axis in manual_axes]
    manual.sort(key=lambda axis: (mesh.axis_index(axis.name), axis.bounds(mesh)[0]))
    return NamedHlo(sharding, tuple(manual))


def named_to_hlo(named: NamedHlo) -> HloSharding:
    """The tiles of a V3 sharding, which remembers that it was one."""
    return replace(_lower(named), named=named)


def _lower(named: NamedHlo) -> HloSharding:
    sharding = named.sharding
    mesh = sharding.mesh
    if mesh.device_id is not None:
        return HloSharding.maximal(mesh.device_id)
    # What is the whole mesh is said so even where the mesh is one device, as XLA says it.
    if named.is_manual:
        return HloSharding.manual()
    if named.is_unreduced:
        return HloSharding.unreduced(sharding.reduction)

    positions = _Positions(mesh)
    dims: list[int] = []
    order: list[tuple[int, int]] = []
    for dim in sharding.dims:
        dims.append(positions.take(dim.axes, order))
    data = len(dims)
    types: list[SubgroupType] = []
    for subgroup, axes in (
        (SubgroupType.MANUAL, named.manual),
        (SubgroupType.UNREDUCED, sharding.unreduced),
    ):
        if axes:
            dims.append(positions.take(axes, order))
            types.append(subgroup)
    if len(order) < len(mesh.axes) or positions.has_sub_axes:
        dims.append(positions.take_rest(order))
        types.append(SubgroupType.REPLICATED)
    size = positions.size
    if size == 1 or (types == _REPLICATED and dims[-1] == size):
        return HloSharding.replicated()
    if mesh.device_ids is not None or named.order is not None or 1 in dims[data:]:
        tile = _over(named.order, mesh, tuple(dims), tuple(order))
        return HloSharding.tiled(tile, types, sharding.reduction)
    # In order already: the types are, and so are the replicas, since an iota counts along the mesh.
    tile = TileAssignment.of_modes(dims, tuple(order))
    return HloSharding(HloKind.TILED, tile, tuple(types), reduction=sharding.reduction)


class _Positions:
    """The axes of a mesh as modes over the positions in it, taken one after the other."""

    def __init__(self, mesh: MeshShape) -> None:
        self._left: dict[str, tuple[int, int]] = {}
        #: The parts of an axis that were taken, where they were not the whole.
        self._parts: dict[str, list[tuple[int, int]]] = {}
        stride = 1
        for name, size in reversed(mesh.axes):
            self._left[name] = size, stride
            stride *= size
        self.size = stride

    @property
    def has_sub_axes(self) -> bool:
        """Whether an axis was taken in part, so that some of it may be left."""
        return bool(self._parts)

    def take(self, axes: Sequence[AxisRef], order: list[tuple[int, int]]) -> int:
        """Put the modes of ``axes`` behind ``order``; into how many pieces they cut."""
        pieces = 1
        for axis in axes:
            if axis.pre_size is None or axis.size is None:
                mode = self._left.pop(axis.name)
            else:
                size, stride = self._left[axis.name]
                end = axis.pre_size * axis.size
                self._parts.setdefault(axis.name, []).append((axis.pre_size, end))
                mode = axis.size, stride * (size // end)
            pieces *= mode[0]
            order.append(mode)
        return pieces

    def take_rest(self, order: list[tuple[int, int]]) -> int:
        """As :meth:`take`, for what is left, in mesh order."""
        pieces = 1
        for name, (size, stride) in reversed(self._left.items()):
            reached = 1
            for start, end in (*sorted(self._parts.get(name, ())), (size, size)):
                if start > reached:
                    order.append((start // reached, stride * (size // start)))
                    pieces *= start // reached
                reached = end
        return pieces


def _over(
    order: TileAssignment | None, mesh: MeshShape, dims: tuple[int, ...], positions: layout.Modes
) -> TileAssignment:
    """The devices of a mesh with an order of its own, at ``positions`` in it."""
    if mesh.device_ids is None and order is None:
        return TileAssignment.of_modes(dims, positions)
    if order is not None and order.modes is not None:
        major_first = sorted(range(len(positions)), key=lambda index: -positions[index][1])
        groups = layout.split(order.modes, [positions[index][0] for index in major_first])
        if groups is not None:
            of_position = dict(zip(major_first, groups, strict=True))
            flat = (mode for index in range(len(positions)) for mode in of_position[index])
            return TileAssignment.of_modes(dims, tuple(flat))
    ids = (mesh if order is None else order).device_array().ravel()
    return TileAssignment.of_array(ids[layout.expand(positions)].reshape(dims))
