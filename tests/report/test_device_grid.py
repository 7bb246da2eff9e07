"""The model behind the pictures: which devices hold which block."""

import tracemalloc

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardpass.canon import (
    AxisRef,
    DimSharding,
    HloSharding,
    MeshShape,
    TensorSharding,
    device_blocks,
    device_ids,
)
from shardpass.diagnostics import ShardingError
from shardpass.report import (
    DeviceGrid,
    GridDimension,
    grid_of_hlo_sharding,
    grid_of_mesh,
    grid_of_tensor_sharding,
    visualize,
)
from shardpass.report.device_grid import grid_of_blocks
from shardpass.sharding import Mesh, NamedSharding, P
from tests.strategies import global_shapes, mesh_shapes, tensor_shardings, tiled_shardings

MESH = MeshShape.of(x=2, y=4)


def everything(grid: DeviceGrid) -> dict[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    return {block: grid.devices_of(block) for block in grid.blocks()}


def by_bounds(grid: DeviceGrid) -> dict[object, list[int]]:
    """Block -> all its devices, blocks that are the same (of no elements) taken together."""
    found: dict[object, list[int]] = {}
    for block in grid.blocks():
        devices = [device for part in grid.devices_of(block) for device in part]
        found.setdefault(grid.bounds(block), []).extend(devices)
    return {bounds: sorted(devices) for bounds, devices in found.items()}


def test_two_dimensions() -> None:
    grid = grid_of_tensor_sharding(TensorSharding.build(MESH, [["y"], ["x"]]), (8, 6))
    assert grid.dimensions == (GridDimension(4, 8, '{"y"}'), GridDimension(2, 6, '{"x"}'))
    assert grid.pieces == (4, 2)
    assert grid.num_blocks == 8
    assert grid.num_devices == 8
    assert grid.block_shape == (2, 3)
    assert grid.bounds((3, 1)) == ((6, 8), (3, 6))
    assert everything(grid) == {
        (0, 0): ((0,),), (0, 1): ((4,),), (1, 0): ((1,),), (1, 1): ((5,),),
        (2, 0): ((2,),), (2, 1): ((6,),), (3, 0): ((3,),), (3, 1): ((7,),),
    }  # fmt: skip


def test_copies() -> None:
    grid = grid_of_tensor_sharding(TensorSharding.build(MESH, [["y"]]), (8,))
    assert (grid.parts, grid.copies, grid.copy_axes) == (1, 2, ('"x"',))
    assert everything(grid) == {(0,): ((0, 4),), (1,): ((1, 5),), (2,): ((2, 6),), (3,): ((3, 7),)}


def test_partial_results_are_parts_each_with_its_copies() -> None:
    mesh = MeshShape.of(a=2, b=2, c=2)
    sharding = TensorSharding.build(mesh, [["a"]], unreduced=["c"])
    grid = grid_of_tensor_sharding(sharding, (4,))
    assert (grid.parts, grid.parts_kind, grid.part_axes) == (2, "sum", ('"c"',))
    assert (grid.copies, grid.copy_axes) == (2, ('"b"',))
    assert everything(grid) == {(0,): ((0, 2), (1, 3)), (1,): ((4, 6), (5, 7))}


def test_another_reduction() -> None:
    sharding = TensorSharding(MESH, (), unreduced=(AxisRef("x"),), reduction="max")
    grid = grid_of_tensor_sharding(sharding)
    assert (grid.parts_kind, grid.devices_of(())) == ("max", ((0, 1, 2, 3), (4, 5, 6, 7)))


def test_manual_axes() -> None:
    sharding = TensorSharding.build(MESH, [["y"]])
    grid = grid_of_tensor_sharding(sharding, (8,), manual_axes=("x",))
    assert (grid.parts, grid.parts_kind, grid.copies) == (2, "manual", 1)
    assert (grid.part_axes, grid.copy_axes) == (('"x"',), ())
    assert grid.devices_of((1,)) == ((1,), (5,))


def test_what_is_left_of_an_axis_holds_copies() -> None:
    mesh = MeshShape.of(x=8, one=1)
    sharding = TensorSharding(mesh, (DimSharding((AxisRef("x", 2, 2),), open=True),))
    grid = grid_of_tensor_sharding(sharding, (8,))
    assert grid.copy_axes == ('"x":(1)2', '"x":(4)2')
    assert grid.dimensions == (GridDimension(2, 8, '{"x":(2)2, ?}', is_open=True),)
    assert everything(grid) == {(0,): ((0, 1, 4, 5),), (1,): ((2, 3, 6, 7),)}


def test_device_ids_of_the_mesh() -> None:
    mesh = MeshShape((("x", 4),), (2, 0, 3, 1))
    assert everything(grid_of_tensor_sharding(TensorSharding.build(mesh, [["x"]]), (4,))) == {
        (0,): ((2,),), (1,): ((0,),), (2,): ((3,),), (3,): ((1,),),
    }  # fmt: skip
    assert grid_of_tensor_sharding(TensorSharding.build(mesh, [[]])).devices_of((0,)) == (
        (0, 1, 2, 3),
    )


def test_one_device() -> None:
    grid = grid_of_tensor_sharding(TensorSharding(MeshShape.maximal(3), ()), (5, 7))
    assert (grid.num_devices, grid.block_shape) == (1, (5, 7))
    assert everything(grid) == {(0, 0): ((3,),)}


def test_a_scalar() -> None:
    grid = grid_of_tensor_sharding(TensorSharding.build(MESH, []), ())
    assert everything(grid) == {(): ((0, 1, 2, 3, 4, 5, 6, 7),)}
    assert grid.block_shape == ()


def test_tile_assignments() -> None:
    tiled = HloSharding.parse("{devices=[2,1,2,2]<=[8] last_tile_dims={manual, replicated}}")
    grid = grid_of_hlo_sharding(tiled, (4, 4))
    assert grid.dimensions == (GridDimension(2, 4), GridDimension(1, 4))
    assert (grid.parts, grid.parts_kind, grid.copies) == (2, "manual", 2)
    assert everything(grid) == {(0, 0): ((0, 1), (2, 3)), (1, 0): ((4, 5), (6, 7))}


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("{replicated}", ((0, 1, 2),)),
        ("{unknown}", ((0, 1, 2),)),
        ("{manual}", ((0,), (1,), (2,))),
        ("{unreduced}", ((0,), (1,), (2,))),
        ("{maximal device=2}", ((2,),)),
    ],
)
def test_shardings_without_tiles(text: str, devices: tuple[tuple[int, ...], ...]) -> None:
    grid = grid_of_hlo_sharding(HloSharding.parse(text), (4, 4), num_devices=3)
    assert grid.pieces == (1, 1)
    assert grid.devices_of((0, 0)) == devices


def test_any_number_of_devices() -> None:
    grid = grid_of_hlo_sharding(HloSharding.replicated(), (4,))
    assert grid.num_devices is None
    assert grid.devices_of((0,)) == ()


def test_names_are_kept_where_a_tile_assignment_has_some() -> None:
    named = HloSharding.parse("{mesh['x'=2,'y'=4], [{'y'}, {}]}")
    grid = grid_of_hlo_sharding(named, (8, 2))
    assert (grid.mesh, grid.dimensions[0].axes, grid.copy_axes) == ("x=2, y=4", '{"y"}', ('"x"',))
    assert grid.devices_of((1, 0)) == ((1, 5),)


def test_a_mesh_by_itself() -> None:
    grid = grid_of_mesh(MeshShape((("x", 2), ("y", 2)), (3, 2, 1, 0)))
    assert grid.is_mesh
    assert everything(grid) == {(0, 0): ((3,),), (0, 1): ((2,),), (1, 0): ((1,),), (1, 1): ((0,),)}


def test_blocks_alone() -> None:
    layout = TensorSharding.build(MESH, [["y"], ["x"]])
    shape = (8, 4)
    grid = grid_of_blocks(device_blocks(layout, shape), shape)
    assert everything(grid) == everything(grid_of_tensor_sharding(layout, shape))
    copies = TensorSharding.build(MESH, [["x"], []])
    grid = grid_of_blocks(device_blocks(copies, shape), shape)
    assert grid.copies == 4
    assert everything(grid) == {(0, 0): ((0, 1, 2, 3),), (1, 0): ((4, 5, 6, 7),)}


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([[[0, 1]], [[1, 4]]], "dimension 0 of 4 is not cut into equal pieces"),
        ([[[2, 3]], [[3, 4]]], "dimension 0 of 4 is not cut into equal pieces"),
        ([[[0, 4]], [[0, 2]]], "dimension 0 of 4 is not cut into equal pieces"),
        ([[[0, 2]], [[2, 4]], [[2, 4]]], "blocks are on 1 to 2 devices"),
    ],
)
def test_blocks_that_are_no_grid(blocks: list[list[list[int]]], message: str) -> None:
    with pytest.raises(ShardingError, match=message) as raised:
        grid_of_blocks(np.array(blocks), (4,), layout="Mine()")
    assert raised.value.slug == "not-expressible"
    assert "Mine()" in str(raised.value)


def test_a_million_times_a_million_devices_cost_nothing() -> None:
    mesh = MeshShape.of(a=2**20, b=2**20)
    tracemalloc.start()
    try:
        grid = grid_of_tensor_sharding(TensorSharding.build(mesh, [["b"], []]), (2**20, 3))
        assert grid.devices_of((5, 0), most_copies=3) == ((5, 2**20 + 5, 2**21 + 5),)
        assert len(str(visualize(mesh)).splitlines()) < 30
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()


# Laws ---------------------------------------------------------------------------------------------


@given(tensor_shardings(), st.data())
def test_cells_hold_the_devices_of_their_block(sharding: TensorSharding, data: st.DataObject):
    """As the index map of the algebra has it, with sub-axes, copies and permuted devices."""
    shape = data.draw(global_shapes(sharding))
    grid = grid_of_tensor_sharding(sharding, shape)
    expected: dict[object, list[int]] = {}
    ids, blocks = device_ids(sharding).tolist(), device_blocks(sharding, shape).tolist()
    for device, block in zip(ids, blocks, strict=True):
        expected.setdefault(tuple(map(tuple, block)), []).append(device)
    assert by_bounds(grid) == {block: sorted(devices) for block, devices in expected.items()}
    assert grid.num_devices == sharding.mesh.size == grid.num_blocks * grid.parts * grid.copies


@given(tiled_shardings(), st.data())
def test_tiles_hold_the_devices_of_their_block(sharding: HloSharding, data: st.DataObject):
    rank = sharding.rank if sharding.rank is not None else 2
    tiles = sharding.data_tiles or (1,) * rank
    times = data.draw(st.tuples(*[st.integers(1, 3)] * rank))
    shape = tuple(n * pieces for n, pieces in zip(times, tiles, strict=True))
    grid = grid_of_hlo_sharding(sharding, shape, num_devices=8)
    expected: dict[object, list[int]] = {}
    ids = device_ids(sharding, 8).tolist()
    for device, block in zip(ids, device_blocks(sharding, shape, 8).tolist(), strict=True):
        expected.setdefault(tuple(map(tuple, block)), []).append(device)
    assert by_bounds(grid) == {block: sorted(devices) for block, devices in expected.items()}


@given(st.data())
def test_cells_hold_the_devices_that_jax_gives_their_block(data: st.DataObject):
    """``jax.sharding.NamedSharding.devices_indices_map`` on real devices in any order."""
    shape = data.draw(mesh_shapes(max_devices=8, permuted=False).filter(lambda m: m.size <= 8))
    devices = data.draw(st.permutations(jax.devices()))[: shape.size]
    mesh = jax.sharding.Mesh(np.array(devices).reshape(shape.sizes), shape.names)
    names = list(data.draw(st.permutations(shape.names)))
    entries = [tuple(names.pop() for _ in range(min(len(names), n))) for n in (1, 2)]
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*entries))
    sizes = [2 * int(np.prod([shape.axis_size(name) for name in entry])) for entry in entries]
    expected: dict[object, list[int]] = {}
    for device, index in sharding.devices_indices_map(tuple(sizes)).items():
        pairs = zip(index, sizes, strict=True)
        bounds = tuple(entry.indices(size)[:2] for entry, size in pairs)
        expected.setdefault(bounds, []).append(device.id)
    for theirs in (sharding, NamedSharding.from_jax(sharding)):
        found = by_bounds(visualize(theirs, sizes).grid)
        assert found == {bounds: sorted(ids) for bounds, ids in expected.items()}


def test_device_free_and_bound_grids_agree() -> None:
    free = NamedSharding(Mesh.of(x=2, y=4), P("y", "x"))
    bound = NamedSharding(Mesh.of(x=2, y=4).bind(), P("y", "x"))
    assert everything(visualize(free, (8, 8)).grid) == everything(visualize(bound, (8, 8)).grid)
    assert visualize(free, (8, 8)).grid.platform is None
    assert visualize(bound, (8, 8)).grid.platform == "cpu"
