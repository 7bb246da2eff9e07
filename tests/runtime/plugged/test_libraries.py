"""Functions under ``flax.nnx.jit`` and ``equinox.filter_jit``: rules by the user's own paths."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import shardpass
from shardpass import P
from tests.runtime.plugged.programs import MESH, counted, new_batch

RULES = [
    ("^batch$", P("data")),
    (r"^model\.up\.kernel$", P(None, "model")),
    (r"^model\.layers\.0\.kernel$", P("model")),
]


class Network(nnx.Module):
    def __init__(self, rngs):
        self.up = nnx.Linear(16, 32, rngs=rngs)
        self.layers = nnx.List([nnx.Linear(32, 8, rngs=rngs), nnx.Linear(8, 8, rngs=rngs)])

    def __call__(self, x):
        x = jnp.tanh(self.up(x))
        for layer in self.layers:
            x = layer(x)
        return x


def nnx_step(model, optimizer, batch):
    loss, gradients = nnx.value_and_grad(lambda model: jnp.mean(model(batch) ** 2))(model)
    optimizer.update(model, gradients)
    return loss


def nnx_losses(step, count=3):
    model = Network(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(0.1), wrt=nnx.Param)
    losses = [float(step(model, optimizer, new_batch())) for _ in range(count)]
    return losses, model


@pytest.mark.parametrize("options", [{}, {"graph": False}, {"graph_updates": False}])
def test_nnx(options):
    """Decorated before the block; the two ways in which NNX takes modules apart."""
    step = nnx.jit(nnx_step, **options)
    expected, _ = nnx_losses(step)
    with shardpass.plugin(mesh=MESH, rules=RULES) as plugged, counted() as events:
        found, model = nnx_losses(step)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert tuple(model.up.kernel.get_value().sharding.spec) == (None, "model")
    assert tuple(model.layers[0].kernel.get_value().sharding.spec) == ("model",)
    (row,) = plugged.report().compiled
    specs = {each.path: each.spec for each in row.arguments}
    assert specs["model.up.kernel"] == "P(None, 'model')"
    assert specs["model.layers.0.kernel"] == "P('model',)"
    assert specs["optimizer.opt_state.0.mu.up.kernel"] == "P(None, 'model')"
    assert row.hidden_paths == ()
    assert row.paths_from == ("flax.nnx.jit" if not options else None)
    assert events["compiles"] >= 1


def test_nnx_variables_that_arguments_share():
    """They are leaves of the first argument that has them."""

    @nnx.jit
    def both(first, second, x):
        return first(x) + second["layer"](x) + second["more"](x)

    first = nnx.Linear(16, 8, rngs=nnx.Rngs(0))
    other = nnx.Linear(16, 8, rngs=nnx.Rngs(1))
    rules = [(r"^first\.kernel$", P("model")), (r"^second\.more\.bias$", P()), ("^x$", P("data"))]
    with shardpass.plugin(mesh=MESH, rules=rules) as plugged:
        both(first, {"layer": first, "more": other}, new_batch())
    (row,) = plugged.report().compiled
    assert {each.path for each in row.arguments} >= {"first.kernel", "first.bias", "x"}
    assert not any("second.layer" in each.path for each in row.arguments)


class Layers(eqx.Module):
    up: eqx.nn.Linear
    down: eqx.nn.Linear
    name: str

    def __call__(self, x):
        return self.down(jnp.tanh(self.up(x)))


def new_layers():
    up, down = jax.random.split(jax.random.key(0))
    return Layers(eqx.nn.Linear(16, 32, key=up), eqx.nn.Linear(32, 8, key=down), "mine")


def equinox_step(batch, model, *, rate):
    @eqx.filter_value_and_grad
    def loss_of(model):
        return jnp.mean(jax.vmap(model)(batch) ** 2)

    loss, gradients = loss_of(model)
    return eqx.apply_updates(model, jax.tree.map(lambda g: -rate * g, gradients)), loss


EQUINOX_RULES = [
    ("^batch$", P("data")),
    (r"^model\.up\.weight$", P("model")),
    (r"^model\.down\.weight$", P(None, "model")),
]


@pytest.mark.parametrize("donate", ["all", "all-except-first"])
def test_equinox(donate):
    step = eqx.filter_jit(equinox_step, donate=donate)

    def losses():
        model, found = new_layers(), []
        for _ in range(3):
            model, loss = step(jnp.asarray(new_batch()), model, rate=jnp.float32(0.1))
            found.append(float(loss))
        return found, model

    expected, _ = losses()
    with shardpass.plugin(mesh=MESH, rules=EQUINOX_RULES) as plugged:
        found, model = losses()
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert tuple(model.up.weight.sharding.spec)[:1] == ("model",)
    rows = plugged.report().compiled
    assert {row.paths_from for row in rows} == {"equinox.filter_jit"}
    assert {row.hidden_paths for row in rows} == {()}
    assert {each.path: each.spec for each in rows[0].arguments} == {
        "batch": "P('data',)",
        "model.up.weight": "P('model',)",
        "model.up.bias": "P('model',)",
        "model.down.weight": "P(None, 'model')",
        "model.down.bias": "P()",
        "rate": "P()",
    }


def test_an_equinox_method():
    class Scaled(eqx.Module):
        factor: jax.Array

        @eqx.filter_jit
        def apply(self, x):
            return x * self.factor

    scaled = Scaled(jnp.arange(16.0))
    rules = [(r"^self\.factor$", P("model")), ("^x$", P("data"))]
    with shardpass.plugin(mesh=MESH, rules=rules) as plugged:
        result = scaled.apply(new_batch())
    np.testing.assert_allclose(result, new_batch() * np.arange(16.0), rtol=1e-6)
    (row,) = plugged.report().compiled
    assert [(each.path, each.spec) for each in row.arguments] == [
        ("self.factor", "P('model',)"),
        ("x", "P('data',)"),
    ]


def test_names_that_nobody_can_tell():
    """Names in the style of a library that is not there to explain them: the report says so."""

    def step(dynamic_nodonate):
        return dynamic_nodonate["first"][0] * 2

    rules = [("first", P("data"))]
    with shardpass.plugin(mesh=MESH, rules=rules) as plugged:
        jax.jit(step)({"first": [new_batch()]})
    (row,) = plugged.report().compiled
    assert row.hidden_paths == ("dynamic_nodonate['first'][0]",)
    assert "rules by path do not see 1 name: dynamic_nodonate['first'][0]" in str(plugged.report())


def test_a_library_that_has_changed(monkeypatch):
    """Its names stay, the report says so, and the function compiles all the same."""
    monkeypatch.delattr(nnx, "split_context")
    layer = nnx.Linear(16, 8, rngs=nnx.Rngs(0))
    expected = layer(new_batch())
    with shardpass.plugin(mesh=MESH, rules=[("^x$", P("data"))]) as plugged:
        result = nnx.jit(lambda layer, x: layer(x))(layer, new_batch())
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    (row,) = plugged.report().compiled
    assert row.paths_from is None
    assert row.hidden_paths == ("layer.states[0][0]", "layer.states[0][1]")
