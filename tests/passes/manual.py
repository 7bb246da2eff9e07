"""Programs with manual regions, as JAX lowers them for either partitioner."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from tests.sharding.alive import partitioned_by

A = np.arange(64, dtype=np.float32).reshape(8, 8) / 17
B = np.arange(128, dtype=np.float32).reshape(8, 16) / 31


def mesh() -> jax.sharding.Mesh:
    return jax.sharding.Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y"))


def product(names: set[str]) -> Any:
    """A product cut along what is summed, and a loop; manual over the axes ``names``."""

    def body(a, b):
        c = a @ b

        def step(carry, _):
            return jnp.sin(carry) + c.sum() * 0.01, None

        d, _ = jax.lax.scan(step, jax.lax.psum(c, "x"), None, length=3)
        return d, a.sum()[None]

    return jax.shard_map(
        body,
        mesh=mesh(),
        in_specs=(P(None, "x"), P("x", None)),
        out_specs=(P(), P("x")),
        axis_names=names,
        check_vma=False,
    )


def nested(_: set[str]) -> Any:
    """One region within another, each manual over one axis."""

    def inner(a, b):
        return jax.lax.psum(a @ b, "y")

    def outer(a, b):
        within = jax.shard_map(
            inner, in_specs=(P(None, "y"), P("y", None)), out_specs=P(), axis_names={"y"}
        )
        return within(a, b) * 2, a[:, 0]

    return jax.shard_map(
        outer,
        mesh=mesh(),
        in_specs=(P("x", None), P(None, None)),
        out_specs=(P("x", None), P("x")),
        axis_names={"x"},
    )


def lowered(function: Any, name: str) -> str:
    """The text of ``function(A, B)`` for a partitioner."""
    with partitioned_by(name):
        return jax.jit(lambda a, b: function(a, b)).lower(A, B).as_text(debug_info=True)
