"""Why two shardings are not equivalent, in a sentence with the numbers.

The checks go from what moves most to what moves least, and the first that finds something speaks:
kind of memory, devices, their order, into how many pieces each dimension is cut, partial results
and manual axes, and last which device holds which piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from shardpass.canon import HloKind, HloSharding, SubgroupType, TileAssignment
from shardpass.compat.devices import Device
from shardpass.diagnostics import ShardingError
from shardpass.sharding.base import JaxSharding, Sharding, device_order, normal_form
from shardpass.sharding.convert import as_ours
from shardpass.sharding.pmap import PmapSharding

_EVERYWHERE = {
    SubgroupType.REPLICATED: HloKind.REPLICATED,
    SubgroupType.UNREDUCED: HloKind.UNREDUCED,
    SubgroupType.MANUAL: HloKind.MANUAL,
}
_MOST_NAMED = 4


def explain_difference(a: JaxSharding, b: JaxSharding, ndim: int) -> str | None:
    """Why ``a`` and ``b`` are not equivalent for values of ``ndim`` dimensions.

    Args:
      a: of any class, ours or JAX's.
      b: the same.
      ndim: the number of dimensions of the value.

    Returns:
      ``"dimension 1 is split 4 ways in a, 2 in b"``; ``None`` just where
      ``a.is_equivalent_to(b, ndim)``.

    Raises:
      ShardingError: ``abstract-type`` for what is no sharding; ``rank-mismatch``.
    """
    a, b = as_ours(a), as_ours(b)
    if isinstance(a, Sharding):
        equivalent = a.is_equivalent_to(b, ndim)
    else:
        equivalent = Sharding.is_equivalent_to(a, b, ndim)  # pyright: ignore[reportArgumentType]
    return None if equivalent else next(_reasons(a, b, ndim))


def common_device_order(*shardings: JaxSharding) -> tuple[Device, ...]:
    """The devices that ``shardings`` are all over, for one program that uses them together.

    A program numbers its devices once. XLA cannot combine values whose shardings number the same
    devices in another order, even where no block would have to move.

    Args:
      shardings: at least one, of any class, ours or JAX's.

    Raises:
      ShardingError: ``device-order`` for the same devices in another order, with the first place
        that differs; ``mesh-mismatch`` for other devices; ``device-free``.
    """
    orders: list[tuple[Device, ...]] = []
    for sharding in map(as_ours, shardings):
        order = device_order(sharding)
        if order is None:
            raise ShardingError(
                "device-free", f"{sharding!r} has no devices", help="bind it to devices first"
            )
        orders.append(order)
    if not orders:
        raise ShardingError("device-free", "no shardings, and so no devices")
    for index, order in enumerate(orders[1:], start=1):
        names = "sharding 0", f"sharding {index}"
        if set(order) != set(orders[0]):
            raise ShardingError(
                "mesh-mismatch",
                f"{_devices(orders[0], order, *names)}",
                help="one program runs on one set of devices; move the values with jax.device_put",
            )
        if order != orders[0]:
            raise ShardingError(
                "device-order",
                f"{_order(orders[0], order, *names)}",
                help="list the devices of both in one order",
            )
    return orders[0]


def _reasons(a: Any, b: Any, ndim: int) -> Iterator[str]:
    orders = device_order(a), device_order(b)
    if (orders[0] is None) != (orders[1] is None):
        has = ["none" if order is None else len(order) for order in orders]
        yield f"devices: {has[0]} in a, {has[1]} in b"
    if a.memory_kind != b.memory_kind:
        yield f"memory kind: {a.memory_kind!r} in a, {b.memory_kind!r} in b"
    yield from _of_devices(*orders)
    yield from _of_unstacked(a, b)
    tiles = normal_form(a, ndim), normal_form(b, ndim)
    yield from _of_tiles(*tiles, ndim)
    counts = _count(a, orders[0]), _count(b, orders[1])
    if counts[0] != counts[1]:
        yield f"devices: {counts[0]} in a, {counts[1]} in b"
    for kind, text in (
        (SubgroupType.UNREDUCED, "partial results: unreduced over {} in a, over {} in b"),
        (SubgroupType.MANUAL, "manual axes: over {} in a, over {} in b"),
    ):
        sizes = [_size(t, kind, n) for t, n in zip(tiles, counts, strict=True)]
        if sizes[0] != sizes[1]:
            yield text.format(*(_over(size) for size in sizes))
    reductions = [t.reduction or "sum" for t in tiles]
    if reductions[0] != reductions[1]:
        yield f"partial results: combined by {reductions[0]} in a, by {reductions[1]} in b"
    if tiles[0].tile is not None and tiles[1].tile is not None:
        yield from _of_placement(*tiles, tiles[0].tile, tiles[1].tile, orders[0])
    yield f"layout: {tiles[0].describe()} in a, {tiles[1].describe()} in b"


def _of_devices(a: tuple[Device, ...] | None, b: tuple[Device, ...] | None) -> Iterator[str]:
    if a is None or b is None:
        return
    if set(a) != set(b):
        yield _devices(a, b, "a", "b")
    if a != b:
        yield _order(a, b, "a", "b")


def _devices(a: tuple[Device, ...], b: tuple[Device, ...], name: str, other: str) -> str:
    only = [
        f"{_names([device for device in mine if device not in theirs])} only in {whose}"
        for mine, theirs, whose in ((a, set(b), name), (b, set(a), other))
        if not theirs.issuperset(mine)
    ]
    return f"devices: {len(a)} in {name}, {len(b)} in {other}, {', '.join(only)}"


def _order(a: tuple[Device, ...], b: tuple[Device, ...], name: str, other: str) -> str:
    place = next(index for index, pair in enumerate(zip(a, b, strict=True)) if pair[0] != pair[1])
    return f"device order: at {place} stands {a[place]} in {name}, {b[place]} in {other}"


def _of_unstacked(a: Any, b: Any) -> Iterator[str]:
    specs = [s.sharding_spec if isinstance(s, PmapSharding) else None for s in (a, b)]
    if not any(spec is not None and spec.has_unstacked for spec in specs):
        if specs[0] and specs[1] and len(specs[0].sharding) != len(specs[1].sharding):
            ranks = [len(spec.sharding) for spec in specs if spec]
            yield f"dimensions: a mapping of {ranks[0]} in a, of {ranks[1]} in b"
        return
    said = [
        f"{spec!r}" if spec is not None and spec.has_unstacked else "blocks of all dimensions"
        for spec in specs
    ]
    yield f"dimensions of a block: {said[0]} in a, {said[1]} in b"


def _of_tiles(a: HloSharding, b: HloSharding, ndim: int) -> Iterator[str]:
    pieces = [_pieces(tiles, ndim) for tiles in (a, b)]
    if pieces[0] == pieces[1]:
        return
    for index, name, other in ((0, "a", "b"), (1, "b", "a")):
        if (a, b)[index].is_replicated:
            cuts = [
                f"dimension {dim} {count} ways"
                for dim, count in enumerate(pieces[1 - index])
                if count > 1
            ]
            yield f"{name} is replicated, {other} splits {_and(cuts)}"
    differing = [
        f"dimension {dim} is not split in a, split {theirs} ways in b"
        if mine == 1
        else f"dimension {dim} is split {mine} ways in a, {'not' if theirs == 1 else theirs} in b"
        for dim, (mine, theirs) in enumerate(zip(*pieces, strict=True))
        if mine != theirs
    ]
    yield "; ".join(differing)


def _of_placement(
    a: HloSharding,
    b: HloSharding,
    tile: TileAssignment,
    other: TileAssignment,
    order: tuple[Device, ...] | None,
) -> Iterator[str]:
    """The first device that holds another piece, or shares it with others."""
    places = [each.coordinates() for each in (tile, other)]
    data = len(a.data_tiles)
    differing = (places[0][:, :data] != places[1][:, :data]).any(axis=1)
    if differing.any():
        number = int(differing.argmax())
        pieces = [tuple(each[number, :data].tolist()) for each in places]
        yield (
            f"placement: {_name(number, order)} holds piece {pieces[0]} in a, {pieces[1]} in b, of "
            f"{' x '.join(map(str, a.data_tiles))} in both"
        )
    for kind, text in (
        (SubgroupType.UNREDUCED, "partial results: {} adds to {} in a, to {} in b"),
        (SubgroupType.MANUAL, "manual axes: {} is in a region with {} in a, with {} in b"),
    ):
        if kind not in a.subgroup_types or kind not in b.subgroup_types:
            continue
        for number in range(tile.size):
            peers = [
                _peers(each, number, data + hlo.subgroup_types.index(kind))
                for each, hlo in zip(places, (a, b), strict=True)
            ]
            if peers[0] != peers[1]:
                named = [_and([_name(peer, order) for peer in sorted(each)]) for each in peers]
                yield text.format(_name(number, order), *named)


def _peers(places: np.ndarray, number: int, dim: int) -> set[int]:
    """The other devices that differ from device ``number`` along dimension ``dim`` alone."""
    rest = np.delete(places, dim, axis=1)
    return set(np.flatnonzero((rest == rest[number]).all(axis=1)).tolist()) - {number}


def _pieces(tiles: HloSharding, ndim: int) -> tuple[int, ...]:
    return tiles.data_tiles or (1,) * ndim


def _count(sharding: Any, order: tuple[Device, ...] | None) -> int:
    return sharding.num_devices if order is None else len(order)


def _size(tiles: HloSharding, kind: SubgroupType, count: int) -> int:
    """How many devices there are in a subgroup of ``kind``; 1 where there is none."""
    if tiles.kind is _EVERYWHERE[kind]:
        return count
    if kind not in tiles.subgroup_types:
        return 1
    return tiles.tile_dims[len(tiles.data_tiles) + tiles.subgroup_types.index(kind)]


def _over(size: int) -> str:
    return f"{size} devices" if size > 1 else "none"


def _name(number: int, order: tuple[Device, ...] | None) -> str:
    return f"device {number}" if order is None else f"{order[number]}"


def _names(devices: list[Device]) -> str:
    shown = [str(device) for device in devices[:_MOST_NAMED]]
    if len(devices) > _MOST_NAMED:
        shown.append(f"{len(devices) - _MOST_NAMED} more")
    return _and(shown)


def _and(parts: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
