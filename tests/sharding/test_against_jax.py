"""Every derived member against jax.sharding, on meshes and specs at random.

Laws are stated over meshes with axes of size 1, permuted devices and unused axes, and over specs
with swapped, grouped and open dimensions.
"""

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType
from jax.sharding import Mesh as JaxMesh
from jax.sharding import NamedSharding as JaxNamed
from jax.sharding import PartitionSpec as JaxSpec

from shardpass.sharding import UNCONSTRAINED, Mesh, NamedSharding, P, spec_of
from tests.sharding.alive import same_shards

SIZES = [(8,), (2, 4), (4, 2), (1, 8, 1), (2, 2, 2), (2, 1, 3), (2, 2), (1,), (1, 1)]
NAMES = ("x", "y", "z")

# The first use of JAX within a test takes longer than any deadline that would mean something.
RELAXED = settings(deadline=None)


@st.composite
def device_arrays(draw):
    sizes = draw(st.sampled_from(SIZES))
    count = int(np.prod(sizes))
    ids = draw(st.permutations(range(8)) | st.just(tuple(range(8))))[:count]
    return np.array([jax.devices()[index] for index in ids]).reshape(sizes)


@st.composite
def entries(draw, names, *, may_open=True):
    """Up to four entries that use each axis at most once, in any order and grouping."""
    order = draw(st.permutations(names))
    used = order[: draw(st.integers(0, len(order)))]
    rank = draw(st.integers(0, 4))
    groups = [[] for _ in range(rank)]
    for name in used if rank else ():
        groups[draw(st.integers(0, rank - 1))].append(name)
    found = []
    for group in groups:
        if group:
            found.append(group[0] if len(group) == 1 else tuple(group))
        else:
            found.append(UNCONSTRAINED if may_open and draw(st.booleans()) else None)
    return tuple(found)


@st.composite
def pairs(draw, *, may_open=True):
    """One sharding twice: ours, and JAX's."""
    devices = draw(device_arrays())
    names = NAMES[: devices.ndim]
    spec = draw(entries(names, may_open=may_open))
    kind = draw(st.sampled_from([None, "device", "pinned_host"]))
    types = (AxisType.Auto,) * devices.ndim
    theirs = JaxNamed(JaxMesh(devices, names, axis_types=types), JaxSpec(*spec), memory_kind=kind)
    return NamedSharding(Mesh(devices, names), P(*spec), memory_kind=kind), theirs


def shape_for(sharding, data):
    """A shape that divides, with dimensions beyond the spec and some of size 0."""
    extra = data.draw(st.integers(0, 2))
    layout = sharding.canonical(len(sharding.spec) + extra)
    return tuple(pieces * data.draw(st.integers(0, 3)) for pieces in layout.tiles())


@given(pairs(), st.data())
@settings(RELAXED)
def test_blocks_are_jax_blocks(pair, data):
    ours, theirs = pair
    shape = shape_for(ours, data)
    assert ours.shard_shape(shape) == theirs.shard_shape(shape)
    assert ours.devices_indices_map(shape) == theirs.devices_indices_map(shape)
    assert list(ours.devices_indices_map(shape)) == list(theirs.devices_indices_map(shape))
    assert ours.addressable_devices_indices_map(shape) == (
        theirs.addressable_devices_indices_map(shape)
    )


@given(pairs(), st.integers(0, 2))
@settings(RELAXED)
def test_text_is_what_jax_lowers_to(pair, extra):
    ours, theirs = pair
    rank = len(ours.spec) + extra
    assert ours.to_mhlo(rank) == str(theirs._to_xla_hlo_sharding(rank))
    with jax.interpreters.mlir.make_ir_context():
        assert ours.to_sdy(rank) == str(theirs._to_sdy_sharding(rank).build({}))


@given(pairs())
@settings(RELAXED)
def test_is_one_value_with_jax(pair):
    ours, theirs = pair
    assert ours == theirs
    assert theirs == ours
    assert hash(ours) == hash(theirs)
    assert ours.to_jax() == theirs
    assert NamedSharding.from_jax(theirs) == ours
    for member in ("device_set", "num_devices", "memory_kind", "is_fully_replicated"):
        assert getattr(ours, member) == getattr(theirs, member)
    for member in ("is_fully_addressable", "addressable_devices"):
        assert getattr(ours, member) == getattr(theirs, member)


@given(pairs(), pairs(), st.integers(0, 2))
@settings(RELAXED, max_examples=200)
def test_equality_and_equivalence_agree_with_jax(one, other, extra):
    rank = max(len(one[0].spec), len(other[0].spec)) + extra
    expected = one[1].is_equivalent_to(other[1], rank)
    for left in one:
        for right in other:
            assert (left == right) == (one[1] == other[1])
            assert left.is_equivalent_to(right, rank) == expected


@given(pairs(), st.data())
@settings(RELAXED)
def test_other_words_for_one_layout_are_equivalent(pair, data):
    """Neither trailing ``None``, nor openness, nor one axis more of size 1 moves a block."""
    ours, _ = pair
    rank = len(ours.spec) + data.draw(st.integers(0, 2))
    closed = [None if entry is UNCONSTRAINED else entry for entry in ours.spec]
    closed += [None] * data.draw(st.integers(0, rank - len(closed)))
    devices = ours.mesh.devices[..., None]
    other = NamedSharding(
        Mesh(devices, (*ours.mesh.axis_names, "more")), P(*closed), memory_kind=ours.memory_kind
    )
    assert ours.is_equivalent_to(other, rank)
    assert other.is_equivalent_to(ours.to_jax(), rank)
    assert ours.to_jax().is_equivalent_to(other, rank)


@given(pairs())
@settings(RELAXED)
def test_spec_of_undoes_canonical(pair):
    ours, _ = pair
    assert spec_of(ours.canonical(len(ours.spec))) == ours.spec


@given(pairs(may_open=False), st.data())
@settings(RELAXED, max_examples=25)
def test_device_put_places_as_jax_does(pair, data):
    """The numbers on each device, with an array in which no two elements are the same."""
    ours, theirs = pair
    shape = shape_for(ours, data)
    array = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    placed, expected = jax.device_put(array, ours), jax.device_put(array, theirs)
    assert placed.sharding == expected.sharding
    same_shards(placed, expected)


@given(device_arrays(), st.sampled_from(list(AxisType)))
@settings(RELAXED)
def test_meshes_are_one_value_with_jax(devices, axis_type):
    names = NAMES[: devices.ndim]
    types = (axis_type,) * devices.ndim
    ours, theirs = Mesh(devices, names, types), JaxMesh(devices, names, axis_types=types)
    assert ours == theirs
    assert theirs == ours
    assert hash(ours) == hash(theirs)
    assert ours.shape == theirs.shape
    assert ours.axis_sizes == theirs.axis_sizes
    assert ours.size == theirs.size
    assert ours.device_ids.tolist() == theirs.device_ids.tolist()
    free = ours.without_devices()
    assert free == theirs.abstract_mesh.update(abstract_device=None)
    assert free.bind(list(devices.flat)) == ours


@given(entries(NAMES), entries(NAMES))
@settings(RELAXED)
def test_specs_are_one_value_with_jax(one, other):
    assert (P(*one) == P(*other)) == (JaxSpec(*one) == JaxSpec(*other))
    assert P(*one) == JaxSpec(*one)
    assert hash(P(*one)) == hash(JaxSpec(*one))
    assert P(*one) + P(*other) == JaxSpec(*one) + JaxSpec(*other)
    assert tuple(P(*one)) == tuple(JaxSpec(*one))
