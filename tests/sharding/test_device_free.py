"""DeviceFreeSharding: what is left of the classes of numbered devices where those are not."""

import pickle

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding as JaxNamed

import shardpass.sharding
from shardpass.canon import TensorSharding
from shardpass.diagnostics import ShardingError
from shardpass.sharding import (
    DeviceFreeSharding,
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
from tests.sharding.saved_examples import shardings

NUMBERED = [name for name in shardings() if not name.startswith("named")]
X = np.arange(64, dtype=np.float32).reshape(8, 8)


def away(value):
    """``value`` as it is loaded where no device of its platform is."""
    return from_json(to_json(value).replace('"platform": "cpu"', '"platform": "tpu"'))


@pytest.fixture
def tiles():
    return away(GSPMDSharding(jax.devices()[::-1], "{devices=[4,2]<=[8]}"))


def refused(make, *words):
    with pytest.raises(ShardingError) as caught:
        make()
    for word in words:
        assert word in str(caught.value)
    return caught.value.slug


def test_what_it_is(tiles):
    assert type(tiles) is DeviceFreeSharding
    assert isinstance(tiles, jax.sharding.Sharding)
    assert isinstance(tiles, shardpass.sharding.Sharding)
    assert jax.tree.leaves({"a": tiles}) == [tiles]


def test_members_that_need_no_devices(tiles):
    assert tiles.num_devices == 8
    assert tiles.memory_kind == "device"
    assert not tiles.is_fully_replicated
    assert tiles.is_device_free
    assert tiles.shard_shape((8, 6)) == (2, 3)
    assert tiles.to_mhlo(2) == "{devices=[4,2]<=[8]}"
    assert tiles.to_sdy(2) == (
        '#sdy.sharding<mesh<["_axis_0"=4, "_axis_1"=2]>, [{"_axis_0"}, {"_axis_1"}]>'
    )
    assert tiles.canonical(2) == TensorSharding.parse(tiles.to_sdy(2))
    assert str(tiles.recorded_devices) == "tpu:7..0"
    assert list(tiles.recorded_devices)[:2] == [("tpu", 7), ("tpu", 6)]
    assert tiles.with_memory_kind("pinned_host").memory_kind == "pinned_host"


def test_errors_of_shapes_are_those_of_the_live_sharding(tiles):
    live = GSPMDSharding(jax.devices(), "{devices=[4,2]<=[8]}")
    for shape in ((6, 2), (8,), (8, 8, 8)):
        for member in ("shard_shape", "check_compatible_aval"):
            assert refused(lambda s=shape, m=member: getattr(tiles, m)(s)) in (
                "indivisible",
                "rank-mismatch",
            )
        with pytest.raises(ShardingError) as theirs:
            live.shard_shape(shape)
        with pytest.raises(ShardingError) as ours:
            tiles.shard_shape(shape)
        assert ours.value.diagnostic == theirs.value.diagnostic


def test_a_memory_kind_that_no_device_has(tiles):
    assert refused(lambda: tiles.with_memory_kind("pined_host"), "pinned_host") == "memory-kind"


@pytest.mark.parametrize(
    "member",
    [
        "device_order",
        "device_set",
        "addressable_devices",
        "is_fully_addressable",
        "has_addressable_devices",
    ],
)
@pytest.mark.parametrize("name", ["single", "gspmd", "positional", "pmap", "pmap unstacked"])
def test_members_that_need_devices(name, member):
    sharding = away(shardings()[name][0])
    kind = type(shardings()[name][0]).__name__
    slug = refused(lambda: getattr(sharding, member), kind, f"no {member}", "on tpu:", "bind()")
    assert slug == "device-free"


@pytest.mark.parametrize("member", ["devices_indices_map", "addressable_devices_indices_map"])
@pytest.mark.parametrize("name", ["gspmd", "pmap unstacked"])
def test_index_maps_need_devices(name, member):
    """Whatever the shape: that there are no devices is said first."""
    sharding = away(shardings()[name][0])
    assert refused(lambda: getattr(sharding, member)((3,)), member) == "device-free"


ROADS = {
    "device_put": lambda s, x: jax.device_put(x, s),
    "in_shardings": lambda s, x: jax.jit(lambda a: a, in_shardings=s)(x),
    "out_shardings": lambda s, x: jax.jit(lambda a: a, out_shardings=s)(x),
    "constraint": lambda s, x: jax.jit(lambda a: jax.lax.with_sharding_constraint(a, s))(x),
    "eager constraint": lambda s, x: jax.lax.with_sharding_constraint(x, s),
    "callback": lambda s, x: jax.make_array_from_callback(x.shape, s, lambda index: x[index]),
    "aot": lambda s, x: jax.jit(lambda a: a).lower(
        jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s)
    ),
}


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("name", NUMBERED)
def test_jax_is_told_that_there_are_no_devices(name, road):
    sharding, shape = shardings()[name]
    loaded = away(sharding)
    x = np.zeros(shape, np.float32)
    slug = refused(lambda: ROADS[road](loaded, x), "has no devices here", "saved on tpu:")
    assert slug == "device-free"


def test_shapes_can_carry_it(tiles):
    struct = jax.ShapeDtypeStruct((8, 8), np.float32, sharding=tiles)
    assert struct.sharding is tiles


def test_equality_is_by_all_that_it_holds(tiles):
    def tpu(devices, text="{devices=[4,2]<=[8]}", **options):
        return away(GSPMDSharding(devices, text, **options))

    same = tpu(jax.devices()[::-1])
    assert tiles == same
    assert hash(tiles) == hash(same)
    assert {tiles: 1}[same] == 1
    for other in (
        tpu(jax.devices()),
        tpu(jax.devices()[::-1], "{devices=[2,4]<=[8]}"),
        tpu(jax.devices()[::-1], memory_kind="pinned_host"),
        away(PositionalSharding(jax.devices()[::-1]).reshape(4, 2)),
        GSPMDSharding(jax.devices()[::-1], "{devices=[4,2]<=[8]}"),
        "tiles",
    ):
        assert tiles != other
        assert other != tiles


def test_equivalence_is_by_the_numbers_of_devices(tiles):
    live = GSPMDSharding(jax.devices()[::-1], "{devices=[4,2]<=[8]}")
    named = NamedSharding(Mesh.of(a=4, b=2), P("a", "b"), memory_kind="device")
    for other in (
        away(PositionalSharding(jax.devices()).reshape(4, 2)),
        away(GSPMDSharding(jax.devices(), "{devices=[4,2]0,1,2,3,4,5,6,7}")),
        named,
    ):
        assert tiles.is_equivalent_to(other, 2)
        assert other.is_equivalent_to(tiles, 2)
    for other in (
        live,
        tiles.with_memory_kind("pinned_host"),
        away(GSPMDSharding(jax.devices(), "{devices=[2,4]<=[8]}")),
        named.update(spec=P("b", "a")),
        away(PmapSharding.default((8, 3))),
        away(shardings()["pmap unstacked"][0]),
        away(SingleDeviceSharding(jax.devices()[0])),
    ):
        assert not tiles.is_equivalent_to(other, 2)
        assert not other.is_equivalent_to(tiles, 2)
    assert not tiles.is_equivalent_to(live.to_jax(), 2)
    # JAX's own asks for the devices of both.
    assert refused(lambda: live.to_jax().is_equivalent_to(tiles, 2)) == "device-free"
    assert refused(lambda: tiles.is_equivalent_to("x", 2), "str") == "abstract-type"


def test_a_mapping_that_has_no_tiles_is_equivalent_to_itself_alone():
    sharding, shape = shardings()["pmap unstacked"]
    loaded = away(sharding)
    assert loaded.is_equivalent_to(away(sharding), len(shape))
    assert not loaded.is_equivalent_to(away(PmapSharding.default(shape, 0)), len(shape))
    assert refused(lambda: loaded.to_mhlo(len(shape)), "Chunked") == "not-expressible"
    assert loaded.shard_shape(shape) == sharding.shard_shape(shape)


def test_what_only_the_live_class_has(tiles):
    positional = away(PositionalSharding(jax.devices()))
    with pytest.raises(AttributeError, match="'reshape': PositionalSharding has, and bind"):
        _ = positional.reshape
    with pytest.raises(AttributeError, match=r"no attribute 'colour'$"):
        _ = positional.colour
    assert not hasattr(tiles, "mesh")
    assert getattr(tiles, "spec", None) is None


@pytest.mark.parametrize("name", NUMBERED)
def test_bind_gives_the_class_back(name):
    sharding, _ = shardings()[name]
    order = sharding.device_order
    bound = away(sharding).bind(order)
    assert bound == sharding
    assert type(bound) is type(sharding)
    turned = away(sharding).bind(order[::-1])
    assert turned.device_order == order[::-1]
    assert sharding.bind() is sharding
    assert sharding.bind(order[::-1]) == turned
    assert turned.memory_kind == sharding.memory_kind


def test_what_is_bound_places_arrays(tiles):
    bound = tiles.bind(jax.devices())
    placed = jax.device_put(X, bound)
    np.testing.assert_array_equal(placed, X)
    third = next(s for s in placed.addressable_shards if s.device == jax.devices()[3])
    assert third.index == (slice(2, 4), slice(4, 8))


def test_bind_says_what_is_wrong(tiles):
    assert refused(tiles.bind, "tpu:7..0", "8 are not here", "cpu:0..7") == "missing-devices"
    few = refused(lambda: tiles.bind(jax.devices()[:3]), "3 devices", "GSPMDSharding of 8")
    assert few == "device-count"
    twice = [*jax.devices()[:7], jax.devices()[0]]
    assert refused(lambda: tiles.bind(twice), "0 and 7") == "duplicate-device"
    assert refused(lambda: tiles.bind([3] * 8), "3") == "abstract-type"
    single = SingleDeviceSharding(jax.devices()[3])
    assert refused(lambda: single.bind(jax.devices()), "SingleDeviceSharding of 1") == (
        "device-count"
    )


def test_shows_itself(tiles):
    assert repr(tiles) == (
        "DeviceFreeSharding(GSPMDSharding {devices=[4,2]<=[8]}, saved on tpu:7..0, "
        "memory_kind='device')"
    )
    assert repr(away(SingleDeviceSharding(jax.devices()[3]))) == (
        "DeviceFreeSharding(SingleDeviceSharding, saved on tpu:3, memory_kind='device')"
    )
    assert repr(away(PositionalSharding(jax.devices()).reshape(4, 2))) == (
        "DeviceFreeSharding(PositionalSharding of shape (4, 2), saved on tpu:0..7, "
        "memory_kind='device')"
    )


def test_a_long_record_is_cut_short():
    tiles = (
        '{"class": "GSPMDSharding", "version": 1, "op_sharding": "{devices=[1024]<=[1024]}", '
        '"devices": [{"platform": "tpu", "ids": "%s"}]}'
    )
    numbers = ", ".join(str(number ^ 1) for number in range(1024))
    loaded = from_json(tiles % numbers)
    assert repr(loaded).endswith("... (1024 devices))")
    assert len(repr(loaded)) < 250
    assert pickle.loads(pickle.dumps(loaded)) == loaded


def test_meshes_and_named_shardings_without_devices_are_jax_own_in_all_they_say(mesh):
    """The record is beside what JAX holds, and no part of it."""
    loaded, named = away(mesh), away(NamedSharding(mesh, P("x")))
    assert loaded == mesh.without_devices()
    assert hash(loaded) == hash(mesh.without_devices())
    assert loaded.to_jax() is mesh.without_devices().to_jax()
    assert str(loaded) == str(mesh.without_devices())
    assert mesh.recorded_devices is mesh.without_devices().recorded_devices is None
    assert named == JaxNamed(mesh.without_devices().to_jax(), P("x"), memory_kind="device")
    assert str(named.mesh.recorded_devices) == "tpu:0..7"
    assert named.with_memory_kind("pinned_host").mesh.recorded_devices is not None
    assert refused(loaded.bind, "tpu:0..7", "8 are not here") == "missing-devices"
    assert loaded.without_devices().bind() == mesh
    assert mesh.bind() is mesh
    assert NamedSharding(mesh, P("x")).bind(jax.devices()[::-1]).mesh.device_ids.tolist() == [
        [7, 6, 5, 4],
        [3, 2, 1, 0],
    ]
