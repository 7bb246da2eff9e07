"""Plain ``jax.jit`` in plugin mode on several processes, given arrays that each has for itself."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

import shardpass
from shardpass.diagnostics import ShardingError

_ROWS = [("batch", P("data"))]


def call() -> dict[str, Any]:
    """What becomes of the sum of twice a batch, by where it comes from."""
    number = jax.process_index() + 1.0
    local = jax.local_devices()[0]
    own = jax.device_put(np.full((8, 4), number, np.float32), local)
    other = jax.device_put(np.full((8, 4), number, np.float32), jax.local_devices()[1])
    same = np.arange(32, dtype=np.float32).reshape(8, 4)
    found: dict[str, Any] = {"plain": float(_doubled()({"x": own}))}
    with shardpass.plugin(mesh={"data": 2, "model": 4}, rules=_ROWS):
        found["own"] = _told(lambda: _doubled()({"x": own}))
        function = _doubled()
        found["same"] = float(function({"x": same}))
        found["own, after"] = _told(lambda: function({"x": own}))
        found["jax"] = float(function({"x": jnp.asarray(same)}))
        whole = jax.jit(lambda batch, scale: batch.sum() * scale)
        found["whole"] = float(whole(same, jax.device_put(np.float32(2), local)))
        found["nothing to plan"] = float(jax.jit(lambda y: y.sum())(own))
        found["two devices"] = _told(lambda: jax.jit(lambda batch, b: batch + b)(own, other))
    with shardpass.plugin(mesh={"data": 2, "model": 4}, rules=_ROWS, pipeline="sp-annotate"):
        found["left to XLA"] = _told(lambda: jax.jit(lambda batch, y: batch + y)(same, own))
    with shardpass.plugin(mesh={"data": 2, "model": 4}, rules=_ROWS, leave_alone="alone"):

        def alone(batch):
            return batch.sum()

        found["left alone"] = float(jax.jit(alone)(own))
    return found


def _doubled() -> Any:
    return jax.jit(lambda batch: (batch["x"] * 2).sum())


def _told(call: Any) -> tuple[str, str]:
    try:
        call()
    except ShardingError as error:
        return error.slug, str(error)
    except ValueError as error:
        return "JAX's", str(error)
    return "", ""
