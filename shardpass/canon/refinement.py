"""One mesh for many tile assignments: the coarsest of whose axes all of them are made.

A tile assignment cuts the device order at strides (:mod:`shardpass.canon.layout`): the mode
``(4, 2)`` begins at stride 2 and ends at 8. An axis of a mesh goes from one cut to the next, so the
cuts of all assignments together are those of the mesh, if each divides the next. Where ids stand in
an order of their own, the mesh lists them; two devices differ in an axis only if some assignment
tells them apart, and so the tiles that a device has in all of them give its place.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from shardpass.canon import layout
from shardpass.canon.hlo_sharding import HloSharding, SubgroupType
from shardpass.canon.mesh import MeshShape
from shardpass.canon.naming import ids_for_a_mesh
from shardpass.canon.tile_assignment import TileAssignment
from shardpass.diagnostics import ShardingError

# A sharding and its tiles, over places in a mesh or over ids.
_Tiled = tuple[HloSharding, TileAssignment]

_APART: Final = "import the values apart, or change one of the two"


class NoCommonMeshError(ShardingError):
    """There is no mesh that has axes for all of some tile assignments.

    Attributes:
      between: the one that no mesh has, or two that no mesh has both of, as the message names them.
    """

    def __init__(
        self,
        slug: str,
        message: str,
        *,
        between: Sequence[HloSharding] = (),
        help: str | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        super().__init__(slug, message, help=help, notes=notes)
        self.between = tuple(between)


def common_mesh(shardings: Iterable[HloSharding]) -> MeshShape | None:
    """The mesh on which :func:`from_hlo` reads each of ``shardings`` over whole axes.

    Its axes are ``_axis_0``, ``_axis_1``, ..., as XLA's importer names them, and as few as can be.
    It takes as long as there are modes, and where an order of ids has no formula as long as there
    are ids.

    Args:
      shardings: in any order, none a tuple; what is not tiled says nothing about a mesh.

    Returns:
      ``None`` where nothing is tiled.

    Raises:
      NoCommonMeshError: ``device-count`` for tiles of different numbers of devices;
        ``not-expressible`` for tiles that no mesh has for axes at once, and for ids beyond their
        number.
    """
    tiled: list[_Tiled] = [(s, s.tile) for s in dict.fromkeys(shardings) if s.tile is not None]
    if not tiled:
        return None
    _check_counts(tiled)
    groups = [tile.groups() for _, tile in tiled]
    ids: tuple[int, ...] | None = None
    if any(group is None for group in groups):
        order = _device_order(tiled, [group is None for group in groups])
        tiled = _as_places(tiled, order)
        groups = [tile.groups() for _, tile in tiled]
        ids = tuple(order.tolist())
    cuts: dict[int, HloSharding] = {}
    for (sharding, _), group in zip(tiled, groups, strict=True):
        if group is None:
            raise _other_order(sharding, [other for other, _ in tiled if other != sharding])
        for mode in _told_apart(sharding, group):
            for cut in (mode[1], mode[0] * mode[1]):
                cuts.setdefault(cut, sharding)
    sizes = _sizes_between(cuts, tiled[0][1].size)
    return MeshShape(tuple((f"_axis_{i}", size) for i, size in enumerate(sizes)), ids)


def _check_counts(tiled: Sequence[_Tiled]) -> None:
    first, one = tiled[0]
    for sharding, tile in tiled:
        if tile.size != one.size:
            raise NoCommonMeshError(
                "device-count",
                f"{first.describe()} is for {one.size} devices, and {sharding.describe()} for "
                f"{tile.size}: no mesh has both",
                between=(first, sharding),
            )


def _other_order(sharding: HloSharding, others: Sequence[HloSharding]) -> NoCommonMeshError:
    """Why ``sharding`` has no axes where ``others`` have given the order of the devices.

    One of those with which it clashes by itself is named, if there is one.
    """
    if not others:
        return NoCommonMeshError(
            "not-expressible",
            f"no mesh has {sharding.describe()} for axes",
            between=(sharding,),
        )
    clashing = (o for o in others if len(others) == 1 or not _go_together(sharding, o))
    other = next(clashing, others[0])
    return NoCommonMeshError(
        "not-expressible",
        f"no mesh has both {sharding.describe()} and {other.describe()} for axes: their devices "
        "are in orders that do not go together",
        between=(sharding, other),
        help=_APART,
    )


def _go_together(one: HloSharding, other: HloSharding) -> bool:
    try:
        common_mesh([one, other])
    except ShardingError:
        return False
    return True


def _told_apart(sharding: HloSharding, groups: Sequence[layout.Modes]) -> Iterable[tuple[int, int]]:
    """The modes along which devices hold different things: all but those of replicas.

    The devices of a subgroup are a set, whatever the order in which they are listed.
    """
    kinds = [*[None] * len(sharding.data_tiles), *sharding.subgroup_types]
    for group, subgroup in zip(groups, kinds, strict=True):
        if subgroup is None:
            yield from group
        elif subgroup is not SubgroupType.REPLICATED:
            yield from layout.coalesce(layout.ascending(group))


def _sizes_between(cuts: dict[int, HloSharding], count: int) -> list[int]:
    """The sizes of the axes, major first, whose strides are ``cuts``, 1 and ``count``."""
    strides = sorted({1, count, *cuts})
    for below, above in itertools.pairwise(strides):
        if above % below:
            one, other = cuts[below], cuts[above]
            raise NoCommonMeshError(
                "not-expressible",
                f"no mesh has both {one.describe()} and {other.describe()} for axes: one cuts the "
                f"{count} devices into runs of {below}, the other into runs of {above}, which "
                f"{below} does not divide",
                between=(one, other),
                help=_APART,
            )
    return [above // below for below, above in itertools.pairwise(strides)][::-1]


def _device_order(tiled: Sequence[_Tiled], irregular: Sequence[bool]) -> np.ndarray:
    """The ids in the order of the mesh: by tile in each assignment, those without formula first."""
    columns: list[np.ndarray] = []
    # Of those, the ones with the most tiles first, which say the most about the order.
    by_weight = sorted(
        range(len(tiled)), key=lambda i: (not irregular[i], -_number_of_tiles(tiled[i][0]))
    )
    for index in by_weight:
        sharding, tile = tiled[index]
        try:
            ids_for_a_mesh(sharding, tile)
        except ShardingError as error:
            raise NoCommonMeshError(
                error.slug, error.diagnostic.message, between=[sharding]
            ) from error
        places = tile.coordinates()
        kept = places.shape[1] - (SubgroupType.REPLICATED in sharding.subgroup_types)
        columns += [places[:, dim] for dim in range(kept) if tile.dims[dim] > 1]
    return np.lexsort(columns[::-1])


def _number_of_tiles(sharding: HloSharding) -> int:
    tile = sharding.tile
    assert tile is not None
    replicas = SubgroupType.REPLICATED in sharding.subgroup_types
    return tile.size // (tile.dims[-1] if replicas else 1)


def _as_places(tiled: Sequence[_Tiled], order: np.ndarray) -> list[_Tiled]:
    """The same tiles with the place of each device in ``order`` instead of its id."""
    found: list[_Tiled] = []
    for sharding, tile in tiled:
        places = tile.renumbered(order)
        if SubgroupType.REPLICATED in sharding.subgroup_types:
            places = places.with_sorted_last()  # They were sorted by id.
        found.append((sharding, places))
    return found
