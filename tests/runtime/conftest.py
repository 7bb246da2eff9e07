"""Programs that the tests of this layer run."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from shardpass.mlir import Module, load

MESH = '<["x"=2, "y"=4]>'


def _layer(batch: str, weight: str, result: str) -> str:
    return f"""
module @layer {{
  sdy.mesh @mesh = {MESH}
  func.func public @main(
      %a: tensor<8x16xf32> {{sdy.sharding = #sdy.sharding<@mesh, {batch}>}},
      %w: tensor<16x32xf32> {{sdy.sharding = #sdy.sharding<@mesh, {weight}>}})
      -> (tensor<8x32xf32>{result}) {{
    %0 = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
    return %0 : tensor<8x32xf32>
  }}
}}
"""


@pytest.fixture
def layer() -> Callable[..., Module]:
    """One matrix product on mesh x=2, y=4, with the shardings asked for."""

    def make(batch: str = '[{"x"}, {}]', weight: str = '[{}, {"y"}]', result: str = "") -> Module:
        if result:
            result = f" {{sdy.sharding = #sdy.sharding<@mesh, {result}>}}"
        return load(_layer(batch, weight, result))

    return make


MOMENTUM, RATE = 0.9, 0.1


def train_step(state: dict, batch: dict) -> tuple[dict, jax.Array]:
    """Forward, backward and momentum update of a two-layer network."""

    def loss_of(weights: dict) -> jax.Array:
        hidden = jnp.tanh(batch["x"] @ weights["w1"] + weights["b1"])
        logits = hidden @ weights["w2"]
        chosen = jax.nn.one_hot(batch["y"], logits.shape[-1])
        return -jnp.mean(jnp.sum(chosen * jax.nn.log_softmax(logits), axis=-1))

    loss, gradients = jax.value_and_grad(loss_of)(state["weights"])
    momenta = jax.tree.map(lambda m, g: MOMENTUM * m + g, state["momenta"], gradients)
    weights = jax.tree.map(lambda w, m: w - RATE * m, state["weights"], momenta)
    return {"weights": weights, "momenta": momenta}, loss


def _lower_step(dtype: jnp.dtype) -> jax.stages.Lowered:
    def array(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype)

    weights = {"w1": array(16, 64), "b1": array(64), "w2": array(64, 8)}
    batch = {"x": array(32, 16), "y": jax.ShapeDtypeStruct((32,), jnp.int32)}
    # A new function object for each lowering: equal ones share a module, and we write into it.
    step = jax.jit(lambda state, batch: train_step(state, batch), donate_argnums=0)
    return step.lower({"weights": weights, "momenta": weights}, batch)


#: Megatron's plan: columns, then rows; the batch over x.
PLAN = {
    "w1": '[{}, {"y"}]',
    "b1": '[{"y"}]',
    "w2": '[{"y"}, {}]',
    "x": '[{"x"}, {}]',
    "y": '[{"x"}]',
}
PLAN_MHLO = {
    "w1": "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
    "b1": "{devices=[4,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
    "w2": "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
    "x": "{devices=[2,1,4]<=[8] last_tile_dim_replicate}",
    "y": "{devices=[2,4]<=[8] last_tile_dim_replicate}",
}


def annotate(text: str, attributes: dict[str, str]) -> str:
    """Write an attribute onto each argument and result, by the last part of its path."""
    from jax.extend.mlir import ir

    from shardpass.mlir import (
        argument_attributes,
        result_attributes,
        set_argument_attributes,
        set_result_attributes,
        with_entry,
    )

    module = load(text)
    function = module.main
    with module.ir.context:
        for values, read, write in (
            (module.arguments, argument_attributes, set_argument_attributes),
            (module.results, result_attributes, set_result_attributes),
        ):
            entries = read(function)
            for value in values:
                said = attributes.get(value.path.rpartition(".")[2])
                if said is not None:
                    name, _, attribute = said.partition(" = ")
                    parsed = ir.Attribute.parse(attribute)
                    entries[value.index] = with_entry(entries[value.index], name, parsed)
            write(function, entries)
    return module.text(debug_info=True)


@pytest.fixture
def step() -> Callable[..., Module]:
    """A donated training step, annotated by hand in Shardy's notation or in GSPMD's, or not."""

    def make(notation: str = "sdy", dtype: jnp.dtype = jnp.float32) -> Module:
        text = _lower_step(dtype).as_text(debug_info=True)
        if notation == "sdy":
            text = text.replace("{\n", f"{{\n  sdy.mesh @mesh = {MESH}\n", 1)
            said = {n: f"sdy.sharding = #sdy.sharding<@mesh, {s}>" for n, s in PLAN.items()}
            text = annotate(text, said)
        elif notation == "mhlo":
            text = annotate(text, {n: f'mhlo.sharding = "{s}"' for n, s in PLAN_MHLO.items()})
        return load(text)

    return make
