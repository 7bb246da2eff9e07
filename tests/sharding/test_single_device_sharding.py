"""SingleDeviceSharding: everything on one device."""

import copy
import pickle

import jax
import numpy as np
import pytest
from jax.sharding import SingleDeviceSharding as JaxSingle

import shardpass.sharding
from shardpass.diagnostics import ShardingError
from shardpass.sharding import SingleDeviceSharding


@pytest.fixture
def device():
    return jax.devices()[3]


def test_equals_jax_both_ways_with_one_hash(device):
    ours, theirs = SingleDeviceSharding(device), JaxSingle(device)
    assert ours == theirs
    assert theirs == ours
    assert hash(ours) == hash(theirs)
    assert isinstance(ours, JaxSingle)
    assert isinstance(ours, shardpass.sharding.Sharding)
    assert type(ours.to_jax()) is JaxSingle
    assert ours.to_jax() == ours
    assert SingleDeviceSharding.from_jax(theirs) == ours
    assert SingleDeviceSharding.from_jax(ours) is ours
    assert ours != SingleDeviceSharding(jax.devices()[2])
    assert ours != JaxSingle(device, memory_kind="pinned_host")


def test_members(device):
    sharding = SingleDeviceSharding(device)
    assert sharding.device_set == {device}
    assert sharding.addressable_devices == {device}
    assert sharding.device_order == (device,)
    assert sharding.num_devices == 1
    assert sharding.is_fully_addressable
    assert sharding.is_fully_replicated
    assert sharding.memory_kind == "device"
    assert sharding.shard_shape((5, 3)) == (5, 3)
    assert sharding.devices_indices_map((5, 3)) == {device: (slice(None), slice(None))}
    assert sharding.devices_indices_map(()) == {device: ()}
    assert sharding.addressable_devices_indices_map((5,)) == {device: (slice(None),)}
    assert sharding.with_memory_kind("pinned_host").memory_kind == "pinned_host"
    assert type(sharding.with_memory_kind("pinned_host")) is SingleDeviceSharding


def test_lowers_as_jax_does(device):
    sharding = SingleDeviceSharding(device)
    assert sharding.to_mhlo(2) == "{replicated}"
    assert sharding.to_sdy(2) == "#sdy.sharding<mesh<[]>, [{}, {}]>"
    assert sharding.canonical(0).rank == 0


def test_equivalence(device):
    sharding = SingleDeviceSharding(device)
    assert sharding.is_equivalent_to(JaxSingle(device), 2)
    assert JaxSingle(device).is_equivalent_to(sharding, 2)
    assert not sharding.is_equivalent_to(JaxSingle(jax.devices()[0]), 2)
    assert not sharding.is_equivalent_to(JaxSingle(device, memory_kind="pinned_host"), 2)


def test_refuses_what_cannot_be(device):
    for make, slug, word in (
        (lambda: SingleDeviceSharding(3), "abstract-type", "int 3"),
        (lambda: SingleDeviceSharding(device, memory_kind="ram"), "memory-kind", "'ram'"),
    ):
        with pytest.raises(ShardingError) as caught:
            make()
        assert caught.value.slug == slug
        assert word in str(caught.value)


def test_copies(device):
    sharding = SingleDeviceSharding(device)
    assert copy.copy(sharding) == sharding
    assert copy.deepcopy([sharding])[0] == sharding
    assert pickle.loads(pickle.dumps(sharding)) == sharding


def test_lives_in_jax(device):
    sharding = SingleDeviceSharding(device)
    x = np.arange(6.0).reshape(2, 3)
    placed = jax.device_put(x, sharding)
    assert type(placed.sharding) is SingleDeviceSharding
    out = jax.jit(lambda a: a * 2)(placed)
    np.testing.assert_array_equal(out, x * 2)
    assert out.sharding == sharding
    assert out.devices() == {device}
    told = jax.jit(lambda a: a + 1, out_shardings=sharding)(x)
    assert told.devices() == {device}
    back = jax.make_array_from_callback((2, 3), sharding, lambda index: x[index])
    np.testing.assert_array_equal(back, x)
    assert repr(sharding) == f"SingleDeviceSharding({device}, memory_kind='device')"
