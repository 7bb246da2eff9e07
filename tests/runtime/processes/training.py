"""A small training step under ``shardpass.jit``, in a process of one or of several."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import shardpass
from shardpass.diagnostics import ShardingError

RULES = [
    (r"state\..*\.w1", P(None, "model")),
    (r"state\..*\.b1", P("model")),
    (r"state\..*\.w2", P("model", None)),
    (r"batch\..*", P("data")),
]
STEPS = 4


def mesh() -> jax.sharding.Mesh:
    devices = np.array(jax.devices()).reshape(2, 4)
    return jax.sharding.Mesh(devices, ("data", "model"), axis_types=(AxisType.Auto,) * 2)


def step(state: dict[str, Any], batch: dict[str, Any]) -> tuple[dict[str, Any], jax.Array]:
    def loss_of(weights: dict[str, Any]) -> jax.Array:
        hidden = jnp.tanh(batch["x"] @ weights["w1"] + weights["b1"])
        return jnp.mean((hidden @ weights["w2"] - batch["y"]) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(state["weights"])
    momenta = jax.tree.map(lambda m, g: 0.9 * m + g, state["momenta"], gradients)
    weights = jax.tree.map(lambda w, m: w - 0.1 * m, state["weights"], momenta)
    return {"weights": weights, "momenta": momenta}, loss


def values() -> tuple[dict[str, Any], dict[str, Any]]:
    """A state and a batch of numpy's, the same in every process."""
    random = np.random.default_rng(0)
    weights = {
        "w1": random.normal(size=(16, 64)).astype(np.float32),
        "b1": random.normal(size=64).astype(np.float32),
        "w2": random.normal(size=(64, 8)).astype(np.float32),
    }
    batch = {
        "x": random.normal(size=(32, 16)).astype(np.float32),
        "y": random.normal(size=(32, 8)).astype(np.float32),
    }
    return {"weights": weights, "momenta": jax.tree.map(np.zeros_like, weights)}, batch


def train() -> dict[str, Any]:
    """Losses of some steps, and what the program and the last state are."""
    compiled = shardpass.jit(step, mesh=mesh(), rules=RULES, donate_argnums=0)
    losses, state = _steps(compiled)
    lowered = compiled.lower(state, values()[1])
    return {
        "losses": losses,
        "specs": _specs(state),
        "plan": lowered.as_text(notation="sdy"),
        "plan without locations": lowered.module.text(debug_info=False),
        "program": lowered.as_text(),
        "hlo": lowered.compile().as_text(),
    }


def train_plugged() -> dict[str, Any]:
    """The same under plain ``jax.jit``, in plugin mode."""
    plain = jax.jit(step, donate_argnums=0)
    with shardpass.plugin(mesh=mesh(), rules=RULES):
        losses, state = _steps(plain)
        lowered = plain.lower(state, values()[1])
        return {
            "losses": losses,
            "specs": _specs(state),
            "program": lowered.as_text(),
            "hlo": lowered.compile().as_text(),
        }


def _steps(compiled: Any) -> tuple[list[float], dict[str, Any]]:
    state, batch = values()
    losses: list[float] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(STEPS):
            state, loss = compiled(state, batch)
            losses.append(float(loss))
    return losses, state


def _specs(state: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    return {name: tuple(value.sharding.spec) for name, value in state["weights"].items()}


def place() -> dict[str, Any]:
    """What becomes of arguments that do not lie where the plan has them, kind by kind."""
    wanted, other = NamedSharding(mesh(), P("data", "model")), NamedSharding(mesh(), P("model"))
    own = jax.sharding.Mesh(np.array(jax.local_devices()), ("own",), axis_types=(AxisType.Auto,))
    value = np.arange(64, dtype=np.float32).reshape(8, 8)
    doubled = shardpass.jit(lambda a: 2 * a, mesh=mesh(), rules=[("a", P("data", "model"))])
    added = shardpass.jit(lambda a, b: a + b, mesh=mesh(), rules=[("a", P("data", "model"))])
    part = jax.make_array_from_callback(value.shape, other, value.__getitem__)
    keys = jax.random.split(jax.random.key(7), 8)
    drawn = shardpass.jit(
        lambda keys: jax.vmap(jax.random.normal)(keys), mesh=mesh(), rules=[("keys", P("data"))]
    )
    local = jax.device_put(value, jax.local_devices()[0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return {
            "numpy": _blocks(doubled(value), wanted, 2 * value),
            "integers": _blocks(doubled(value.astype(np.int32)), wanted, 2 * value),
            "jax": _blocks(doubled(jnp.asarray(value)), wanted, 2 * value),
            "another layout": _blocks(doubled(part), wanted, 2 * value),
            "keys": drawn(keys).sharding.is_equivalent_to(NamedSharding(mesh(), P("data")), 1),
            "one device": _told(lambda: doubled(local)),
            "own mesh": _told(lambda: doubled(jax.device_put(value, NamedSharding(own, P("own"))))),
            "one device's, wanted whole": _blocks(
                added(value, jax.device_put(np.float32(1), jax.local_devices()[0])),
                wanted,
                value + 1,
            ),
            "own mesh's, wanted whole": _told(
                lambda: added(value, jax.device_put(np.float32(1), NamedSharding(own, P())))
            ),
            "warnings": [str(each.message) for each in caught],
        }


def train_and_place() -> tuple[dict[str, Any], dict[str, Any]]:
    return train(), place()


def train_on_both_roads() -> tuple[dict[str, Any], dict[str, Any]]:
    return train(), train_plugged()


def _blocks(found: jax.Array, wanted: NamedSharding, whole: np.ndarray) -> bool:
    """Whether ``found`` is ``whole``, laid out as wanted."""
    return found.sharding.is_equivalent_to(wanted, whole.ndim) and all(
        np.array_equal(shard.data, whole[shard.index]) for shard in found.addressable_shards
    )


def _told(call: Any) -> tuple[str, str]:
    try:
        call()
    except ShardingError as error:
        return error.slug, str(error)
    return "", ""
