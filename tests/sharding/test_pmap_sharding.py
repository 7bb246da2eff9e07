"""``PmapSharding`` and its spec: what is mapped over which devices, and what JAX can still hold."""

import importlib
import math

import jax
import numpy as np
import pytest
from hypothesis import given

from shardpass import canon
from shardpass.canon import HloSharding
from shardpass.sharding import (
    Chunked,
    GSPMDSharding,
    Mesh,
    NamedSharding,
    NoSharding,
    P,
    PmapSharding,
    PositionalSharding,
    ShardedAxis,
    Sharding,
    ShardingSpec,
    Unstacked,
)
from tests.sharding.dropped import pmap_shardings, refused, shape_for

X = np.arange(32, dtype=np.float32).reshape(8, 4)
ROWS = ShardingSpec([Chunked([8]), NoSharding()], [ShardedAxis(0)])


@pytest.fixture
def sharding():
    return PmapSharding.default((8, 4))


@pytest.fixture
def unstacked():
    return PmapSharding(jax.devices(), ShardingSpec([Unstacked(8), NoSharding()], [ShardedAxis(0)]))


# Members ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "dim", "spec"),
    [
        ((8, 3), 0, ShardingSpec([Chunked([8]), NoSharding()], [ShardedAxis(0)])),
        ((3, 4), 1, ShardingSpec([NoSharding(), Chunked([4])], [ShardedAxis(0)])),
        ((1,), 0, ShardingSpec([Chunked([1])], [ShardedAxis(0)])),
    ],
)
def test_default(shape, dim, spec):
    sharding = PmapSharding.default(shape, dim)
    assert sharding.sharding_spec == spec
    assert sharding.devices.tolist() == jax.local_devices()[: shape[dim]]
    given_devices = jax.devices()[::-1][: shape[dim]]
    assert PmapSharding.default(shape, dim, given_devices).devices.tolist() == given_devices


def test_default_of_copies():
    sharding = PmapSharding.default((3, 4), None, jax.devices()[:6])
    assert repr(sharding.sharding_spec) == (
        "ShardingSpec((NoSharding(), NoSharding()), (Replicated(replicas=6),))"
    )
    assert sharding.is_fully_replicated
    assert sharding.to_mhlo(2) == "{replicated}"
    assert sharding.shard_shape((3, 4)) == (3, 4)


def test_members(sharding):
    assert sharding.devices.shape == (8,)
    assert not sharding.devices.flags.writeable
    assert sharding.num_devices == 8
    assert sharding.device_set == sharding.addressable_devices == set(jax.devices())
    assert sharding.is_fully_addressable
    assert not sharding.is_fully_replicated
    assert sharding.memory_kind == jax.devices()[0].default_memory().kind
    assert sharding.shard_shape((8, 4)) == (1, 4)
    assert sharding.devices_indices_map((8, 4))[jax.devices()[3]] == (slice(3, 4), slice(None))
    assert sharding.to_mhlo(2) == "{devices=[8,1]<=[8]}"
    assert sharding.to_sdy(2) == '#sdy.sharding<mesh<["_axis_0"=8]>, [{"_axis_0"}, {}]>'
    assert isinstance(sharding, (Sharding, jax.sharding.Sharding))
    assert not PmapSharding.default((1, 5)).is_fully_replicated  # mapped, be it over one device


def test_memory_kind_is_kept(sharding):
    hosted = sharding.with_memory_kind("pinned_host")
    assert hosted == PmapSharding(jax.devices(), ROWS, memory_kind="pinned_host") != sharding
    assert str(hosted).endswith("device_shape=(8,), memory_kind=pinned_host)")
    assert not hosted.is_equivalent_to(sharding, 2)
    assert hosted.with_memory_kind(sharding.memory_kind) == sharding
    assert jax.device_put(X, hosted).sharding.memory_kind == "pinned_host"


def test_equal_are_one_spec_on_the_same_devices_in_one_shape(sharding):
    devices = jax.devices()
    same = PmapSharding(devices, ROWS)
    assert same == sharding
    assert hash(same) == hash(sharding)
    for other in (
        PmapSharding(devices[::-1], ROWS),
        PmapSharding(np.array(devices).reshape(2, 4), ROWS),
        PmapSharding.default((4, 8), 1),
        PmapSharding.default((8,)),
        PositionalSharding(devices).reshape(8, 1),
        sharding.to_jax(),
        None,
    ):
        assert sharding != other
        assert other != sharding
    assert sharding.is_equivalent_to(PmapSharding(np.array(devices).reshape(2, 4), ROWS), 2)
    assert not sharding.is_equivalent_to(PmapSharding(devices[::-1], ROWS), 2)
    assert not sharding.is_equivalent_to(PmapSharding.default((8,)), 2)


def test_equivalent_to_other_classes(sharding):
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("x", "y"))
    for other in (
        NamedSharding(mesh, P(("x", "y"))),
        NamedSharding(mesh, P(("x", "y"))).to_jax(),
        GSPMDSharding(jax.devices(), "{devices=[8,1]<=[8]}"),
        PositionalSharding(jax.devices()).reshape(8, 1),
    ):
        assert sharding.is_equivalent_to(other, 2)
        assert other.is_equivalent_to(sharding, 2)
    assert not sharding.is_equivalent_to(NamedSharding(mesh, P("x")), 2)
    assert not NamedSharding(mesh, P("x")).is_equivalent_to(sharding, 2)


@given(pmap_shardings())
def test_members_agree_with_jax_on_the_named_form(sharding):
    """Every derived member is that of JAX's own ``NamedSharding`` with the same layout."""
    spec = sharding.sharding_spec
    shape, ndim = shape_for(spec), len(spec.sharding)
    named = sharding.to_jax()
    assert sharding.is_equivalent_to(named, ndim)
    assert named.is_equivalent_to(sharding, ndim)
    assert sharding.shard_shape(shape) == named.shard_shape(shape)
    ours, theirs = (s.devices_indices_map(shape) for s in (sharding, named))
    assert list(ours.items()) == list(theirs.items())
    assert sharding.addressable_devices_indices_map(shape) == ours
    for device, index in zip(sharding.device_order, spec.indices(shape).flat, strict=True):
        assert np.array_equal(np.zeros(shape)[index].shape, np.zeros(shape)[ours[device]].shape)
        assert [s.indices(n) for s, n in zip(index, shape, strict=True)] == [
            s.indices(n) for s, n in zip(ours[device], shape, strict=True)
        ]
    assert sharding.num_devices == named.num_devices
    hlo = HloSharding.parse(sharding.to_mhlo(ndim))
    assert canon.is_equivalent(canon.TensorSharding.parse(sharding.to_sdy(ndim)), hlo, ndim)
    back = PmapSharding.from_jax(named, shape)
    assert back.is_equivalent_to(sharding, ndim)
    assert back.device_order == sharding.device_order
    assert PmapSharding.from_jax(sharding, shape) is sharding


def test_what_todays_pmap_returns_is_one_again():
    mapped = jax.pmap(lambda row: row * 2)(X)
    sharding = PmapSharding.from_jax(mapped.sharding, mapped.shape)
    assert sharding == PmapSharding.default(mapped.shape)
    np.testing.assert_array_equal(jax.device_put(mapped, sharding), X * 2)


@given(pmap_shardings(unstacked=True))
def test_blocks_of_unstacked_dimensions(sharding):
    """Whole numbers take the dimension away, in ``indices`` and in the map of devices."""
    spec = sharding.sharding_spec
    shape = shape_for(spec)
    if not spec.has_unstacked:
        assert spec.chunked() == spec
        return
    found = sharding.devices_indices_map(shape)
    assert list(found) == list(sharding.device_order)
    assert list(found.values()) == list(spec.indices(shape).flat)
    assert sharding.addressable_devices_indices_map(shape) == found
    # The same spec with Chunked has the same blocks, that keep the dimension.
    whole = np.arange(math.prod(shape)).reshape(shape)
    chunked = PmapSharding(sharding.devices, spec.chunked())
    for device, index in chunked.devices_indices_map(shape).items():
        np.testing.assert_array_equal(whole[index].ravel(), whole[found[device]].ravel())
    if sum(isinstance(entry, Unstacked) for entry in spec.sharding) == 1:
        assert {whole[index].shape for index in found.values()} == {sharding.shard_shape(shape)}


# What cannot be -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("do", "slug", "text"),
    [
        (lambda s: s.shard_shape((16, 4)), "mapped-size", "dimension 0 of shape (16, 4) has 16"),
        (lambda s: s.shard_shape((16, 4)), "mapped-size", "reshape the array to (8, 2, 4)"),
        (lambda s: s.shard_shape((4, 4)), "mapped-size", "has 4 elements and is mapped over 8"),
        (lambda s: s.devices_indices_map((9, 4)), "mapped-size", "make it 8"),
        (lambda s: s.shard_shape((8,)), "rank-mismatch", "has 2 dimensions, the value has 1"),
        (lambda s: s.addressable_devices_indices_map((8, 2, 3)), "rank-mismatch", "value has 3"),
        (lambda s: s.check_compatible_aval((8, 4, 1)), "rank-mismatch", "the value has 3"),
        (lambda s: s.to_mhlo(3), "rank-mismatch", "the value has 3"),
        (lambda s: s.sharding_spec.indices((9, 4)), "indivisible", "9 elements into 8 pieces"),
        (lambda s: s.is_equivalent_to(8, 2), "abstract-type", "a sharding is needed, not int"),
        (lambda s: s.with_memory_kind("disk"), "memory-kind", "no memory of kind 'disk'"),
        (
            lambda s: PmapSharding(jax.devices()[:4], ROWS),
            "device-count",
            "for 8 devices, and got 4",
        ),
        (lambda s: PmapSharding([], ROWS), "not-enough-devices", "needs at least 1 device"),
        (lambda s: PmapSharding(jax.devices(), "rows"), "abstract-type", "not str 'rows'"),
        (lambda s: PmapSharding([1, 2], ROWS), "abstract-type", "at 0 stands int 1"),
        (lambda s: PmapSharding(jax.devices()[:1] * 8, ROWS), "duplicate-device", "stands twice"),
        (lambda s: PmapSharding.default((8,), 1), "unknown-dimension", "has 1 dimensions"),
        (lambda s: PmapSharding.default((8,), -1), "unknown-dimension", "sharded_dim is -1"),
        (lambda s: PmapSharding.default(()), "unknown-dimension", "sharded_dim=None"),
        (lambda s: PmapSharding.default((8,), None), "device-count", "how many copies"),
        (lambda s: PmapSharding.default((16,)), "not-enough-devices", "16 elements, one a device"),
        (lambda s: PmapSharding.default((8,), 0, jax.devices()[:4]), "mapped-size", "over 4"),
        (
            lambda s: PmapSharding.from_jax(NamedSharding(Mesh.of(x=8), P("x")), (8,)),
            "device-free",
            "no devices to map over",
        ),
        (
            lambda s: PmapSharding.from_jax(PositionalSharding(jax.devices()), (16,)),
            "mapped-size",
            "has 16 elements and is mapped over 8 devices",
        ),
        (
            lambda s: PmapSharding.from_hlo(
                HloSharding.parse("{devices=[8]0,1,2,3,4,5,7,6}"), jax.devices(), (8,)
            ),
            "not-expressible",
            "no mapping of dimensions",
        ),
        (
            lambda s: PmapSharding.from_hlo(
                HloSharding.parse("{devices=[4]<=[4]}"), jax.devices(), (4,)
            ),
            "device-count",
            "is for 4 devices, there are 8",
        ),
    ],
)
def test_refused(sharding, do, slug, text):
    found, message = refused(lambda: do(sharding))
    assert found == slug
    assert text in message


def test_a_device_of_another_backend():
    other = importlib.import_module("jaxlib.xla_client").make_cpu_client().devices()
    found, _ = refused(lambda: PmapSharding([*jax.devices()[:4], *other[4:8]], ROWS))
    assert found == "mixed-backends"
