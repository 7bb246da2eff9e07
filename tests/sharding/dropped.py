"""Shardings of the classes that JAX has dropped, for laws and for trying them in JAX."""

import math

import jax
import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st
from strategies import factorisations

from shardpass.diagnostics import ShardingError
from shardpass.sharding import (
    Chunked,
    NoSharding,
    PmapSharding,
    PositionalSharding,
    Replicated,
    ShardedAxis,
    ShardingSpec,
    Unstacked,
)


@st.composite
def positional_shardings(draw, *, max_ndim=4):
    """Any devices in any order, shaped, turned and joined."""
    ids = draw(st.permutations(range(8)))[: draw(st.sampled_from([1, 2, 3, 4, 6, 8]))]
    shape = draw(factorisations(len(ids)))
    assume(len(shape) <= max_ndim)
    devices = np.array([jax.devices()[index] for index in ids]).reshape(shape)
    sharding = PositionalSharding(devices)
    sharding = sharding.transpose(draw(st.permutations(range(sharding.ndim))))
    if sharding.ndim and draw(st.booleans()):
        sharding = sharding.replicate(draw(st.integers(0, sharding.ndim - 1)))
    return sharding


@st.composite
def specs(draw, *, unstacked=False):
    """Specs over 1, 2, 4 or 8 devices: any dimensions mapped, in any order, with copies."""
    room, sharding, axes = 8, [], 0
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["none", "chunked", "two", "unstacked"]))
        sizes = [
            draw(st.sampled_from([size for size in (1, 2, 4, 8) if size <= room]))
            for _ in range({"none": 0, "two": 2}.get(kind, 1))
        ]
        if math.prod(sizes) > room or (kind == "unstacked" and not unstacked):
            kind, sizes = "none", []
        room //= math.prod(sizes)
        axes += len(sizes)
        if kind == "none":
            sharding.append(NoSharding())
        else:
            sharding.append(Unstacked(sizes[0]) if kind == "unstacked" else Chunked(sizes))
    mapping = [ShardedAxis(axis) for axis in range(axes)]
    for _ in range(draw(st.integers(0, 2))):
        copies = draw(st.sampled_from([size for size in (1, 2, 4) if size <= room]))
        room //= copies
        mapping.append(Replicated(copies))
    return ShardingSpec(sharding, draw(st.permutations(mapping)))


@st.composite
def pmap_shardings(draw, **options):
    spec = draw(specs(**options))
    count = math.prod(spec.mesh_shape)
    ids = draw(st.permutations(range(8)))[:count]
    return PmapSharding([jax.devices()[index] for index in ids], spec)


def shape_for(spec, size=3):
    """A shape that the spec maps, one element a device."""
    return tuple(
        size
        if isinstance(entry, NoSharding)
        else entry.pieces
        if isinstance(entry, Chunked)
        else entry.size
        for entry in spec.sharding
    )


def refused(call):
    with pytest.raises(ShardingError) as caught:
        call()
    return caught.value.diagnostic.slug, str(caught.value)


def holds(array, whole):
    np.testing.assert_array_equal(array, whole)
    for shard in array.addressable_shards:
        np.testing.assert_array_equal(shard.data, np.asarray(whole)[shard.index])
