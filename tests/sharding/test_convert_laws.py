"""Laws of conversion, over meshes of permuted devices and specs and tiles at random."""

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import NamedSharding as JaxNamed

from shardpass.canon import HloSharding, TileAssignment
from shardpass.diagnostics import ShardingError
from shardpass.sharding import (
    GSPMDSharding,
    Mesh,
    NamedSharding,
    P,
    PmapSharding,
    PositionalSharding,
    SingleDeviceSharding,
    to_gspmd,
    to_named,
    to_pmap,
    to_positional,
)
from tests.sharding.test_against_jax import device_arrays, entries

NAMES = ("x", "y", "z")
RELAXED = settings(deadline=None, max_examples=100)


@st.composite
def named_shardings(draw):
    """Without open dimensions, which tiles cannot say; axes of size 1 are left out of the spec."""
    devices = draw(device_arrays())
    names = NAMES[: devices.ndim]
    used = [name for name, size in zip(names, devices.shape, strict=True) if size > 1]
    kind = draw(st.sampled_from([None, "pinned_host"]))
    spec = draw(entries(used, may_open=False))
    return NamedSharding(Mesh(devices, names), P(*spec), memory_kind=kind)


def shape_for(sharding, ndim, data):
    return tuple(
        pieces * data.draw(st.integers(1, 3)) for pieces in sharding.canonical(ndim).tiles()
    )


def alike(one, other, shape):
    assert one.is_equivalent_to(other, len(shape))
    assert other.is_equivalent_to(one, len(shape))
    assert one.devices_indices_map(shape) == other.devices_indices_map(shape)
    assert one.memory_kind == other.memory_kind
    assert list(one.devices_indices_map(shape)) == list(other.devices_indices_map(shape))


def trimmed(spec):
    entries = list(spec.partitions)
    while entries and entries[-1] is None:
        entries.pop()
    return P(*entries)


@given(named_shardings(), st.integers(0, 2), st.data())
@RELAXED
def test_names_are_found_again_through_tiles(sharding, extra, data):
    ndim = len(sharding.spec) + extra
    shape = shape_for(sharding, ndim, data)
    for given_one in (sharding, sharding.to_jax()):
        tiled = to_gspmd(given_one, ndim)
        assert type(tiled) is GSPMDSharding
        alike(tiled, sharding, shape)
        alike(tiled, sharding.to_jax(), shape)
        found = to_named(tiled, sharding.mesh, ndim=ndim)
        assert found.spec == trimmed(sharding.spec)
        alike(found, sharding, shape)
        alike(to_named(tiled, ndim=ndim), sharding, shape)


@given(named_shardings(), st.integers(0, 2), st.data())
@RELAXED
def test_names_are_found_again_through_places(sharding, extra, data):
    ndim = len(sharding.spec) + extra
    shape = shape_for(sharding, ndim, data)
    placed = to_positional(sharding.to_jax(), ndim)
    assert type(placed) is PositionalSharding
    alike(placed, sharding, shape)
    found = to_named(placed, sharding.mesh, ndim=ndim)
    assert found.spec == trimmed(sharding.spec)
    alike(to_named(placed, ndim=ndim), sharding, shape)
    alike(to_gspmd(placed, ndim), sharding, shape)


@given(named_shardings(), st.integers(0, 2))
@RELAXED
def test_names_are_found_again_through_mappings(sharding, extra):
    ndim = len(sharding.spec) + extra
    tiles = sharding.canonical(ndim).tiles()
    shape = tuple(pieces if pieces > 1 else 3 for pieces in tiles)
    mapped = to_pmap(sharding.to_jax(), shape)
    assert type(mapped) is PmapSharding
    alike(mapped, sharding, shape)
    assert to_named(mapped, sharding.mesh, ndim=ndim).spec == trimmed(sharding.spec)
    alike(to_positional(mapped, ndim), sharding, shape)
    alike(to_gspmd(mapped, ndim), sharding, shape)


@given(named_shardings(), st.data())
@RELAXED
def test_a_mesh_of_the_same_devices_in_another_order(sharding, data):
    """The devices are turned with their axes, so that the names mean the same."""
    order = data.draw(st.permutations(range(len(sharding.mesh.axis_names))))
    names = [sharding.mesh.axis_names[index] for index in order]
    mesh = Mesh(sharding.mesh.devices.transpose(order), names)
    ndim = len(sharding.spec)
    found = to_named(sharding, mesh, ndim=ndim)
    assert trimmed(found.spec) == trimmed(sharding.spec)
    shape = shape_for(sharding, ndim, data)
    assert found.devices_indices_map(shape) == sharding.devices_indices_map(shape)
    same_order = mesh.devices.ravel().tolist() == list(sharding.device_order)
    assert found.is_equivalent_to(sharding, ndim) == same_order


@given(st.permutations(range(8)), st.permutations(range(8)), st.data())
@RELAXED
def test_what_is_recovered_on_any_mesh_puts_the_same_blocks_on_the_same_devices(ids, other, data):
    """Or nothing is, and the error says so: tiles and mesh both shuffled."""
    dims = data.draw(st.sampled_from([(8,), (2, 4), (4, 2), (2, 2, 2), (1, 8)]))
    listed = data.draw(st.booleans())
    order = data.draw(st.permutations(range(8))) if listed else range(8)
    tiles = HloSharding.tiled(TileAssignment.listed(dims, list(order)))
    sharding = GSPMDSharding([jax.devices()[index] for index in ids], tiles)
    sizes = data.draw(st.sampled_from([(8,), (2, 4), (2, 2, 2)]))
    fits = [sharding.device_order[number] for number in order]
    devices = data.draw(st.sampled_from([fits, [jax.devices()[index] for index in other]]))
    mesh = Mesh(np.array(devices).reshape(sizes), NAMES[: len(sizes)])
    try:
        found = to_named(sharding, mesh)
    except ShardingError as error:
        if error.diagnostic.slug != "not-expressible":
            raise
        return
    shape = tuple(3 * size for size in dims)
    assert found.devices_indices_map(shape) == sharding.devices_indices_map(shape)


@given(named_shardings(), st.data())
@settings(RELAXED, max_examples=20)
def test_device_put_agrees(sharding, data):
    ndim = len(sharding.spec)
    tiles = sharding.canonical(ndim).tiles()
    array = np.arange(np.prod(tiles, dtype=int), dtype=np.float32).reshape(tiles)
    expected = jax.device_put(array, sharding.to_jax())
    for other in (
        to_gspmd(sharding, ndim),
        to_positional(sharding, ndim),
        to_pmap(sharding, tiles),
        to_named(to_gspmd(sharding, ndim), ndim=ndim),
    ):
        placed = jax.device_put(array, other)
        for shard, theirs in zip(
            placed.addressable_shards, expected.addressable_shards, strict=True
        ):
            assert shard.device == theirs.device
            np.testing.assert_array_equal(shard.data, theirs.data)


@given(st.integers(0, 7), st.sampled_from([None, "pinned_host"]), st.integers(0, 3))
@settings(RELAXED, max_examples=20)
def test_one_device_has_every_form(index, kind, ndim):
    single = SingleDeviceSharding(jax.devices()[index], memory_kind=kind)
    shape = (3,) * ndim
    for convert in (to_named, to_gspmd, to_positional, to_pmap):
        found = convert(single.to_jax()) if convert is to_named else convert(single, ndim)
        alike(found, single, shape)
    assert isinstance(to_named(single), JaxNamed)
