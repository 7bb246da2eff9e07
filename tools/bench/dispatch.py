"""A call of a function of ``shardpass.jit`` beside one of ``jax.jit`` with the same shardings.

Steady state, each call awaited, single calls in random order, medians. The line "jax.jit again" is
a second function of the peer's own, and shows the noise.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

from side_by_side import Ratios, parser_of, print_environment

import shardpass

shardpass.request_cpu_devices(8)

import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import AxisType, NamedSharding, PartitionSpec  # noqa: E402

Call = Callable[[], Any]


def medians(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """Median seconds of each call, awaited, single calls in random order."""
    generator = random.Random(0)
    times: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for number in range(rounds + 20):
        generator.shuffle(names)
        for name in names:
            started = time.perf_counter()
            jax.block_until_ready(calls[name]())
            if number >= 20:
                times[name].append(time.perf_counter() - started)
    return {name: statistics.median(found) for name, found in times.items()}


def one_matmul(batch: Any, weights: Any, rest: list[Any]) -> Any:
    """A product, and arguments that it does not read but for their first elements."""
    return batch @ weights + sum(leaf[0] for leaf in rest)


def with_callback(batch: Any, weights: Any, rest: list[Any]) -> Any:
    """The same through a function of the host's."""
    product = one_matmul(batch, weights, rest)
    shape = jax.ShapeDtypeStruct((), product.dtype)
    return product + jax.pure_callback(lambda x: np.asarray(x) * 2, shape, product[0, 0])


def compare(function: Callable[..., Any], leaves: int, rounds: int) -> dict[str, float]:
    """The medians of all contenders on arguments of so many leaves."""
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    generator = np.random.default_rng(0)
    rules = [("^batch$", PartitionSpec("data")), ("^weights$", PartitionSpec(None, "model"))]
    specs = (PartitionSpec("data"), PartitionSpec(None, "model"))
    places = (*(NamedSharding(mesh, spec) for spec in specs), NamedSharding(mesh, PartitionSpec()))
    result = NamedSharding(mesh, PartitionSpec("data", "model"))
    arguments = (
        jax.device_put(generator.normal(size=(64, 64)).astype(np.float32), places[0]),
        jax.device_put(generator.normal(size=(64, 64)).astype(np.float32), places[1]),
        [
            jax.device_put(np.full(8, n, np.float32), places[2])
            for n in range(leaves - 2)
        ],
    )  # fmt: skip

    def peer() -> Any:
        return jax.jit(
            lambda batch, weights, rest: function(batch, weights, rest),
            in_shardings=places,
            out_shardings=result,
        )

    with warnings.catch_warnings(action="ignore"):
        ours = shardpass.jit(function, mesh=mesh, rules=rules)
        found = ours(*arguments)
    assert found.sharding.is_equivalent_to(result, 2), found.sharding
    one, other = peer(), peer()
    return medians(
        {
            "shardpass.jit": lambda: ours(*arguments),
            "jax.jit": lambda: one(*arguments),
            "jax.jit again": lambda: other(*arguments),
        },
        rounds,
    )


def compare_moved(leaves: int, rounds: int) -> dict[str, float]:
    """The same where one argument arrives in another layout with each call."""
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    at_home, elsewhere, whole = (
        NamedSharding(mesh, spec)
        for spec in (PartitionSpec("data"), PartitionSpec(None, "model"), PartitionSpec())
    )
    batch = jax.device_put(np.ones((64, 64), np.float32), elsewhere)
    weights = jax.device_put(np.ones((64, 64), np.float32), whole)
    rest = [jax.device_put(np.full(8, n, np.float32), whole) for n in range(leaves - 2)]
    peer = jax.jit(
        lambda batch, weights, rest: one_matmul(batch, weights, rest),
        in_shardings=(at_home, whole, whole),
        out_shardings=at_home,
    )
    rules = [("^batch$", PartitionSpec("data"))]
    ours = shardpass.jit(one_matmul, mesh=mesh, rules=rules)
    with warnings.catch_warnings(action="ignore"):
        ours(batch, weights, rest)
    return medians(
        {
            "shardpass.jit": lambda: ours(batch, weights, rest),
            "jax.jit": lambda: peer(jax.device_put(batch, at_home), weights, rest),
            "jax.jit again": lambda: peer(jax.device_put(batch, at_home), weights, rest),
        },
        rounds,
    )


def main() -> int:
    """Print the table."""
    parser = parser_of(__doc__ or "", repeat=400)
    options = parser.parse_args()
    print_environment()
    ratios = Ratios()
    rounds = options.repeat
    for what, bound, measure in (
        ("3 leaves", 1.05, lambda: compare(one_matmul, 3, rounds)),
        ("300 leaves", 1.05, lambda: compare(one_matmul, 300, rounds)),
        ("3 leaves, pure_callback", 1.05, lambda: compare(with_callback, 3, rounds)),
        ("3 leaves, one moved beside device_put", 1.0, lambda: compare_moved(3, rounds)),
        ("300 leaves, one moved beside device_put", 1.0, lambda: compare_moved(300, rounds)),
    ):
        found = measure()
        base = found["jax.jit"]
        ratios.add(f"{what}: shardpass.jit / jax.jit", found["shardpass.jit"] / base, bound)
        ratios.add(f"{what}: jax.jit again / jax.jit", found["jax.jit again"] / base)
    return ratios.exit_code(options)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
