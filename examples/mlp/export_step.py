"""Write the training step of a two-layer network as a StableHLO module.

    python examples/mlp/export_step.py -o mlp.mlir

Needs nothing but JAX: the network is two matrices in a dictionary, the
optimizer is gradient descent with momentum. Nothing here knows of meshes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp

WIDTH, HIDDEN, CLASSES, BATCH = 64, 256, 16, 32
RATE, MOMENTUM = 0.1, 0.9


def loss_of(weights: dict, batch: dict) -> jax.Array:
    """Mean cross-entropy of the network's answer against ``batch["labels"]``."""
    hidden = jax.nn.relu(batch["images"] @ weights["fc"]["kernel"] + weights["fc"]["bias"])
    logits = hidden @ weights["proj"]["kernel"] + weights["proj"]["bias"]
    chosen = jax.nn.one_hot(batch["labels"], CLASSES)
    return -jnp.mean(jnp.sum(chosen * jax.nn.log_softmax(logits), axis=-1))


def train_step(state: dict, batch: dict) -> tuple[dict, jax.Array]:
    """Return the new state and the loss before the update."""
    loss, gradients = jax.value_and_grad(loss_of)(state["weights"], batch)
    momenta = jax.tree.map(
        lambda momentum, gradient: MOMENTUM * momentum + gradient, state["momenta"], gradients
    )
    weights = jax.tree.map(
        lambda weight, momentum: weight - RATE * momentum, state["weights"], momenta
    )
    return {"weights": weights, "momenta": momenta}, loss


def lower_step() -> jax.stages.Lowered:
    """Trace one step from shapes alone, for one device; the state is donated."""

    def array(*shape: int, dtype: jnp.dtype = jnp.float32) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype)

    weights = {
        "fc": {"kernel": array(WIDTH, HIDDEN), "bias": array(HIDDEN)},
        "proj": {"kernel": array(HIDDEN, CLASSES), "bias": array(CLASSES)},
    }
    batch = {"images": array(BATCH, WIDTH), "labels": array(BATCH, dtype=jnp.int32)}
    state = {"weights": weights, "momenta": weights}
    return jax.jit(train_step, donate_argnums=0, keep_unused=True).lower(state, batch)


def main() -> None:
    """Parse the command line and write the module."""
    parser = argparse.ArgumentParser(description="Export a small training step to StableHLO.")
    parser.add_argument("-o", "--output", type=Path, required=True, help="file to write")
    output = parser.parse_args().output
    output.write_text(lower_step().as_text(debug_info=True))
    print(f"{output}: {output.stat().st_size / 1e3:.0f} kB of text")


if __name__ == "__main__":
    main()
