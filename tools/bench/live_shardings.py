"""Placing arrays and calling jitted functions with our classes, beside JAX's ``NamedSharding``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from side_by_side import Contender, best_times

import shardpass.sharding as ours


def shardings(devices: Sequence[Any]) -> Iterator[tuple[str, Any, Any, float]]:
    """Each class, the sharding, JAX's of the same layout, and what a call may cost beside it."""
    mesh = jax.sharding.Mesh(np.array(devices).reshape(4, 2), ("x", "y"))
    peer = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x", "y"))
    yield "NamedSharding", ours.NamedSharding(mesh, ours.P("x", "y")), peer, 1.05
    single = jax.sharding.SingleDeviceSharding(devices[0])
    yield "SingleDeviceSharding", ours.SingleDeviceSharding(devices[0]), single, 1.05
    if hasattr(ours, "GSPMDSharding"):
        from jax.extend.sharding import GSPMDSharding

        made = ours.GSPMDSharding(devices, "{devices=[4,2]<=[8]}")
        theirs = GSPMDSharding(devices, made.to_jax()._hlo_sharding)
        yield "GSPMDSharding", made, theirs, 1.05
    if hasattr(ours, "PositionalSharding"):
        yield "PositionalSharding", ours.PositionalSharding(devices).reshape(4, 2), peer, 1.3
    if hasattr(ours, "PmapSharding"):
        rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(("x", "y")))
        yield "PmapSharding", ours.PmapSharding.default((8, 64), 0, devices), rows, 1.3


def measure(
    devices: Sequence[Any], options: argparse.Namespace
) -> Iterator[tuple[str, float, float]]:
    """``device_put`` and a jitted call for each class: what, the ratio, the bound."""
    for name, mine, peer, bound in shardings(devices):
        pairs = (_put(mine, options.calls), _put(peer, options.calls))
        a, b = best_times(pairs, options.repeat, options.clock)
        yield f"device_put, {name}", a / b, bound
        pairs = (_call(mine, options.calls), _call(peer, options.calls))
        a, b = best_times(pairs, options.repeat, options.clock)
        yield f"jitted call, {name}", a / b, bound


def _put(sharding: Any, calls: int) -> Contender:
    value = np.ones((8, 64), np.float32)

    def run(_: None) -> None:
        for _ in range(calls):
            jax.device_put(value, sharding).block_until_ready()

    return Contender(repr(sharding), run)


def _call(sharding: Any, calls: int) -> Contender:
    value = jax.device_put(np.ones((8, 64), np.float32), sharding)
    function = jax.jit(lambda x: x + 1, in_shardings=sharding, out_shardings=sharding)
    function(value).block_until_ready()

    def run(_: None) -> None:
        for _ in range(calls):
            function(value).block_until_ready()

    return Contender(repr(sharding), run)
