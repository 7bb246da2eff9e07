"""Explicit meshes, which ``jax.make_mesh`` gives: shardings are part of the types of values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import NamedSharding as JaxNamed
from jax.sharding import PartitionSpec as JaxSpec

from shardpass.sharding import Mesh, NamedSharding, P, make_mesh
from tests.sharding.alive import EXPLICIT, X, partitioned_by, same


@pytest.fixture(params=["shardy", "gspmd"], autouse=True)
def partitioner(request):
    with partitioned_by(request.param):
        yield request.param


@pytest.fixture(scope="module")
def explicit():
    return make_mesh((2, 4), ("x", "y"))


@pytest.fixture(params=EXPLICIT, ids=str)
def case(request):
    return request.param


def both_ways(mesh, run, whole):
    """What ``run(our mesh, our classes)`` gives, compared with JAX's."""
    ours = run(mesh, NamedSharding, P)
    theirs = run(mesh.to_jax(), JaxNamed, JaxSpec)
    same(ours, theirs, whole)
    assert jax.typeof(ours) == jax.typeof(theirs)
    assert ours.sharding == theirs.sharding
    return ours


def test_types_say_the_sharding(case):
    ours, theirs = (jax.typeof(jax.device_put(X, s)) for s in (case.ours, case.theirs))
    assert ours == theirs
    assert hash(ours) == hash(theirs)
    assert str(ours) == str(theirs)
    assert ours.sharding.spec == P(*case.spec, *[None] * (2 - len(case.spec)))
    assert ours.sharding.mesh == case.ours.mesh.abstract_mesh


def test_types_within_jit(case):
    def run(s):
        seen = []
        jax.jit(lambda a: seen.append(jax.typeof(a + 1)) or a)(jax.device_put(X, s))
        return seen

    assert run(case.ours) == run(case.theirs)


@pytest.mark.parametrize("start", EXPLICIT[:3], ids=str)
@pytest.mark.parametrize("end", EXPLICIT[:3], ids=str)
@pytest.mark.parametrize("jitted", [True, False], ids=["jit", "eager"])
def test_reshard(start, end, jitted):
    def run(first, then):
        def move(a):
            return jax.sharding.reshard(a, then)

        return (jax.jit(move) if jitted else move)(jax.device_put(X, first))

    out = run(start.ours, end.ours)
    same(out, run(start.theirs, end.theirs), X)
    assert out.sharding.is_equivalent_to(end.ours, 2)


def test_reshard_by_spec_alone(explicit):
    def run(mesh, make_sharding, make_spec):
        with jax.set_mesh(mesh):
            start = jax.device_put(X, make_spec("x", "y"))
            return jax.jit(lambda a: jax.sharding.reshard(a, make_spec("y", None)))(start)

    out = both_ways(explicit, run, X)
    assert out.sharding.spec == P("y", None)


def _einsum(a, out):
    return jnp.einsum("ij,jk->ik", a, a, out_sharding=out)


@pytest.mark.parametrize(
    ("op", "whole"),
    [
        (_einsum, X @ X),
        (lambda a, out: jnp.matmul(a, a, out_sharding=out), X @ X),
        (lambda a, out: jnp.dot(a, a, out_sharding=out), X @ X),
        (lambda a, out: jax.lax.reshape(a, (8, 8), out_sharding=out), X),
        (lambda a, out: a.at[jnp.arange(8)].get(out_sharding=out), X),
        (lambda a, out: jax.lax.broadcasted_iota("float32", (8, 8), 1, out_sharding=out), X[:1]),
        (lambda a, out: jnp.ones((8, 8), out_sharding=out), 1),
    ],
    ids=["einsum", "matmul", "dot", "reshape", "gather", "iota", "ones"],
)
@pytest.mark.parametrize("by", ["sharding", "spec"])
def test_out_sharding(explicit, op, whole, by):
    def run(mesh, make_sharding, make_spec):
        rows = make_sharding(mesh, make_spec("x", None))
        out = rows if by == "sharding" else make_spec("x", None)
        with jax.set_mesh(mesh):
            return jax.jit(lambda a: op(a, out))(jax.device_put(X, rows))

    out = both_ways(explicit, run, np.broadcast_to(np.asarray(whole, np.float32), (8, 8)))
    assert out.sharding.spec == P("x", None)


def test_results_are_typed_by_their_arguments(explicit):
    def run(mesh, make_sharding, make_spec):
        a = jax.device_put(X, make_sharding(mesh, make_spec("x", None)))
        b = jax.device_put(X, make_sharding(mesh, make_spec(None, "y")))
        return jax.jit(lambda a, b: (a @ b).T + 1)(a, b)

    assert both_ways(explicit, run, (X @ X).T + 1).sharding.spec == P("y", "x")


def test_unreduced_results(explicit):
    """The sum over ``y`` is left to do, and done on resharding."""

    def run(mesh, make_sharding, make_spec):
        a = jax.device_put(X, make_sharding(mesh, make_spec("x", "y")))
        b = jax.device_put(X, make_sharding(mesh, make_spec("y", None)))

        def f(a, b):
            partial = make_sharding(mesh.abstract_mesh, make_spec("x", None, unreduced={"y"}))
            product = jnp.einsum("ij,jk->ik", a, b, out_sharding=partial)
            assert jax.typeof(product).sharding.spec.unreduced == {"y"}
            return jax.sharding.reshard(product, make_sharding(mesh, make_spec("x", None)))

        return jax.jit(f)(a, b)

    with partitioned_by("shardy"):  # GSPMD knows no unreduced values
        both_ways(explicit, run, X @ X)


def test_grad_and_vmap_keep_the_types(explicit):
    def run(mesh, make_sharding, make_spec):
        a = jax.device_put(X, make_sharding(mesh, make_spec("x", "y")))
        with jax.set_mesh(mesh):
            doubled = jax.jit(jax.vmap(lambda row: row * 2))(a)
            assert jax.typeof(doubled).sharding.spec == make_spec("x", "y")
            return jax.jit(jax.grad(lambda a: (a**2).sum()))(a)

    assert both_ways(explicit, run, 2 * X).sharding.spec == P("x", "y")


def test_auto_axes_and_explicit_axes(explicit):
    def run(mesh, make_sharding, make_spec):
        a = jax.device_put(X, make_sharding(mesh, make_spec("x", "y")))
        with jax.set_mesh(mesh):
            inner = jax.sharding.auto_axes(
                lambda a: a + jnp.arange(8.0), out_sharding=make_spec("y", "x")
            )
            return jax.jit(inner)(a)

    assert both_ways(explicit, run, X + np.arange(8)).sharding.spec == P("y", "x")

    def back(mesh, make_sharding, make_spec):
        auto = mesh.update(axis_types=(AxisType.Auto,) * 2)
        a = jax.device_put(X, make_sharding(auto, make_spec("x")))
        with jax.set_mesh(auto):
            inner = jax.sharding.explicit_axes(
                lambda a: a * 2, in_sharding=make_spec("x", "y"), axes=("x", "y")
            )
            return jax.jit(inner)(a)

    both_ways(explicit, back, X * 2)


def test_mixed_axis_types(devices):
    """One axis in the types, one left to propagation."""
    mixed = Mesh(devices, ("x", "y"), (AxisType.Explicit, AxisType.Auto))

    def run(mesh, make_sharding, make_spec):
        a = jax.device_put(X, make_sharding(mesh, make_spec("x", "y")))
        return jax.jit(lambda a: a * 2)(a)

    out = both_ways(mixed, run, X * 2)
    assert out.sharding.is_equivalent_to(NamedSharding(mixed, P("x", "y")), 2)


def test_constraints_are_refused_with_a_pointer_to_reshard(explicit):
    for sharding in (
        NamedSharding(explicit, P("x")),
        JaxNamed(explicit.to_jax(), JaxSpec("x")),
    ):
        step = jax.jit(lambda a, s=sharding: jax.lax.with_sharding_constraint(a, s))
        with pytest.raises(ValueError, match="reshard"):
            step(X)
