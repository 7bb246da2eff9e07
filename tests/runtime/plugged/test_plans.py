"""Functions that nobody edited, compiled with a plan: where values lie, and what they are."""

import warnings
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo
from jax.sharding import AxisType, NamedSharding

import shardpass
from shardpass import P, ShardingError
from shardpass.mlir import collect
from tests.runtime.plugged.programs import (
    MESH,
    RULES,
    jax_mesh,
    new_batch,
    new_step,
    new_weights,
    numbers,
    on,
)

X = numbers(8, 16)
W = numbers(16, 32) / 100
ROWS = [("^x$", P("data"))]


def spec_of(array):
    assert isinstance(array.sharding, NamedSharding), array.sharding
    return tuple(array.sharding.spec)


def test_step_keeps_its_layout_and_its_numbers():
    """The donated state comes back as the rules have it, and the losses are the unsharded ones."""
    step = new_step(donate_argnums=0)
    state, expected = new_weights(), []
    for _ in range(3):
        state, loss = step(state, new_batch())
        expected.append(float(loss))
    with shardpass.plugin(mesh=MESH, rules=RULES):
        state, found = new_weights(), []
        for _ in range(3):
            before = state
            state, loss = step(state, new_batch())
            found.append(float(loss))
            assert spec_of(state["w1"]) == (None, "model")
            assert spec_of(state["w2"]) == ("model",)
    assert before["w1"].is_deleted()
    assert state["w1"].addressable_shards[0].data.shape == (16, 8)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def double(x):
    return x * 2


@pytest.mark.parametrize(
    "arrives",
    [
        "numpy",
        "made by jax",
        "device 0",
        "device 5",
        "whole",
        "other axis",
        "other mesh",
        "planned",
    ],
)
def test_however_an_argument_arrives(arrives):
    """Placed as the plan has it, call after call; the second one takes JAX's fast path."""
    mesh = jax_mesh()
    places = {
        "device 0": jax.devices()[0],
        "device 5": jax.devices()[5],
        "whole": on(mesh),
        "other axis": on(mesh, None, "model"),
        "other mesh": on(jax_mesh(sizes=(8,), names=("all",)), "all"),
        "planned": on(mesh, "data"),
    }
    function = jax.jit(lambda x: x * 2)
    with shardpass.plugin(mesh=mesh, rules=ROWS):
        for _ in range(3):
            x = X
            if arrives == "made by jax":
                x = jnp.arange(8 * 16, dtype=jnp.float32).reshape(8, 16)
            elif arrives in places:
                x = jax.device_put(X, places[arrives])
            result = function(x)
            assert spec_of(result)[:1] == ("data",)
            np.testing.assert_array_equal(result, X * 2)


def test_an_argument_that_no_rule_speaks_of_keeps_how_it_arrives():
    mesh = jax_mesh()
    w = jax.device_put(W, on(mesh, None, "model"))
    with shardpass.plugin(mesh=mesh, rules=ROWS) as plugged:
        result = jax.jit(lambda x, w: x @ w)(X, w)
    assert spec_of(result) == ("data", "model")
    (row,) = plugged.report().compiled
    assert [(each.spec, each.moved) for each in row.arguments] == [
        ("P('data',)", False),
        ("P(None, 'model')", False),
    ]
    np.testing.assert_allclose(result, X @ W, rtol=1e-5)


@pytest.mark.parametrize("spec", [("a", "b"), ("b", "a"), (("b", "a"),), (None, ("a", "b"))])
def test_arrivals_that_the_mesh_has_no_axes_for(spec):
    """Moved by a rule, or kept as they are where none speaks of them."""
    x = jax.device_put(X, on(jax_mesh(sizes=(4, 2), names=("a", "b")), *spec))
    ruled, other = jax.jit(lambda x: x * 2), jax.jit(lambda y: y * 2)
    with shardpass.plugin(mesh=MESH, rules=ROWS) as plugged, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*part of an axis, which no PartitionSpec says")
        for _ in range(2):
            assert spec_of(ruled(x)) == ("data",)
            np.testing.assert_array_equal(ruled(x), X * 2)
            np.testing.assert_array_equal(other(x), X * 2)
    rows = plugged.report().compiled
    assert [row.arguments[0].moved for row in rows] == [True, False]


def test_a_sharding_of_another_class_arrives():
    place = shardpass.PositionalSharding(jax.devices()).reshape(8, 1)
    function = jax.jit(lambda x: x * 2)
    with shardpass.plugin(mesh=MESH, rules=ROWS):
        for _ in range(2):
            result = function(jax.device_put(X, place))
            assert spec_of(result) == ("data",)
            np.testing.assert_array_equal(result, X * 2)


def test_another_mesh_inside():
    """Of the same devices: the function keeps what its author says."""
    there = on(jax_mesh(sizes=(8,), names=("all",)), "all")
    function = jax.jit(lambda x: jax.lax.with_sharding_constraint(x * 2, there) + 1)
    with (
        pytest.warns(UserWarning, match="propagation stops between the two"),
        shardpass.plugin(mesh=MESH, rules=ROWS),
    ):
        result = function(X)
    np.testing.assert_array_equal(result, X * 2 + 1)
    assert spec_of(result) == ("all",)


def test_some_of_the_devices():
    with shardpass.plugin(mesh={"data": 4}, rules=ROWS):
        result = jax.jit(lambda x: x * 2)(X)
    assert result.sharding.device_set == set(jax.devices()[:4])


def test_dimensions_that_may_stay_whole():
    rules = shardpass.PartitionRules(ROWS, mesh=MESH, indivisible="replicate")
    with shardpass.plugin(rules=rules):
        step = jax.jit(lambda x: x * 2)
        assert spec_of(step(X)) == ("data",)
        with pytest.warns(UserWarning, match="7 elements into 2 pieces; left whole"):
            np.testing.assert_array_equal(step(X[:7]), X[:7] * 2)
        assert spec_of(step(X[:7])) == ()


def test_donation_of_an_argument_that_is_moved():
    """Its buffer has another size than the result's, and is given up all the same."""
    mesh = jax_mesh()
    function = jax.jit(lambda x: x + 1, donate_argnums=0)
    with shardpass.plugin(mesh=mesh, rules=[("^x$", P("data")), ("^result", P("data"))]):
        for _ in range(2):
            x = jax.device_put(X, on(mesh, None, "model"))
            np.testing.assert_array_equal(function(x), X + 1)


def test_in_shardings_of_the_users_are_kept():
    mesh = jax_mesh()
    function = jax.jit(double, in_shardings=on(mesh, None, "model"))
    with shardpass.plugin(mesh=mesh, rules=[("^x$", P("data"))]):
        result = function(X)
    assert spec_of(result) == (None, "model")


def test_out_shardings_of_the_users_are_kept():
    mesh = jax_mesh()
    function = jax.jit(double, out_shardings=on(mesh, "model"))
    with shardpass.plugin(mesh=mesh, rules=ROWS):
        result = function(X)
    assert spec_of(result) == ("model",)
    np.testing.assert_array_equal(result, X * 2)


def test_given_shardings_that_an_argument_contradicts_stay_an_error_of_jaxs():
    mesh = jax_mesh()
    function = jax.jit(double, in_shardings=on(mesh, None, "model"))
    with (
        shardpass.plugin(mesh=mesh, rules=ROWS),
        pytest.raises(ValueError, match="does not match the sharding on the respective arg"),
    ):
        function(jax.device_put(X, on(mesh, "data")))


def test_static_and_named_arguments():
    def scaled(x, power, *, factor):
        return factor * x**power

    function = jax.jit(scaled, static_argnums=1)
    with shardpass.plugin(mesh=MESH, rules=ROWS) as plugged:
        for power in (1, 2):
            result = function(X, power, factor=np.float32(3))
            assert spec_of(result) == ("data",)
            np.testing.assert_array_equal(result, 3 * X**power)
    assert len(plugged.report().compiled) == 1  # Two programs of one form.
    assert [each.path for each in plugged.report().compiled[0].arguments] == ["x", "factor"]


def test_unused_arguments():
    function = jax.jit(lambda unused, x: x * 2, compiler_options={"xla_cpu_enable_fast_math": True})
    with shardpass.plugin(mesh=MESH, rules=ROWS) as plugged:
        assert spec_of(function(W, X)) == ("data",)
    assert [each.path for each in plugged.report().compiled[0].arguments] == ["x"]


def test_closure_over_a_sharded_array():
    w = jax.device_put(W, on(jax_mesh(), None, "model"))
    with shardpass.plugin(mesh=MESH, rules=ROWS):
        result = jax.jit(lambda x: x @ w)(X)
        np.testing.assert_allclose(result, X @ W, rtol=1e-5)
        assert spec_of(result)[0] == "data"


def test_a_shard_map_inside():
    mesh = jax_mesh()

    def inner(x):
        return jax.lax.psum(x, "model")

    mapped = jax.shard_map(inner, mesh=mesh, in_specs=P("data", "model"), out_specs=P("data"))
    with shardpass.plugin(mesh=mesh, rules=ROWS):
        result = jax.jit(lambda x: mapped(x) + 1)(X)
    assert spec_of(result)[:1] == ("data",)
    np.testing.assert_allclose(result, X.reshape(8, 4, 4).sum(1) + 1)


def test_under_vmap_and_grad():
    def loss(x):
        return jnp.sum(jnp.sin(x))

    with shardpass.plugin(mesh=MESH, rules=[("^x$", P("data"))]):
        value, gradient = jax.jit(jax.value_and_grad(loss))(X)
        np.testing.assert_allclose(gradient, np.cos(X), rtol=1e-5, atol=1e-6)
        assert spec_of(gradient)[:1] == ("data",)
        assert np.isclose(value, np.sin(X).sum(), rtol=1e-4)
        batched = jax.vmap(jax.jit(double))(X)
        np.testing.assert_array_equal(batched, X * 2)


def test_jit_of_vmap():
    with shardpass.plugin(mesh=MESH, rules=ROWS):
        result = jax.jit(jax.vmap(double))(X)
        assert spec_of(result)[:1] == ("data",)
        np.testing.assert_array_equal(result, X * 2)


def test_control_flow_and_remat():
    @jax.jit
    def function(x, n):
        def body(carry, row):
            return carry + jnp.sum(row), row * 2

        total, rows = jax.lax.scan(jax.checkpoint(body), 0.0, x)
        rows = jax.lax.cond(n > 0, lambda r: r + 1, lambda r: r - 1, rows)
        return jax.lax.fori_loop(0, n, lambda _, r: r * 2, rows), total

    with shardpass.plugin(mesh=MESH, rules=[("^x$", P(None, "model"))]):
        rows, total = function(X, 2)
    np.testing.assert_array_equal(rows, (X * 2 + 1) * 4)
    assert total == X.sum()
    assert spec_of(rows) == (None, "model")


def test_random_keys():
    @jax.jit
    def function(x, key):
        return x + jax.random.normal(key, x.shape), jax.random.split(key, 4)

    key = jax.random.key(3)
    expected, expected_keys = function(X, key)
    with shardpass.plugin(mesh=MESH, rules=[*ROWS, ("^keys", P("data"))]):
        for _ in range(2):
            result, keys = function(X, key)
            np.testing.assert_allclose(result, expected, rtol=1e-6)
            assert spec_of(result) == ("data",)
        assert jax.random.key_data(keys).tolist() == jax.random.key_data(expected_keys).tolist()
        draw = jax.jit(lambda keys: jax.vmap(jax.random.normal)(keys))
        np.testing.assert_allclose(draw(keys), draw(expected_keys), rtol=1e-6)


def test_callbacks_and_prints(capfd):
    def host(x):
        return np.asarray(x) * 3

    @jax.jit
    def function(x):
        jax.debug.print("sum {}", jnp.sum(x))
        return jax.pure_callback(host, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    with shardpass.plugin(mesh=MESH, rules=ROWS):
        for _ in range(2):
            np.testing.assert_array_equal(function(X), X * 3)
        jax.effects_barrier()
    assert f"sum {X.sum()}" in capfd.readouterr().out


def test_lower_and_compile():
    with shardpass.plugin(mesh=MESH, rules=ROWS):
        lowered = jax.jit(double).lower(jax.ShapeDtypeStruct(X.shape, X.dtype))
        assert '[{"data"}, {}]' in lowered.as_text()
        compiled = lowered.compile()
        (arguments, _) = compiled.input_shardings
        assert tuple(arguments[0].spec) == ("data",)
        np.testing.assert_array_equal(compiled(jax.device_put(X, arguments[0])), X * 2)


def test_export_carries_the_plan():
    with shardpass.plugin(mesh=MESH, rules=ROWS):
        exported = jax.export.export(jax.jit(double))(jax.ShapeDtypeStruct(X.shape, X.dtype))
    assert exported.nr_devices == 8
    (sharding,) = exported.in_shardings_jax(jax_mesh())
    assert tuple(sharding.spec)[:1] == ("data",)
    again = jax.export.deserialize(exported.serialize())
    result = jax.jit(again.call)(jax.device_put(X, sharding))
    np.testing.assert_array_equal(result, X * 2)


def test_debug_nans():
    function = jax.jit(lambda x: jnp.log(x))
    with shardpass.plugin(mesh=MESH, rules=ROWS), jax.debug_nans(True), jax.checking_leaks():
        with pytest.raises(FloatingPointError, match="invalid value"):
            function(-X - 1)
        assert np.isfinite(function(X + 1)).all()


def test_op_rules_bind():
    """A constraint inside the function, which the executable has as well."""
    rules = [shardpass.Rule(op="stablehlo.sine", spec=P("data", "model"))]
    with shardpass.plugin(mesh=MESH, rules=rules):
        lowered = jax.jit(lambda x: jnp.sin(x) @ W).lower(X)
        assert '<@mesh, [{"data"}, {"model"}]>' in lowered.as_text()
        np.testing.assert_allclose(lowered.compile()(X), np.sin(X) @ W, rtol=1e-4, atol=1e-4)


@dataclass(frozen=True, kw_only=True)
class SineForCosine(shardpass.Pass):
    """Take the sine where the cosine was asked for."""

    name: ClassVar[str] = "acme-sine"

    def run(self, root, sink):
        for op in collect(root, stablehlo.CosineOp):
            with ir.InsertionPoint(op), op.location:
                sine = stablehlo.SineOp(op.operands[0])
            op.results[0].replace_all_uses_with(sine.results[0])
            op.erase()


def test_a_pass_that_rewrites_the_program():
    function = jax.jit(jnp.cos)
    wrapped = jax.jit(lambda x: jnp.cos(x))
    with shardpass.plugin(mesh=MESH, pipeline=[SineForCosine()]) as plugged:
        np.testing.assert_allclose(wrapped(X), np.sin(X), atol=1e-5)
        np.testing.assert_allclose(function(X), np.cos(X), atol=1e-5)  # JAX's own.
    np.testing.assert_allclose(wrapped(X), np.cos(X), atol=1e-5)
    assert [row.name for row in plugged.report().compiled] == ["<lambda>"]


@dataclass(frozen=True, kw_only=True)
class AnnotateSine(shardpass.Pass):
    """Annotate each sine, as a pass might that knows Shardy and not XLA."""

    name: ClassVar[str] = "acme-annotate-sine"

    def run(self, root, sink):
        for op in collect(root, stablehlo.SineOp):
            op.attributes["sdy.sharding"] = ir.Attribute.parse(
                '#sdy.sharding_per_value<[<@mesh, [{"model"}, {}]>]>', root.context
            )


@pytest.mark.parametrize("rest", [[], ["sp-propagate"]])
def test_a_pass_that_annotates_ops_inside(rest):
    """XLA would throw that away: the value would be cut by ``data``."""
    pipeline = ["sp-annotate", AnnotateSine(), *rest]
    function = jax.jit(lambda x: jnp.sin(x) @ W)
    with shardpass.plugin(mesh=MESH, rules=ROWS, pipeline=pipeline):
        compiled = function.lower(X).compile()
        result = compiled(jax.device_put(X, on(jax_mesh(), "data")))
    np.testing.assert_allclose(result, np.sin(X) @ W, rtol=1e-4, atol=1e-4)
    assert "f32[2,16]" in compiled.as_text()


def test_a_pass_that_changes_the_signature_is_refused():
    with (
        shardpass.plugin(mesh=MESH, rules=ROWS, pipeline="sp-annotate,sp-propagate,sp-partition"),
        pytest.raises(ShardingError) as caught,
    ):
        jax.jit(double)(X)
    assert caught.value.slug == "not-supported"


def test_a_batch_that_does_not_divide():
    """An error with the argument's path; the next good batch works."""
    step = new_step()
    with shardpass.plugin(mesh=MESH, rules=RULES):
        with pytest.raises(ShardingError) as caught:
            step(new_weights(), new_batch(7))
        assert caught.value.slug == "indivisible"
        assert caught.value.diagnostic.path == "batch"
        step(new_weights(), new_batch(8))
    step(new_weights(), new_batch(7))


@pytest.mark.skipif(
    jax.__version_info__ < (0, 12), reason="plain jax.jit ends the process with it (jaxlib 0.10.2)"
)
def test_donated_buffers_used_again():
    step = new_step(donate_argnums=0)
    with shardpass.plugin(mesh=MESH, rules=RULES):
        state, _ = step(new_weights(), new_batch())
        step(state, new_batch())
        with pytest.raises((ValueError, RuntimeError), match="deleted"):
            step(state, new_batch())


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_inside_the_users_mesh(kind):
    """Under ``jax.set_mesh``; on Explicit axes, types that cut nothing are open to the plan."""
    mesh = jax_mesh(kind)
    with jax.set_mesh(mesh), shardpass.plugin(mesh=mesh, rules=ROWS):
        function = jax.jit(lambda x: jnp.sin(x) * 2)
        for _ in range(2):
            result = function(X)
            np.testing.assert_allclose(result, np.sin(X) * 2, rtol=1e-5)
            assert spec_of(result)[:1] == ("data",)
        result = function(jnp.asarray(X))
        assert spec_of(result)[:1] == ("data",)


def test_inside_with_mesh():
    from shardpass.sharding import Mesh

    with Mesh.from_jax(jax_mesh()), shardpass.plugin(mesh=MESH, rules=ROWS):
        assert spec_of(jax.jit(lambda x: x * 3)(X)) == ("data",)


def test_types_on_explicit_axes_hold():
    mesh = jax_mesh(AxisType.Explicit)
    x = jax.device_put(X, on(mesh, None, "model"))
    with shardpass.plugin(mesh=mesh, rules=[("^w$", P("model"))]):
        result = jax.jit(lambda x, w: x @ w, out_shardings=None)(x, W)
        assert result.shape == (8, 32)
        np.testing.assert_allclose(result, X @ W, rtol=1e-5)
        doubled = jax.jit(lambda x: x * 2)(x)
        assert spec_of(doubled) == (None, "model")
        assert jax.typeof(doubled).sharding.spec == P(None, "model")


def test_a_rule_that_contradicts_a_type():
    mesh = jax_mesh(AxisType.Explicit)
    x = jax.device_put(X, on(mesh, None, "model"))
    with shardpass.plugin(mesh=mesh, rules=ROWS), pytest.raises(ShardingError) as caught:
        jax.jit(double)(x)
    assert caught.value.slug == "rule-conflict"
    assert caught.value.diagnostic.path == "x"
    assert "model" in str(caught.value)
    assert "data" in str(caught.value)
