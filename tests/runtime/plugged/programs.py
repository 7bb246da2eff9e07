"""Programs that know nothing of plugin mode, and what the tests ask of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding

from shardpass import P
from tests.runtime.counting import events

MESH = {"data": 2, "model": 4}
#: Megatron's plan for :func:`train_step`.
RULES = [(r"^batch$", P("data")), (r"w1$", P(None, "model")), (r"w2$", P("model"))]


def train_step(weights: dict, batch: Any) -> tuple[dict, jax.Array]:
    """One step of gradient descent on a two-layer network."""

    def loss_of(weights: dict) -> jax.Array:
        return jnp.mean((jnp.tanh(batch @ weights["w1"]) @ weights["w2"]) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(weights)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients), loss


def new_step(**options: Any) -> Any:
    """:func:`train_step` under ``jax.jit``, as another function than all before: JAX remembers."""
    return jax.jit(lambda weights, batch: train_step(weights, batch), **options)


def new_weights() -> dict:
    """Those of a network of 16, 32 and 8."""
    random = np.random.default_rng(0)
    return {
        "w1": random.normal(size=(16, 32)).astype(np.float32),
        "w2": random.normal(size=(32, 8)).astype(np.float32),
    }


def new_batch(rows: int = 8) -> np.ndarray:
    """So many rows of 16."""
    return np.random.default_rng(1).normal(size=(rows, 16)).astype(np.float32)


def numbers(*shape: int) -> np.ndarray:
    """0, 1, 2, ...: no two elements alike."""
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def jax_mesh(
    kind: AxisType = AxisType.Auto,
    sizes: tuple[int, ...] = (2, 4),
    names: tuple[str, ...] = ("data", "model"),
    devices: Any = None,
) -> jax.sharding.Mesh:
    """A mesh of JAX's own."""
    return jax.make_mesh(sizes, names, (kind,) * len(sizes), devices=devices)


def on(mesh: jax.sharding.Mesh, *spec: Any) -> NamedSharding:
    """A spec on a mesh."""
    return NamedSharding(mesh, P(*spec))


_NAMES = {"traced": "traces", "lowered": "lowerings", "compiled": "compiles"}


@contextlib.contextmanager
def counted() -> Iterator[dict[str, int]]:
    """How often JAX traced, lowered and compiled inside, filled in at the end."""
    found: dict[str, int] = {}
    with events() as seen:
        yield found
    found.update({_NAMES[name]: count for name, count in seen.items()})
