"""``shardpass.constrain``: values inside a function, by spec and by name."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import shardpass
from shardpass import ShardingError
from tests.runtime.jitted.steps import (
    batch,
    constraints,
    mesh_of,
    parameters,
    placed,
    same,
    spec_of,
)

X = np.arange(64, dtype=np.float32).reshape(8, 8)


def specs(f: Any, *args: Any) -> list[Any]:
    return [spec for _, spec in constraints(f.trace(*args).jaxpr.jaxpr)]


class TestInsideJit:
    def test_by_spec_on_the_mesh_of_the_function(self):
        f = shardpass.jit(
            lambda x: shardpass.constrain(jnp.sin(x), P("model")) * 2,
            mesh=mesh_of(),
            rules=[("^x$", P("data"))],
        )
        same(f(X), np.sin(X) * 2)
        assert specs(f, X) == [P("model", None)]

    def test_by_the_name_of_a_rule(self):
        rules = [("^x$", P("data")), ("^activations$", P("data", "model"))]

        def f(x: Any, w: Any) -> Any:
            return jnp.tanh(shardpass.constrain(x @ w, "activations")).sum()

        jitted = shardpass.jit(f, mesh=mesh_of(), rules=rules)
        x, w = batch()["x"], parameters()["up"]
        with warnings.catch_warnings(action="error"):  # The rule matched something: the name.
            same(jitted(x, w), np.tanh(x @ w).sum())
        assert P("data", "model") in specs(jitted, x, w)

    def test_rules_for_names_alone(self):
        f = shardpass.jit(
            lambda x: shardpass.constrain(x * 2, "hidden"),
            mesh=mesh_of(),
            rules=[("^hidden$", P("model"))],
        )
        assert spec_of(f(X)) == ("model",)

    def test_trees(self):
        f = shardpass.jit(
            lambda x: shardpass.constrain({"a": x, "b": [x + 1]}, P("data")),
            mesh=mesh_of(),
        )
        found = f(X)
        assert spec_of(found["a"]) == spec_of(found["b"][0]) == ("data",)

    def test_faults(self):
        def call(spec: Any, rules: Any) -> Any:
            return shardpass.jit(
                lambda x: shardpass.constrain(x, spec), mesh=mesh_of(), rules=rules
            )(X)

        for spec, rules, says in (
            (
                "activation",
                [("^activations$", P("data"))],
                'no rule matches the name "activation"',
            ),
            ("activations", None, "asks for a rule, and there are none"),
            (P("nope"), None, '"nope" is not an axis of the mesh data=2, model=4'),
            (P(None, None, "data"), None, "a constrained value"),
        ):
            with pytest.raises(ShardingError, match=says):
                call(spec, rules)
        with pytest.raises(ShardingError, match="dimension 0: 7 elements into 2 pieces"):
            shardpass.jit(lambda x: shardpass.constrain(x[:7], P("data")), mesh=mesh_of())(X)


class TestElsewhere:
    def test_on_a_mesh_that_is_handed_over_or_set(self):
        found = jax.jit(lambda x: shardpass.constrain(x, P("data"), mesh=mesh_of()))(X)
        assert spec_of(found) == ("data",)
        eager = shardpass.constrain(jnp.asarray(X), P("data"), mesh=mesh_of())
        assert eager.sharding == NamedSharding(mesh_of(), P("data", None))
        with jax.set_mesh(mesh_of()):
            assert spec_of(jax.jit(lambda x: shardpass.constrain(x, P("model")))(X)) == ("model",)

    def test_without_any(self):
        with pytest.raises(ShardingError, match="there is no mesh") as caught:
            shardpass.constrain(X, P("data"))
        assert caught.value.slug == "bad-mesh"


class TestConstraintsThatDoNothing:
    def test_over_axes_of_size_one(self):
        mesh = jax.make_mesh(
            (8, 1), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2
        )
        f = shardpass.jit(lambda x: shardpass.constrain(x, P("model")), mesh=mesh)
        with pytest.warns(UserWarning, match="did nothing: all its axes have size 1") as said:
            f(X)
        assert said[0].filename == __file__

    def test_on_a_value_with_a_type(self):
        explicit = jax.make_mesh((2, 4), ("data", "model"))
        f = jax.jit(lambda x: shardpass.constrain(x, P("model"), mesh=explicit))
        typed = jax.device_put(X, NamedSharding(explicit, P("data")))
        with pytest.warns(UserWarning, match="did nothing: the value has .*data.* in its type"):
            f(typed)

    def test_inside_shard_map(self):
        def inside(spec: P) -> Any:
            return jax.jit(
                jax.shard_map(
                    lambda x: shardpass.constrain(x, spec, mesh=mesh_of()),
                    mesh=mesh_of(),
                    in_specs=P("data"),
                    out_specs=P("data"),
                    axis_names={"data"},
                )
            )(X)

        with pytest.raises(
            ShardingError, match="is to be cut over data inside a shard_map over it"
        ):
            inside(P("data"))
        same(inside(P(None, "model")), X)
        assert inside(P(None, "model")).sharding.is_equivalent_to(placed("data", "model"), 2)
