"""``GSPMDSharding`` in JAX, under both partitioners, also where JAX refuses its own."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardpass.diagnostics import ShardingError
from shardpass.sharding import GSPMDSharding, NamedSharding, P
from tests.sharding.alive import one_trace, partitioned_by

X = np.arange(64, dtype=np.float32).reshape(8, 8)
# The same layouts by iota and by list, lists of no iota, sub-axes, permuted and fewer devices.
CASES = {
    "replicated": ("{replicated}", range(8)),
    "both": ("{devices=[2,4]<=[8]}", range(8)),
    "turned": ("{devices=[4,2]<=[2,4]T(1,0)}", range(8)),
    "listed-iota": ("{devices=[4,2]0,4,1,5,2,6,3,7}", range(8)),
    "listed": ("{devices=[2,4]3,1,0,2,5,7,6,4}", range(8)),
    "listed-replicas": ("{devices=[2,1,4]0,1,2,5,3,4,6,7 last_tile_dim_replicate}", range(8)),
    "replicas": ("{devices=[1,4,2]<=[8] last_tile_dim_replicate}", range(8)),
    "sub-axes": ("{mesh['x'=8], [{'x':(2)4}, {'x':(1)2}]}", range(8)),
    "permuted": ("{devices=[2,4]<=[4,2]T(1,0)}", (5, 2, 7, 0, 3, 6, 1, 4)),
    "some": ("{devices=[2,2]1,0,2,3}", (6, 3, 1, 4)),
}


def make(name):
    text, ids = CASES[name]
    return GSPMDSharding([jax.devices()[index] for index in ids], text)


@pytest.fixture(params=["shardy", "gspmd"])
def partitioner(request):
    with partitioned_by(request.param), warnings.catch_warnings():
        # jax 0.12 says on compiling that GSPMD will go.
        warnings.filterwarnings("ignore", message=".*GSPMD.*", category=DeprecationWarning)
        yield request.param


def holds(array, whole, sharding=None):
    """Each device holds its block of ``whole``; placed like ``sharding``, by our class."""
    np.testing.assert_array_equal(array, whole)
    assert type(array.sharding) is GSPMDSharding
    if sharding is not None:
        assert array.sharding.is_equivalent_to(sharding, whole.ndim)
    expected = array.sharding.devices_indices_map(whole.shape)
    for shard in array.addressable_shards:
        assert shard.index == expected[shard.device]
        np.testing.assert_array_equal(shard.data, np.asarray(whole)[shard.index])


@pytest.mark.parametrize("name", CASES)
def test_jit_of_placed_arguments(name, partitioner):
    sharding = make(name)
    placed = jax.device_put(X, sharding)
    assert placed.sharding is sharding
    holds(placed, X, sharding)
    holds(jax.jit(lambda a: a * 2)(placed), X * 2, sharding)
    holds(placed + 1, X + 1, sharding)
    holds(jax.jit(lambda a: a @ a)(placed), X @ X)


@pytest.mark.parametrize("name", CASES)
def test_in_and_out_shardings(name, partitioner):
    sharding = make(name)
    out = jax.jit(lambda a: a.T, in_shardings=sharding, out_shardings=sharding)(X)
    holds(out, X.T, sharding)
    filled = jax.jit(lambda: jnp.arange(64.0).reshape(8, 8), out_shardings=sharding)()
    holds(filled, X, sharding)


@pytest.mark.parametrize("name", CASES)
def test_constraints(name, partitioner):
    sharding = make(name)

    def constrained(a):
        return jax.lax.with_sharding_constraint(a * 2, sharding)

    holds(jax.jit(constrained)(X), X * 2, sharding)
    grown = jax.jit(jax.grad(lambda a: (constrained(a) ** 2).sum()))(jax.device_put(X, sharding))
    holds(grown, 8 * X)
    stack = np.stack([X, X + 1, X + 2])
    mapped = jax.jit(jax.vmap(constrained))(stack)
    np.testing.assert_array_equal(mapped, stack * 2)
    blocks = sharding.devices_indices_map(X.shape)
    for shard in mapped.addressable_shards:
        assert shard.index == (slice(None), *blocks[shard.device])
        np.testing.assert_array_equal(shard.data, (stack * 2)[shard.index])


@pytest.mark.parametrize("name", ["turned", "listed", "some"])
def test_arrays_from_pieces_and_aot(name, partitioner):
    sharding = make(name)
    holds(jax.make_array_from_callback(X.shape, sharding, lambda index: X[index]), X, sharding)
    pieces = [
        jax.device_put(X[index], device)
        for device, index in sharding.addressable_devices_indices_map(X.shape).items()
    ]
    holds(jax.make_array_from_single_device_arrays(X.shape, sharding, pieces), X, sharding)
    abstract = jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=sharding)
    assert jax.eval_shape(lambda a: a @ a, abstract).shape == (8, 8)
    compiled = jax.jit(lambda a: a * 2).lower(abstract).compile()
    (expected,), _ = compiled.input_shardings
    assert expected.is_equivalent_to(sharding, 2)
    holds(compiled(jax.device_put(X, sharding)), X * 2, sharding)


def test_scan(partitioner):
    rows = jax.device_put(X, make("listed"))
    total, seen = jax.jit(lambda a: jax.lax.scan(lambda s, r: (s + r, s), jnp.zeros(8), a))(rows)
    np.testing.assert_array_equal(total, X.sum(axis=0))
    np.testing.assert_array_equal(seen[1:], X.cumsum(axis=0)[:-1])


def test_lists_of_two_orders_in_one_program(partitioner):
    """Under Shardy each is a mesh with device ids of its own."""
    one, other = make("listed"), GSPMDSharding(jax.devices(), "{devices=[4,2]7,1,6,2,5,3,0,4}")
    out = jax.jit(
        lambda a, b: (a @ b, a + b), in_shardings=(one, other), out_shardings=(other, one)
    )(X, X.T)
    holds(out[0], X @ X.T, other)
    holds(out[1], X + X.T, one)


def test_together_with_names(mesh, partitioner):
    named = jax.device_put(X, NamedSharding(mesh, P("x", "y")))
    tiled = jax.device_put(X, make("listed"))
    product = jax.jit(lambda a, b: a @ b)
    np.testing.assert_array_equal(product(named, tiled), X @ X)
    out = product(tiled, named)
    np.testing.assert_array_equal(out, X @ X)
    for shard in out.addressable_shards:
        np.testing.assert_array_equal(shard.data, (X @ X)[shard.index])


def test_one_trace_for_ours_and_jax():
    sharding = make("turned")
    one_trace(sharding, sharding.to_jax())


def test_memory_kinds():
    host = make("listed").with_memory_kind("pinned_host")
    placed = jax.device_put(X, host)
    assert placed.sharding.memory_kind == "pinned_host"
    holds(placed, X, host)
    holds(jax.device_put(placed, host.with_memory_kind("device")), X, make("listed"))


def test_explicit_meshes_take_tiled_arrays(explicit_mesh):
    placed = jax.device_put(X, make("turned"))
    moved = jax.device_put(placed, NamedSharding(explicit_mesh, P("x")))
    np.testing.assert_array_equal(moved, X)
    assert moved.sharding.spec == P("x")
    back = jax.device_put(moved, make("listed"))
    holds(back, X, make("listed"))


UNUSABLE = {
    "{devices=[2,2,2]<=[8] last_tile_dims={unreduced}}": (
        "it knows partial results by named axes only"
    ),
    "{unreduced}": "it knows partial results by named axes only",
    "{devices=[2,2,2]<=[8] last_tile_dims={manual}}": (
        "which axes are manual is said by the region that a value is in"
    ),
    "{manual}": "which axes are manual is said by the region that a value is in",
}


@pytest.mark.parametrize("text", UNUSABLE)
def test_what_jax_cannot_use_is_one_clear_error(text, partitioner):
    """Left to themselves, jaxlib 0.10 takes partial results for whole, and XLA's GSPMD aborts."""
    sharding = GSPMDSharding(jax.devices(), text)
    message = f"JAX cannot use {text}: {UNUSABLE[text]}"
    for use in (
        lambda: jax.device_put(X, sharding),
        lambda: jax.jit(lambda a: a, in_shardings=sharding)(X),
        lambda: jax.jit(lambda a: a, out_shardings=sharding)(X),
        lambda: jax.jit(lambda a: jax.lax.with_sharding_constraint(a, sharding))(X),
        lambda: jax.vmap(lambda a: jax.lax.with_sharding_constraint(a, sharding))(X[None]),
    ):
        with pytest.raises(ValueError, match="JAX cannot use") as info:
            use()
        assert message in str(info.value)
    with pytest.raises(ShardingError) as raised:
        sharding.check_compatible_aval((8, 8))
    assert raised.value.diagnostic.slug == "not-supported"


@pytest.mark.parametrize("text", UNUSABLE)
def test_arrays_of_pieces_by_what_jax_cannot_use_reach_no_program(text, partitioner):
    sharding = GSPMDSharding(jax.devices(), text)

    def use():
        placed = jax.make_array_from_callback(X.shape, sharding, lambda index: X[index])
        return jax.jit(lambda a: a * 2)(placed)

    with pytest.raises(ShardingError, match="JAX cannot use"):
        use()
