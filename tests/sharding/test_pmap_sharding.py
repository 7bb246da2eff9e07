"""``PmapSharding`` and its spec: what is mapped over which devices, and what JAX can still hold."""

import importlib
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardpass import canon
from shardpass.canon import HloSharding
from shardpass.diagnostics import ShardingError
from shardpass.sharding import (
    Chunked,
    GSPMDSharding,
    Mesh,
    NamedSharding,
    NoSharding,
    P,
    PmapSharding,
    PositionalSharding,
    Replicated,
    ShardedAxis,
    Sharding,
    ShardingSpec,
    Unstacked,
)

X = np.arange(32, dtype=np.float32).reshape(8, 4)
ROWS = ShardingSpec([Chunked([8]), NoSharding()], [ShardedAxis(0)])


@pytest.fixture
def sharding():
    return PmapSharding.default((8, 4))


@pytest.fixture
def unstacked():
    return PmapSharding(jax.devices(), ShardingSpec([Unstacked(8), NoSharding()], [ShardedAxis(0)]))


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


# The spec -----------------------------------------------------------------------------------------


def test_entries_are_values():
    assert Chunked([8]) == Chunked((8,)) != Chunked([4])
    assert Chunked([2, 4]) != Chunked([8])
    assert Chunked([2, 4]).chunks == [2, 4]
    assert Chunked([2, 4]).pieces == 8
    assert Unstacked(4) == Unstacked(np.int64(4)) != Unstacked(8)
    assert Unstacked(4).size == 4
    assert NoSharding() == NoSharding() != Unstacked(1)
    assert ShardedAxis(1).axis == 1
    assert Replicated(2).replicas == 2
    assert len({Chunked([8]), Chunked([8]), Unstacked(8), NoSharding(), NoSharding()}) == 3


def test_entries_are_written_as_jax_wrote_them():
    assert repr(ROWS) == "ShardingSpec((Chunked(8), NoSharding()), (ShardedAxis(axis=0),))"
    spec = ShardingSpec([Chunked([2, 2]), Unstacked(2)], map(ShardedAxis, (2, 0, 1)))
    assert repr(spec) == (
        "ShardingSpec((Chunked(2,2), Unstacked(2)), "
        "(ShardedAxis(axis=2), ShardedAxis(axis=0), ShardedAxis(axis=1)))"
    )
    assert repr(ShardingSpec([], [Replicated(8)])) == "ShardingSpec((), (Replicated(replicas=8),))"


def test_specs_are_values():
    again = ShardingSpec((Chunked([8]), NoSharding()), (ShardedAxis(0),))
    assert again == ROWS
    assert hash(again) == hash(ROWS)
    assert ShardingSpec([Chunked([8])], [ShardedAxis(0)]) != ROWS
    assert ShardingSpec([Chunked([8]), NoSharding()], [ShardedAxis(0), Replicated(1)]) != ROWS


def test_indices():
    spec = ShardingSpec(
        [Chunked([2]), NoSharding(), Unstacked(2)], [ShardedAxis(1), ShardedAxis(0)]
    )
    found = spec.indices((6, 5, 2))
    assert found.shape == spec.mesh_shape == (2, 2)
    assert found[0, 1] == (slice(3, 6), slice(None), 0)
    assert found[1, 0] == (slice(0, 3), slice(None), 1)
    copied = ShardingSpec([Chunked([2])], [Replicated(3), ShardedAxis(0)]).indices((4,))
    assert copied.shape == (3, 2)
    assert copied[2, 1] == (slice(2, 4),)


@given(specs(unstacked=True))
def test_indices_cut_the_whole_and_copy_it(spec):
    """Every element is on just as many devices as there are copies, and blocks are alike."""
    shape = shape_for(spec)
    counts = np.zeros(shape, int)
    for index in spec.indices(shape).flat:
        counts[index] += 1
    copies = math.prod(e.replicas for e in spec.mesh_mapping if isinstance(e, Replicated))
    assert (counts == copies).all()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Chunked([]), "Chunked([]) says no number of pieces"),
        (lambda: Chunked([0]), "Chunked(0) has no piece; the least is 1"),
        (lambda: Chunked(8), "write Chunked([8])"),
        (lambda: Chunked("8"), "not str '8'"),
        (lambda: Chunked([2.0]), "whole numbers, not float 2.0"),
        (lambda: Unstacked(0), "Unstacked(0) has no piece"),
        (lambda: Unstacked(True), "whole numbers, not bool True"),
        (lambda: Replicated(-1), "Replicated(-1) has no piece"),
        (lambda: ShardingSpec([8], []), "entry 0 of sharding is int 8, not one of NoSharding"),
        (lambda: ShardingSpec([], [8]), "entry 0 of mesh_mapping is int 8, not one of ShardedAxis"),
        (
            lambda: ShardingSpec([Chunked([8])], []),
            "has 1 sharded axes, and the mesh mapping names",
        ),
        (lambda: ShardingSpec([Chunked([8])], [ShardedAxis(1)]), "names [1] (name each of 0 once)"),
        (lambda: ShardingSpec([NoSharding()], [ShardedAxis(0)]), "name none, or cut a dimension"),
        (lambda: ShardingSpec([Chunked([2, 2])], [ShardedAxis(0)] * 2), "names [0, 0]"),
    ],
)
def test_specs_that_say_nothing(make, text):
    slug, message = refused(make)
    assert slug == "bad-spec"
    assert text in message


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


# Alive in JAX -------------------------------------------------------------------------------------


@pytest.fixture(params=[True, False], ids=["shardy", "gspmd"])
def partitioner(request):
    before = jax.config.jax_use_shardy_partitioner
    jax.config.update("jax_use_shardy_partitioner", request.param)
    yield
    jax.config.update("jax_use_shardy_partitioner", before)


MAPPINGS = [
    ShardingSpec([Chunked([8]), NoSharding()], [ShardedAxis(0)]),
    ShardingSpec([NoSharding(), Chunked([4])], [Replicated(2), ShardedAxis(0)]),
    ShardingSpec([NoSharding(), Chunked([4])], [ShardedAxis(0), Replicated(2)]),
    ShardingSpec([Chunked([2, 4]), NoSharding()], [ShardedAxis(1), ShardedAxis(0)]),
    ShardingSpec([NoSharding(), Chunked([2, 2])], map(ShardedAxis, (1, 0))),
    ShardingSpec([NoSharding(), NoSharding()], [Replicated(8)]),
]


def holds(array, whole):
    np.testing.assert_array_equal(array, whole)
    for shard in array.addressable_shards:
        np.testing.assert_array_equal(shard.data, np.asarray(whole)[shard.index])


@pytest.mark.usefixtures("partitioner")
@pytest.mark.parametrize("spec", MAPPINGS, ids=repr)
def test_alive(spec):
    devices = np.array(jax.devices()[::-1][: math.prod(spec.mesh_shape)]).reshape(spec.mesh_shape)
    sharding = PmapSharding(devices, spec)
    placed = jax.device_put(X, sharding)
    holds(placed, X)
    assert placed.sharding is sharding
    for made in (
        placed + 1,
        jax.jit(lambda a: a + 1)(placed),
        jax.jit(lambda a: a + 1, in_shardings=sharding, out_shardings=sharding)(X),
        jax.jit(lambda a: a + 1)
        .lower(jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=sharding))
        .compile()(placed),
        jax.make_array_from_callback(X.shape, sharding, lambda index: X[index] + 1),
    ):
        holds(made, X + 1)
        assert made.sharding == sharding
    batch = np.stack([X, X[::-1]])
    for made, whole in (
        (jax.jit(jax.grad(lambda a: (constrained(a, sharding) ** 2).sum()))(placed), X * 2),
        (jax.jit(jax.vmap(lambda a: constrained(a * 2, sharding)))(batch), batch * 2),
        (
            jax.lax.scan(lambda c, _: (constrained(c + 1, sharding), None), placed, None, 3)[0],
            X + 3,
        ),
    ):
        holds(made, whole)


def constrained(value, sharding):
    return jax.lax.with_sharding_constraint(value, sharding)


@pytest.mark.usefixtures("partitioner")
def test_results_are_mapped_where_they_can_be(sharding):
    placed = jax.device_put(X, sharding)
    turned = jax.jit(lambda a: a.T * 2)(placed)
    assert turned.sharding == PmapSharding.default((4, 8), 1)
    holds(turned, X.T * 2)
    # Cut into pieces of two elements, which is no mapping of one element a device.
    doubled = jax.jit(lambda a: jnp.concatenate([a, a]))(placed)
    holds(doubled, np.concatenate([X, X]))
    assert type(doubled.sharding) is GSPMDSharding
    assert doubled.sharding.device_set == sharding.device_set


def test_a_function_is_traced_once(sharding):
    traced = []
    step = jax.jit(lambda a: traced.append(1) or a + 1)
    placed = step(jax.device_put(X, sharding))
    for _ in range(3):
        placed = step(placed)
    step(jax.device_put(X, PmapSharding(jax.devices(), ROWS)))
    holds(placed, X + 4)
    assert traced == [1]


ENTRIES = {
    "device_put": lambda s: jax.device_put(X, s),
    "device_put of an array": lambda s: jax.device_put(jnp.asarray(X), s),
    "in_shardings": lambda s: jax.jit(lambda a: a, in_shardings=s)(X),
    "out_shardings": lambda s: jax.jit(lambda a: a, out_shardings=s)(X),
    "constraint": lambda s: jax.jit(lambda a: constrained(a, s))(X),
    "eager constraint": lambda s: constrained(X, s),
    "vmap": lambda s: jax.vmap(lambda a: constrained(a, s))(np.stack([X, X])),
    "callback": lambda s: jax.make_array_from_callback(X.shape, s, lambda index: X[index]),
    "single arrays": lambda s: jax.make_array_from_single_device_arrays(
        X.shape,
        s,
        [jax.device_put(X[i], d) for d, i in s.addressable_devices_indices_map(X.shape).items()],
    ),
    "process data": lambda s: jax.make_array_from_process_local_data(s, X),
    "ShapeDtypeStruct": lambda s: jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=s),
    "zeros": lambda s: jnp.zeros(X.shape, device=s),
    "canonical": lambda s: s.canonical(2),
    "to_mhlo": lambda s: s.to_mhlo(2),
    "to_sdy": lambda s: s.to_sdy(2),
    "to_jax": lambda s: s.to_jax(),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_unstacked_is_refused_wherever_jax_begins(unstacked, entry):
    with pytest.raises(ValueError, match=r"block of fewer dimensions") as caught:
        ENTRIES[entry](unstacked)
    # Where JAX says which argument it is, ours is what went before.
    ours = caught.value if isinstance(caught.value, ShardingError) else caught.value.__context__
    assert isinstance(ours, ShardingError)
    assert ours.diagnostic.slug == "not-expressible"
    equivalent = "ShardingSpec((Chunked(8), NoSharding()), (ShardedAxis(axis=0),))"
    assert f"use {equivalent}, which is sharding_spec.chunked()" in str(caught.value)
    chunked = PmapSharding(unstacked.devices, unstacked.sharding_spec.chunked())
    assert ENTRIES[entry](chunked) is not None


def test_members_of_unstacked(unstacked):
    assert unstacked.shard_shape((8, 4)) == (4,)
    assert unstacked.devices_indices_map((8, 4))[jax.devices()[5]] == (5, slice(None))
    assert unstacked.num_devices == 8
    assert unstacked.device_set == set(jax.devices())
    assert not unstacked.is_fully_replicated
    assert unstacked.is_equivalent_to(PmapSharding(jax.devices(), unstacked.sharding_spec), 2)
    assert not unstacked.is_equivalent_to(PmapSharding(jax.devices(), ROWS), 2)
    assert not PmapSharding(jax.devices(), ROWS).is_equivalent_to(unstacked, 2)


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
