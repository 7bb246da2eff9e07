"""``GSPMDSharding`` against JAX's class of the same name, with tiles and devices at random.

Tiles are iotas and lists, with replicas, partial results and manual subgroups; devices are some of
the eight, in any order.
"""

import jax
import jax.extend.sharding as jax_extend
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh as JaxMesh
from jax.sharding import NamedSharding as JaxNamed
from jax.sharding import PartitionSpec as JaxSpec

from shardpass.canon import HloKind, HloSharding, SubgroupType
from shardpass.sharding import GSPMDSharding
from tests.sharding.alive import same_shards
from tests.strategies import tile_assignments, tiled_shardings

JaxHloSharding = type(jax_extend.get_hlo_sharding_from_serialized_proto(b""))
RELAXED = settings(deadline=None)


def tile_arrays():
    """Tiles of up to eight devices, numbered from 0 without a gap."""
    return tile_assignments(max_rank=3, max_devices=8)


@st.composite
def pairs(draw, *, subgroups=False, fits=None):
    """One sharding twice: ours, and JAX's."""
    if fits is not None:
        count = fits
        hlo = draw(tiled_shardings(tile_arrays()).filter(lambda h: h.num_devices in (None, count)))
    else:
        hlo = draw(tiled_shardings(tile_arrays()) | st.just(HloSharding.replicated()))
        count = hlo.num_devices or draw(st.integers(1, 8))
    if not subgroups and (
        hlo.kind not in (HloKind.REPLICATED, HloKind.TILED)
        or not {*hlo.subgroup_types} <= {SubgroupType.REPLICATED}
    ):
        hlo = HloSharding.replicated()
    ids = draw(st.permutations(range(8)) | st.just(tuple(range(8))))[:count]
    devices = [jax.devices()[index] for index in ids]
    kind = draw(st.sampled_from([None, "device", "pinned_host"]))
    theirs = jax_extend.GSPMDSharding(
        tuple(devices), JaxHloSharding.from_string(str(hlo)), memory_kind=kind
    )
    return GSPMDSharding(devices, hlo, memory_kind=kind), theirs


def rank_of(sharding):
    return 2 if sharding.hlo_sharding.rank is None else sharding.hlo_sharding.rank


def shape_for(sharding, data):
    tiles = sharding.hlo_sharding.data_tiles or (1,) * rank_of(sharding)
    return tuple(pieces * data.draw(st.integers(0, 3)) for pieces in tiles)


@given(pairs(), st.data())
@settings(RELAXED, max_examples=100)
def test_blocks_are_jax_blocks(pair, data):
    ours, theirs = pair
    shape = shape_for(ours, data)
    assert ours.shard_shape(shape) == theirs.shard_shape(shape)
    assert ours.devices_indices_map(shape) == theirs.devices_indices_map(shape)
    assert list(ours.devices_indices_map(shape)) == list(theirs.devices_indices_map(shape))
    assert ours.addressable_devices_indices_map(shape) == (
        theirs.addressable_devices_indices_map(shape)
    )


@given(pairs(subgroups=True))
@settings(RELAXED, max_examples=100)
def test_is_one_value_with_jax(pair):
    ours, theirs = pair
    assert ours == theirs
    assert theirs == ours
    assert hash(ours) == hash(theirs)
    assert ours.to_jax() == theirs
    assert repr(ours.to_jax()) == repr(theirs)
    assert GSPMDSharding.from_jax(theirs) == ours
    assert GSPMDSharding.from_jax(theirs).hlo_sharding == ours.hlo_sharding
    for member in ("device_set", "num_devices", "memory_kind", "is_fully_replicated"):
        assert getattr(ours, member) == getattr(theirs, member)
    for member in ("is_fully_addressable", "addressable_devices"):
        assert getattr(ours, member) == getattr(theirs, member)


@given(pairs(subgroups=True, fits=8), pairs(subgroups=True, fits=8))
@settings(RELAXED, max_examples=100)
def test_equality_agrees_with_jax(one, other):
    for left in one:
        for right in other:
            assert (left == right) == (one[1] == other[1])


@given(pairs(), pairs())
@settings(RELAXED, max_examples=100)
def test_equivalence_agrees_with_jax(one, other):
    rank = max(rank_of(one[0]), rank_of(other[0]))
    for sharding in (one[0], other[0]):
        if sharding.hlo_sharding.rank not in (None, rank):
            return
    expected = one[1].is_equivalent_to(other[1], rank)
    assert one[0].is_equivalent_to(other[0], rank) == expected
    assert one[0].is_equivalent_to(other[1], rank) == expected
    assert one[1].is_equivalent_to(other[0], rank) == expected


@given(pairs(subgroups=True))
@settings(RELAXED, max_examples=100)
def test_every_form_reads_as_the_text_does(pair):
    """XLA's own proto of its own reading, field by field."""
    ours, theirs = pair
    proto = theirs._to_xla_hlo_sharding(rank_of(ours)).to_proto()
    for form in (proto, proto.SerializeToString()):
        again = GSPMDSharding(ours.device_order, form, memory_kind=ours.memory_kind)
        assert again == ours
        assert str(again.hlo_sharding) == str(ours.hlo_sharding)


@given(pairs())
@settings(RELAXED, max_examples=100)
def test_shardy_is_told_what_jax_tells_it_where_jax_can(pair):
    """JAX cannot for lists, and aborts where two factors of a size are in the way of each other.

    Its names for axes are those of a mesh that XLA made itself, which XLA may fold into another.
    """
    ours, theirs = pair
    rank, tile = rank_of(ours), ours.hlo_sharding.tile
    with jax.interpreters.mlir.make_ir_context():
        mine = str(ours._to_sdy_sharding(rank).build({}))
        if tile is None or (tile.is_iota and tile.size in (2, 4, 8)):
            wanted = str(theirs._to_sdy_sharding(rank).build({}))
        else:
            wanted = ours.to_sdy(rank)
        assert mine == wanted.replace('"_axis_', '"axis_')


@given(pairs(), st.data())
@settings(RELAXED, max_examples=50)
def test_device_put_places_as_jax_does(pair, data):
    """The numbers on each device, with an array in which no two elements are the same."""
    ours, theirs = pair
    shape = shape_for(ours, data)
    array = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    placed, expected = jax.device_put(array, ours), jax.device_put(array, theirs)
    assert placed.sharding == expected.sharding
    same_shards(placed, expected)


@given(st.permutations(range(8)), st.permutations(("x", "y", "z")), st.integers(0, 3))
@settings(RELAXED)
def test_tiles_of_a_named_sharding_are_equivalent_to_it(ids, names, used):
    """Over a mesh of permuted devices, with axes in any order."""
    mesh = JaxMesh(np.array(jax.devices())[list(ids)].reshape(2, 2, 2), ("x", "y", "z"))
    named = JaxNamed(mesh, JaxSpec(*names[:used]))
    ours = GSPMDSharding(mesh.devices, named._to_xla_hlo_sharding(3))
    assert ours.is_equivalent_to(named, 3)
    assert named.is_equivalent_to(ours, 3)
    assert ours.devices_indices_map((4, 4, 4)) == named.devices_indices_map((4, 4, 4))
