"""What a shape may be made of, for every class that answers about one."""

import jax
import numpy as np
import pytest

from shardpass.diagnostics import ShardingError
from shardpass.sharding import (
    GSPMDSharding,
    Mesh,
    NamedSharding,
    P,
    PmapSharding,
    PositionalSharding,
    SingleDeviceSharding,
    from_json,
    to_json,
)

MAKE = {
    "named": lambda: NamedSharding(
        Mesh(np.array(jax.devices()).reshape(2, 4), ("x", "y")), P("x", "y")
    ),
    "gspmd": lambda: GSPMDSharding(jax.devices(), "{devices=[2,4]<=[8]}"),
    "positional": lambda: PositionalSharding(jax.devices()).reshape(2, 4),
    "pmap": lambda: PmapSharding.default((8, 12)),
    "single": lambda: SingleDeviceSharding(jax.devices()[0]),
}


@pytest.fixture(params=list(MAKE))
def sharding(request):
    return MAKE[request.param]()


@pytest.mark.parametrize("shape", [(8.0, 12), (8, 24.0), ("8", 12), (None, 12), (-8, 12)])
def test_what_is_no_size_is_refused_and_forgotten(sharding, shape):
    # A new shape, so that nothing is remembered of it yet: 8.0 == 8, with the same hash.
    with pytest.raises(ShardingError) as caught:
        sharding.shard_shape(shape)
    assert caught.value.slug == "abstract-type"
    assert str(caught.value) == (
        f"a shape is made of whole numbers from 0 up, and this is {shape!r}"
    )
    found = sharding.shard_shape((8, 12))
    assert all(type(size) is int for size in found)
    assert jax.device_put(np.ones((8, 12)), sharding).shape == (8, 12)


def test_numpys_integers_are_sizes(sharding):
    found = sharding.shard_shape((np.int64(8), np.int32(12)))
    assert found == sharding.shard_shape((8, 12))
    assert all(type(size) is int for size in found)


def test_without_devices():
    free = NamedSharding(Mesh.of(x=2, y=4), P("x", "y"))
    with pytest.raises(ShardingError, match="whole numbers"):
        free.shard_shape((4.0, 8))


def test_memory_kind_none_is_the_default(sharding):
    default = sharding.with_memory_kind("device").with_memory_kind(None)
    assert sharding.with_memory_kind("pinned_host").with_memory_kind(None) == default
    assert from_json(to_json(default)) == default
