"""Arrays laid out by the classes that JAX has dropped, and functions that keep them so."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

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
    ShardingSpec,
    Unstacked,
)
from tests.sharding.dropped import holds

X = np.arange(32, dtype=np.float32).reshape(8, 4)
ROWS = ShardingSpec([Chunked([8]), NoSharding()], [ShardedAxis(0)])


@pytest.fixture(params=[True, False], ids=["shardy", "gspmd"])
def partitioner(request):
    before = jax.config.jax_use_shardy_partitioner
    jax.config.update("jax_use_shardy_partitioner", request.param)
    yield
    jax.config.update("jax_use_shardy_partitioner", before)


@pytest.fixture
def sharding():
    return PmapSharding.default((8, 4))


@pytest.fixture
def unstacked():
    return PmapSharding(jax.devices(), ShardingSpec([Unstacked(8), NoSharding()], [ShardedAxis(0)]))


MAPPINGS = [
    ShardingSpec([Chunked([8]), NoSharding()], [ShardedAxis(0)]),
    ShardingSpec([NoSharding(), Chunked([4])], [Replicated(2), ShardedAxis(0)]),
    ShardingSpec([NoSharding(), Chunked([4])], [ShardedAxis(0), Replicated(2)]),
    ShardingSpec([Chunked([2, 4]), NoSharding()], [ShardedAxis(1), ShardedAxis(0)]),
    ShardingSpec([NoSharding(), Chunked([2, 2])], map(ShardedAxis, (1, 0))),
    ShardingSpec([NoSharding(), NoSharding()], [Replicated(8)]),
]


def mapped(spec):
    devices = np.array(jax.devices()[::-1][: math.prod(spec.mesh_shape)]).reshape(spec.mesh_shape)
    return PmapSharding(devices, spec)


def positional(*ids):
    return PositionalSharding([jax.devices()[index] for index in ids or range(8)])


PERMUTED = (5, 2, 7, 0, 3, 6, 1, 4)
LISTED = "{devices=[4,2]0,1,2,3,4,5,7,6}"
PLACES = {
    "2x4": lambda: positional().reshape(2, 4),
    "turned": lambda: positional().reshape(2, 4).T,
    "copies of rows": lambda: positional().reshape(2, 4).replicate(1),
    "copies of columns": lambda: positional().reshape(4, 2).replicate(0),
    "copies": lambda: positional().reshape(2, 4).replicate(),
    "copies, of any rank": lambda: positional().replicate(),
    "permuted devices": lambda: positional(*PERMUTED).reshape(2, 4),
    "some devices": lambda: positional(6, 3, 1, 4).reshape(2, 2).replicate(0),
    "one device": lambda: positional(3).reshape(1, 1),
    "in no order": lambda: PositionalSharding.from_hlo(HloSharding.parse(LISTED), jax.devices()),
}
SHARDINGS = {
    **PLACES,
    **{repr(spec): functools.partial(mapped, spec) for spec in MAPPINGS},
}


@pytest.mark.usefixtures("partitioner")
@pytest.mark.parametrize("name", SHARDINGS)
def test_alive(name):
    sharding = SHARDINGS[name]()
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
        jax.make_array_from_single_device_arrays(
            X.shape,
            sharding,
            [
                jax.device_put(X[index] + 1, device)
                for device, index in sharding.addressable_devices_indices_map(X.shape).items()
            ],
        ),
        constrained(placed, sharding) + 1,
        jax.jit(lambda a: constrained(a, sharding) + 1)(X),
    ):
        holds(made, X + 1)
        assert made.sharding.is_equivalent_to(sharding, 2)
        assert type(made.sharding) in (type(sharding), GSPMDSharding)
    assert (placed + 1).sharding == sharding
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
def test_results_are_in_places():
    """Whatever XLA chooses for a result is an array of places."""
    first, second = (jax.device_put(X, positional().reshape(*shape)) for shape in ((2, 4), (8, 1)))
    for function, whole in (
        (lambda a, b: a + b, X + X),
        (lambda a, b: a @ b.T, X @ X.T),
        (lambda a, b: (a * b).sum(1), (X * X).sum(1)),
        (lambda a, b: jnp.stack([a, b]).reshape(4, 16), np.stack([X, X]).reshape(4, 16)),
        (lambda a, b: a[0, 0] + b.sum(), X.sum()),
    ):
        made = jax.jit(function)(first, second)
        holds(made, whole)
        assert type(made.sharding) is PositionalSharding
        assert made.sharding.ndim == made.ndim
        assert made.sharding.device_order == tuple(jax.devices())
        assert made.sharding.memory_kind == first.sharding.memory_kind


def test_shardy_joins_different_places():
    """Both are over one mesh, so that Shardy carries the cut of each operand to the result."""
    rows = positional().reshape(2, 4).replicate(1)
    columns = positional().reshape(4, 2).replicate(0)
    assert rows.canonical(2).mesh != columns.canonical(2).mesh
    square = np.arange(64, dtype=np.float32).reshape(8, 8)
    placed = jax.device_put(square, rows), jax.device_put(square.T, columns)
    compiled = jax.jit(jnp.matmul).lower(*placed).compile()
    product = compiled(*placed)
    holds(product, square @ square.T)
    tiles = "{devices=[2,2,2]<=[2,2,2]T(0,2,1) last_tile_dim_replicate}"
    assert product.sharding.to_mhlo(2) == tiles
    assert "all-gather" not in compiled.as_text()


@pytest.mark.usefixtures("partitioner")
def test_a_batch_of_constraints_is_cut_like_each():
    sharding = positional().reshape(2, 4)
    for axis, shape in ((0, (1, 2, 4)), (1, (2, 1, 4)), (2, (2, 4, 1))):
        batch = np.stack([X, X * 2, X * 3], axis)
        double = jax.vmap(lambda a: constrained(a * 2, sharding), axis, axis)
        made = jax.jit(double)(jax.device_put(batch, positional().replicate()))
        holds(made, batch * 2)
        assert made.sharding == sharding.reshape(shape)


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


def test_copies_stay_of_one_shape():
    """A program called in turn on its own results is traced once, of whatever shape copies are."""
    for copies in (positional().replicate(), positional().reshape(2, 4).replicate()):
        traced = []
        step = jax.jit(lambda a, traced=traced: traced.append(1) or a + 1)
        placed = jax.device_put(X, copies)
        for _ in range(3):
            placed = step(placed)
        assert placed.sharding == copies
        assert traced == [1]


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


# Where the argument is laid out otherwise ---------------------------------------------------------

Y = np.arange(64, dtype=np.float32).reshape(8, 8)


@pytest.mark.parametrize(
    "grow",
    [lambda x: x.T, lambda x: jnp.concatenate([x, x]), lambda x: x[:, None] * 2],
    ids=["transposed", "joined", "another dimension"],
)
@pytest.mark.parametrize("count", [1, 8])
def test_a_dimension_that_is_mapped_over_one_device_may_grow(grow, count):
    spec = ShardingSpec([Chunked([1]), NoSharding()], [ShardedAxis(0), Replicated(count)])
    sharding = PmapSharding(np.array(jax.devices()[:count]).reshape(1, count), spec)
    value = np.arange(24.0, dtype=np.float32).reshape(1, 24)
    placed = jax.device_put(value, sharding)
    for result in (jax.jit(grow)(placed), grow(placed)):
        assert result.sharding.shard_shape(result.shape) == result.shape
        np.testing.assert_array_equal(result, grow(value))
        np.testing.assert_array_equal(jax.jit(lambda x: x + 1)(result), grow(value) + 1)
        assert len(result.addressable_shards) == count


@pytest.mark.parametrize("cut", [(), ("rows",)])
@pytest.mark.parametrize(
    "inner",
    [
        lambda: PositionalSharding(jax.devices()).reshape(2, 4),
        lambda: GSPMDSharding(jax.devices(), "{devices=[2,4]<=[8]}"),
    ],
    ids=["positional", "gspmd"],
)
def test_a_constraint_holds_whatever_the_mesh_of_the_argument(partitioner, cut, inner):
    """XLA folds a mesh of its own names into the argument's, and would drop the cut of a result."""
    named = NamedSharding(Mesh(np.array(jax.devices()), ("rows",)), P(*cut))
    constraint = inner()
    placed = jax.device_put(Y, named)

    def functions():
        yield lambda x: jax.lax.with_sharding_constraint(x * 2, constraint)
        yield lambda x: jax.lax.with_sharding_constraint(x, constraint) * 2

    for function in functions():
        result = jax.jit(function)(placed)
        np.testing.assert_array_equal(result, Y * 2)
        assert {shard.data.shape for shard in result.addressable_shards} == {(4, 2)}
        assert result.sharding.is_equivalent_to(constraint, 2)
    result = jax.jit(lambda x: x * 2, out_shardings=constraint)(placed)
    assert result.sharding.is_equivalent_to(constraint, 2)
    np.testing.assert_array_equal(result, Y * 2)
