"""One mesh for many tile assignments: XLA's importer, laws, and what no mesh can have."""

import itertools

import pytest
from cases import Row, each
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import mesh_shapes, tensor_shardings, tiled_shardings

from shardpass.canon import (
    HloSharding,
    MeshShape,
    NoCommonMeshError,
    TensorSharding,
    common_mesh,
    from_hlo,
    is_equivalent,
    manual_axes,
    to_hlo,
)
from shardpass.diagnostics import ShardingError


def parsed(row: Row) -> list[HloSharding]:
    return [HloSharding.parse(argument["mhlo"]) for argument in row["args"]]


@each("mhlo_to_sdy", lambda row: row["kind"] == "module" and row["tier"] == "core")
def test_the_mesh_of_xlas_importer(row: Row):
    shardings = parsed(row)
    found = common_mesh(shardings)
    if row.get("mesh") in (None, "<[]>"):
        assert found is None
        return
    assert str(found) == row["mesh"]
    for sharding, argument, wanted in zip(shardings, row["args"], row["sdy"], strict=True):
        placed = from_hlo(sharding, len(argument["shape"]), found)
        assert f"@mesh {placed.dims_text()}" == wanted


@pytest.mark.parametrize(
    ("text", "mesh", "dims"),
    [
        # XLA's importer aborts on each of these.
        ("{devices=[4]3,2,1,0}", '<["_axis_0"=4], device_ids=[3, 2, 1, 0]>', '[{"_axis_0"}]'),
        (
            "{devices=[2,4]0,4,1,5,2,6,3,7}",
            '<["_axis_0"=2, "_axis_1"=2, "_axis_2"=2]>',
            '[{"_axis_1"}, {"_axis_2", "_axis_0"}]',
        ),
        (
            "{devices=[8]0,2,4,6,1,3,5,7}",
            '<["_axis_0"=4, "_axis_1"=2]>',
            '[{"_axis_1", "_axis_0"}]',
        ),
    ],
)
def test_lists_of_devices(text: str, mesh: str, dims: str):
    sharding = HloSharding.parse(text)
    found = common_mesh([sharding])
    assert str(found) == mesh
    assert from_hlo(sharding, sharding.rank or 0, found).dims_text() == dims


def test_one_order_for_several_lists():
    # A mesh x=2, y=2 of devices 3, 1, 2, 0: cut along x, along y, and whole.
    texts = [
        "{devices=[2,2]1,3,0,2 last_tile_dim_replicate}",
        "{devices=[2,2]2,3,0,1 last_tile_dim_replicate}",
        "{replicated}",
    ]
    shardings = [HloSharding.parse(text) for text in texts]
    found = common_mesh(shardings)
    assert found == MeshShape((("_axis_0", 2), ("_axis_1", 2)), (3, 1, 2, 0))
    placed = [from_hlo(s, 1, found).dims_text() for s in shardings]
    assert placed == ['[{"_axis_0"}]', '[{"_axis_1"}]', "[{}]"]


def test_what_is_not_tiled_says_nothing():
    texts = ["{replicated}", "{manual}", "{unknown}", "{unreduced}", "{maximal device=3}"]
    assert common_mesh([]) is None
    assert common_mesh(map(HloSharding.parse, texts)) is None


def test_half_a_million_devices_make_no_list():
    texts = ["{devices=[1024,512]<=[524288]}", "{devices=[512,1024]<=[1024,512]T(1,0)}"]
    found = common_mesh(map(HloSharding.parse, texts))
    assert found == MeshShape((("_axis_0", 1024), ("_axis_1", 512)))


@pytest.mark.parametrize(
    ("texts", "slug", "said"),
    [
        (
            ["{devices=[3,4]<=[12]}", "{devices=[4,3]<=[12]}"],
            "not-expressible",
            "no mesh has both {devices=[4,3]<=[12]} and {devices=[3,4]<=[12]} for axes: one cuts "
            "the 12 devices into runs of 3, the other into runs of 4",
        ),
        (
            ["{devices=[2,4]<=[8]}", "{devices=[2,2]<=[4]}"],
            "device-count",
            "{devices=[2,4]<=[8]} is for 8 devices, and {devices=[2,2]<=[4]} for 4",
        ),
        (
            ["{devices=[2,4]0,1,2,7,3,4,5,6 last_tile_dim_replicate}", "{devices=[8]<=[8]}"],
            "not-expressible",
            "their devices are in orders that do not go together",
        ),
        (["{devices=[2]5,9}"], "not-expressible", "names device 9, a mesh of its size has 0..1"),
    ],
)
def test_what_no_mesh_has(texts: list[str], slug: str, said: str):
    with pytest.raises(ShardingError) as caught:
        common_mesh(map(HloSharding.parse, texts))
    assert caught.value.slug == slug
    assert said in str(caught.value)


def test_the_two_that_clash_are_told_of_many():
    texts = ["[2,4]0,1,2,7,3,4,5,6", "[8,1]<=[8]", "[1,8]0,1,2,7,3,4,5,6", "[4,2]<=[8]"]
    with pytest.raises(NoCommonMeshError) as caught:
        common_mesh(HloSharding.parse(f"{{devices={text}}}") for text in texts)
    one, other = caught.value.between
    with pytest.raises(NoCommonMeshError):
        common_mesh([one, other])


def over_one_mesh(**options: bool) -> st.SearchStrategy[list[TensorSharding]]:
    return mesh_shapes().flatmap(
        lambda mesh: st.lists(
            tensor_shardings(st.just(mesh), hints=False, **options), min_size=1, max_size=4
        )
    )


def holds(tiles: list[HloSharding], mesh: MeshShape, *, whole_axes: bool) -> bool:
    """Whether every one of ``tiles`` comes back from ``mesh``."""
    for sharding in tiles:
        if sharding.tile is None:
            continue
        rank = len(sharding.data_tiles)
        try:
            placed = from_hlo(sharding, rank, mesh)
        except ShardingError:
            return False
        manual = manual_axes(sharding, mesh)
        used = [*(a for dim in placed.dims for a in dim.axes), *placed.unreduced, *manual]
        if whole_axes and not all(axis.is_full for axis in used):
            return False
        assert is_equivalent(to_hlo(placed, manual), sharding, rank)
    return True


def mesh_or_slug(tiles: list[HloSharding]) -> MeshShape | str | None:
    try:
        return common_mesh(tiles)
    except ShardingError as error:
        return error.slug


@settings(max_examples=300)
@given(over_one_mesh(sub_axes=False))
def test_what_comes_of_a_mesh_has_one(shardings: list[TensorSharding]):
    tiles = [to_hlo(sharding) for sharding in shardings]
    found = common_mesh(tiles)
    if found is None:
        assert all(sharding.tile is None for sharding in tiles)
        return
    assert holds(tiles, found, whole_axes=True)


@settings(max_examples=300)
@given(
    st.one_of(
        over_one_mesh(sub_axes=True).map(lambda found: [to_hlo(s) for s in found]),
        st.lists(tiled_shardings(), min_size=1, max_size=3),
    )
)
def test_a_mesh_holds_all_and_no_coarser_one_does(tiles: list[HloSharding]):
    found = mesh_or_slug(tiles)
    if not isinstance(found, MeshShape):
        assert found in (None, "not-expressible", "device-count")
        return
    assert holds(tiles, found, whole_axes=True)
    for one, other in itertools.pairwise(found.axes):
        joined = [(f"{a}", s) for a, s in found.axes if (a, s) != other]
        joined[joined.index(one)] = (one[0], one[1] * other[1])
        assert not holds(tiles, MeshShape(tuple(joined), found.device_ids), whole_axes=True)


@given(st.lists(tiled_shardings(), min_size=1, max_size=3), st.randoms())
def test_the_order_of_values_makes_no_difference(tiles, random):
    shuffled = random.sample(tiles, len(tiles))
    one, other = mesh_or_slug(tiles), mesh_or_slug(shuffled)
    if isinstance(one, MeshShape) and one.device_ids is None:
        assert one == other
    else:
        assert type(one) is type(other)
