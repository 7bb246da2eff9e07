"""The programs of plugin mode are those of the other roads to the same plan."""

import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding

import shardpass
from shardpass import P
from tests.runtime.optimized import bare, collectives
from tests.runtime.plugged.programs import (
    MESH,
    RULES,
    jax_mesh,
    new_batch,
    new_step,
    new_weights,
    train_step,
)

GPT2 = Path(__file__).parents[3] / "examples" / "gpt2"
SHAPES = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (new_weights(), new_batch())
)


@pytest.fixture(scope="module")
def plugged():
    with shardpass.plugin(mesh=MESH, rules=RULES):
        return new_step(donate_argnums=0).lower(*SHAPES).compile()


def test_as_jax_jit_with_the_same_shardings(plugged):
    def placed(*spec):
        return NamedSharding(jax_mesh(), P(*spec))

    weights = {"w1": placed(None, "model"), "w2": placed("model")}
    given = jax.jit(
        train_step,
        donate_argnums=0,
        in_shardings=(weights, placed("data")),
        out_shardings=(weights, placed()),
    )
    assert bare(plugged) == bare(given.lower(*SHAPES).compile())


def test_as_shardpass_jit(plugged):
    """The same collectives on both roads, and the same numbers."""
    step = shardpass.jit(train_step, mesh=MESH, rules=RULES, donate_argnums=0)
    other = step.lower(*SHAPES).compile()
    assert collectives(plugged) == collectives(getattr(other, "jax", other))
    assert collectives(plugged)["all-reduce"] >= 1
    with shardpass.plugin(mesh=MESH, rules=RULES):
        _, loss = new_step()(new_weights(), new_batch())
    _, expected = step(new_weights(), new_batch())
    np.testing.assert_allclose(loss, expected, rtol=1e-6)


def test_op_rules_on_both_roads():
    rules = [*RULES, shardpass.Rule(op="stablehlo.tanh", spec=P(None, "data"))]
    with shardpass.plugin(mesh=MESH, rules=rules):
        here = new_step().lower(*SHAPES).compile()
    there = shardpass.jit(train_step, mesh=MESH, rules=rules)
    found = there.lower(*SHAPES).compile()
    assert collectives(here) == collectives(getattr(found, "jax", found))


@pytest.mark.filterwarnings("ignore")  # Flax warns of what newer versions do away with.
@pytest.mark.parametrize("scan", [False, True])
def test_a_real_step_on_three_roads(scan: bool, monkeypatch: pytest.MonkeyPatch):
    """GPT-2 and AdamW: plugin mode, ``shardpass.jit``, and ``jax.jit`` with the same shardings."""
    monkeypatch.syspath_prepend(str(GPT2))
    monkeypatch.delitem(sys.modules, "model", raising=False)
    from model import Batch, Config, abstract_state, make_step

    graph, state = abstract_state(
        Config(layers=2, width=32, heads=4, context=16, vocabulary=128, scan=scan)
    )
    tokens = jax.ShapeDtypeStruct((8, 16), np.int32)
    arguments = (state, Batch(tokens, tokens))
    rules = str(GPT2 / ("rules-scan.toml" if scan else "rules.toml"))
    ours = shardpass.jit(make_step(graph), mesh=MESH, rules=rules, donate_argnums=0)
    on_plan = ours.lower(*arguments).compile().jax
    with shardpass.plugin(mesh=MESH, rules=rules):
        hooked = jax.jit(make_step(graph), donate_argnums=0).lower(*arguments).compile()
    given = jax.jit(
        make_step(graph),
        donate_argnums=0,
        in_shardings=on_plan.input_shardings[0],
        out_shardings=on_plan.output_shardings,
    )
    by_hand = given.lower(*arguments).compile()
    assert collectives(on_plan) == collectives(hooked) == collectives(by_hand)
    assert collectives(on_plan)["all-reduce"] >= 10
    assert bare(on_plan) == bare(by_hand)
