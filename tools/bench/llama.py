"""A training step shaped like Llama 3.1 405B, every layer unrolled, traced from shapes alone.

    python tools/bench/llama.py -o llama.mlir --layers 126

RMSNorm, rotary positions, grouped-query attention, SwiGLU, an output layer of its own or tied to
the embedding; forward, backward, and AdamW or plain SGD. Nothing is allocated, so the sizes are
those of the real model. It is plain JAX without a library of layers: what is measured with it is
how passes grow with the number of ops, and ``llama_rules.toml`` cuts it over data and model.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

RULES = Path(__file__).with_name("llama_rules.toml")


@dataclass(frozen=True)
class Config:
    """Sizes of the model and of a step; the defaults are Llama 3.1 405B's (arXiv 2407.21783)."""

    layers: int = 126
    width: int = 16384
    hidden: int = 53248
    heads: int = 128
    key_value_heads: int = 8
    vocabulary: int = 128256
    batch: int = 16
    sequence: int = 8192
    tied: bool = False
    optimizer: str = "adamw"

    @property
    def head_width(self) -> int:
        """Elements of one head."""
        return self.width // self.heads


class State(NamedTuple):
    """What a step takes and gives back, donated."""

    parameters: Any
    first_moment: Any
    second_moment: Any
    count: Any


def abstract_parameters(config: Config) -> dict[str, Any]:
    """The weights as shapes: bfloat16, heads a dimension of their own."""

    def weight(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16)

    width, head = config.width, config.head_width
    layer = {
        "attention_norm": weight(width),
        "wq": weight(width, config.heads, head),
        "wk": weight(width, config.key_value_heads, head),
        "wv": weight(width, config.key_value_heads, head),
        "wo": weight(config.heads, head, width),
        "mlp_norm": weight(width),
        "gate": weight(width, config.hidden),
        "up": weight(width, config.hidden),
        "down": weight(config.hidden, width),
    }
    parameters = {
        "embedding": weight(config.vocabulary, width),
        "layers": [dict(layer) for _ in range(config.layers)],
        "norm": weight(width),
    }
    if not config.tied:
        parameters["head"] = weight(width, config.vocabulary)
    return parameters


def rms_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Divide by the root of the mean square over the last dimension."""
    wide = x.astype(jnp.float32)
    wide = wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + 1e-5)
    return wide.astype(x.dtype) * scale


def rotate(x: jax.Array, base: float = 500_000.0) -> jax.Array:
    """Rotary positions over ``[batch, sequence, heads, head width]``."""
    length, half = x.shape[1], x.shape[-1] // 2
    angles = jnp.outer(jnp.arange(length), base ** (-jnp.arange(half) / half))
    cosine, sine = jnp.cos(angles)[:, None, :], jnp.sin(angles)[:, None, :]
    left, right = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = [left * cosine - right * sine, right * cosine + left * sine]
    return jnp.concatenate(turned, axis=-1).astype(x.dtype)


def attention(x: jax.Array, layer: dict[str, jax.Array], config: Config) -> jax.Array:
    """Causal attention in which several query heads share a key and a value."""
    groups = config.heads // config.key_value_heads
    query = rotate(jnp.einsum("bsd,dhk->bshk", x, layer["wq"]))
    key = rotate(jnp.einsum("bsd,dhk->bshk", x, layer["wk"]))
    value = jnp.einsum("bsd,dhk->bshk", x, layer["wv"])
    query = query.reshape(*query.shape[:2], config.key_value_heads, groups, config.head_width)
    scores = jnp.einsum("bqgrk,bsgk->bgrqs", query, key) * config.head_width**-0.5
    causal = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
    scores = jnp.where(causal, scores.astype(jnp.float32), -1e30)
    weights = jax.nn.softmax(scores, axis=-1).astype(x.dtype)
    mixed = jnp.einsum("bgrqs,bsgk->bqgrk", weights, value)
    mixed = mixed.reshape(*mixed.shape[:2], config.heads, config.head_width)
    return jnp.einsum("bshk,hkd->bsd", mixed, layer["wo"])


def feed_forward(x: jax.Array, layer: dict[str, jax.Array]) -> jax.Array:
    """SwiGLU."""
    return (jax.nn.silu(x @ layer["gate"]) * (x @ layer["up"])) @ layer["down"]


def loss_of(parameters: Any, tokens: jax.Array, targets: jax.Array, config: Config) -> jax.Array:
    """The mean cross entropy of the next token."""
    x = jnp.take(parameters["embedding"], tokens, axis=0)
    for layer in parameters["layers"]:
        x = x + attention(rms_norm(x, layer["attention_norm"]), layer, config)
        x = x + feed_forward(rms_norm(x, layer["mlp_norm"]), layer)
    x = rms_norm(x, parameters["norm"])
    logits = x @ (parameters["embedding"].T if config.tied else parameters["head"])
    chances = jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
    return -jnp.mean(jnp.take_along_axis(chances, targets[..., None], axis=-1))


def adamw(state: State, gradients: Any) -> State:
    """One AdamW update with bias correction and decoupled decay, moments in float32."""
    count = state.count + 1
    first_scale = 1 - 0.9 ** count.astype(jnp.float32)
    second_scale = 1 - 0.95 ** count.astype(jnp.float32)

    def updated(weight: Any, first: Any, second: Any, gradient: Any) -> tuple[Any, Any, Any]:
        gradient = gradient.astype(jnp.float32)
        first = 0.9 * first + 0.1 * gradient
        second = 0.95 * second + 0.05 * gradient * gradient
        change = first / first_scale / (jnp.sqrt(second / second_scale) + 1e-8)
        wide = weight.astype(jnp.float32)
        return (wide - 8e-5 * (change + 0.1 * wide)).astype(weight.dtype), first, second

    found = jax.tree.map(
        updated, state.parameters, state.first_moment, state.second_moment, gradients
    )
    outer = jax.tree.structure(state.parameters)
    new = jax.tree.transpose(outer, jax.tree.structure((0, 0, 0)), found)
    return State(*new, count)


def lower_step(config: Config) -> jax.stages.Lowered:
    """Trace one step for one device; the state is donated, its arguments keep their names."""

    def step(state: State, tokens: jax.Array, targets: jax.Array) -> tuple[State, jax.Array]:
        loss, gradients = jax.value_and_grad(loss_of)(state.parameters, tokens, targets, config)
        if config.optimizer == "sgd":
            new = jax.tree.map(lambda w, g: w - 1e-3 * g, state.parameters, gradients)
            return state._replace(parameters=new), loss
        return adamw(state, gradients), loss

    parameters = abstract_parameters(config)
    moments: Any = ()
    if config.optimizer == "adamw":
        moments = jax.tree.map(lambda w: jax.ShapeDtypeStruct(w.shape, jnp.float32), parameters)
    state = State(parameters, moments, moments, jax.ShapeDtypeStruct((), jnp.int32))
    tokens = jax.ShapeDtypeStruct((config.batch, config.sequence), jnp.int32)
    return jax.jit(step, donate_argnums=0, keep_unused=True).lower(state, tokens, tokens)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that :func:`config_of` reads."""
    parser.add_argument("--layers", type=int, default=Config.layers, help="blocks (126)")
    parser.add_argument("--tied", action="store_true", help="the output layer is the embedding")
    parser.add_argument("--optimizer", choices=("adamw", "sgd"), default="adamw")


def config_of(options: argparse.Namespace, layers: int | None = None) -> Config:
    """The sizes that a command line asks for; ``layers`` stands in for its own."""
    return Config(layers=layers or options.layers, tied=options.tied, optimizer=options.optimizer)


def main() -> None:
    """Write the module as text with locations."""
    parser = argparse.ArgumentParser(description="Export a Llama-shaped step to StableHLO.")
    parser.add_argument("-o", "--output", type=Path, required=True, help="file to write")
    add_options(parser)
    options = parser.parse_args()
    text = lower_step(config_of(options)).as_text(debug_info=True)
    options.output.write_text(text)
    print(f"{options.output}: {len(text) / 1e6:.1f} MB of text")


if __name__ == "__main__":
    main()
