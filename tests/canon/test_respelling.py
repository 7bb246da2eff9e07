"""One placement on two meshes over the same devices: laws, and what the other mesh cannot say."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.extend.sharding import get_hlo_sharding_from_serialized_proto
from strategies import attempt, factorisations, global_shapes, mesh_shapes, tensor_shardings

from shardpass.canon import (
    AxisRef,
    MeshShape,
    Respelling,
    TensorSharding,
    device_blocks,
    device_ids,
    from_hlo,
    is_equivalent,
    refined_mesh,
    to_hlo,
)
from shardpass.diagnostics import ShardingError

XlaSharding = type(get_hlo_sharding_from_serialized_proto(b""))


@st.composite
def other_meshes(draw: st.DrawFn, mesh: MeshShape) -> MeshShape:
    """Any factorisation of the same devices, in the same order or with its axes transposed."""
    sizes = draw(factorisations(mesh.size)) if mesh.size > 1 else [1]
    axes = tuple((f"{'abcdefgh'[index]}", size) for index, size in enumerate(sizes))
    if draw(st.booleans()):
        return MeshShape(axes, mesh.device_ids)
    order = draw(st.permutations(range(len(sizes))))
    ids = mesh.device_array().reshape(sizes).transpose(order).ravel()
    return MeshShape(tuple(axes[index] for index in order), tuple(ids.tolist()))


def blocks(sharding: TensorSharding, shape: tuple[int, ...]) -> dict[int, object]:
    rows = device_blocks(sharding, shape).tolist()
    return dict(zip(device_ids(sharding).tolist(), rows, strict=True))


@given(tensor_shardings(), st.data())
def test_every_device_holds_the_same_block(sharding: TensorSharding, data: st.DataObject) -> None:
    new = data.draw(other_meshes(sharding.mesh))
    found = attempt(lambda: Respelling.between(sharding.mesh, new).sharding(sharding))
    if isinstance(found, ShardingError):
        assert found.slug == "not-expressible"
        return
    assert found.mesh == new
    shape = data.draw(global_shapes(sharding))
    assert blocks(found, shape) == blocks(sharding, shape)
    assert is_equivalent(without_ones(found), without_ones(sharding), sharding.rank)
    assert [dim.open for dim in found.dims] == [dim.open for dim in sharding.dims]
    # Explicitly replicated axes hold as many devices together as before.
    kept = (math.prod(a.size_in(s.mesh) for a in s.replicated) for s in (sharding, found))
    assert len(set(kept)) == 1


@given(tensor_shardings(mesh_shapes(permuted=False), unreduced=False, replicated=False), st.data())
def test_what_tiles_can_say_on_the_other_mesh_is_said(
    sharding: TensorSharding, data: st.DataObject
) -> None:
    """Over the same order, it fails just where the import of the tiles onto that mesh does."""
    new = replace(data.draw(other_meshes(sharding.mesh)), device_ids=None)
    try:
        placed = from_hlo(to_hlo(sharding), sharding.rank, new)
    except ShardingError:
        with pytest.raises(ShardingError, match=r"does not cut|no cut of"):
            Respelling.between(sharding.mesh, new).sharding(sharding)
        return
    found = Respelling.between(sharding.mesh, new).sharding(sharding)
    assert without_ones(found).closed() == placed


@given(tensor_shardings(), st.data())
def test_there_and_back(sharding: TensorSharding, data: st.DataObject) -> None:
    new = data.draw(other_meshes(sharding.mesh))
    there = Respelling.between(sharding.mesh, new)
    back = Respelling.between(new, sharding.mesh)
    try:
        returned = back.sharding(there.sharding(sharding))
    except ShardingError:
        return
    assert without_ones(returned) == without_ones(sharding)


def without_ones(sharding: TensorSharding) -> TensorSharding:
    """``sharding`` less the axes that cut nothing."""

    def cut(axes: tuple[AxisRef, ...]) -> tuple[AxisRef, ...]:
        return tuple(axis for axis in axes if axis.size_in(sharding.mesh) > 1)

    unreduced = cut(sharding.unreduced)
    return TensorSharding(
        sharding.mesh,
        tuple(
            replace(
                dim,
                axes=cut(dim.axes),
                priority=dim.priority if dim.open or cut(dim.axes) else None,
            )
            for dim in sharding.dims
        ),
        cut(sharding.replicated),
        unreduced,
        sharding.reduction if unreduced else None,
    )


@given(tensor_shardings(unreduced=False, hints=False, replicated=False), st.data())
def test_xla_reads_the_same_tiles(sharding: TensorSharding, data: st.DataObject) -> None:
    """By the object of XLA's own parser."""
    new = data.draw(other_meshes(sharding.mesh))
    try:
        found = Respelling.between(sharding.mesh, new).sharding(sharding)
    except ShardingError:
        return
    mine, theirs = to_hlo(found), to_hlo(sharding)
    assert XlaSharding.from_string(str(mine)) == XlaSharding.from_string(str(theirs))


@given(st.lists(mesh_shapes(permuted=False), min_size=1, max_size=3), st.data())
def test_on_the_refined_mesh_every_axis_is_whole_axes(
    meshes: list[MeshShape], data: st.DataObject
) -> None:
    meshes = [meshes[0], *(data.draw(other_meshes(meshes[0])) for _ in meshes[1:])]
    found = attempt(lambda: refined_mesh(meshes))
    if isinstance(found, ShardingError):
        assert found.slug == "not-expressible"
        return
    for mesh in meshes:
        spelling = Respelling.between(mesh, found)
        for name, size in mesh.axes:
            axes = spelling.axes([AxisRef(name)])
            assert all(axis.is_full for axis in axes)
            assert math.prod(axis.size_in(found) for axis in axes) == size


@pytest.mark.parametrize(
    ("old", "new", "dims", "expected"),
    [
        ('<["x"=8]>', '<["a"=2, "b"=4]>', [["x"]], '[{"a", "b"}]'),
        ('<["a"=2, "b"=4]>', '<["x"=8]>', [["a"], ["b"]], '[{"x":(1)2}, {"x":(2)4}]'),
        ('<["a"=2, "b"=4]>', '<["x"=8]>', [["b", "a"]], '[{"x":(2)4, "x":(1)2}]'),
        ('<["a"=2, "b"=4]>', '<["x"=8]>', [["a", "b", "?"]], '[{"x", ?}]'),
        ('<["a"=4, "b"=2]>', '<["x"=2, "y"=4]>', [["a"]], '[{"x", "y":(1)2}]'),
        # An axis of size 1 stays under its name, or in its place, or goes.
        ('<["a"=8, "r"=1]>', '<["x"=2, "y"=4, "r"=1]>', [["a", "r"]], '[{"x", "y", "r"}]'),
        ('<["a"=8, "r"=1]>', '<["x"=8, "s"=1]>', [["r", "a"]], '[{"s", "x"}]'),
        ('<["a"=8, "r"=1]>', '<["x"=8]>', [["r", "a"]], '[{"x"}]'),
        # The same devices in an order that is a transpose.
        (
            '<["a"=2, "b"=2], device_ids=[0, 2, 1, 3]>',
            '<["x"=2, "y"=2]>',
            [["a"], ["b"]],
            '[{"y"}, {"x"}]',
        ),
        # The same odd order under both.
        (
            '<["a"=4], device_ids=[3, 1, 0, 2]>',
            '<["x"=2, "y"=2], device_ids=[3, 1, 0, 2]>',
            [["a"]],
            '[{"x", "y"}]',
        ),
        ("<[]>", '<["x"=8]>', ["?", []], "[{?}, {}]"),
    ],
)
def test_examples(old: str, new: str, dims: list[list[str]], expected: str) -> None:
    sharding = TensorSharding.build(MeshShape.parse(old), dims)
    spelling = Respelling.between(sharding.mesh, MeshShape.parse(new))
    assert spelling.sharding(sharding).dims_text() == expected


def test_sets_of_axes_come_in_the_order_of_the_new_mesh() -> None:
    old = MeshShape((("a", 2), ("b", 2), ("c", 2)), (0, 4, 2, 6, 1, 5, 3, 7))
    spelling = Respelling.between(old, MeshShape.of(x=2, y=2, z=2))
    sharding = TensorSharding(
        old, (), replicated=(AxisRef("a"),), unreduced=(AxisRef("b"), AxisRef("c"))
    )
    assert spelling.sharding(sharding).to_sdy("m") == (
        '#sdy.sharding<@m, [], replicated={"z"}, unreduced={"x", "y"}>'
    )
    assert spelling.whole_axes(["a", "c"]) == ("x", "z")


def test_a_priority_goes_with_the_last_axis_of_a_closed_dimension() -> None:
    old = MeshShape.of(x=8, one=1, more=1)
    sharding = TensorSharding.parse('<@m, [{"one"}p1, {"more", ?}p1, {"x"}p2]>', {"m": old})
    found = Respelling.between(old, MeshShape.of(a=8)).sharding(sharding)
    assert found.dims_text() == '[{}, {?}p1, {"a"}p2]'


@pytest.mark.parametrize(
    ("old", "new", "slug", "message"),
    [
        (
            MeshShape.of(a=3, b=2),
            MeshShape.of(x=2, y=3),
            "not-expressible",
            '"a" of a=3, b=2 does not cut "y"=3 into whole sub-axes',
        ),
        (
            MeshShape.of(a=2, b=4),
            MeshShape.of(x=4),
            "device-count",
            "the mesh a=2, b=4 has 8 devices, x=4 4",
        ),
        (
            MeshShape((("a", 4),), (3, 1, 0, 2)),
            MeshShape.of(x=4),
            "device-order",
            "the devices of a=4 stand in an order that no axes of x=4 have",
        ),
        (
            MeshShape.maximal(3),
            MeshShape.of(x=4),
            "not-expressible",
            "device 3 and x=4 are not two grids of the same devices",
        ),
    ],
)
def test_what_cannot_be_said(old: MeshShape, new: MeshShape, slug: str, message: str) -> None:
    with pytest.raises(ShardingError) as caught:
        Respelling.between(old, new).axes([AxisRef("a")])
    assert (caught.value.slug, caught.value.diagnostic.message) == (slug, message)


def test_a_part_of_an_axis_is_not_manual() -> None:
    spelling = Respelling.between(MeshShape.of(a=2, b=4), MeshShape.of(x=8))
    assert spelling.whole_axes(["a", "b"]) == ("x",)
    with pytest.raises(ShardingError, match=r'"a" of a=2, b=4 is "x":\(1\)2 of x=8, and only'):
        spelling.whole_axes(["a"])


def test_a_million_devices_cost_no_list() -> None:
    old, new = MeshShape.of(a=2**10, b=2**12), MeshShape.of(x=2**22)
    found = Respelling.between(old, new).sharding(TensorSharding.build(old, ["b"]))
    assert found.dims_text() == '[{"x":(1024)4096}]'


def test_names_of_the_refined_mesh() -> None:
    """Those of the first mesh that has the axis; others are numbered past names that are taken."""
    meshes = [MeshShape.of(x=2, y=4), MeshShape((("_axis_0", 2), ("b", 2), ("c", 2)))]
    assert str(refined_mesh(meshes)) == '<["x"=2, "b"=2, "c"=2]>'
    meshes = [MeshShape.of(x=4, y=2), MeshShape((("_axis_0", 2), ("b", 4)))]
    assert str(refined_mesh(meshes)) == '<["_axis_0"=2, "_axis_1"=2, "y"=2]>'
