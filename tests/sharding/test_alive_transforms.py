"""Transformations of functions that our shardings stand in: vmap, grad, scan."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardpass.sharding import NamedSharding, P, PmapSharding
from tests.sharding.alive import ALL, X, both_ways, comes_back, partitioned_by, same, under_both

# Layouts that others contain: transformations compile much.
PLAINER = {"grouped", "some", "gspmd-x-y", "gspmd-replicated", "positional-x-y", "pmap-columns"}
CAN_CONSTRAIN = [case for case in ALL if not case.is_explicit and case.name not in PLAINER]
# JAX scans over no dimension that Explicit axes cut.
CAN_SCAN = [case for case in ALL if not case.is_explicit or case.spec[0] is None]
STACK = np.stack([X, X + 100, X * 2, -X])


@pytest.fixture(params=["shardy", "gspmd"])
def partitioner(request):
    with partitioned_by(request.param):
        yield request.param


@pytest.fixture(params=under_both(ALL), ids=str)
def case(request):
    with partitioned_by(request.param.partitioner):
        yield request.param.case


@pytest.fixture(params=under_both(CAN_CONSTRAIN), ids=str)
def constrained(request):
    with partitioned_by(request.param.partitioner):
        yield request.param.case


@pytest.fixture(params=under_both(CAN_SCAN), ids=str)
def scanned(request):
    with partitioned_by(request.param.partitioner):
        yield request.param.case


def like_named(case, run, whole):
    """As :func:`both_ways`, beside a ``NamedSharding``: JAX maps no other class of its own."""
    ours, theirs = run(case.ours), run(case.twin)
    same(ours, theirs, whole)
    return ours


def test_vmap_over_a_constraint(constrained):
    def run(s):
        mapped = jax.vmap(lambda a: jax.lax.with_sharding_constraint(a * 2, s))
        out = jax.jit(mapped)(STACK)
        same(mapped(jnp.asarray(STACK)), out, STACK * 2)
        return out

    like_named(constrained, run, STACK * 2)


@pytest.mark.parametrize("in_axis", [0, 1, 2])
def test_vmap_over_any_dimension(constrained, in_axis):
    whole = np.moveaxis(STACK, 0, in_axis)

    def run(s):
        mapped = jax.vmap(
            lambda a: jax.lax.with_sharding_constraint(a + 1, s), in_axes=in_axis, out_axes=in_axis
        )
        return jax.jit(mapped)(whole)

    like_named(constrained, run, whole + 1)


def test_vmap_with_an_axis_name(constrained):
    def run(s):
        mapped = jax.vmap(
            lambda a: jax.lax.with_sharding_constraint(a, s) + jax.lax.psum(a, "batch"),
            axis_name="batch",
        )
        return jax.jit(mapped)(STACK)

    like_named(constrained, run, STACK + STACK.sum(axis=0))


def test_vmap_twice(constrained):
    whole = STACK.reshape(2, 2, 8, 8)

    def run(s):
        return jax.jit(jax.vmap(jax.vmap(lambda a: jax.lax.with_sharding_constraint(a, s))))(whole)

    like_named(constrained, run, whole)


@pytest.mark.parametrize("axis", ["x", "y", ("x", "y")])
@pytest.mark.usefixtures("partitioner")
def test_vmap_with_spmd_axis_name(mesh, axis):
    """The mapped dimension is cut over the axis that ``vmap`` is told, the other as within."""
    cut = {"x": P("x", "y"), "y": P("y", "x"), ("x", "y"): P(("x", "y"), None)}[axis]
    inner = NamedSharding(mesh, P(*cut[1:]))

    def run(s):
        mapped = jax.vmap(
            lambda row: jax.lax.with_sharding_constraint(row * 2, s), spmd_axis_name=axis
        )
        return jax.jit(mapped)(jax.device_put(X, s.update(spec=P())))

    ours, theirs = run(inner), run(inner.to_jax())
    same(ours, theirs, X * 2)
    assert type(ours.sharding) is NamedSharding
    assert ours.sharding.is_equivalent_to(NamedSharding(mesh, cut), 2)


def test_vmap_of_sharded_arguments(case):
    ours, theirs = (
        jax.jit(jax.vmap(lambda row: row - row.sum()))(jax.device_put(X, s))
        for s in (case.ours, case.theirs)
    )
    same(ours, theirs, X - X.sum(axis=1, keepdims=True))
    comes_back(ours, case)


def test_grad_of_arguments(case):
    def run(s):
        return jax.jit(jax.grad(lambda a: (a**2).sum()))(jax.device_put(X, s))

    comes_back(both_ways(case, run, 2 * X), case)
    # Outside jit, JAX wants the mesh of Explicit axes in context.
    with jax.set_mesh(case.ours.mesh) if case.is_explicit else contextlib.nullcontext():
        eager = jax.grad(lambda a: (a**2).sum())(jax.device_put(X, case.ours))
    same(eager, jax.device_put(2 * X, case.theirs), 2 * X)


def test_grad_through_a_constraint(constrained):
    """The cotangent is constrained as the value is."""

    def run(s):
        def loss(a):
            return (jax.lax.with_sharding_constraint(a, s) ** 2).sum()

        value, gradient = jax.jit(jax.value_and_grad(loss))(X)
        assert float(value) == float((X**2).sum())
        return gradient

    out = both_ways(constrained, run, 2 * X)
    if type(constrained.ours) is not PmapSharding:  # which JAX says no shape for
        comes_back(out, constrained)
    assert out.sharding.is_equivalent_to(constrained.ours, 2)


def test_jvp_and_vjp_through_a_constraint(constrained):
    def squared(s):
        return lambda a: jax.lax.with_sharding_constraint(a * a, s)

    def run_forward(s):
        return jax.jit(lambda a, t: jax.jvp(squared(s), (a,), (t,))[1])(X, np.ones_like(X))

    def run_backward(s):
        return jax.jit(lambda a, t: jax.vjp(squared(s), a)[1](t)[0])(X, np.ones_like(X))

    both_ways(constrained, run_forward, 2 * X)
    both_ways(constrained, run_backward, 2 * X)


def test_checkpoint(constrained):
    def run(s):
        @jax.checkpoint
        def layer(a):
            return jax.lax.with_sharding_constraint(a * a, s) * a

        return jax.jit(jax.grad(lambda a: layer(a).sum()))(X)

    both_ways(constrained, run, 3 * X**2)


def test_scan_with_a_constraint(constrained):
    def run(s):
        def step(carry, row):
            carry = jax.lax.with_sharding_constraint(carry + row, s)
            return carry, carry.sum()

        carry, sums = jax.jit(lambda a, rows: jax.lax.scan(step, a, rows))(X, X[:3])
        expected = np.cumsum(X[:3], axis=0)
        np.testing.assert_array_equal(sums, [(X + expected[index]).sum() for index in range(3)])
        return carry

    both_ways(constrained, run, X + X[:3].sum(axis=0))


def test_scan_over_sharded_arguments(scanned):
    case = scanned

    def run(s):
        total, seen = jax.jit(
            lambda rows: jax.lax.scan(lambda t, r: (t + r, t), jnp.zeros_like(rows[0]), rows)
        )(jax.device_put(X, s))
        np.testing.assert_array_equal(seen, np.cumsum(X, axis=0) - X)
        return total

    both_ways(case, run, X.sum(axis=0))


def test_branches_and_loops(constrained):
    def run(s):
        def double(a):
            return jax.lax.with_sharding_constraint(a * 2, s)

        def f(a):
            a = jax.lax.cond(a[0, 0] > 1, lambda b: b, double, a)
            a = jax.lax.fori_loop(0, 3, lambda _, b: double(b), a)
            return jax.lax.while_loop(lambda b: b[7, 7] < 2000, double, a)

        return jax.jit(f)(X)

    both_ways(constrained, run, X * 32)


def test_custom_derivatives(constrained):
    def run(s):
        @jax.custom_vjp
        def f(a):
            return jax.lax.with_sharding_constraint(a, s)

        f.defvjp(lambda a: (f(a), None), lambda _, t: (jax.lax.with_sharding_constraint(3 * t, s),))
        return jax.jit(jax.grad(lambda a: f(a).sum()))(X)

    both_ways(constrained, run, np.full_like(X, 3))


def test_jit_within_jit(constrained):
    def run(s):
        inner = jax.jit(lambda a: a * 2, in_shardings=s, out_shardings=s)
        return jax.jit(lambda a: inner(a + 1))(X)

    both_ways(constrained, run, (X + 1) * 2)
