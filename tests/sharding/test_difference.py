"""Why two shardings are not equivalent: one sentence, and none just where they are."""

import jax
import jax.extend.sharding as jax_extend
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType

import shardpass
from shardpass.canon import HloKind
from shardpass.diagnostics import ShardingError
from shardpass.sharding import (
    Chunked,
    GSPMDSharding,
    Mesh,
    NamedSharding,
    NoSharding,
    P,
    PmapSharding,
    PositionalSharding,
    ShardedAxis,
    ShardingSpec,
    SingleDeviceSharding,
    Unstacked,
    common_device_order,
    explain_difference,
    to_positional,
)
from tests.sharding.test_against_jax import device_arrays, entries
from tests.strategies import tile_assignments, tiled_shardings

NAMES = ("x", "y", "z")
RELAXED = settings(deadline=None, max_examples=150)


def named(*entries, mesh_shape=(2, 4), ids=range(8), memory_kind=None, types=None, **more):
    devices = np.array([jax.devices()[index] for index in ids]).reshape(mesh_shape)
    mesh = Mesh(devices, NAMES[: len(mesh_shape)], types)
    return NamedSharding(mesh, P(*entries, **more), memory_kind=memory_kind)


def tiles(text, ids=range(8)):
    return GSPMDSharding([jax.devices()[index] for index in ids], text)


def name(index):
    return str(jax.devices()[index])


SENTENCES = {
    "kind": (
        named("x", memory_kind="pinned_host"),
        named("y"),
        "memory kind: 'pinned_host' in a, 'device' in b",
    ),
    "fewer devices": (
        named("x"),
        named("x", mesh_shape=(2, 2), ids=range(4)),
        f"devices: 8 in a, 4 in b, {name(4)}, {name(5)}, {name(6)} and {name(7)} only in a",
    ),
    "many missing": (
        SingleDeviceSharding(jax.devices()[0]),
        named("x"),
        f"devices: 1 in a, 8 in b, {name(1)}, {name(2)}, {name(3)}, {name(4)} and 3 more only in b",
    ),
    "other devices": (
        named("x", mesh_shape=(2,), ids=(0, 1)),
        named("x", mesh_shape=(2,), ids=(1, 5)),
        f"devices: 2 in a, 2 in b, {name(0)} only in a, {name(5)} only in b",
    ),
    "no devices": (
        named("x"),
        NamedSharding(Mesh.of(x=2, y=4), P("x")),
        "devices: 8 in a, none in b",
    ),
    "order": (
        named("x"),
        named("x", ids=(0, 1, 3, 2, 4, 5, 6, 7)),
        f"device order: at 2 stands {name(2)} in a, {name(3)} in b",
    ),
    "dimension": (
        named("x", "y"),
        named("y", "x"),
        "dimension 0 is split 2 ways in a, 4 in b; dimension 1 is split 4 ways in a, 2 in b",
    ),
    "one dimension": (
        named(None, ("x", "y")),
        named(None, "x"),
        "dimension 1 is split 8 ways in a, 2 in b",
    ),
    "not split": (
        named("x", "y"),
        named("x"),
        "dimension 1 is split 4 ways in a, not in b",
    ),
    "not split here": (
        named("x"),
        named("x", "y"),
        "dimension 1 is not split in a, split 4 ways in b",
    ),
    "replicated": (
        named(),
        named("x", "y"),
        "a is replicated, b splits dimension 0 2 ways and dimension 1 4 ways",
    ),
    "replicated there": (
        named("x"),
        tiles("{replicated}"),
        "b is replicated, a splits dimension 0 2 ways",
    ),
    "placement": (
        named(("x", "y")),
        named(("y", "x")),
        f"placement: {name(1)} holds piece (1, 0) in a, (2, 0) in b, of 8 x 1 in both",
    ),
    "placement of lists": (
        tiles("{devices=[2,4]<=[8]}"),
        tiles("{devices=[2,4]0,1,2,3,4,5,7,6}"),
        f"placement: {name(6)} holds piece (1, 2) in a, (1, 3) in b, of 2 x 4 in both",
    ),
    "other class": (
        PositionalSharding(np.array(jax.devices()).reshape(2, 4)),
        named("y", "x"),
        "dimension 0 is split 2 ways in a, 4 in b; dimension 1 is split 4 ways in a, 2 in b",
    ),
    "partial": (
        named("x", types=AxisType.Explicit, unreduced={"y"}),
        named("x"),
        "partial results: unreduced over 4 devices in a, over none in b",
    ),
    "all partial": (
        named(types=AxisType.Explicit),
        tiles("{unreduced}"),
        "partial results: unreduced over none in a, over 8 devices in b",
    ),
    "reduction": (
        tiles("{unreduced}"),
        tiles('{unreduced metadata={op_type="sdy::reduction_op" op_name="MAX"}}'),
        "partial results: combined by sum in a, by max in b",
    ),
    "partial grouping": (
        tiles("{devices=[1,1,2,4]<=[8] last_tile_dims={unreduced, replicated}}"),
        tiles("{devices=[1,1,2,4]<=[4,2]T(1,0) last_tile_dims={unreduced, replicated}}"),
        f"partial results: {name(0)} adds to {name(4)} in a, to {name(1)} in b",
    ),
    "manual": (
        tiles("{devices=[2,1,4]<=[8] last_tile_dims={manual}}"),
        named("x"),
        "manual axes: over 4 devices in a, over none in b",
    ),
    "manual grouping": (
        tiles("{devices=[1,1,2,4]<=[8] last_tile_dims={manual, replicated}}"),
        tiles("{devices=[1,1,2,4]<=[4,2]T(1,0) last_tile_dims={manual, replicated}}"),
        f"manual axes: {name(0)} is in a region with {name(4)} in a, with {name(1)} in b",
    ),
    "unstacked": (
        PmapSharding(jax.devices(), ShardingSpec([Unstacked(8), NoSharding()], [ShardedAxis(0)])),
        PmapSharding(jax.devices(), ShardingSpec([Chunked([8]), NoSharding()], [ShardedAxis(0)])),
        "dimensions of a block: ShardingSpec((Unstacked(8), NoSharding()), "
        "(ShardedAxis(axis=0),)) in a, blocks of all dimensions in b",
    ),
}


@pytest.mark.parametrize("case", SENTENCES)
def test_sentences(case):
    a, b, sentence = SENTENCES[case]
    assert explain_difference(a, b, 2) == sentence
    assert explain_difference(b, a, 2) not in (None, sentence)
    assert not a.is_equivalent_to(b, 2)


@pytest.mark.parametrize("case", ["kind", "order", "dimension", "placement", "replicated"])
def test_objects_of_jax(case):
    a, b, sentence = SENTENCES[case]
    for one in (a, a.to_jax()):
        for other in (b, b.to_jax()):
            assert explain_difference(one, other, 2) == sentence


def test_mappings_of_other_dimensions():
    one = PmapSharding.default((8, 3))
    other = PmapSharding.default((8, 3, 2))
    assert explain_difference(one, other, 2) == "dimensions: a mapping of 2 in a, of 3 in b"


def test_meshes_without_devices_differ_in_size():
    partial = [
        NamedSharding(Mesh.of({"x": n}, axis_types=AxisType.Explicit), P(None, unreduced={"x"}))
        for n in (4, 8)
    ]
    found = explain_difference(*partial, 1)
    assert (found is None) == partial[0].is_equivalent_to(partial[1], 1)
    split = [NamedSharding(Mesh.of(x=n), P("x")) for n in (4, 8)]
    assert explain_difference(*split, 1) == "dimension 0 is split 4 ways in a, 8 in b"


def test_equivalent_is_none():
    spelled = (
        named("x", None),
        named("x"),
        named(("x",)),
        tiles("{devices=[2,1,4]<=[8] last_tile_dim_replicate}"),
    )
    for one in spelled:
        for other in spelled:
            assert explain_difference(one, other, 2) is None
            assert explain_difference(one, other.to_jax(), 2) is None
    assert explain_difference(to_positional(named("x", "y")), named("x", "y"), 2) is None


def test_at_the_front_of_the_package():
    assert shardpass.explain_difference is explain_difference


def test_what_is_no_sharding_and_wrong_ranks():
    with pytest.raises(ShardingError, match="a sharding is needed, not PartitionSpec") as info:
        explain_difference(P("x"), named("x"), 1)
    assert info.value.diagnostic.slug == "abstract-type"
    with pytest.raises(ShardingError) as info:
        explain_difference(named("x", "y"), named("x"), 1)
    assert info.value.diagnostic.slug == "rank-mismatch"


# One order of devices for one program -------------------------------------------------------------


def fault(*shardings):
    with pytest.raises(ShardingError) as info:
        common_device_order(*shardings)
    return info.value.diagnostic.slug, info.value.diagnostic.message


def test_common_device_order():
    ids = (3, 1, 2, 0, 7, 6, 5, 4)
    shardings = (
        named("x", ids=ids),
        named("y", "x", ids=ids).to_jax(),
        tiles("{replicated}", ids),
        PositionalSharding([jax.devices()[index] for index in ids]),
    )
    assert common_device_order(*shardings) == tuple(jax.devices()[index] for index in ids)


def test_orders_that_cannot_be_combined():
    one, other = named("x"), named("x", ids=(0, 1, 3, 2, 4, 5, 6, 7))
    assert fault(one, one, other.to_jax()) == (
        "device-order",
        f"device order: at 2 stands {name(2)} in sharding 0, {name(3)} in sharding 2",
    )
    assert fault(one, named("x", mesh_shape=(2, 2), ids=range(4))) == (
        "mesh-mismatch",
        f"devices: 8 in sharding 0, 4 in sharding 1, {name(4)}, {name(5)}, {name(6)} and {name(7)} "
        "only in sharding 0",
    )
    free = NamedSharding(Mesh.of(x=2), P("x"))
    assert fault(free)[0] == "device-free"
    assert fault() == ("device-free", "no shardings, and so no devices")
    # JAX refuses the same, in its own words.
    placed = [jax.device_put(np.zeros((8, 8)), sharding) for sharding in (one, other)]
    with pytest.raises(ValueError, match="incompatible devices"):
        jax.jit(lambda a, b: a + b)(*placed)


# None just where equivalent -----------------------------------------------------------------------


@st.composite
def any_sharding(draw):
    """Of any class, over some of the devices in some order; many pairs of them are equivalent."""
    devices = draw(device_arrays())
    kind = draw(st.sampled_from([None, None, None, "pinned_host"]))
    spec = P(*draw(entries(NAMES[: devices.ndim]).filter(lambda e: len(e) <= 2)))
    made = NamedSharding(Mesh(devices, NAMES[: devices.ndim]), spec, memory_kind=kind)
    form = draw(st.integers(0, 4))
    if form == 1:
        return made.to_jax()
    if form == 2:
        return to_positional(made, 2)
    if form == 3:
        return GSPMDSharding(devices, made.canonical_hlo(2), memory_kind=kind)
    if form == 4:
        return GSPMDSharding(devices, made.canonical_hlo(2), memory_kind=kind).to_jax()
    return made


@st.composite
def tiled_pairs(draw):
    """Two over the same eight devices, with subgroups of every type."""
    found = []
    for _ in range(2):
        assignments = tile_assignments(max_rank=4, max_devices=8)
        hlo = draw(
            tiled_shardings(assignments).filter(
                lambda hlo: hlo.num_devices in (None, 8) and hlo.rank in (None, 2)
            )
        )
        found.append(GSPMDSharding(jax.devices(), hlo))
    return found


@given(any_sharding(), any_sharding())
@RELAXED
def test_none_just_where_equivalent(one, other):
    found = explain_difference(one, other, 2)
    assert (found is None) == one.is_equivalent_to(other, 2)
    assert (found is None) == (explain_difference(other, one, 2) is None)
    assert found is None or "\n" not in found
    assert explain_difference(one, one, 2) is None


@given(tiled_pairs())
@RELAXED
def test_every_reason_is_found(pair):
    """None is left to the two layouts printed side by side, which say nothing."""
    found = explain_difference(*pair, 2)
    assert (found is None) == pair[0].is_equivalent_to(pair[1], 2)
    assert found is None or not found.startswith("layout:")
    kinds = {sharding.hlo_sharding.kind for sharding in pair}
    if kinds == {HloKind.REPLICATED}:
        assert found is None


@given(st.permutations(range(8)), st.sampled_from([(8, 1), (2, 4), (1, 8)]))
@RELAXED
def test_the_device_that_is_named_holds_another_block(order, dims):
    text = ",".join(map(str, order))
    one, other = (
        tiles(f"{{devices=[{dims[0]},{dims[1]}]<=[8]}}"),
        tiles(f"{{devices=[{dims[0]},{dims[1]}]{text}}}"),
    )
    found = explain_difference(one, other, 2)
    blocks = [sharding.devices_indices_map(dims) for sharding in (one, other)]
    differing = [d for d in jax.devices() if blocks[0][d] != blocks[1][d]]
    if not differing:
        assert found is None
    else:
        assert found.startswith(f"placement: {differing[0]} holds piece ")


def test_jax_gspmd_objects_that_are_no_placement():
    """What ours refuses to hold is compared as it is."""
    hlo = type(jax_extend.get_hlo_sharding_from_serialized_proto(b""))
    theirs = jax_extend.GSPMDSharding(jax.devices(), hlo.from_string("{unknown}"))
    with pytest.raises(ShardingError) as info:
        explain_difference(theirs, named("x"), 2)
    assert info.value.diagnostic.slug == "not-expressible"
