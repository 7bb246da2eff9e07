"""A small training step, its arguments and a plan for it, for the tests of this folder."""

from __future__ import annotations

from typing import Any

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

RULES = [
    (r"^batch\.", PartitionSpec("data")),
    (r"\.up$", PartitionSpec(None, "model")),
    (r"\.down$", PartitionSpec("model")),
]


def mesh_of(kind: AxisType = AxisType.Auto) -> jax.sharding.Mesh:
    return jax.make_mesh((2, 4), ("data", "model"), axis_types=(kind,) * 2)


def placed(*spec: Any, kind: AxisType = AxisType.Auto) -> NamedSharding:
    return NamedSharding(mesh_of(kind), PartitionSpec(*spec))


def train_step(params: dict[str, Any], batch: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    def loss_of(params: dict[str, Any]) -> Any:
        hidden = jnp.tanh(batch["x"] @ params["up"])
        return ((hidden @ params["down"] - batch["y"]) ** 2).mean()

    loss, gradient = jax.value_and_grad(loss_of)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient), loss


def parameters() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    return {
        "up": draw.normal(size=(16, 32)).astype(np.float32),
        "down": draw.normal(size=(32, 4)).astype(np.float32),
    }


def batch(rows: int = 8) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(1)
    return {
        "x": draw.normal(size=(rows, 16)).astype(np.float32),
        "y": draw.normal(size=(rows, 4)).astype(np.float32),
    }


def constraints(jaxpr: Any) -> list[tuple[str, Any]]:
    """What each constraint in a program is on, and its spec, in order, insides included."""
    found: list[tuple[str, Any]] = []
    made_by = {v: e.primitive.name for e in jaxpr.eqns for v in e.outvars}
    for equation in jaxpr.eqns:
        for value in equation.params.values():
            if hasattr(value, "eqns"):
                found += constraints(getattr(value, "jaxpr", value))
        if equation.primitive.name == "sharding_constraint":
            name = made_by.get(equation.invars[0], "argument")
            found.append((name, equation.params["sharding"].spec))
    return found


def same(found: Any, expected: Any, *, tolerance: float = 2e-5) -> None:
    """Both trees hold the same numbers."""
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(
            np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance
        ),
        found,
        expected,
    )


def spec_of(array: Any) -> tuple[Any, ...]:
    """The spec of an array's sharding without the ``None`` at its end."""
    entries = tuple(array.sharding.spec)
    while entries and entries[-1] is None:
        entries = entries[:-1]
    return entries
