"""The GPT-2 of the example is one: causal, and it learns."""

import importlib.util
import math
import sys
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from tests.examples.settings import EXAMPLES


@pytest.fixture(scope="module")
def gpt2() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpt2_model", EXAMPLES / "gpt2" / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpt2_model"] = module  # where dataclasses look for annotations
    spec.loader.exec_module(module)
    return module


def tokens(batch: int, length: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).integers(0, 64, (batch, length)), jnp.int32)


@pytest.mark.parametrize("scan", [False, True])
def test_a_token_changes_nothing_before_it(gpt2: ModuleType, scan: bool):
    config = gpt2.Config(layers=2, width=32, heads=4, context=16, vocabulary=64, scan=scan)
    first = tokens(1, 8)
    second = first.at[0, 5].set((first[0, 5] + 1) % 64)

    @jax.jit
    def logits_of_both() -> tuple[jax.Array, jax.Array]:
        model = gpt2.Gpt2(config, rngs=nnx.Rngs(0))
        return model(first), model(second)

    a, b = logits_of_both()
    np.testing.assert_array_equal(a[:, :5], b[:, :5])
    for position in (5, 6, 7):
        assert float(jnp.max(jnp.abs(a[:, position] - b[:, position]))) > 1e-4


def test_the_loss_starts_at_a_guess_and_falls(gpt2: ModuleType):
    """An untrained model knows nothing: log(64) per token. Eight steps on one batch learn it."""
    config = gpt2.Config(layers=1, width=32, heads=4, context=16, vocabulary=64)
    graph, _ = gpt2.abstract_state(config)

    @jax.jit
    def new_state() -> tuple[nnx.State, optax.OptState]:
        model = nnx.state(gpt2.Gpt2(config, rngs=nnx.Rngs(0)))
        return gpt2.TrainState(model, gpt2.optimizer().init(model))

    step, state = jax.jit(gpt2.make_step(graph)), new_state()
    text = tokens(4, 9)
    batch = gpt2.Batch(text[:, :-1], text[:, 1:])
    losses = []
    for _ in range(8):
        state, loss = step(state, batch)
        losses.append(float(loss))
    assert losses[0] == pytest.approx(math.log(64), rel=0.02)
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] - 0.05


def test_only_matrices_decay(gpt2: ModuleType):
    """With no gradient, AdamW takes 6e-4 * 0.1 of a kernel and nothing of a scale."""
    weights = {"kernel": jnp.ones((2, 2)), "scale": jnp.ones(2)}
    gradients = jax.tree.map(jnp.zeros_like, weights)
    transformation = gpt2.optimizer()
    updates, _ = transformation.update(gradients, transformation.init(weights), weights)
    np.testing.assert_allclose(updates["kernel"], -6e-5, rtol=1e-5)
    np.testing.assert_array_equal(updates["scale"], 0.0)


def test_no_weight_is_allocated_for_an_export(gpt2: ModuleType):
    _, state = gpt2.abstract_state(gpt2.Config())
    leaves = jax.tree.leaves(state)
    assert len(leaves) == 445
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves)
