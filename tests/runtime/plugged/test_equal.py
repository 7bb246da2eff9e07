"""The programs of plugin mode are those of the other roads to the same plan."""

import collections
import re

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding

import shardpass
from shardpass import P
from tests.runtime.plugged.programs import (
    MESH,
    RULES,
    jax_mesh,
    new_batch,
    new_step,
    new_weights,
    train_step,
)

SHAPES = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (new_weights(), new_batch())
)


def hlo(compiled) -> str:
    """The optimized program without metadata and names."""
    text = re.sub(r"(, )?metadata=\{[^}]*\}", "", compiled.as_text())
    text = re.sub(r"HloModule [^,]+", "HloModule m", text)
    text = re.sub(r"(?ms)^FileNames.*?(?=^(%|ENTRY))", "", text)
    names: dict[str, str] = {}
    return re.sub(r"%[\w.-]+", lambda name: names.setdefault(name[0], f"%{len(names)}"), text)


def collectives(compiled) -> collections.Counter:
    kinds = "all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter"
    return collections.Counter(re.findall(rf" ({kinds})(?:-start)?\(", compiled.as_text()))


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
    assert hlo(plugged) == hlo(given.lower(*SHAPES).compile())


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
