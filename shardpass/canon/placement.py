"""Which block of a tensor each device holds, and when two shardings agree on that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from shardpass.canon import layout
from shardpass.canon.hlo_sharding import HloKind, HloSharding
from shardpass.canon.lowering import to_hlo
from shardpass.canon.shapes import check_rank
from shardpass.canon.tensor_sharding import TensorSharding
from shardpass.canon.tile_assignment import TileAssignment
from shardpass.diagnostics import ShardingError

Sharding: TypeAlias = TensorSharding | HloSharding


def device_ids(sharding: Sharding, num_devices: int | None = None) -> np.ndarray:
    """The device of each row of :func:`device_blocks`, int64.

    For a :class:`TensorSharding`, the devices in row-major order of the mesh; for an
    :class:`HloSharding`, ascending ids, which is the same for a mesh without ``device_ids``.

    Args:
      sharding: not a tuple.
      num_devices: how many there are, for an ``HloSharding`` that does not say.

    Raises:
      ShardingError: ``device-count``, where the number of devices is not known or beyond what is
        written out; ``not-expressible`` for a tuple.
    """
    if isinstance(sharding, TensorSharding):
        return sharding.mesh.device_array().ravel()
    if sharding.kind is HloKind.MAXIMAL:
        return np.array([sharding.device], dtype=np.int64)
    if sharding.tile is not None:
        return np.sort(sharding.tile.flat_devices())
    return np.arange(_known(sharding, num_devices), dtype=np.int64)


def device_blocks(
    sharding: Sharding, shape: Sequence[int], num_devices: int | None = None
) -> np.ndarray:
    """The block of a tensor that each device holds.

    Dimensions that do not divide are cut as XLA cuts them: every block but the last ones has the
    size rounded up, and ``stop`` never passes the end, so a last block may be short or empty.

    Args:
      sharding: not a tuple. Unreduced and manual axes cut nothing.
      shape: global shape in elements.
      num_devices: how many devices there are, for an ``HloSharding`` that does not say.

    Returns:
      int64, shaped ``[devices, rank, 2]``: ``(start, stop)`` in elements of the global tensor, a
      row for each of :func:`device_ids`.

    Raises:
      ShardingError: ``rank-mismatch``, and as :func:`device_ids`.
    """
    sizes = np.array(shape, dtype=np.int64)
    if isinstance(sharding, TensorSharding) and not sharding.mesh.is_maximal:
        check_rank(len(shape), sharding.rank, sharding.dims_text())
        index, tiles = _mesh_tile_index(sharding), sharding.tiles()
    elif isinstance(sharding, HloSharding) and sharding.tile is not None:
        check_rank(len(shape), len(sharding.data_tiles), sharding.describe())
        tiles = sharding.data_tiles
        index = sharding.tile.coordinates()[:, : len(tiles)]
    else:
        devices = len(device_ids(sharding, num_devices))
        index, tiles = np.zeros((devices, len(shape)), dtype=np.int64), (1,) * len(shape)
    block = -(-sizes // np.array(tiles, dtype=np.int64))
    edges = np.stack([index, index + 1], axis=-1) * block[:, None]
    return np.minimum(edges, sizes[:, None])


def is_equivalent(a: Sharding, b: Sharding, rank: int) -> bool:
    """Whether both put the same blocks of a tensor of ``rank`` dimensions on the same devices.

    Names, open dimensions, priorities and explicit replication do not count; the order of devices
    within a subgroup does not either. What is unreduced, by which reduction, and what is manual
    does. ``{unknown}`` is only equivalent to itself.

    Raises:
      ShardingError: ``rank-mismatch``, if one is for another rank.
    """
    if isinstance(a, HloSharding) and isinstance(b, HloSharding) and a.is_tuple and b.is_tuple:
        return len(a.elements) == len(b.elements) and all(
            is_equivalent(x, y, rank) for x, y in zip(a.elements, b.elements, strict=True)
        )
    counts = {_num_devices(a), _num_devices(b)} - {None}
    return len(counts) < 2 and _normal_form(a, rank) == _normal_form(b, rank)


def _mesh_tile_index(sharding: TensorSharding) -> np.ndarray:
    """Which piece of each dimension the devices hold, in mesh order: int64 [devices, rank]."""
    mesh = sharding.mesh
    coordinates = dict(zip(mesh.names, _coordinates(mesh.sizes), strict=True))
    columns = []
    for dim in sharding.dims:
        column = np.zeros(mesh.size, dtype=np.int64)
        for axis in dim.axes:
            _, end = axis.bounds(mesh)
            size = axis.size_in(mesh)
            digit = coordinates[axis.name] // (mesh.axis_size(axis.name) // end) % size
            column = column * size + digit
        columns.append(column)
    return np.stack(columns, axis=-1) if columns else np.zeros((mesh.size, 0), dtype=np.int64)


def _coordinates(sizes: Sequence[int]) -> list[np.ndarray]:
    flat = np.arange(int(np.prod(sizes, dtype=np.int64)), dtype=np.int64)
    return list(np.unravel_index(flat, sizes)) if sizes else []


def _normal_form(sharding: Sharding, rank: int) -> object:
    hlo = to_hlo(sharding) if isinstance(sharding, TensorSharding) else sharding
    if hlo.tile is None:
        return hlo.kind, hlo.device, hlo.reduction
    check_rank(rank, len(hlo.data_tiles), hlo.describe())
    return _with_sorted_subgroups(hlo.tile, len(hlo.data_tiles)), hlo.subgroup_types, hlo.reduction


def _with_sorted_subgroups(tile: TileAssignment, data: int) -> TileAssignment:
    """The devices along each subgroup in ascending order; replicas already are.

    A subgroup is renumbered as a whole, the same for every tile: it is sorted along the line on
    which the first tile has its least device.
    """
    modes = tile.modes
    groups = None if modes is None else layout.split(modes, tile.dims)
    if groups is not None:
        groups[data:] = [layout.ascending(group) for group in groups[data:]]
        return TileAssignment.of_modes(tile.dims, tuple(m for group in groups for m in group))
    ids = tile.device_array()
    first = ids[(0,) * data]
    least = np.unravel_index(first.argmin(), first.shape)
    for axis in range(first.ndim):
        line = first[(*least[:axis], slice(None), *least[axis + 1 :])]
        ids = ids.take(line.argsort(), axis=data + axis)
    return TileAssignment.of_array(ids)


def _num_devices(sharding: Sharding) -> int | None:
    if isinstance(sharding, TensorSharding):
        return sharding.mesh.size if sharding.mesh.axes or sharding.mesh.is_maximal else None
    return sharding.num_devices


def _known(sharding: HloSharding, num_devices: int | None) -> int:
    if sharding.is_tuple:
        raise ShardingError(
            "not-expressible", f"{sharding.describe()} is a tuple, not the sharding of one value"
        )
    if num_devices is None:
        raise ShardingError("device-count", f"{sharding} does not say how many devices there are")
    return num_devices
