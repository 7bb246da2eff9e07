"""Which devices hold which block of a value: the one model behind every picture of a sharding.

A :class:`DeviceGrid` is a box of *blocks*, as many along each dimension as it is cut into. All
blocks are of one size, and each is on as many devices as any other. Within a block, devices that
hold one and the same thing are *copies*; where they hold different things (partial results of an
unreduced value, or what a manual region makes of it) those are its *parts*.

Nothing is listed before it is asked for. A grid keeps the order of the devices as the formula that
the algebra has for it, :meth:`DeviceGrid.devices_of` works out one block at a time, and so a
picture costs what it shows, for a mesh of eight devices and for one of a million.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shardpass.canon import (
    AxisRef,
    DimSharding,
    HloKind,
    HloSharding,
    MeshShape,
    SubgroupType,
    TensorSharding,
    TileAssignment,
    to_hlo,
)
from shardpass.diagnostics import ShardingError


@dataclass(frozen=True, slots=True)
class GridDimension:
    """One dimension of the value.

    Attributes:
      pieces: how many blocks there are along it.
      size: its elements; ``None`` where no shape is known.
      axes: what cuts it, as Shardy writes it: ``{"x", ?}p1``; ``None`` where axes have no names.
      is_open: whether propagation may cut it further, which is the ``?`` in ``axes``.
    """

    pieces: int
    size: int | None = None
    axes: str | None = None
    is_open: bool = False

    def bounds(self, piece: int) -> tuple[int, int] | None:
        """``(start, stop)`` of block number ``piece``, in elements; ``None`` without a size."""
        if self.size is None:
            return None
        width = self.size // self.pieces
        return piece * width, (piece + 1) * width


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGrid:
    """The blocks of a value, and the devices that hold them.

    Attributes:
      value: what is laid out, as JAX writes types: ``float32[8,16]``; empty where nothing is known.
      layout: the sharding as a text of Shardy's (without its mesh) or XLA's.
      mesh: the mesh in words, ``x=2, y=4``; ``None`` where there is none.
      dimensions: of the value, in order.
      order: the numbers of the devices, ``dims`` being the pieces of each dimension, then
        ``parts``, then ``copies``; ``None`` for every device that there is.
      ids: the id of device number 0, 1, ...; ``None`` where the numbers are the ids.
      parts: how many different things the devices of a block hold.
      parts_kind: ``"sum"``, ``"max"`` or ``"min"`` for partial results, ``"manual"`` where each
        device of a manual region has its own.
      copies: how many devices hold each of those.
      part_axes: the mesh axes along which the parts lie.
      copy_axes: the mesh axes along which the copies lie.
      platform: ``cpu``, ``tpu``, ... of real devices.
      notes: more to say, a line each.
      is_mesh: whether this is a mesh by itself, each block being a place in it.
    """

    value: str
    layout: str
    mesh: str | None
    dimensions: tuple[GridDimension, ...]
    order: TileAssignment | None
    ids: tuple[int, ...] | None = None
    parts: int = 1
    parts_kind: str | None = None
    copies: int = 1
    part_axes: tuple[str, ...] = ()
    copy_axes: tuple[str, ...] = ()
    platform: str | None = None
    notes: tuple[str, ...] = ()
    is_mesh: bool = False

    @property
    def pieces(self) -> tuple[int, ...]:
        """How many blocks there are along each dimension."""
        return tuple(dimension.pieces for dimension in self.dimensions)

    @property
    def num_blocks(self) -> int:
        """How many different blocks there are."""
        return math.prod(self.pieces)

    @property
    def num_devices(self) -> int | None:
        """How many devices hold a block; ``None`` for every one that there is."""
        return None if self.order is None else self.order.size

    @property
    def block_shape(self) -> tuple[int, ...] | None:
        """The shape of each block, in elements; ``None`` where no shape is known."""
        sizes = [dimension.size for dimension in self.dimensions]
        if None in sizes:
            return None
        return tuple((d.size or 0) // d.pieces for d in self.dimensions)

    def bounds(self, block: Sequence[int]) -> tuple[tuple[int, int] | None, ...]:
        """``(start, stop)`` of a block along each dimension, in elements."""
        pairs = zip(self.dimensions, block, strict=True)
        return tuple(dimension.bounds(piece) for dimension, piece in pairs)

    def devices_of(
        self, block: Sequence[int], *, most_parts: int | None = None, most_copies: int | None = None
    ) -> tuple[tuple[int, ...], ...]:
        """The ids of the devices that hold ``block``: for each part, its copies in ascending order.

        Args:
          block: its place along each dimension, ``0 <= block[d] < pieces[d]``.
          most_parts: work out no more than the first so many parts,
          most_copies: and of each no more than so many copies.
        """
        if self.order is None:
            return ()
        number = 0
        for place, pieces in zip(block, self.pieces, strict=True):
            number = number * pieces + place
        parts = min(self.parts, most_parts or self.parts)
        copies = min(self.copies, most_copies or self.copies)
        first = (number * self.parts + np.arange(parts, dtype=np.int64)) * self.copies
        numbers = _devices_at(self.order, first[:, None] + np.arange(copies, dtype=np.int64))
        if self.ids is None:
            return tuple(tuple(sorted(row)) for row in numbers.tolist())
        return tuple(tuple(sorted(self.ids[n] for n in row)) for row in numbers.tolist())

    def blocks(self) -> Iterator[tuple[int, ...]]:
        """The places of all blocks, the last dimension fastest."""
        return np.ndindex(*self.pieces)


def grid_of_tensor_sharding(
    sharding: TensorSharding,
    shape: Sequence[int] | None = None,
    *,
    value: str = "",
    tiles: HloSharding | None = None,
    manual_axes: Sequence[str | AxisRef] = (),
) -> DeviceGrid:
    """The grid of a value laid out over named axes.

    Args:
      sharding: the layout.
      shape: of the value, in elements; without it, blocks have places and no bounds.
      value: what pictures call the value.
      tiles: the tile assignment of ``sharding``, where it is known already.
      manual_axes: axes inside whose manual region the value lives.

    Raises:
      ShardingError: ``rank-mismatch``, ``indivisible``; ``duplicate-axis`` for a manual axis that
        cuts a dimension.
    """
    mesh = sharding.mesh
    if mesh.is_maximal:
        sizes: Sequence[int | None] = () if shape is None else shape
        dimensions = tuple(GridDimension(1, size) for size in sizes)
    else:
        if shape is not None:
            sharding.shard_shape(shape)
        sizes = (None,) * sharding.rank if shape is None else shape
        dimensions = tuple(
            GridDimension(pieces, size, _dim_text(dim), dim.open)
            for pieces, size, dim in zip(sharding.tiles(), sizes, sharding.dims, strict=True)
        )
    manual = [AxisRef(axis) if isinstance(axis, str) else axis for axis in manual_axes]
    return _grid(
        tiles or to_hlo(sharding, manual_axes),
        dimensions,
        mesh.size,
        value=value,
        layout=_layout_text(sharding),
        mesh=mesh.describe() if mesh.axes else None,
        part_axes=tuple(map(_axis_text, (*manual, *sharding.unreduced))),
        copy_axes=tuple(map(_axis_text, _unused_axes(sharding, manual))),
    )


def grid_of_hlo_sharding(
    sharding: HloSharding,
    shape: Sequence[int] | None = None,
    *,
    value: str = "",
    num_devices: int | None = None,
) -> DeviceGrid:
    """The grid of a value laid out by a tile assignment.

    Args:
      sharding: not a tuple. One that was written with names (V3) keeps them.
      shape: of the value, in elements; without it, blocks have places and no bounds.
      value: what pictures call the value.
      num_devices: how many devices there are, for a sharding that does not say.

    Raises:
      ShardingError: ``rank-mismatch``, ``indivisible``; ``not-expressible`` for a tuple.
    """
    named = sharding.named
    if named is not None and named.order is None and named.sharding.dims:
        return grid_of_tensor_sharding(
            named.sharding, shape, value=value, tiles=sharding, manual_axes=named.manual
        )
    if sharding.is_tuple:
        raise ShardingError(
            "not-expressible",
            f"{sharding.describe()} is a tuple of {len(sharding.elements)} shardings, "
            "and a picture is of one value",
            help="take one of its elements",
        )
    if sharding.tile is None:
        pieces = (1,) * len(shape or ())
    else:
        pieces = sharding.data_tiles
        if shape is not None:
            sharding.shard_shape(shape)
    sizes = (None,) * len(pieces) if shape is None else shape
    return _grid(
        sharding,
        tuple(map(GridDimension, pieces, sizes)),
        num_devices,
        value=value,
        layout=sharding.describe(),
        mesh=None,
    )


def grid_of_blocks(
    blocks: np.ndarray, shape: Sequence[int], *, value: str = "", layout: str = ""
) -> DeviceGrid:
    """The grid of a value of which nothing is known but the block of every device.

    Args:
      blocks: int64, shaped ``[devices, rank, 2]``: ``(start, stop)`` in elements for device number
        0, 1, ...
      shape: of the value, in elements.
      value: what pictures call the value.
      layout: what pictures call the sharding.

    Raises:
      ShardingError: ``not-expressible`` for blocks that are no even grid, each block on as many
        devices as any other.
    """
    places, pieces = [], []
    for dimension, size in enumerate(shape):
        starts, place = np.unique(blocks[:, dimension, 0], return_inverse=True)
        width = size // len(starts)
        edges = np.arange(len(starts))[:, None] * width + np.array([0, width])
        if size % len(starts) or not np.array_equal(blocks[:, dimension], edges[place]):
            raise _no_grid(f"dimension {dimension} of {size} is not cut into equal pieces", layout)
        places.append(place)
        pieces.append(len(starts))
    count = math.prod(pieces)
    number = np.zeros(len(blocks), dtype=np.int64)
    for place, size in zip(places, pieces, strict=True):
        number = number * size + place
    held = np.bincount(number, minlength=count)
    if np.ptp(held):
        raise _no_grid(f"blocks are on {held.min()} to {held.max()} devices", layout)
    order = np.argsort(number, kind="stable").reshape((*pieces, 1, held[0]))
    return DeviceGrid(
        value=value,
        layout=layout,
        mesh=None,
        dimensions=tuple(map(GridDimension, pieces, shape)),
        order=TileAssignment.of_array(order),
        copies=int(held[0]),
    )


def grid_of_mesh(mesh: MeshShape) -> DeviceGrid:
    """The mesh itself: a dimension for each axis, and a block for each device."""
    each = tuple(DimSharding((AxisRef(name),)) for name in mesh.names)
    grid = grid_of_tensor_sharding(TensorSharding(mesh, each), value="mesh")
    return replace(grid, layout=mesh.describe(), mesh=None, is_mesh=True)


def _grid(
    sharding: HloSharding,
    dimensions: tuple[GridDimension, ...],
    num_devices: int | None,
    *,
    value: str,
    layout: str,
    mesh: str | None,
    part_axes: tuple[str, ...] = (),
    copy_axes: tuple[str, ...] = (),
) -> DeviceGrid:
    parts, copies, kind = 1, 1, None
    order = sharding.tile
    if order is not None:
        sizes = dict(zip(sharding.subgroup_types, order.dims[len(dimensions) :], strict=True))
        copies = sizes.pop(SubgroupType.REPLICATED, 1)
        parts = math.prod(sizes.values())
        if SubgroupType.MANUAL in sizes:
            kind = "manual"
        elif SubgroupType.UNREDUCED in sizes:
            kind = sharding.reduction or "sum"
        order = order.reshaped((*(d.pieces for d in dimensions), parts, copies))
    elif sharding.kind is HloKind.MAXIMAL and sharding.device is not None:
        order = TileAssignment.listed((1,) * (len(dimensions) + 2), [sharding.device])
    elif num_devices is not None:
        if sharding.kind is HloKind.MANUAL:
            parts, kind = num_devices, "manual"
        elif sharding.kind is HloKind.UNREDUCED:
            parts, kind = num_devices, sharding.reduction or "sum"
        else:
            copies = num_devices
        order = TileAssignment.iota((*(1 for _ in dimensions), parts, copies))
    return DeviceGrid(
        value=value,
        layout=layout,
        mesh=mesh,
        dimensions=dimensions,
        order=order,
        parts=parts,
        parts_kind=kind,
        copies=copies,
        part_axes=part_axes,
        copy_axes=copy_axes,
    )


def _no_grid(why: str, layout: str) -> ShardingError:
    return ShardingError("not-expressible", f"no grid of devices shows {layout}: {why}")


def _devices_at(order: TileAssignment, places: np.ndarray) -> np.ndarray:
    """The device numbers at ``places`` of the flat array, without writing out the others."""
    if order.devices is not None:
        return order.devices[places]
    numbers = np.zeros_like(places)
    for size, stride in reversed(order.modes or ()):
        places, digits = np.divmod(places, size)
        numbers += digits * stride
    return numbers


def _layout_text(sharding: TensorSharding) -> str:
    """Shardy's text without the mesh: ``[{"x"}, {?}], unreduced={"y"}``."""
    parts = [f"[{', '.join(map(_dim_text, sharding.dims))}]"]
    if sharding.replicated:
        parts.append(f"replicated={_dim_text(DimSharding(sharding.replicated))}")
    if sharding.unreduced:
        reduction = sharding.reduction or ""
        parts.append(f"unreduced={reduction}{_dim_text(DimSharding(sharding.unreduced))}")
    return ", ".join(parts)


def _dim_text(dim: DimSharding) -> str:
    """Shardy's text, except that it has every name as people write it, not as bytes in hex."""
    entries = [*map(_axis_text, dim.axes), *["?"] * dim.open]
    priority = "" if dim.priority is None else f"p{dim.priority}"
    return "{" + ", ".join(entries) + "}" + priority


def _axis_text(axis: AxisRef) -> str:
    return f'"{axis.name}"' if axis.is_full else f'"{axis.name}":({axis.pre_size}){axis.size}'


def _unused_axes(sharding: TensorSharding, manual: Sequence[AxisRef]) -> list[AxisRef]:
    """The axes, and what is left of axes, along which the devices hold copies, in mesh order."""
    mesh = sharding.mesh
    used = (*sharding.used_axes(), *sharding.unreduced, *manual)
    unused: list[AxisRef] = []
    for name, size in mesh.axes:
        taken = sorted(axis.bounds(mesh) for axis in used if axis.name == name)
        if not taken:
            unused += [AxisRef(name)] if size > 1 else []
            continue
        reached = 1
        for start, end in (*taken, (size, size)):
            if start > reached:
                unused.append(AxisRef(name, reached, start // reached))
            reached = end
    return unused
