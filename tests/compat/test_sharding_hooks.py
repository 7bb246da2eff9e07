"""What JAX asks of a sharding class of its own: one test per name, on the least class there can be.

Each test says what the name must be, and what breaks in the package when it is not.
"""

import jax
import numpy as np
import pytest

from shardpass import canon
from shardpass.canon import HloSharding
from shardpass.compat import hlo_sharding, sharding_hooks, xla_client

X = np.arange(32.0, dtype=np.float32).reshape(8, 4)


class Tiled(sharding_hooks.HookedSharding):
    """Tiles as XLA's text says, over all devices; only what JAX cannot do without."""

    def __init__(self, text, *, refused=False):
        super().__init__()
        self._text = text
        self._refused = refused

    device_order = property(lambda self: tuple(jax.devices()))
    device_set = property(lambda self: set(jax.devices()))
    num_devices = property(lambda self: len(jax.devices()))
    is_fully_addressable = property(lambda self: True)
    is_fully_replicated = property(lambda self: False)
    memory_kind = property(lambda self: sharding_hooks.default_memory_kind(self))

    def canonical_hlo(self, ndim):
        return HloSharding.parse(self._text)

    def axes_for_shardy(self, ndim):
        return canon.from_hlo(self.canonical_hlo(ndim), ndim)

    def refuse_jax(self):
        if self._refused:
            raise LookupError("not in JAX")

    def check_compatible_aval(self, aval_shape):
        pass


@pytest.fixture
def tiled():
    return Tiled("{devices=[4,2]<=[2,4]T(1,0)}")


@pytest.fixture(params=[True, False], ids=["shardy", "gspmd"])
def partitioner(request):
    before = jax.config.jax_use_shardy_partitioner
    jax.config.update("jax_use_shardy_partitioner", request.param)
    yield
    jax.config.update("jax_use_shardy_partitioner", before)


def test_internal_device_list(tiled):
    """``_internal_device_list``: what C++ makes arrays and executables of; asked for once."""
    assert isinstance(tiled._internal_device_list, xla_client.DeviceList)
    assert list(tiled._internal_device_list) == jax.devices()
    assert tiled._internal_device_list is tiled._internal_device_list
    assert tiled.device_list is tiled._internal_device_list
    assert jax.device_put(X, tiled).sharding is tiled


def test_internal_device_list_is_asked_for_before_anything_is_placed():
    """A class that refuses JAX there is refused by all that places data."""
    refused = Tiled("{devices=[8,1]<=[8]}", refused=True)
    assert list(refused.device_list) == jax.devices()
    for place in (
        lambda: jax.device_put(X, refused),
        lambda: jax.make_array_from_callback(X.shape, refused, lambda index: X[index]),
        lambda: jax.jit(lambda a: a, out_shardings=refused)(X),
    ):
        with pytest.raises(LookupError, match="not in JAX"):
            place()


def test_device_assignment(tiled):
    """``_device_assignment``: in which order blocks are paired with devices."""
    assert tiled._device_assignment == tuple(jax.devices())


def test_to_xla_hlo_sharding(tiled):
    """``_to_xla_hlo_sharding``: JAX's members (blocks, shard shapes, equivalence) come from it."""
    made = tiled._to_xla_hlo_sharding(2)
    assert isinstance(made, hlo_sharding.HloSharding)
    assert repr(made) == "{devices=[4,2]<=[2,4]T(1,0)}"
    assert tiled._to_xla_hlo_sharding(2) is made
    assert jax.sharding.Sharding.shard_shape(tiled, (8, 4)) == (2, 2)
    blocks = jax.sharding.Sharding.devices_indices_map(tiled, (8, 4))
    assert blocks[jax.devices()[1]] == (slice(2, 4), slice(0, 2))
    assert blocks[jax.devices()[4]] == (slice(0, 2), slice(2, 4))


def test_to_xla_hlo_sharding_is_asked_with_the_rank_of_a_batch(tiled):
    """Under ``vmap`` JAX asks for one dimension more, and adds one to the tiles that it gets."""
    asked = []
    tiled.rank_for_jax = lambda ndim: asked.append(ndim) or ndim
    batch = jax.vmap(lambda a: jax.lax.with_sharding_constraint(a, tiled))
    with pytest.raises(KeyError):  # of the table of output shardings, where Tiled is not
        jax.jit(batch)(np.stack([X, X]))
    assert asked == [3]


@pytest.mark.usefixtures("partitioner")
def test_to_sdy_sharding(tiled):
    """``_to_sdy_sharding``: what Shardy is told, by ``SdyArray`` and ``SdyDim``."""
    told = tiled._to_sdy_sharding(2)
    assert told == tiled._to_sdy_sharding(2, modify_wrt_axis_types=True)
    assert told.mesh_shape == (("_axis_0", 2), ("_axis_1", 4))
    assert [dim.axes for dim in told.dim_shardings] == [("_axis_1",), ("_axis_0",)]
    assert [dim.is_open for dim in told.dim_shardings] == [False, False]
    assert told.logical_device_ids is None
    placed = jax.jit(lambda a: a * 2, out_shardings=tiled)(X)
    np.testing.assert_array_equal(placed.addressable_shards[1].data, X[2:4, :2] * 2)


@pytest.mark.usefixtures("partitioner")
def test_to_sdy_sharding_with_listed_devices():
    """``SdyArray.logical_device_ids``: the order of devices that no iota has."""
    listed = Tiled("{devices=[8,1]0,1,2,3,4,5,7,6}")
    assert listed._to_sdy_sharding(2).logical_device_ids == (0, 1, 2, 3, 4, 5, 7, 6)
    placed = jax.jit(lambda a: a * 2, out_shardings=listed)(X)
    np.testing.assert_array_equal(placed.addressable_shards[6].data, X[7:] * 2)
    np.testing.assert_array_equal(placed.addressable_shards[7].data, X[6:7] * 2)


def test_default_memory_kind(tiled):
    """``DeviceList.default_memory_kind``: what JAX resolves no kind to."""
    assert sharding_hooks.default_memory_kind(tiled) == jax.devices()[0].default_memory().kind
