"""``PositionalSharding``: an array of devices that is shaped, turned and joined like any array."""

import importlib
import math

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding as JaxNamed
from strategies import factorisations

from shardpass import canon
from shardpass.canon import HloSharding
from shardpass.sharding import Mesh, NamedSharding, P, PositionalSharding, Sharding
from tests.sharding.dropped import positional_shardings, refused


@pytest.fixture
def sharding():
    return PositionalSharding(jax.devices()).reshape(2, 4)


def ids_in(sharding):
    """The sorted device ids of each place, shaped like the sharding."""
    order = [device.id for device in sharding.device_order]
    found = np.empty(sharding.shape, dtype=object)
    for place in np.ndindex(sharding.shape):
        found[place] = sorted(order[position] for position in sharding._held[place])
    return found


# Shape, order, copies -----------------------------------------------------------------------------


@pytest.mark.parametrize("given_shape", [(8,), (2, 4), (1, 8, 1), (2, 2, 2), ()])
def test_an_array_of_devices_gives_the_shape(given_shape):
    devices = np.array(jax.devices()[: math.prod(given_shape)]).reshape(given_shape)
    for given_devices in (devices, devices.tolist()):
        sharding = PositionalSharding(given_devices)
        assert (sharding.shape, sharding.ndim) == (given_shape, len(given_shape))
        assert sharding.device_order == tuple(devices.flat)


@pytest.mark.parametrize(
    ("arguments", "shape"),
    [
        ((8,), (8,)),
        ((-1,), (8,)),
        ((4, 2), (4, 2)),
        (((4, 2),), (4, 2)),
        (([4, -1],), (4, 2)),
        ((2, -1, 2), (2, 2, 2)),
        ((1, 8, 1, 1), (1, 8, 1, 1)),
        ((np.array([4, 2]),), (4, 2)),
        ((np.int64(2), 4), (2, 4)),
    ],
)
def test_reshape(sharding, arguments, shape):
    reshaped = sharding.reshape(*arguments)
    assert reshaped.shape == shape
    np.testing.assert_array_equal(ids_in(reshaped).ravel(), ids_in(sharding).ravel())


def test_reshape_to_no_dimensions():
    whole = PositionalSharding(jax.devices()).replicate()
    assert whole.reshape().shape == whole.reshape(()).shape == whole.reshape([]).shape == ()


@pytest.mark.parametrize(
    ("arguments", "order"),
    [
        ((), (2, 1, 0)),
        ((None,), (2, 1, 0)),
        ((1, 2, 0), (1, 2, 0)),
        (((1, 2, 0),), (1, 2, 0)),
        (([-1, 0, -2],), (2, 0, 1)),
    ],
)
def test_transpose(arguments, order):
    sharding = PositionalSharding(jax.devices()).reshape(4, 1, 2)
    turned = sharding.transpose(*arguments)
    assert (ids_in(turned) == ids_in(sharding).transpose(order)).all()
    assert turned.device_order == sharding.device_order


def test_t_is_transpose(sharding):
    assert sharding.T == sharding.transpose() != sharding
    assert sharding == sharding.T.T


@pytest.mark.parametrize(
    ("axis", "kept", "dropped", "text"),
    [
        (0, (1, 4), (4,), "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}"),
        (1, (2, 1), (2,), "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"),
        (-1, (2, 1), (2,), "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"),
        ((0, 1), (1, 1), (), "{replicated}"),
        ([1, 0], (1, 1), (), "{replicated}"),
        (None, (1, 1), (), "{replicated}"),
        ((), (2, 4), (2, 4), "{devices=[2,4]<=[8]}"),
    ],
)
def test_replicate(sharding, axis, kept, dropped, text):
    assert sharding.replicate(axis).shape == kept
    assert sharding.replicate(axis).to_mhlo(2) == text
    assert sharding.replicate(axis, keepdims=False).shape == dropped
    assert sharding.replicate(axis, False) == sharding.replicate(axis).reshape(dropped)


def test_the_rows_of_the_report_on_lists():
    """Edge case E47: the old JAX wrote lists, ours writes formulas that say the same."""
    sharding = PositionalSharding(jax.devices()).reshape(2, 4)
    for found, listed, text in (
        (sharding, "[2,4]0,1,2,3,4,5,6,7", "{devices=[2,4]<=[8]}"),
        (sharding.T, "[4,2]0,4,1,5,2,6,3,7", "{devices=[4,2]<=[2,4]T(1,0)}"),
        (
            sharding.replicate(0).T,
            "[4,1,2]0,4,1,5,2,6,3,7 last_tile_dim_replicate",
            "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
        ),
    ):
        assert found.to_mhlo(2) == text
        assert found.canonical_hlo(2) == HloSharding.parse(f"{{devices={listed}}}")


def test_an_order_that_no_mesh_has_is_listed():
    listed = HloSharding.parse("{devices=[4,2]0,1,2,3,4,5,7,6}")
    sharding = PositionalSharding.from_hlo(listed, jax.devices())
    assert sharding.to_mhlo(2) == str(listed)
    assert sharding.canonical(2).mesh.device_ids == (0, 1, 2, 3, 4, 5, 7, 6)
    indices = sharding.devices_indices_map((4, 2))
    assert list(indices) == jax.devices()
    assert indices[jax.devices()[6]] == (slice(3, 4), slice(1, 2))


def test_memory_kind_is_kept_throughout(sharding):
    hosted = sharding.with_memory_kind("pinned_host")
    assert hosted.shape == (2, 4)
    for done in (
        hosted.reshape(8),
        hosted.transpose(),
        hosted.T,
        hosted.replicate(),
        hosted.replicate(0, keepdims=False),
        PositionalSharding(jax.devices(), memory_kind="pinned_host").reshape(4, 2),
    ):
        assert done.memory_kind == "pinned_host"
        assert ", memory_kind=pinned_host, shape=" in repr(done)
    assert hosted != sharding
    assert not hosted.is_equivalent_to(sharding, 2)
    assert hosted.with_memory_kind("device") == sharding
    placed = jax.device_put(np.ones((2, 4)), hosted)
    assert placed.sharding.memory_kind == "pinned_host"


def test_memory_kind_left_out_is_the_default_of_the_devices(sharding):
    default = jax.devices()[0].default_memory().kind
    assert sharding.memory_kind == default
    assert PositionalSharding(jax.devices(), memory_kind=default).reshape(2, 4) == sharding


def test_repr_of_many_places_is_short():
    sharding = PositionalSharding(jax.devices())
    sharding._held = np.tile(np.arange(8), 256).reshape(2048, 1)
    assert len(repr(sharding)) < 200
    with np.printoptions(threshold=3, linewidth=20):
        assert repr(PositionalSharding(jax.devices()[:4])) == (
            "PositionalSharding([{CPU 0} {CPU 1} {CPU 2} {CPU 3}], memory_kind="
            f"{jax.devices()[0].default_memory().kind}, shape=(4,))"
        )


# Equality -----------------------------------------------------------------------------------------


def test_equal_are_the_same_places_of_the_same_devices(sharding):
    devices = np.array(jax.devices()).reshape(2, 4)
    same = PositionalSharding(devices)
    assert sharding == same
    assert hash(sharding) == hash(same)
    assert {sharding: 1}[same] == 1
    assert PositionalSharding(devices.T) != sharding.T  # the devices come in another order
    for other in (
        sharding.T,
        sharding.reshape(8),
        sharding.reshape(2, 4, 1),
        sharding.replicate(0),
        PositionalSharding(devices[::-1]),
        PositionalSharding(devices[:1]),
    ):
        assert sharding != other
        assert other != sharding


def test_equal_are_only_objects_of_the_class(sharding, mesh):
    named = NamedSharding(mesh, P("x", "y"))
    for other in (named, named.to_jax(), None, "PositionalSharding", sharding.to_jax()):
        assert sharding != other
        assert other != sharding
    assert isinstance(sharding, (Sharding, jax.sharding.Sharding))


def test_equivalent_to_other_notations(sharding, mesh):
    for positional, spec in (
        (sharding, P("x", "y")),
        (sharding.T, P("y", "x")),
        (sharding.replicate(0), P(None, "y")),
        (sharding.replicate(1), P("x")),
        (sharding.replicate(), P()),
        (sharding.reshape(8, 1), P(("x", "y"))),
        (sharding.T.reshape(1, 8), P(None, ("y", "x"))),
    ):
        for other in (P("x", "y"), P("y", "x"), P(None, "y"), P("x"), P(), P(("x", "y"))):
            named = NamedSharding(mesh, other)
            expected = named.is_equivalent_to(NamedSharding(mesh, spec), 2)
            for target in (named, named.to_jax()):
                assert positional.is_equivalent_to(target, 2) == expected
                assert target.is_equivalent_to(positional, 2) == expected


def test_the_order_of_the_devices_counts(sharding):
    turned = PositionalSharding(jax.devices()[::-1]).reshape(2, 4)
    assert sharding.to_mhlo(2) == turned.to_mhlo(2)
    assert not sharding.is_equivalent_to(turned, 2)
    assert not sharding.replicate().is_equivalent_to(turned.replicate(), 2)


# Members, by law ----------------------------------------------------------------------------------


@given(positional_shardings(), st.data())
def test_shape_and_order_are_those_of_numpy(sharding, data):
    """Whatever is done to it is done to an array of its places."""
    places = ids_in(sharding)
    order = data.draw(st.permutations(range(sharding.ndim)))
    sizes = data.draw(factorisations(math.prod(sharding.shape)))
    assert (ids_in(sharding.transpose(order)) == places.transpose(order)).all()
    assert (ids_in(sharding.T) == places.T).all()
    assert (ids_in(sharding.reshape(sizes)) == places.reshape(sizes)).all()
    axes = data.draw(st.sets(st.integers(0, max(0, sharding.ndim - 1)), max_size=sharding.ndim))
    joined = sharding.replicate(tuple(axes))
    together = places.sum(axis=tuple(axes), keepdims=True) if axes else places
    assert joined.shape == together.shape
    for place in np.ndindex(joined.shape):
        assert ids_in(joined)[place] == sorted(together[place])


@given(positional_shardings(), st.data())
def test_members_agree_with_jax_on_the_named_form(sharding, data):
    """Every derived member is that of JAX's own ``NamedSharding`` with the same layout."""
    named = sharding.to_jax()
    assert type(named) is JaxNamed
    shape = tuple(size * data.draw(st.integers(0, 3)) for size in sharding.shape)
    assert sharding.is_equivalent_to(named, sharding.ndim)
    assert named.is_equivalent_to(sharding, sharding.ndim)
    assert sharding.shard_shape(shape) == named.shard_shape(shape)
    ours, theirs = (s.devices_indices_map(shape) for s in (sharding, named))
    assert list(ours.items()) == list(theirs.items())
    assert sharding.addressable_devices_indices_map(shape) == ours
    assert sharding.device_set == sharding.addressable_devices == named.device_set
    assert sharding.num_devices == named.num_devices == len(sharding.device_order)
    assert sharding.is_fully_replicated == named.is_fully_replicated
    assert sharding.is_fully_addressable
    assert sharding.memory_kind == named.memory_kind


@given(positional_shardings())
def test_notations_say_the_same(sharding):
    """XLA's text, Shardy's text and the canonical form are one layout."""
    ndim = sharding.ndim
    hlo = HloSharding.parse(sharding.to_mhlo(ndim))
    assert hlo == sharding.canonical_hlo(ndim)
    assert canon.is_equivalent(canon.TensorSharding.parse(sharding.to_sdy(ndim)), hlo, ndim)
    assert canon.is_equivalent(sharding.axes_for_shardy(ndim), hlo, ndim)
    assert PositionalSharding.from_hlo(hlo, sharding.device_order).is_equivalent_to(sharding, ndim)
    if sharding.shape[:1] == (1,):  # a leading dimension that is not cut may be missing
        assert sharding.is_equivalent_to(sharding.reshape(sharding.shape[1:]), ndim - 1)


@given(positional_shardings())
def test_there_and_back(sharding):
    """By way of JAX's ``NamedSharding`` it is the same sharding again."""
    back = PositionalSharding.from_jax(sharding.to_jax(), sharding.ndim)
    assert back == sharding
    assert hash(back) == hash(sharding)
    assert PositionalSharding.from_jax(sharding, sharding.ndim) is sharding


def test_all_of_a_power_of_two_share_one_mesh_under_shardy():
    sharding = PositionalSharding(jax.devices())
    forms = [
        sharding.reshape(2, 4),
        sharding.reshape(8, 1),
        sharding.reshape(4, 2).T,
        sharding.reshape(2, 4).replicate(0),
        sharding.replicate(),
    ]
    meshes = {str(form.axes_for_shardy(2).mesh) for form in forms}
    assert meshes == {'<["axis_0"=2, "axis_1"=2, "axis_2"=2]>'}
    assert forms[0].to_sdy(2) == (
        '#sdy.sharding<mesh<["_axis_0"=2, "_axis_1"=4]>, [{"_axis_0"}, {"_axis_1"}]>'
    )


# What cannot be -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("do", "slug", "text"),
    [
        (lambda s: s.reshape(3, 3), "bad-reshape", r"8 tiles of shape (2, 4) cannot .* (3, 3)"),
        (lambda s: s.reshape(-1, 3), "bad-reshape", r"cannot be reshaped into (-1, 3)"),
        (lambda s: s.reshape(-1, -1), "bad-reshape", r"cannot be reshaped into (-1, -1)"),
        (lambda s: s.reshape(-2, -4), "bad-reshape", r"cannot be reshaped into (-2, -4)"),
        (lambda s: s.reshape(0, -1), "bad-reshape", r"cannot be reshaped into (0, -1)"),
        (lambda s: s.reshape(), "bad-reshape", r"cannot be reshaped into (), which has 1"),
        (lambda s: s.reshape(2.0, 4), "abstract-type", "a whole number, not float 2.0"),
        (lambda s: s.reshape("24"), "abstract-type", "a whole number, not str '24'"),
        (lambda s: s.reshape(True, 8), "abstract-type", "a whole number, not bool True"),
        (lambda s: s.transpose(0), "bad-reshape", "(0,) is no order of the 2 dimensions"),
        (lambda s: s.transpose(0, 0), "bad-reshape", "(0, 0) is no order of the 2 dimensions"),
        (lambda s: s.transpose(0, 2), "unknown-dimension", "transpose names dimension 2"),
        (lambda s: s.replicate(2), "unknown-dimension", r"replicate names dimension 2, .* have 2"),
        (lambda s: s.replicate(-3), "unknown-dimension", "replicate names dimension -3"),
        (lambda s: s.replicate((0, -2)), "bad-reshape", "names a dimension more than once"),
        (lambda s: s.replicate("x"), "abstract-type", "a whole number, not str 'x'"),
        (lambda s: s.shard_shape((3, 4)), "indivisible", "dimension 0: 3 elements into 2 pieces"),
        (lambda s: s.devices_indices_map((2, 6)), "indivisible", "dimension 1: 6 elements into 4"),
        (lambda s: s.shard_shape((8,)), "rank-mismatch", "has 2 dimensions .* the value has 1"),
        (lambda s: s.to_mhlo(3), "rank-mismatch", "has 2 dimensions .* the value has 3"),
        (lambda s: s.to_sdy(0), "rank-mismatch", "a value without dimensions cannot be cut"),
        (lambda s: s.check_compatible_aval((8,)), "rank-mismatch", "the value has 1"),
        (lambda s: s.is_equivalent_to(s.T, 3), "rank-mismatch", "the value has 3"),
        (lambda s: s.with_memory_kind("disk"), "memory-kind", "no memory of kind 'disk', only"),
        (lambda s: s.is_equivalent_to(3, 2), "abstract-type", "a sharding is needed, not int"),
    ],
)
def test_refused(sharding, do, slug, text):
    found, message = refused(lambda: do(sharding))
    assert found == slug
    for part in text.split(" .* "):
        assert part in message


@pytest.mark.parametrize(
    ("devices", "slug", "text"),
    [
        (lambda d: [], "not-enough-devices", "PositionalSharding needs at least"),
        (lambda d: np.empty((2, 0), dtype=object), "not-enough-devices", "PositionalSharding"),
        (lambda d: [d[0], d[1], d[0]], "duplicate-device", "stands twice in the list, at 0 and 2"),
        (lambda d: [0, 1], "abstract-type", "at 0 stands int 0"),
        (lambda d: "abc", "abstract-type", "abc"),
        (lambda d: [[d[0]], [d[1], d[2]]], "abstract-type", "at 0 stands"),
        (lambda d: None, "abstract-type", "None"),
    ],
)
def test_devices_that_are_none(devices, slug, text):
    found, message = refused(lambda: PositionalSharding(devices(jax.devices())))
    assert found == slug
    assert text in message


def test_a_device_of_another_backend():
    other = importlib.import_module("jaxlib.xla_client").make_cpu_client().devices()[1]
    found, message = refused(lambda: PositionalSharding([jax.devices()[0], other]))
    assert found == "mixed-backends"
    assert "at 1 is of another backend" in message


def test_a_memory_kind_that_the_devices_lack():
    found, message = refused(lambda: PositionalSharding(jax.devices(), memory_kind="pinned_hots"))
    assert found == "memory-kind"
    assert "no memory of kind 'pinned_hots', only device, pinned_host, unpinned_host" in message
    assert "did you mean" in message


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("{manual}", "not-expressible"),
        ("{unknown}", "not-expressible"),
        ("{maximal device=3}", "not-expressible"),
        ("{devices=[2,4]<=[8] last_tile_dims={unreduced}}", "not-expressible"),
        ("{devices=[2,2]<=[4]}", "device-count"),
        ("{devices=[2,4]0,1,2,3,4,5,6,9}", "device-count"),
    ],
)
def test_tiles_that_are_no_places(text, slug):
    found, message = refused(
        lambda: PositionalSharding.from_hlo(HloSharding.parse(text), jax.devices())
    )
    assert found == slug
    assert text in message


def test_a_sharding_without_devices():
    free = NamedSharding(Mesh.of(x=8), P("x"))
    assert refused(lambda: PositionalSharding.from_jax(free, 1))[0] == "device-free"
