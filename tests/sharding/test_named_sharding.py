"""NamedSharding: JAX's class and ours are one value."""

import copy
import pickle

import jax
import pytest
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import NamedSharding as JaxNamed
from jax.sharding import PartitionSpec as JaxSpec

import shardpass.sharding
from shardpass.canon import TensorSharding
from shardpass.diagnostics import ShardingError
from shardpass.sharding import Mesh, NamedSharding, P, PartitionSpec, SingleDeviceSharding


def refused(slug, make, *words):
    with pytest.raises(ShardingError) as caught:
        make()
    assert caught.value.slug == slug
    for word in words:
        assert word in str(caught.value)


def test_equals_jax_both_ways_with_one_hash(mesh):
    ours = NamedSharding(mesh, P("x", "y"))
    theirs = JaxNamed(mesh.to_jax(), JaxSpec("x", "y"))
    assert ours == theirs
    assert theirs == ours
    assert hash(ours) == hash(theirs)
    assert {ours: 1}[theirs] == 1
    assert isinstance(ours, JaxNamed)
    assert isinstance(ours, shardpass.sharding.Sharding)
    assert not isinstance(theirs, shardpass.sharding.Sharding)
    assert type(ours.to_jax()) is JaxNamed
    assert ours.to_jax() == ours
    assert NamedSharding.from_jax(theirs) == ours
    assert type(NamedSharding.from_jax(theirs)) is NamedSharding
    assert NamedSharding.from_jax(ours) is ours


def test_unequal_as_in_jax(mesh):
    ours = NamedSharding(mesh, P("x"))
    for other in (
        JaxNamed(mesh.to_jax(), JaxSpec("x", None)),
        JaxNamed(mesh.to_jax(), JaxSpec("x"), memory_kind="pinned_host"),
        NamedSharding(mesh.update(axis_types=AxisType.Explicit), P("x")),
        NamedSharding(mesh.without_devices(), P("x")),
    ):
        assert ours != other
        assert other != ours
    assert ours.is_equivalent_to(NamedSharding(mesh, P("x", None)), 2)


def test_takes_jax_own_objects(mesh):
    assert NamedSharding(mesh.to_jax(), JaxSpec("x")) == NamedSharding(mesh, P("x"))
    free = AbstractMesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    assert NamedSharding(free, JaxSpec("x")) == NamedSharding(Mesh.of(x=2, y=4), P("x"))


def test_gives_back_mesh_and_spec_as_ours(mesh):
    sharding = NamedSharding(mesh.to_jax(), JaxSpec("x"))
    assert type(sharding.mesh) is Mesh
    assert sharding.mesh == mesh
    assert type(sharding.spec) is PartitionSpec
    assert isinstance(sharding.spec, tuple)
    assert sharding.spec == P("x")


def test_members(mesh):
    sharding = NamedSharding(mesh, P("x"))
    assert sharding.device_set == set(jax.devices())
    assert sharding.addressable_devices == set(jax.devices())
    assert sharding.device_order == tuple(jax.devices())
    assert sharding.num_devices == 8
    assert sharding.is_fully_addressable
    assert not sharding.is_fully_replicated
    assert NamedSharding(mesh, P(None)).is_fully_replicated
    assert sharding.memory_kind == "device"
    assert sharding.manual_axes == ()
    assert sharding.canonical(2) == TensorSharding.build(mesh.mesh_shape, [["x"], []])
    assert sharding.to_sdy(2) == '#sdy.sharding<mesh<["x"=2, "y"=4]>, [{"x"}, {}]>'
    assert sharding.to_mhlo(2) == "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"


def test_open_dimensions(mesh):
    sharding = NamedSharding(mesh, P(P.UNCONSTRAINED, "x"))
    assert sharding.to_sdy(3) == '#sdy.sharding<mesh<["x"=2, "y"=4]>, [{?}, {"x"}, {}]>'
    assert sharding.to_mhlo(2) == "{devices=[1,2,4]<=[8] last_tile_dim_replicate}"


def test_axes_of_size_one_stay_in_names_and_vanish_in_tiles():
    mesh = Mesh.of(x=1, y=8, z=1)
    assert NamedSharding(mesh, P("x")).to_mhlo(2) == "{replicated}"
    assert NamedSharding(mesh, P("x")).to_sdy(1) == (
        '#sdy.sharding<mesh<["x"=1, "y"=8, "z"=1]>, [{"x"}]>'
    )
    assert NamedSharding(mesh, P("x", "y", "z")).to_mhlo(3) == "{devices=[1,8,1]<=[8]}"


def test_manual_axes_lower_as_jax_does():
    types = (AxisType.Manual, AxisType.Auto)
    sharding = NamedSharding(Mesh.of(x=2, y=4, axis_types=types), P(None, "y"))
    assert sharding.manual_axes == ("x",)
    assert sharding.to_mhlo(2) == "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dims={manual}}"


def test_unreduced_axes_need_explicit_ones(explicit_mesh, mesh):
    sharding = NamedSharding(explicit_mesh, P("x", unreduced={"y"}))
    assert sharding.to_mhlo(1) == "{devices=[2,4]<=[8] last_tile_dims={unreduced}}"
    assert sharding.to_sdy(1) == ('#sdy.sharding<mesh<["x"=2, "y"=4]>, [{"x"}], unreduced={"y"}>')
    assert NamedSharding(explicit_mesh, P(None, unreduced={"x", "y"})).to_mhlo(1) == "{unreduced}"
    assert not NamedSharding(explicit_mesh, P(unreduced={"y"})).is_fully_replicated
    refused(
        "bad-spec",
        lambda: NamedSharding(mesh, P("x", unreduced={"y"})),
        'axis "y" is Auto',
        "unreduced",
    )
    refused("bad-spec", lambda: NamedSharding(mesh, P("x", reduced={"y"})), "reduced")


@pytest.mark.parametrize(
    ("slug", "make", "words"),
    [
        ("unknown-axis", lambda m: NamedSharding(m, P("z")), ['"z"', "x=2, y=4"]),
        ("unknown-axis", lambda m: NamedSharding(m, P(("x", "z"))), ['"z"', "('x', 'z')"]),
        ("unknown-axis", lambda m: NamedSharding(m, P(unreduced={"z"})), ['"z"']),
        ("unknown-axis", lambda m: NamedSharding(m, P(reduced={"z"})), ['"z"']),
        ("duplicate-axis", lambda m: NamedSharding(m, P("x", "x")), ['"x"', "0", "1"]),
        ("duplicate-axis", lambda m: NamedSharding(m, P(("x", "x"))), ['"x"']),
        ("abstract-type", lambda m: NamedSharding(m, ("x",)), ["tuple", "PartitionSpec('x')"]),
        ("abstract-type", lambda m: NamedSharding(m, None), ["PartitionSpec()"]),
        ("abstract-type", lambda m: NamedSharding("mesh", P("x")), ["str"]),
        ("memory-kind", lambda m: NamedSharding(m, P(), memory_kind="ram"), ["'ram'", "device"]),
        ("memory-kind", lambda m: NamedSharding(m, P(), memory_kind=3), ["3"]),
        (
            "memory-kind",
            lambda m: NamedSharding(m.without_devices(), P(), memory_kind="pined_host"),
            ['did you mean "pinned_host"?'],
        ),
        (
            "memory-kind",
            lambda m: NamedSharding(m, P()).with_memory_kind("hbm"),
            ["'hbm'", "pinned_host"],
        ),
    ],
)
def test_refuses_what_cannot_be(slug, make, words, mesh):
    refused(slug, lambda: make(mesh), *words)


def test_open_dimensions_need_an_auto_axis(explicit_mesh):
    refused("bad-spec", lambda: NamedSharding(explicit_mesh, P(P.UNCONSTRAINED)), "Auto")


def test_an_indivisible_dimension_is_named_with_its_numbers(mesh):
    sharding = NamedSharding(mesh, P(None, ("x", "y")))
    for ask in (sharding.shard_shape, sharding.devices_indices_map):
        refused("indivisible", lambda ask=ask: ask((3, 12)), "dimension 1", "12", "8 pieces", "16")


@pytest.mark.parametrize("shape", [(8,), ()])
def test_a_spec_longer_than_the_rank(mesh, shape):
    sharding = NamedSharding(mesh, P("x", None))
    for ask in (
        sharding.shard_shape,
        sharding.devices_indices_map,
        sharding.check_compatible_aval,
        lambda shape: sharding.to_mhlo(len(shape)),
        lambda shape: sharding.to_sdy(len(shape)),
        lambda shape: sharding.is_equivalent_to(NamedSharding(mesh, P()), len(shape)),
    ):
        words = "PartitionSpec('x', None) speaks of 2 dimensions", f"the value has {len(shape)}"
        refused("rank-mismatch", lambda ask=ask: ask(shape), *words)


@pytest.mark.parametrize("member", ["device_set", "addressable_devices", "is_fully_addressable"])
def test_without_devices(member):
    sharding = NamedSharding(Mesh.of(data=2, model=4), P("data"))
    assert sharding.shard_shape((8, 3)) == (4, 3)
    assert sharding.num_devices == 8
    assert sharding.memory_kind is None
    refused("device-free", lambda: getattr(sharding, member), member, "bind")
    refused("device-free", lambda: sharding.devices_indices_map((8,)), "bind")


def test_equivalence(mesh, devices):
    both = NamedSharding(mesh, P("x", "y"))
    merged = NamedSharding(Mesh(devices.reshape(8), "z"), P("z"))
    assert NamedSharding(mesh, P(("x", "y"))).is_equivalent_to(merged, 1)
    assert NamedSharding(mesh, P(("x", "y"))).is_equivalent_to(merged.to_jax(), 1)
    assert not NamedSharding(mesh, P(("y", "x"))).is_equivalent_to(merged, 1)
    assert not both.is_equivalent_to(both.with_memory_kind("pinned_host"), 2)
    backwards = NamedSharding(Mesh(devices[::-1, ::-1], ("x", "y")), P("x", "y"))
    assert both.to_mhlo(2) == backwards.to_mhlo(2)
    assert not both.is_equivalent_to(backwards, 2)
    free = NamedSharding(mesh.without_devices(), P("x", "y"))
    assert not free.is_equivalent_to(both, 2)
    assert not both.is_equivalent_to(free, 2)
    assert free.is_equivalent_to(NamedSharding(Mesh.of(x=2, y=4), P("x", ("y",))), 2)
    assert not both.is_equivalent_to(SingleDeviceSharding(jax.devices()[0]), 2)
    lone = NamedSharding(Mesh(devices[:1, :1], ("x", "y")), P("x"))
    assert lone.is_equivalent_to(SingleDeviceSharding(jax.devices()[0]), 2)
    refused("abstract-type", lambda: both.is_equivalent_to("x", 2), "str")


def test_equivalent_to_what_xla_names(mesh):
    import jax.extend.sharding as extend

    xla = extend.GSPMDSharding(tuple(jax.devices()), _hlo("{devices=[4,2]<=[2,4]T(1,0)}"))
    assert NamedSharding(mesh, P("y", "x")).is_equivalent_to(xla, 2)
    assert xla.is_equivalent_to(NamedSharding(mesh, P("y", "x")), 2)
    assert not NamedSharding(mesh, P("x", "y")).is_equivalent_to(xla, 2)


def _hlo(text):
    import jax.extend.sharding as extend

    return type(extend.get_hlo_sharding_from_serialized_proto(b"")).from_string(text)


def test_replicated_on_a_partial_axis_is_equivalent_in_any_order():
    one = NamedSharding(Mesh.of(a=2, b=2, c=2), P("b"))
    other = NamedSharding(Mesh.of(a=2, b=2, c=2), P(("b",), None))
    assert one.is_equivalent_to(other, 2)


def test_the_map_belongs_to_the_caller(mesh):
    sharding = NamedSharding(mesh, P("x"))
    first = sharding.devices_indices_map((8,))
    first.clear()
    assert len(sharding.devices_indices_map((8,))) == 8
    assert len(sharding.addressable_devices_indices_map((8,))) == 8


def test_update_and_memory_kind(mesh):
    sharding = NamedSharding(mesh, P("x"), memory_kind="pinned_host")
    assert sharding.update(spec=P("y")).memory_kind == "pinned_host"
    assert sharding.update(spec=("y", None)).spec == P("y", None)
    assert sharding.update(mesh=mesh.update(axis_types=AxisType.Explicit)).spec == P("x")
    moved = sharding.with_memory_kind("device")
    assert (moved.memory_kind, moved.spec, type(moved)) == ("device", P("x"), NamedSharding)


def test_copies_and_pickles(mesh):
    sharding = NamedSharding(mesh, P("x", None), memory_kind="pinned_host")
    for again in (copy.copy(sharding), copy.deepcopy([sharding])[0]):
        assert again == sharding
        assert type(again) is NamedSharding
    free = NamedSharding(Mesh.of(data=2, model=4), P("data", None), memory_kind="device")
    again = pickle.loads(pickle.dumps(free))
    assert again == free
    assert type(again) is NamedSharding
    assert again.to_mhlo(2) == "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"
    assert pickle.loads(pickle.dumps(sharding)) == sharding


def test_shows_itself(mesh):
    assert repr(NamedSharding(mesh, P("x"))) == (
        "NamedSharding(Mesh('x': 2, 'y': 4), PartitionSpec('x'), memory_kind='device')"
    )
    assert repr(NamedSharding(Mesh.of(data=2), P())) == (
        "NamedSharding(Mesh('data': 2, no devices), PartitionSpec())"
    )
