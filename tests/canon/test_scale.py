"""A mesh of a million devices costs what a mesh of eight costs; hostile text costs its own size."""

import time
import tracemalloc

import numpy as np
import pytest

from shardpass.canon import (
    AxisRef,
    DimSharding,
    HloSharding,
    MeshShape,
    TensorSharding,
    device_blocks,
    from_hlo,
    is_equivalent,
    to_hlo,
)
from shardpass.diagnostics import ShardingError

MILLION = MeshShape.of(data=1024, model=1024)


def test_a_million_devices_are_lowered_without_a_list():
    sharding = TensorSharding.build(MILLION, ["model", [], "data"])
    tracemalloc.start()
    text = str(to_hlo(sharding))
    back = from_hlo(HloSharding.parse(text), 3, MILLION)
    assert is_equivalent(back, sharding, 3)
    assert sharding.shard_shape((2048, 7, 4096)) == (2, 7, 4)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert text == "{devices=[1024,1,1024]<=[1024,1024]T(1,0)}"
    assert back == sharding
    assert peak < 100_000  # bytes; the list alone would be 8 MiB


def test_sub_axes_and_subgroups_of_a_million_devices_are_lowered_without_a_list():
    dims = (DimSharding((AxisRef("data", 4, 8), AxisRef("model", 2, 2))),)
    tracemalloc.start()
    lowered = to_hlo(TensorSharding(MILLION, dims, unreduced=(AxisRef("data", 32, 4),)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert str(lowered) == (
        "{devices=[16,4,16384]<=[4,8,4,16,2,256]T(1,4,2,0,3,5) "
        "last_tile_dims={unreduced, replicated}}"
    )
    assert peak < 100_000


def test_more_devices_than_memory_are_fine_until_someone_asks_for_the_list():
    mesh = MeshShape.of(x=2**31, y=2**31)
    lowered = to_hlo(TensorSharding.build(mesh, ["y", "x"]))
    assert str(lowered) == ("{devices=[2147483648,2147483648]<=[2147483648,2147483648]T(1,0)}")
    assert lowered == HloSharding.parse(str(lowered))
    assert lowered.num_devices == 2**62
    for ask in (mesh.device_array, lowered.tile.device_array if lowered.tile else None):
        assert ask is not None
        with pytest.raises(ShardingError) as refused:
            ask()
        assert refused.value.slug == "device-count"


def test_a_list_of_a_million_shuffled_devices_is_read_back():
    ids = np.random.default_rng(0).permutation(2**20)
    text = "{devices=[1024,1024]" + ",".join(map(str, ids.tolist())) + "}"
    sharding = HloSharding.parse(text)
    assert str(sharding) == text
    assert sharding.to_v2() == sharding
    assert sharding.tile is not None
    assert np.array_equal(sharding.tile.device_array(), ids.reshape(1024, 1024))


def test_a_list_of_a_million_devices_in_order_is_found_to_be_an_iota():
    ids = np.arange(2**20).reshape(1024, 1024).T.ravel()
    text = "{devices=[1024,1024]" + ",".join(map(str, ids.tolist())) + "}"
    v2 = HloSharding.parse(text).to_v2()
    assert str(v2) == "{devices=[1024,1024]<=[1024,1024]T(1,0)}"


def test_the_blocks_of_a_million_devices_are_one_array():
    blocks = device_blocks(TensorSharding.build(MILLION, ["model", "data"]), (4096, 4096))
    assert blocks.shape == (2**20, 2, 2)
    assert blocks[1].tolist() == [[4, 8], [0, 4]]
    assert blocks[-1].tolist() == [[4092, 4096], [4092, 4096]]


HOSTILE = {
    "deep nesting": "{" * 100_000,
    "a number of five million digits": "{devices=[1" + "0" * 5_000_000 + "]<=[1]}",
    "a product that explodes": "{devices=[" + "2," * 100_000 + "2]<=[2]}",
    "more devices than 64 bits": "{devices=[9223372036854775807,2]<=[2]}",
    "replicas that no iota sorts": (
        "{devices=[2,6442450944]<=[6442450947,2]T(1,0) last_tile_dim_replicate}"
    ),
    "an open tuple": "{" + "{replicated}," * 20_000,
    "a long list of nothing": "{devices=[2]" + "0," * 200_000 + "0}",
    "many entries of metadata": "{metadata={" + '{op_name="x"},' * 10_000,
    "a mesh that explodes": (
        "{mesh[" + ",".join(f"'a{index}'=9" for index in range(5_000)) + "], [{}]}"
    ),
    "a string that never ends": '{replicated metadata={op_name="' + "x" * 1_000_000,
    "backslashes": '{replicated metadata={op_name="' + "\\" * 1_000_001,
    "white space": "{" + " " * 1_000_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_refused_at_the_price_of_reading_it(text: str):
    tracemalloc.start()
    begun = time.process_time()
    with pytest.raises(ShardingError) as refused:
        HloSharding.parse(text)
    spent = time.process_time() - begun
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert spent < 10  # seconds, under tracemalloc and on a busy machine; most take milliseconds
    assert peak < 100 * len(text) + 1_000_000
    assert len(refused.value.diagnostic.message) < 500
