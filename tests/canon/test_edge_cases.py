"""What people got wrong answers for, each with the right one."""

from typing import Any

import pytest
from cases import Row, each, load

from shardpass.canon import (
    AxisRef,
    DimSharding,
    HloKind,
    HloSharding,
    MeshShape,
    TensorSharding,
    from_hlo,
    is_equivalent,
    manual_axes,
    to_hlo,
)
from shardpass.diagnostics import ShardingError

XLA_MIXES_UP_SUBGROUPS = "m2s034"
TWO_BY_FOUR = MeshShape.of(x=2, y=4)

# mesh, dimensions, the tiles
LOWERINGS = [
    (TWO_BY_FOUR, ["y", "x"], "{devices=[4,2]<=[2,4]T(1,0)}"),
    # Major to minor within one dimension.
    (TWO_BY_FOUR, [["y", "x"], []], "{devices=[8,1]<=[2,4]T(1,0)}"),
    (TWO_BY_FOUR, [["x", "y"], []], "{devices=[8,1]<=[8]}"),
    # An axis that no dimension uses replicates.
    (TWO_BY_FOUR, ["y"], "{devices=[4,2]<=[2,4]T(1,0) last_tile_dim_replicate}"),
    # Axes of size 1 vanish, dimensions of one tile stay.
    (MeshShape.of(x=1, y=8, z=1), ["x", []], "{replicated}"),
    (MeshShape.of(x=1, y=8, z=1), ["x", "y", "z"], "{devices=[1,8,1]<=[8]}"),
    # Openness is not in the tiles.
    (TWO_BY_FOUR, ["?", "x"], "{devices=[1,2,4]<=[8] last_tile_dim_replicate}"),
]


@pytest.mark.parametrize(("mesh", "dims", "tiles"), LOWERINGS)
def test_lowers_to(mesh: MeshShape, dims: list, tiles: str):
    assert str(to_hlo(TensorSharding.build(mesh, dims))) == tiles


def test_unreduced_axes_become_a_subgroup_or_the_whole():
    some = TensorSharding.build(TWO_BY_FOUR, ["x"], unreduced=["y"])
    every = TensorSharding.build(TWO_BY_FOUR, [[]], unreduced=["y", "x"])
    assert str(to_hlo(some)) == "{devices=[2,4]<=[8] last_tile_dims={unreduced}}"
    assert str(to_hlo(every)) == "{unreduced}"


def test_one_device_that_is_both_manual_and_unreduced_is_manual():
    """XLA writes {devices=[1]<=[1]} for it, which says neither."""
    named = HloSharding.parse("{mesh['x'=1,'y'=1], [{}], unreduced={'x'}, manual={'y'}}")
    assert str(named.to_v2()) == "{manual}"


def test_the_kind_of_reduction_is_metadata_to_xla_and_meaning_to_us():
    dims = (DimSharding((AxisRef("x"),)),)
    largest = TensorSharding(TWO_BY_FOUR, dims, unreduced=(AxisRef("y"),), reduction="max")
    total = TensorSharding(TWO_BY_FOUR, dims, unreduced=(AxisRef("y"),), reduction="sum")
    assert total.reduction is None
    assert str(to_hlo(largest)) == str(to_hlo(total))
    assert to_hlo(largest) != to_hlo(total)
    assert not is_equivalent(largest, total, 1)
    text = to_hlo(largest).to_text(metadata=True)
    assert text.endswith('metadata={op_type="sdy::reduction_op" op_name="MAX"}}')
    assert HloSharding.parse(text) == to_hlo(largest)


@pytest.mark.parametrize("reduction", ["max", "mean"])
def test_a_reduction_needs_a_kind_that_exists_and_axes_to_reduce(reduction: str):
    with pytest.raises(ShardingError) as refused:
        TensorSharding(TWO_BY_FOUR, (), reduction=reduction)
    assert refused.value.slug == "bad-reduction"


# text, canonical text
CANONICAL = [
    (
        "{devices=[2,1,2,2]<=[8] last_tile_dims={manual, manual}}",
        "{devices=[2,1,4]<=[8] last_tile_dims={manual}}",
    ),
    ("{devices=[1,1,8]<=[8] last_tile_dim_replicate}", "{replicated}"),
    ("{devices=[1,1,8]<=[8] last_tile_dims={manual}}", "{manual}"),
    # A subgroup of one device vanishes.
    ("{devices=[1,8,1]<=[8] last_tile_dims={replicated, manual}}", "{replicated}"),
    (
        "{devices=[2,1,2,2]<=[2,4]T(1,0) last_tile_dims={manual, replicated}}",
        "{devices=[2,1,2,2]<=[2,4]T(1,0) last_tile_dims={manual, replicated}}",
    ),
    ("{replicated shard_as 1}", "{replicated shard_as 1}"),
    ("{devices=[2,4]<=[8] shard_like 5}", "{devices=[2,4]<=[8] shard_like 5}"),
    ('{devices=[2,4]<=[8] metadata={op_name="foo"}}', "{devices=[2,4]<=[8]}"),
    # Replicas are a set, listed in ascending order.
    (
        "{devices=[2,4]<=[2,2,2]T(0,2,1) last_tile_dim_replicate}",
        "{devices=[2,4]<=[8] last_tile_dim_replicate}",
    ),
]


@pytest.mark.parametrize(("text", "canonical"), CANONICAL)
def test_reads_as(text: str, canonical: str):
    assert str(HloSharding.parse(text)) == canonical


def test_a_list_keeps_its_form_and_equals_its_iota():
    listed = HloSharding.parse("{devices=[4,2]0,4,1,5,2,6,3,7}")
    iota = HloSharding.parse("{devices=[4,2]<=[2,4]T(1,0)}")
    assert listed == iota
    assert hash(listed) == hash(iota)
    assert str(listed) == "{devices=[4,2]0,4,1,5,2,6,3,7}"
    assert str(listed.to_v2()) == str(iota)


def test_subgroups_can_be_cut_out_of_one_reshape_dimension():
    sharding = HloSharding.parse(
        "{devices=[2,1,2,2]<=[2,4]T(1,0) last_tile_dims={manual, replicated}}"
    )
    assert sharding.tile is not None
    assert sharding.tile.flat_devices().tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
    assert [str(axis) for axis in manual_axes(sharding, TWO_BY_FOUR)] == ['"y":(2)2']


def test_a_sub_axis_of_a_named_sharding():
    named = HloSharding.parse("{mesh['x'=8,'y'=4], [{'y'}, {'x':(2)2}]}")
    assert str(named.to_v2()) == "{devices=[4,2,4]<=[2,2,2,4]T(3,1,0,2) last_tile_dim_replicate}"
    assert from_hlo(named, 2).dims_text() == '[{"y"}, {"x":(2)2}]'


# text, where the caret stands, what it says
REFUSED = [
    ("{devices=[2,2]<=[16]}", 2, "[2,2] is 4 tiles, <=[16] is 16 devices"),
    ("{devices=[2,2]0,1,2}", 2, "[2,2] has 4 tiles, the list 3 ids"),
    ("replicated", 1, 'expected "{", found "r"'),
    ("{replicated} x", 14, "1 more character after the end"),
    ("{devices=[2,2]<=[2,2]T(1,0,2)}", 2, "T(1,0,2) is not a permutation of 2 dimensions"),
    ("{devices=[banana", 11, 'expected a number of tiles, found "b"'),
    ("{devices=[2,2]<=[4]", 20, 'expected an entry or "}", found the end'),
    ("{devices=[0,2]<=[0]}", 2, "tiles [0,2] must all be at least 1"),
    ("{devices=[4]0,1,2,1}", 19, "device 1 stands twice"),
    ("{replicatd}", 2, '"replicatd" is not an entry of a sharding'),
    ("{maximal}", 2, "maximal without device="),
    ("{replicated devices=[2]0,1}", 13, "the tiles does not go with what else"),
    ("{{{replicated}}}", 3, 'expected an entry or "}", found "{"'),
    ("{{replicated},}", 15, 'expected "{", found "}"'),
    ("{mesh['a'=2], [{'b'}]}", 2, 'axis "b" is not in the mesh a=2'),
    ("{mesh['a'=4], [{'a':(0)2}]}", 17, 'the pre-size of "a":(0)2 is below 1'),
    ("{mesh['a'=2,'a'=2], [{}]}", 2, 'axis "a" stands 2 times in the mesh a=2, a=2'),
    ("{devices=[2]<=[2] last_tile_dims={maximal}}", 35, '"maximal" is not a subgroup'),
    ("{shard_as 1}", 2, "a sharding says devices=, or"),
    ('{devices=[2]<=[2] metadata={op_nme="f"}}', 29, '"op_nme" is not a field of metadata'),
]


@pytest.mark.parametrize(("text", "column", "message"), REFUSED)
def test_refuses_with_the_place(text: str, column: int, message: str):
    with pytest.raises(ShardingError) as refused:
        HloSharding.parse(text)
    diagnostic = refused.value.diagnostic
    assert message in diagnostic.message
    assert diagnostic.excerpt is not None
    assert (diagnostic.excerpt.text, diagnostic.excerpt.column) == (text, column)


def test_a_misspelt_entry_is_guessed():
    with pytest.raises(ShardingError) as refused:
        HloSharding.parse("{replicatd}")
    assert refused.value.diagnostic.help == 'did you mean "replicated"?'


def test_prime_factors_are_told_apart():
    """XLA's own example: 6x35 tiles over 7x10x3 devices, transposed."""
    named = from_hlo(HloSharding.parse("{devices=[6,35]<=[7,10,3]T(2,1,0)}"), 2)
    assert named.mesh.sizes == (7, 2, 5, 3)
    assert named.dims_text() == '[{"_axis_3", "_axis_1"}, {"_axis_2", "_axis_0"}]'


def test_one_device_is_a_mesh_without_axes_and_rank_zero():
    named = from_hlo(HloSharding.parse("{maximal device=3}"), 2, TWO_BY_FOUR)
    assert str(named) == "#sdy.sharding<mesh<[], device_ids=[3]>, []>"
    assert to_hlo(named) == HloSharding.maximal(3)


@pytest.mark.parametrize(
    ("text", "dims"),
    [("{unknown}", "[{?}, {?}]"), ("{replicated}", "[{}, {}]"), ("{manual}", "[{}, {}]")],
)
def test_what_has_no_tiles_becomes_open_or_closed_dimensions(text: str, dims: str):
    sharding = HloSharding.parse(text)
    assert from_hlo(sharding, 2, TWO_BY_FOUR).dims_text() == dims
    assert from_hlo(sharding, 2).mesh == MeshShape()
    assert from_hlo(sharding, 0).dims == ()


def test_unreduced_needs_the_mesh():
    with pytest.raises(ShardingError) as refused:
        from_hlo(HloSharding.unreduced(), 2)
    assert refused.value.slug == "not-expressible"
    named = from_hlo(HloSharding.unreduced("max"), 2, TWO_BY_FOUR)
    assert named.to_sdy("mesh") == '#sdy.sharding<@mesh, [{}, {}], unreduced=max{"x", "y"}>'


# tiles, mesh, dimensions
RECOVERED = [
    ("{devices=[4,2]<=[8]}", TWO_BY_FOUR, '[{"x", "y":(1)2}, {"y":(2)2}]'),
    (
        "{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}",
        TWO_BY_FOUR,
        '[{"y":(2)2}, {}]',
    ),
    ("{devices=[2,4]<=[8]}", MeshShape.of(a=8), '[{"a":(1)2}, {"a":(2)4}]'),
    ("{devices=[4,2]<=[8]}", MeshShape.of(a=2, b=2, c=2), '[{"a", "b"}, {"c"}]'),
]


@pytest.mark.parametrize(("text", "mesh", "dims"), RECOVERED)
def test_names_come_back_cut_into_sub_axes_where_needed(text: str, mesh: MeshShape, dims: str):
    named = from_hlo(HloSharding.parse(text), 2, mesh)
    assert named.dims_text() == dims
    assert to_hlo(named) == HloSharding.parse(text)


def test_a_shape_of_another_rank_is_refused_by_name():
    sharding = TensorSharding.build(TWO_BY_FOUR, ["x", [], []])
    for refuse in (sharding.shard_shape, sharding.padded_shard_shape, to_hlo(sharding).shard_shape):
        with pytest.raises(ShardingError) as refused:
            refuse((8,))
        assert refused.value.slug == "rank-mismatch"


def test_every_uneven_dimension_is_reported_at_once():
    sharding = TensorSharding.build(TWO_BY_FOUR, ["x", "y", []])
    with pytest.raises(ShardingError) as refused:
        sharding.shard_shape((3, 6, 5))
    assert [d.message for d in refused.value.diagnostics] == [
        "dimension 0: 3 elements into 2 pieces",
        "dimension 1: 6 elements into 4 pieces",
    ]
    assert refused.value.diagnostic.notes == ('sharding is [{"x"}, {"y"}, {}] on mesh x=2, y=4',)
    assert sharding.padded_shard_shape((3, 6, 5)) == (2, 2, 5)


@pytest.mark.parametrize(
    ("text", "rank", "devices", "slug"),
    [
        ("{devices=[2,4]<=[8]}", 2, 8, None),
        ("{devices=[2,4]<=[8]}", 3, 8, "rank-mismatch"),
        ("{devices=[2,4]<=[8]}", 2, 16, "device-count"),
        ("{devices=[2,2]5,6,7,8}", 2, 4, "device-count"),
        ("{maximal device=8}", 2, 8, "device-count"),
        ("{maximal device=7}", 2, 8, None),
        ("{replicated}", 7, 3, None),
        ("{{replicated}, {manual}}", 2, 8, "not-expressible"),
    ],
)
def test_validate_holds_it_against_a_value_and_its_devices(
    text: str, rank: int, devices: int, slug: str | None
):
    sharding = HloSharding.parse(text)
    if slug is None:
        sharding.validate(rank, devices)
        assert HloSharding.parse(str(sharding)) == sharding
        return
    with pytest.raises(ShardingError) as refused:
        sharding.validate(rank, devices)
    assert refused.value.slug == slug


def test_tuples_do_not_nest_and_may_be_empty():
    empty = HloSharding.tuple_of([])
    assert (str(empty), empty.kind) == ("{}", HloKind.TUPLE)
    with pytest.raises(ShardingError) as refused:
        HloSharding.tuple_of([empty])
    assert refused.value.slug == "not-expressible"


def is_one_sharding(row: Row) -> bool:
    return row["kind"] == "given_mesh" or (row["kind"] == "module" and len(row["args"]) == 1)


def is_imported(row: Row) -> bool:
    return row["tier"] != "unsupported" and row["id"] != XLA_MIXES_UP_SUBGROUPS


@each("mhlo_to_sdy", lambda row: is_one_sharding(row) and is_imported(row))
def test_imports_a_lone_sharding_as_xla_does(row: Row):
    if row["kind"] == "given_mesh":
        sharding, rank = HloSharding.parse(row["mhlo"]), row["rank"]
        mesh, expected = MeshShape.parse(row["mesh"]), row["sdy"]
    else:
        (arg,) = row["args"]
        sharding, rank, mesh = HloSharding.parse(arg["mhlo"]), len(arg["shape"]), None
        expected = row["sdy"][0]
    named = from_hlo(sharding, rank, mesh)
    if expected is None:  # XLA leaves a lone {replicated} without a sharding
        assert named == TensorSharding.replicated_on(MeshShape(), rank)
        return
    assert named.to_sdy("mesh") == f"#sdy.sharding<{expected.replace(' ', ', ', 1)}>"
    if mesh is None:
        assert str(named.mesh) == row["mesh"]


def test_replicas_do_not_become_unreduced():
    """jaxlib 0.12 imports both subgroups as unreduced, 0.10 none; the text says one of each."""
    (row,) = load("mhlo_to_sdy", lambda row: row["id"] == XLA_MIXES_UP_SUBGROUPS)
    (arg,) = row["args"]
    named = from_hlo(HloSharding.parse(arg["mhlo"]), 2)
    assert named.to_sdy("mesh") == '#sdy.sharding<@mesh, [{"_axis_0"}, {}], unreduced={"_axis_1"}>'
    assert to_hlo(named) == HloSharding.parse(arg["mhlo"])


@each("mhlo_to_sdy", lambda row: is_one_sharding(row) and row["tier"] == "unsupported")
def test_imports_with_device_ids_what_makes_xla_abort(row: Row):
    (arg,) = row["args"]
    sharding, rank = HloSharding.parse(arg["mhlo"]), len(arg["shape"])
    named = from_hlo(sharding, rank)
    assert to_hlo(named) == sharding
    assert named.mesh.size == row["n_devices"]


@each("mhlo_to_sdy", lambda row: row["kind"] == "inline" and row["inline_mesh"])
def test_imports_each_value_on_a_mesh_of_its_own_as_xla_does(row: Row):
    sharding = HloSharding.parse(row["mhlo"])
    if sharding.is_tuple:  # XLA makes one mesh for all leaves, which is the module's business
        assert row["id"] == "m2s065"
        return
    (shape,) = row["shapes"]
    inside = str(from_hlo(sharding, len(shape))).removeprefix("#sdy.sharding")
    assert row["text"] == f"#sdy.sharding_per_value<[{inside}]>"


def test_the_rows_for_one_sharding_are_as_many_as_there_were():
    assert len(load("mhlo_to_sdy", is_one_sharding)) == 13


@pytest.mark.parametrize("parse", [HloSharding.parse, MeshShape.parse, TensorSharding.parse])
@pytest.mark.parametrize("value", [None, 5, b"{replicated}"])
def test_what_is_no_text_cannot_be_read(parse: Any, value: Any):
    with pytest.raises(ShardingError) as caught:
        parse(value)
    assert (caught.value.slug, caught.value.diagnostic.message) == (
        "abstract-type",
        f"cannot read the text of a mesh or sharding from {type(value).__name__}",
    )
