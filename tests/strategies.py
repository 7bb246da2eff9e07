"""Random meshes, shardings and tile assignments, for the laws of every layer.

A new field of a value joins its strategy in the same change. What the laws must cover is on by
default: axes of size 1, any axis order, sub-axes, explicitly replicated and unreduced axes, meshes
with permuted devices.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from shardpass.canon import (
    AxisRef,
    DimSharding,
    HloSharding,
    MeshShape,
    ShardGroup,
    SubgroupType,
    TensorSharding,
    TileAssignment,
)
from shardpass.diagnostics import ShardingError

AXIS_NAMES = ("x", "y", "z", "w")
SIZES = (1, 2, 2, 3, 4, 6, 8)


def attempt(make: Callable[[], Any]) -> Any:
    """What ``make`` gives, or the error that it raises."""
    try:
        return make()
    except ShardingError as error:
        return error


@st.composite
def mesh_shapes(
    draw: st.DrawFn, *, max_axes: int = 4, max_devices: int = 64, permuted: bool = True
) -> MeshShape:
    """Meshes with axes named from the front of ``xyzw`` in any order."""
    names = draw(st.permutations(AXIS_NAMES))[: draw(st.integers(1, max_axes))]
    axes: list[tuple[str, int]] = []
    for name in names:
        room = max_devices // math.prod(size for _, size in axes)
        axes.append((name, draw(st.sampled_from([size for size in SIZES if size <= room]))))
    mesh = MeshShape(tuple(axes))
    if permuted and draw(st.integers(0, 3)) == 0:
        return MeshShape(mesh.axes, tuple(draw(st.permutations(range(mesh.size)))))
    return mesh


@st.composite
def tensor_shardings(
    draw: st.DrawFn,
    meshes: st.SearchStrategy[MeshShape] | None = None,
    *,
    min_rank: int = 0,
    max_rank: int = 3,
    sub_axes: bool = True,
    replicated: bool = True,
    unreduced: bool = True,
    reductions: Sequence[str | None] = (None,),
    hints: bool = True,
) -> TensorSharding:
    """Shardings whose axes are dealt out at random; ``hints`` are open dimensions and priorities.

    ``reductions`` are the kinds to choose from; jaxlib 0.10 knows none but the sum.
    """
    mesh = draw(meshes if meshes is not None else mesh_shapes())
    pieces = [piece for name in mesh.names for piece in _pieces(draw, mesh, name, may_cut=sub_axes)]
    pieces = list(draw(st.permutations(pieces)))
    rank = draw(st.integers(min_rank, max_rank))
    dims = tuple(_dim(draw, mesh, pieces, hints=hints) for _ in range(rank))
    kept = _in_mesh_order(draw, mesh, pieces) if replicated else ()
    partial = _in_mesh_order(draw, mesh, pieces) if unreduced else ()
    reduction = draw(st.sampled_from(list(reductions))) if partial else None
    return TensorSharding(mesh, dims, kept, partial, reduction)


@st.composite
def tile_assignments(
    draw: st.DrawFn, *, max_rank: int = 4, max_devices: int = 96, listed: bool = True
) -> TileAssignment:
    """Iotas in any order, and lists: of an iota's devices, or shuffled."""
    dims = draw(
        st.lists(st.sampled_from((1, 2, 2, 3, 4, 6)), min_size=1, max_size=max_rank).filter(
            lambda dims: 1 < math.prod(dims) <= max_devices
        )
    )
    reshape = draw(factorisations(math.prod(dims)))
    tile = TileAssignment.iota(dims, reshape, draw(st.permutations(range(len(reshape)))))
    form = draw(st.integers(0, 3)) if listed else 0
    if form < 2:
        return tile
    ids = tile.flat_devices()
    return TileAssignment.listed(dims, ids if form == 2 else draw(st.permutations(ids.tolist())))


@st.composite
def hlo_shardings(draw: st.DrawFn, *, groups: bool = True) -> HloSharding:
    """Shardings of single values, of every kind."""
    sharding = draw(
        st.one_of(
            st.sampled_from(
                [HloSharding.replicated(), HloSharding.manual(), HloSharding.unknown()]
            ),
            st.just(HloSharding.unreduced()),
            st.integers(0, 99).map(HloSharding.maximal),
            tiled_shardings(),
            tiled_shardings(),
        )
    )
    if groups and draw(st.integers(0, 4)) == 0:
        group = ShardGroup(draw(st.integers(0, 9)), draw(st.booleans()))
        return HloSharding(
            sharding.kind, sharding.tile, sharding.subgroup_types, sharding.device, group=group
        )
    return sharding


@st.composite
def tiled_shardings(
    draw: st.DrawFn, tiles: st.SearchStrategy[TileAssignment] | None = None
) -> HloSharding:
    """``{devices=...}`` with any subgroups, brought into canonical form."""
    tile = draw(tiles if tiles is not None else tile_assignments())
    subgroups = st.lists(st.sampled_from(SubgroupType), max_size=len(tile.dims))
    return HloSharding.tiled(tile, draw(subgroups))


@st.composite
def factorisations(draw: st.DrawFn, size: int) -> list[int]:
    """``size`` as an ordered product, with a 1 in it now and then."""
    factors: list[int] = []
    while size > 1:
        factors.append(draw(st.sampled_from([d for d in range(2, size + 1) if size % d == 0])))
        size //= factors[-1]
    if not factors or draw(st.integers(0, 5)) == 0:
        factors.insert(draw(st.integers(0, len(factors))), 1)
    return factors


def global_shapes(sharding: TensorSharding) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes that the sharding divides."""
    times = st.tuples(*[st.integers(1, 3)] * sharding.rank)
    return times.map(lambda factors: tuple(map(operator.mul, factors, sharding.tiles())))


def uneven_shapes(rank: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Any small shapes."""
    return st.tuples(*[st.integers(0, 40)] * rank)


def _pieces(draw: st.DrawFn, mesh: MeshShape, name: str, *, may_cut: bool) -> list[AxisRef]:
    size = mesh.axis_size(name)
    if not may_cut or size < 4 or draw(st.booleans()):
        return [AxisRef(name)]
    factors = [factor for factor in draw(factorisations(size)) if factor > 1]
    if len(factors) == 1:
        return [AxisRef(name)]
    starts = np.cumprod([1, *factors]).tolist()
    return [AxisRef(name, start, factor) for start, factor in zip(starts, factors, strict=False)]


def _dim(draw: st.DrawFn, mesh: MeshShape, pieces: list[AxisRef], *, hints: bool) -> DimSharding:
    axes: list[AxisRef] = []
    for _ in range(draw(st.integers(0, 2))):
        if pieces and not (axes and axes[-1].merges_with(pieces[-1], mesh)):
            axes.append(pieces.pop())
    is_open = hints and draw(st.booleans())
    may_rank = hints and (axes or is_open)
    priority = draw(st.none() | st.integers(0, 3)) if may_rank else None
    return DimSharding(tuple(axes), is_open, priority)


def _in_mesh_order(draw: st.DrawFn, mesh: MeshShape, pieces: list[AxisRef]) -> tuple[AxisRef, ...]:
    """Some of ``pieces``, taken out of it, in mesh order, with no two that could be one."""
    taken = [pieces.pop() for _ in range(draw(st.integers(0, min(2, len(pieces)))))]
    taken.sort(key=lambda axis: (mesh.axis_index(axis.name), axis.bounds(mesh)))
    kept: list[AxisRef] = []
    for axis in taken:
        if not (kept and kept[-1].merges_with(axis, mesh)):
            kept.append(axis)
    return tuple(kept)
