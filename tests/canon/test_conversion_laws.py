"""Named axes and tiles say the same: against JAX, against XLA, and against each other."""

import functools
import math
from collections.abc import Sequence

import jax
import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from jax.extend.sharding import get_hlo_sharding_from_serialized_proto
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from strategies import (
    global_shapes,
    hlo_shardings,
    mesh_shapes,
    tensor_shardings,
    tile_assignments,
    tiled_shardings,
    uneven_shapes,
)
from xla_oracle import ask

from shardpass.canon import (
    AxisRef,
    DimSharding,
    HloSharding,
    MeshShape,
    NamedHlo,
    SubgroupType,
    TensorSharding,
    TileAssignment,
    device_blocks,
    device_ids,
    from_hlo,
    is_equivalent,
    manual_axes,
    to_hlo,
)
from shardpass.diagnostics import ShardingError

# XLA's class; safe in this process for texts that are valid. It has no public name.
XlaSharding = type(get_hlo_sharding_from_serialized_proto(b""))
# For laws that start a process for many examples at once: no shrinking, which would start hundreds.
BATCH = settings(deadline=None, phases=(Phase.explicit, Phase.generate))
EIGHT = mesh_shapes(max_axes=3, max_devices=8)
FULL_AXES = tensor_shardings(EIGHT, sub_axes=False, replicated=False, unreduced=False)


def to_jax(sharding: TensorSharding) -> NamedSharding:
    """The same placement as a NamedSharding over the CPU devices that the mesh names."""
    devices = np.array(jax.devices())[sharding.mesh.device_array()]
    spec = [tuple(axis.name for axis in dim.axes) for dim in sharding.dims]
    return NamedSharding(Mesh(devices, sharding.mesh.names), PartitionSpec(*spec))


@settings(max_examples=80)
@given(FULL_AXES, st.data())
def test_blocks_and_shard_shapes_are_jaxs(sharding: TensorSharding, data: st.DataObject):
    """Oracle: ``devices_indices_map`` and ``shard_shape`` of ``jax.sharding.NamedSharding``."""
    shape = data.draw(global_shapes(sharding))
    theirs = to_jax(sharding)
    assert sharding.shard_shape(shape) == theirs.shard_shape(shape)
    blocks = dict(
        zip(device_ids(sharding).tolist(), device_blocks(sharding, shape).tolist(), strict=True)
    )
    for device, index in theirs.devices_indices_map(shape).items():
        bounds = [list(s.indices(size)[:2]) for s, size in zip(index, shape, strict=True)]
        assert blocks[device.id] == bounds


@settings(max_examples=80)
@given(
    tensor_shardings(
        mesh_shapes(max_devices=8, permuted=False),
        sub_axes=False,
        replicated=False,
        unreduced=False,
    )
)
def test_tiles_are_those_that_jax_lowers_to(sharding: TensorSharding):
    """Oracle: JAX's own lowering, which numbers devices by their mesh position."""
    theirs = to_jax(sharding)._to_xla_hlo_sharding(sharding.rank)
    assert str(to_hlo(sharding)) == str(theirs)


@settings(BATCH, max_examples=4)
@given(st.data())
def test_tiles_are_those_that_xla_gives_the_named_form(data: st.DataObject):
    """Oracle: ``HloSharding::V3ToV2Sharding``, sixty at a time, in a process that may abort."""
    drawn = [data.draw(named_hlo()) for _ in range(60)]
    answers = ask([named.to_text() for named in drawn], "v2")
    for named, answer in zip(drawn, answers, strict=True):
        assert answer.outcome == "accepted", named.to_text()
        assert HloSharding.parse(named.to_text()).named == named
        ours = to_hlo(named.sharding, named.manual)
        if named.is_manual and named.is_unreduced:  # only on one device, by axes of size 1
            assert answer.extra.startswith("{devices=[1")  # an array of one tile says nothing
            assert str(ours) == "{manual}"
            continue
        # XLA needs a second reading where what is left is one unreduced subgroup.
        assert str(ours) == str(HloSharding.parse(answer.extra)), named.to_text()


@st.composite
def named_hlo(draw: st.DrawFn) -> NamedHlo:
    """Named shardings with some of the free axes manual."""
    sharding = draw(tensor_shardings(min_rank=1, hints=False))
    taken = (*sharding.used_axes(), *sharding.unreduced, *sharding.replicated)
    free = [name for name in sharding.mesh.names if name not in {axis.name for axis in taken}]
    manual = tuple(AxisRef(name) for name in free if draw(st.booleans()))
    dims = tuple(DimSharding(dim.axes, draw(st.booleans())) for dim in sharding.dims)
    return NamedHlo(
        TensorSharding(sharding.mesh, dims, sharding.replicated, sharding.unreduced), manual
    )


@settings(max_examples=100)
@given(hlo_shardings())
def test_xla_prints_and_places_as_ours(sharding: HloSharding):
    """Oracle: XLA's parser, printer, accessors, and a round trip through its proto."""
    theirs = XlaSharding.from_string(str(sharding))
    assert str(theirs) == str(sharding)
    again = XlaSharding.from_proto(theirs.to_proto())
    assert HloSharding.parse(str(again)) == sharding
    if sharding.tile is not None:
        assert theirs.tile_assignment_devices() == sharding.tile.flat_devices().tolist()
        assert tuple(theirs.tile_assignment_dimensions()) == sharding.tile_dims


@settings(max_examples=100)
@given(hlo_shardings(), hlo_shardings())
def test_equal_as_xla_has_it(a: HloSharding, b: HloSharding):
    assert (a == b) == (XlaSharding.from_string(str(a)) == XlaSharding.from_string(str(b)))


@settings(max_examples=100)
@given(hlo_shardings())
def test_v2_is_the_same_sharding_and_stays(sharding: HloSharding):
    v2 = sharding.to_v2()
    assert v2 == sharding
    assert str(v2.to_v2()) == str(v2)
    assert hash(v2) == hash(sharding)


@settings(max_examples=150)
@given(tensor_shardings(), st.data())
def test_axes_and_tiles_place_the_same_blocks(sharding: TensorSharding, data: st.DataObject):
    """Also sub-axes, permuted devices and sizes that do not divide."""
    shape = data.draw(uneven_shapes(sharding.rank))
    lowered = to_hlo(sharding)
    count = sharding.mesh.size
    by_axes = device_blocks(sharding, shape)
    by_tiles = device_blocks(lowered, shape, count)
    order = np.argsort(device_ids(sharding))
    assert np.array_equal(by_axes[order], by_tiles)
    assert np.array_equal(device_ids(sharding)[order], device_ids(lowered, count))


@settings(max_examples=150)
@given(tensor_shardings(), st.data())
def test_no_block_is_larger_than_the_padded_shard(sharding: TensorSharding, data: st.DataObject):
    """Blocks lie in the tensor, cover it, and are as large as the shard where sizes divide."""
    shape = data.draw(uneven_shapes(sharding.rank))
    blocks = device_blocks(sharding, shape)
    sizes = blocks[..., 1] - blocks[..., 0]
    assert (sizes <= np.array(sharding.padded_shard_shape(shape), dtype=np.int64)).all()
    held = {tuple(map(tuple, block)) for block in blocks.tolist()}
    covered = sum(math.prod(stop - start for start, stop in block) for block in held)
    assert covered == math.prod(shape)


@settings(max_examples=150)
@given(tensor_shardings())
def test_tiles_come_back_as_the_same_placement(sharding: TensorSharding):
    """On the same mesh: the names, and sub-axes where they were; only hints are lost."""
    back = from_hlo(to_hlo(sharding), sharding.rank, sharding.mesh)
    assert is_equivalent(back, sharding, sharding.rank)
    real = [_larger_than_one(dim.axes, sharding.mesh) for dim in sharding.dims]
    assert [list(dim.axes) for dim in back.dims] == real


@settings(max_examples=150)
@given(tiled_shardings())
def test_a_lone_sharding_gets_a_mesh_of_its_own(sharding: HloSharding):
    """Exact: lowering it again gives the tiles back. Every list of 0..n-1 has such a mesh."""
    assume(sharding.tile is not None)
    named = from_hlo(sharding, len(sharding.data_tiles))
    assert named.mesh.size == sharding.num_devices
    assert all(name == f"_axis_{index}" for index, name in enumerate(named.mesh.names))
    if SubgroupType.MANUAL not in sharding.subgroup_types:
        assert is_equivalent(to_hlo(named), sharding, named.rank)


@settings(BATCH, max_examples=3)
@given(st.data())
def test_its_axes_are_those_that_xla_would_make(data: st.DataObject):
    """Oracle: ``get_axis_sizes``, XLA's analysis of one tile assignment; it aborts on no answer."""
    tiles = [data.draw(tile_assignments(listed=False)) for _ in range(60)]
    shardings = [HloSharding.tiled(tile) for tile in tiles]
    answers = ask([str(sharding) for sharding in shardings], "axis sizes")
    for sharding, answer in zip(shardings, answers, strict=True):
        mesh = from_hlo(sharding, len(sharding.data_tiles)).mesh
        if answer.outcome == "accepted":
            assert (str(list(mesh.sizes)), mesh.device_ids) == (answer.extra, None)
        else:
            assert mesh.device_ids is not None


@settings(max_examples=80)
@given(named_hlo())
def test_manual_axes_come_back(named: NamedHlo):
    mesh = named.sharding.mesh
    back = manual_axes(to_hlo(named.sharding, named.manual), mesh)
    assert _larger_than_one(back, mesh) == _larger_than_one(named.manual, mesh)


def _larger_than_one(axes: Sequence[AxisRef], mesh: MeshShape) -> list[AxisRef]:
    return [axis for axis in axes if axis.size_in(mesh) > 1]


@settings(max_examples=200)
@given(st.data())
def test_equivalent_means_the_same_blocks(data: st.DataObject):
    """Oracle: the blocks of every device, of a tensor that any axis divides."""
    mesh = data.draw(mesh_shapes(max_axes=3, max_devices=8))
    pair = tensor_shardings(st.just(mesh), min_rank=2, max_rank=2, unreduced=False)
    a, b = data.draw(pair), data.draw(pair)
    shape = (mesh.size, mesh.size)
    same = np.array_equal(device_blocks(a, shape), device_blocks(b, shape))
    assert is_equivalent(a, b, 2) == same
    assert is_equivalent(a, to_hlo(b), 2) == same
    assert is_equivalent(to_hlo(a).to_v2(), b, 2) == same


@pytest.mark.parametrize("other", [MeshShape.of(x=2, y=4), MeshShape.of(x=4, y=2)])
def test_meshes_of_other_names_and_shapes_can_place_the_same(other: MeshShape):
    flat = TensorSharding.build(MeshShape.of(a=8), [["a"], []])
    assert is_equivalent(flat, TensorSharding.build(other, [["x", "y"], []]), 2)
    assert not is_equivalent(flat, TensorSharding.build(other, [["y", "x"], []]), 2)


def test_other_numbers_of_devices_are_never_equivalent():
    eight = TensorSharding.replicated_on(MeshShape.of(x=8), 2)
    four = TensorSharding.replicated_on(MeshShape.of(x=4), 2)
    assert not is_equivalent(eight, four, 2)
    assert is_equivalent(eight, HloSharding.replicated(), 2)


@functools.cache
def _axes_of_rank_two(mesh: MeshShape) -> list[TensorSharding]:
    """Every way to put full axes of ``mesh`` on two dimensions."""
    layouts: list[tuple[tuple[str, ...], tuple[str, ...]]] = [((), ())]
    for name in mesh.names:
        layouts += [
            (major, minor)
            for first, second in layouts
            for major, minor in (
                *(((*first[:i], name, *first[i:]), second) for i in range(len(first) + 1)),
                *((first, (*second[:i], name, *second[i:])) for i in range(len(second) + 1)),
            )
        ]
    return [TensorSharding.build(mesh, entry) for entry in layouts]


def test_every_layout_of_three_axes_comes_back_from_its_tiles():
    """By brute force: all 49 layouts of three axes on two dimensions, all different tiles."""
    layouts = _axes_of_rank_two(MeshShape.of(x=2, y=3, z=4))
    assert len(layouts) == 49
    lowered = [to_hlo(sharding) for sharding in layouts]
    assert len(set(lowered)) == 49
    for sharding, tiles in zip(layouts, lowered, strict=True):
        assert from_hlo(tiles, 2, sharding.mesh) == sharding


def test_tiles_that_no_cut_of_the_axes_gives_are_refused():
    with pytest.raises(ShardingError) as refused:
        from_hlo(HloSharding.parse("{devices=[3,2]<=[6]}"), 2, MeshShape.of(x=2, y=3))
    assert refused.value.slug == "not-expressible"


@given(st.data())
def test_the_order_of_devices_within_a_subgroup_does_not_count(data: st.DataObject):
    """Any renumbering along manual, unreduced or replicated dimensions, of iotas and of lists."""
    tile = data.draw(tile_assignments())
    kinds = data.draw(st.permutations(SubgroupType))[: data.draw(st.integers(0, len(tile.dims)))]
    ids = tile.device_array()
    for axis in range(len(tile.dims) - len(kinds), len(tile.dims)):
        ids = ids.take(data.draw(st.permutations(range(ids.shape[axis]))), axis=axis)
    rank = len(tile.dims) - len(kinds)
    renumbered = HloSharding.tiled(TileAssignment.listed(tile.dims, ids), kinds)
    assert is_equivalent(HloSharding.tiled(tile, kinds), renumbered, rank)


def test_the_order_of_data_tiles_counts():
    a = HloSharding.parse("{devices=[2,2]0,1,2,3 last_tile_dims={manual}}")
    b = HloSharding.parse("{devices=[2,2]1,0,3,2 last_tile_dims={manual}}")
    swapped = HloSharding.parse("{devices=[2,2]2,3,0,1 last_tile_dims={manual}}")
    paired = HloSharding.parse("{devices=[2,2]0,1,3,2 last_tile_dims={manual}}")
    assert a != b
    assert is_equivalent(a, b, 1)
    assert not is_equivalent(a, swapped, 1)
    assert not is_equivalent(a, paired, 1)
