"""Blocks of arrays: the same per device as JAX's, and back again."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from shardpass.canon import HloSharding
from shardpass.diagnostics import ShardingError
from shardpass.runtime.placement import Layout

SPECS = [
    PartitionSpec(),
    PartitionSpec("x"),
    PartitionSpec("y", "x"),
    PartitionSpec(("x", "y")),
    PartitionSpec(("y", "x"), None),
    PartitionSpec(None, ("x", "y")),
]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_cut_agrees_with_jax(spec: PartitionSpec):
    mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    sharding = NamedSharding(mesh, spec)
    array = np.arange(16 * 8).reshape(16, 8)
    text = str(sharding._to_xla_hlo_sharding(2))
    layout = Layout(HloSharding.parse(text).to_v2(), (16, 8), 8)
    blocks = layout.cut(array)
    indices = sharding.devices_indices_map((16, 8))
    for device, block in zip(jax.devices(), blocks, strict=True):
        np.testing.assert_array_equal(block, array[indices[device]])
    np.testing.assert_array_equal(layout.join(blocks), array)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 16, 19, 0])
def test_uneven_dimensions_are_padded_and_joined_again(size: int):
    layout = Layout(
        HloSharding.parse("{devices=[4,1,2]<=[8] last_tile_dim_replicate}"), (size, 3), 8
    )
    array = np.arange(size * 3).reshape(size, 3) + 1
    blocks = layout.cut(array)
    assert {block.shape for block in blocks} == {layout.shard_shape}
    assert layout.padded_shape == (4 * -(-size // 4), 3)
    np.testing.assert_array_equal(layout.join(blocks), array)


def test_scalars_are_whole_everywhere():
    layout = Layout(HloSharding.replicated(), (), 8)
    blocks = layout.cut(np.asarray(3.0))
    assert [block.item() for block in blocks] == [3.0] * 8
    assert layout.join(blocks).item() == 3.0


def test_copies_name_the_first_device_of_their_block():
    layout = Layout(HloSharding.parse("{devices=[2,1,4]<=[8] last_tile_dim_replicate}"), (4, 3), 8)
    assert layout.owners == (0, 4)
    assert layout.copies == ((1, 0), (2, 0), (3, 0), (5, 4), (6, 4), (7, 4))


@pytest.mark.parametrize("text", ["{manual}", "{maximal device=3}", "{unknown}",
                                  "{devices=[2,4]<=[8] last_tile_dims={manual}}"])  # fmt: skip
def test_layouts_that_hold_no_block_of_the_global_array(text: str):
    with pytest.raises(ShardingError) as caught:
        Layout(HloSharding.parse(text), (8,), 8)
    assert caught.value.slug == "not-supported"
