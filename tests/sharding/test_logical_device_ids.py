"""A sharding whose canonical mesh lists its devices places the right block on each of them."""

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding as JaxNamed
from jax.sharding import PartitionSpec as JaxSpec

from shardpass.sharding import NamedSharding, P

X = np.arange(64, dtype=np.float32).reshape(8, 8)
IDS = (3, 1, 0, 2, 5, 7, 6, 4)


@pytest.fixture
def pair(mesh):
    return (
        NamedSharding(mesh, P("x", "y"), _logical_device_ids=IDS),
        JaxNamed(mesh.to_jax(), JaxSpec("x", "y"), _logical_device_ids=IDS),
    )


def test_index_maps_are_in_the_order_of_the_devices(pair):
    """JAX reads only the values of the map, and pairs them with the devices in order."""
    ours, theirs = pair
    blocks = ours.devices_indices_map(X.shape)
    assert blocks == theirs.devices_indices_map(X.shape)
    assert list(blocks) == jax.devices()
    assert blocks[jax.devices()[3]] == (slice(0, 4), slice(0, 2))


def test_device_put_places_the_blocks_where_they_belong(pair):
    ours, theirs = pair
    placed, expected = jax.device_put(X, ours), jax.device_put(X, theirs)
    for shard, other in zip(placed.addressable_shards, expected.addressable_shards, strict=True):
        assert shard.index == other.index
        np.testing.assert_array_equal(shard.data, X[shard.index])
        np.testing.assert_array_equal(shard.data, other.data)
