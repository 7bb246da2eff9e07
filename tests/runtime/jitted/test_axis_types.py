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
from tests.runtime.jitted.steps import RULES, batch, parameters, same, spec_of, train_step

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

    def test_a_function_whose_types_do_not_settle_it_is_refused_as_jax_does(self):
        f = shardpass.jit(lambda x, w: x @ w, mesh=EXPLICIT)
        x, w = explicit(np.ones((8, 8), np.float32), None, "model"), np.ones((8, 8), np.float32)
        with pytest.raises(Exception, match="ambiguous") as caught:
            f(x, explicit(w, "model"))
        assert type(caught.value).__name__ == "ShardingTypeError"

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
