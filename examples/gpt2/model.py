"""GPT-2 in Flax NNX, and one training step of it with Optax's AdamW.

The model is written as one would write it for a single device: nothing here
knows of meshes or shardings. What makes it easy to cut is that the heads are a
dimension of their own in the attention weights (``[768, 3, 12, 64]`` rather
than ``[768, 2304]``), so that one device can own whole heads.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of the model; the defaults are GPT-2 small, 124 million parameters."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    context: int = 1024
    # 50257 tokens, padded as Megatron does it: to a multiple of 128, so that
    # the vocabulary can be cut over the devices.
    vocabulary: int = 50304
    # One block run in a loop over stacked weights, instead of twelve blocks.
    scan: bool = False


def _kernel_init(scale: float = 1.0) -> nnx.Initializer:
    return nnx.initializers.normal(0.02 * scale)


class Attention(nnx.Module):
    """Causal self-attention."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs):
        """Make the two projections: ``qkv`` and ``out``."""
        self.head_width = config.width // config.heads
        self.qkv = nnx.LinearGeneral(
            config.width,
            (3, config.heads, self.head_width),
            kernel_init=_kernel_init(),
            rngs=rngs,
        )
        self.out = nnx.LinearGeneral(
            (config.heads, self.head_width),
            config.width,
            axis=(-2, -1),
            kernel_init=_kernel_init((2 * config.layers) ** -0.5),
            rngs=rngs,
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map ``[batch, sequence, width]`` to the same shape."""
        length = x.shape[1]
        qkv = self.qkv(x)
        query, key, value = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
        scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) * self.head_width**-0.5
        causal = jnp.tril(jnp.ones((length, length), bool))
        scores = jnp.where(causal, scores, jnp.finfo(scores.dtype).min)
        weights = jax.nn.softmax(scores, axis=-1)
        return self.out(jnp.einsum("bhqk,bkhd->bqhd", weights, value))


class Mlp(nnx.Module):
    """The feed-forward half of a block, four times as wide inside."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs):
        """Make the two layers: ``fc`` and ``proj``."""
        hidden = 4 * config.width
        self.fc = nnx.Linear(config.width, hidden, kernel_init=_kernel_init(), rngs=rngs)
        self.proj = nnx.Linear(
            hidden,
            config.width,
            kernel_init=_kernel_init((2 * config.layers) ** -0.5),
            rngs=rngs,
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map ``[batch, sequence, width]`` to the same shape."""
        return self.proj(jax.nn.gelu(self.fc(x), approximate=True))


class Block(nnx.Module):
    """Attention and feed-forward, each after a layer norm and around a residual."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs):
        """Make the four parts of a block."""
        self.ln_1 = nnx.LayerNorm(config.width, epsilon=1e-5, rngs=rngs)
        self.attn = Attention(config, rngs=rngs)
        self.ln_2 = nnx.LayerNorm(config.width, epsilon=1e-5, rngs=rngs)
        self.mlp = Mlp(config, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map ``[batch, sequence, width]`` to the same shape."""
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt2(nnx.Module):
    """GPT-2 with its output layer tied to the token embedding."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs):
        """Make the embeddings ``wte`` and ``wpe``, the blocks ``h`` and ``ln_f``."""
        self.scan = config.scan
        self.wte = nnx.Embed(
            config.vocabulary, config.width, embedding_init=_kernel_init(), rngs=rngs
        )
        self.wpe = nnx.Embed(config.context, config.width, embedding_init=_kernel_init(), rngs=rngs)
        if config.scan:

            @nnx.split_rngs(splits=config.layers)
            @nnx.vmap(in_axes=(0,), out_axes=0)
            def stacked_blocks(rngs: nnx.Rngs) -> Block:
                return Block(config, rngs=rngs)

            self.h = stacked_blocks(rngs)
        else:
            self.h = nnx.List([Block(config, rngs=rngs) for _ in range(config.layers)])
        self.ln_f = nnx.LayerNorm(config.width, epsilon=1e-5, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Map tokens ``[batch, sequence]`` to logits ``[batch, sequence, vocabulary]``."""
        x = self.wte(tokens) + self.wpe.embedding[: tokens.shape[1]]
        if self.scan:
            graph, weights = nnx.split(self.h)

            def one_block(x: jax.Array, weights: nnx.State) -> tuple[jax.Array, None]:
                return nnx.merge(graph, weights)(x), None

            x, _ = jax.lax.scan(one_block, x, weights)
        else:
            for block in self.h:
                x = block(x)
        return self.wte.attend(self.ln_f(x))


class TrainState(NamedTuple):
    """All that a step changes; donated to it."""

    model: nnx.State
    optimizer: optax.OptState


class Batch(NamedTuple):
    """Token numbers, ``[batch, sequence]`` each; ``targets`` is ``tokens`` one further on."""

    tokens: jax.Array
    targets: jax.Array


def optimizer() -> optax.GradientTransformation:
    """AdamW with the settings of the GPT papers; biases and scales do not decay."""
    return optax.adamw(
        learning_rate=6e-4,
        b1=0.9,
        b2=0.95,
        weight_decay=0.1,
        mask=lambda weights: jax.tree.map(lambda weight: weight.ndim > 1, weights),
    )


def cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """Mean negative log-likelihood of ``targets``.

    Written with a comparison instead of a gather: then a vocabulary that is
    cut over devices needs two small all-reduces, and no device needs the
    logits of another.
    """
    chosen = targets[..., None] == jnp.arange(logits.shape[-1])
    target_logits = jnp.sum(logits * chosen, axis=-1)
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - target_logits)


def make_step(graph: nnx.GraphDef[Gpt2]):
    """Return ``train_step(state, batch) -> (new state, loss)`` for a model's graph."""
    transformation = optimizer()

    def train_step(state: TrainState, batch: Batch) -> tuple[TrainState, jax.Array]:
        def loss_of(model: nnx.State) -> jax.Array:
            return cross_entropy(nnx.merge(graph, model)(batch.tokens), batch.targets)

        loss, gradients = jax.value_and_grad(loss_of)(state.model)
        updates, moments = transformation.update(gradients, state.optimizer, state.model)
        return TrainState(optax.apply_updates(state.model, updates), moments), loss

    return train_step


def abstract_state(config: Config) -> tuple[nnx.GraphDef[Gpt2], TrainState]:
    """Shapes and dtypes of the model and its moments; no weight is allocated."""
    graph, model = nnx.split(nnx.eval_shape(lambda: Gpt2(config, rngs=nnx.Rngs(0))))
    return graph, TrainState(model, jax.eval_shape(optimizer().init, model))
