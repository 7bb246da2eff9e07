"""Meshes straight from ``jax.make_mesh``, whose axes are ``Explicit``, and mixed ones."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import shardpass
from shardpass import ShardingError
from tests.runtime.jitted.steps import (
    RULES,
    batch,
    mesh_of,
    parameters,
    placed,
    same,
    spec_of,
    train_step,
)

EXPLICIT = jax.make_mesh((2, 4), ("data", "model"))


def explicit(array: Any, *spec: Any) -> jax.Array:
    return jax.device_put(array, NamedSharding(EXPLICIT, PartitionSpec(*spec)))


class TestOpenValues:
    def test_a_function_that_knows_nothing_of_types_runs_step_by_step(self):
        """Under jax.jit the second step would be refused: its types do not settle the layout."""
        step = shardpass.jit(train_step, mesh=EXPLICIT, rules=RULES)
        state: Any = parameters()
        expected: Any = parameters()
        for _ in range(3):
            state, loss = step(state, batch())
            expected, wanted = train_step(expected, batch())
            same((state, loss), (expected, wanted))
        assert spec_of(state["up"]) == (None, "model")
        assert state["up"].sharding.mesh.axis_types == (AxisType.Auto, AxisType.Auto)

    @pytest.mark.filterwarnings("ignore:.*have types on Explicit axes")
    def test_what_is_whole_is_open(self):
        """As all is that ``jax.set_mesh`` has not been told more of."""
        step = shardpass.jit(train_step, mesh=EXPLICIT, rules=RULES)
        whole = jax.tree.map(lambda x: explicit(x), parameters())
        with pytest.warns(UserWarning, match="arrives as"):
            state, _ = step(whole, batch())
        assert spec_of(state["up"]) == (None, "model")
        with jax.set_mesh(EXPLICIT):
            state, loss = step(parameters(), batch())
            same(loss, train_step(parameters(), batch())[1])
            assert spec_of(state["up"]) == (None, "model")
            same(
                step(state, batch())[1],
                train_step(*[train_step(parameters(), batch())[0], batch()])[1],
            )

    def test_inside_a_function_with_types_results_have_those_of_the_plan(self):
        f = shardpass.jit(lambda x: x * 2, mesh=EXPLICIT, rules=[("^x$", PartitionSpec("data"))])
        seen: list[str] = []

        @jax.jit
        def outer(x: Any) -> Any:
            y = f(jnp.ones(8) + x.sum())
            seen.append(str(jax.typeof(y)))
            return y

        with jax.set_mesh(EXPLICIT):
            same(outer(explicit(np.ones(8, np.float32), "data")), np.full(8, 18.0))
        assert seen == ["float32[8@data]"]


class TestTypes:
    def test_they_hold_and_rules_fill_the_rest(self):
        seen: list[str] = []

        def product(w: Any, x: Any) -> Any:
            found = x @ w
            seen.append(str(jax.typeof(found)))
            return found

        f = shardpass.jit(product, mesh=EXPLICIT, rules=[("^x$", PartitionSpec("data"))])
        w, x = explicit(parameters()["up"], None, "model"), batch()["x"]
        found = f(w, x)
        same(found, x @ parameters()["up"])
        assert seen == ["float32[8@data,32@model]"]
        assert str(jax.typeof(found)) == "float32[8@data,32@model]"
        same(f(w, explicit(x, "data")), x @ parameters()["up"])
        assert seen == ["float32[8@data,32@model]"]

    def test_a_rule_that_contradicts_one_is_an_error_that_names_both(self):
        f = shardpass.jit(lambda x: x * 2, mesh=EXPLICIT, rules=[("^x$", PartitionSpec("data"))])
        with pytest.raises(
            ShardingError,
            match=r'argument 0 \("x"\) has .*model.* in its type, and a rule says .*data',
        ) as caught:
            f(explicit(np.ones(8, np.float32), "model"))
        assert caught.value.slug == "rule-conflict"
        assert caught.value.diagnostic.path == "x"
        f(np.ones(8, np.float32))
        with pytest.raises(ShardingError, match="in its type"):
            f(explicit(np.ones(8, np.float32), "model"))

    def test_so_is_a_rule_for_a_result(self):
        f = shardpass.jit(
            lambda x: x * 2, mesh=EXPLICIT, rules=[("^result$", PartitionSpec("model"))]
        )
        with pytest.raises(ShardingError, match=r"result 0 .*has a type that says") as caught:
            f(explicit(np.ones(8, np.float32), "data"))
        assert caught.value.slug == "rule-conflict"

    def test_a_function_whose_types_do_not_settle_it_keeps_layouts_alone(self):
        """Where JAX asks for an ``out_sharding``, that is said, and propagation decides."""
        f = shardpass.jit(lambda x, w: x @ w, mesh=EXPLICIT)
        x, w = explicit(np.ones((8, 8), np.float32), None, "model"), np.ones((8, 8), np.float32)
        with pytest.warns(UserWarning, match=r"layouts alone are kept \(Contracting dimensions"):
            found = f(x, explicit(w, "model"))
        same(found, w @ w)
        places = f.lower(x, explicit(w, "model")).compile().input_shardings[0]
        assert [place.spec for place in places] == [
            PartitionSpec(None, "model"),
            PartitionSpec("model", None),
        ]

    def test_under_other_transformations(self):
        f = shardpass.jit(
            lambda w, x: jnp.sin(x @ w).sum(), mesh=EXPLICIT, rules=[("^x$", PartitionSpec("data"))]
        )
        w, x = parameters()["up"], batch()["x"]
        with jax.set_mesh(EXPLICIT):  # JAX asks for it wherever types are derived through jit.
            found = jax.grad(f, argnums=1)(explicit(w, None, "model"), x)
        same(found, jax.grad(lambda x: jnp.sin(x @ w).sum())(x))


class TestMixedMeshes:
    def test_auto_axes_beside_explicit_ones(self):
        mesh = jax.make_mesh(
            (2, 4), ("data", "model"), axis_types=(AxisType.Explicit, AxisType.Auto)
        )
        step = shardpass.jit(train_step, mesh=mesh, rules=RULES)
        with warnings.catch_warnings(action="error"):
            state, loss = step(parameters(), batch())
            same(
                step(state, batch())[1],
                train_step(*[train_step(parameters(), batch())[0], batch()])[1],
            )
        same(loss, train_step(parameters(), batch())[1])


class TestFunctionsWithoutTypes:
    """Most functions do not say how layouts follow from each other; they run all the same."""

    def test_beside_arguments_that_have_types_layouts_are_kept(self):
        explicit = mesh_of(AxisType.Explicit)
        f = shardpass.jit(
            lambda up, down, batch: batch @ up @ down,
            mesh=explicit,
            rules=[("^up$", PartitionSpec(None, "model")), ("^down$", PartitionSpec("model"))],
        )
        up, down = parameters()["up"], parameters()["down"]
        rows = jax.device_put(batch()["x"], placed("data", kind=AxisType.Explicit))
        with pytest.warns(UserWarning, match="have types on Explicit axes"):
            found = f(up, down, rows)
        same(found, batch()["x"] @ up @ down, tolerance=1e-4)
        assert spec_of(found) == ("data",)

    def test_rules_still_contradict(self):
        explicit = mesh_of(AxisType.Explicit)
        f = shardpass.jit(lambda x: x @ x.T, mesh=explicit, rules=[("^x$", PartitionSpec("model"))])
        x = jax.device_put(batch()["x"], placed("data", kind=AxisType.Explicit))
        with pytest.raises(
            ShardingError, match=r"has P\('data', None\) in its type, and a rule says"
        ):
            f(x)

    @pytest.mark.filterwarnings("ignore:.*have types on Explicit axes")
    def test_a_training_loop_on_a_mesh_that_is_set(self):
        """Results have types there, as all that is made under ``jax.set_mesh``."""
        explicit = mesh_of(AxisType.Explicit)
        step = shardpass.jit(train_step, mesh=explicit, rules=RULES)
        ours = theirs = parameters()
        with jax.set_mesh(explicit):
            for _ in range(3):
                ours, loss = step(ours, batch())
                total = loss + 0
        for _ in range(3):
            theirs, expected = train_step(theirs, batch())
        same((ours, total), (theirs, expected))
        assert ours["up"].sharding == placed(None, "model", kind=AxisType.Explicit)

    def test_eager_derivatives_on_a_mesh_that_is_set(self):
        explicit = mesh_of(AxisType.Explicit)
        f = shardpass.jit(
            lambda x: (x**3).sum(), mesh=explicit, rules=[("^x$", PartitionSpec("data"))]
        )
        x = jnp.arange(8.0)
        with jax.set_mesh(explicit):
            same(jax.grad(f)(x), 3 * x**2)


class TestOtherMeshes:
    def test_types_on_another_mesh_say_nothing_here(self):
        other = jax.make_mesh((8,), ("d",))
        x = jax.device_put(np.ones((8, 4), np.float32), NamedSharding(other, PartitionSpec("d")))
        for mesh in (mesh_of(), mesh_of(AxisType.Explicit)):
            f = shardpass.jit(lambda x: 2 * x, mesh=mesh, rules=[("^x$", PartitionSpec("data"))])
            with pytest.warns(UserWarning, match="moved"):
                assert spec_of(f(x)) == ("data",)

    def test_types_over_some_of_the_axes(self):
        kinds = (AxisType.Explicit, AxisType.Auto)
        mixed = jax.make_mesh((2, 4), ("data", "model"), axis_types=kinds)
        x, w = np.ones((8, 4), np.float32), np.ones((4, 4), np.float32)
        rules = [("^x$", PartitionSpec("data")), ("^w$", PartitionSpec(None, "model"))]
        f = shardpass.jit(lambda x, w: x @ w, mesh=mixed, rules=rules)
        found = f(jax.device_put(x, NamedSharding(mixed, PartitionSpec("data"))), w)
        same(found, x @ w)
        assert spec_of(found) == ("data", "model")

    def test_inside_shard_map_over_other_axes(self):
        explicit = mesh_of(AxisType.Explicit)
        inner = shardpass.jit(
            lambda x: x * 2, mesh=explicit, rules=[("^x$", PartitionSpec("data"))]
        )
        over = PartitionSpec(None, "model")
        mapped = jax.shard_map(
            lambda x: inner(x), mesh=explicit, in_specs=over, out_specs=over, axis_names={"model"}
        )
        x = np.arange(64, dtype=np.float32).reshape(8, 8)
        found = jax.jit(mapped)(jax.device_put(x, NamedSharding(explicit, over)))
        same(found, 2 * x)
        assert spec_of(found) == ("data", "model")
