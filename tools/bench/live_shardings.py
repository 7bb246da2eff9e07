"""Each of our classes at work, beside JAX's of the same layout: placing, calling, index maps."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.sharding import GSPMDSharding
from side_by_side import Contender, best_times

import shardpass.sharding as ours

_numbers = itertools.count(1)


def shardings(devices: Sequence[Any]) -> Iterator[tuple[str, Any, Any, float]]:
    """Each class, the sharding, JAX's of the same layout, and what a call may cost beside it."""
    mesh = jax.sharding.Mesh(np.array(devices).reshape(4, 2), ("x", "y"))
    peer = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x", "y"))
    yield "NamedSharding", ours.NamedSharding(mesh, ours.P("x", "y")), peer, 1.05
    single = jax.sharding.SingleDeviceSharding(devices[0])
    yield "SingleDeviceSharding", ours.SingleDeviceSharding(devices[0]), single, 1.05
    made = ours.GSPMDSharding(devices, "{devices=[4,2]<=[8]}")
    yield "GSPMDSharding", made, GSPMDSharding(devices, made.to_jax()._hlo_sharding), 1.05
    yield "PositionalSharding", ours.PositionalSharding(devices).reshape(4, 2), peer, 1.3
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(("x", "y")))
    yield "PmapSharding", ours.PmapSharding.default((8, 64), 0, devices), rows, 1.3


def measure(
    devices: Sequence[Any], options: argparse.Namespace
) -> Iterator[tuple[str, float, float]]:
    """Each question to each class: what, the ratio, the bound."""
    for name, mine, peer, bound in shardings(devices):
        pairs = (_put(mine, options.calls), _put(peer, options.calls))
        a, b = best_times(pairs, options.repeat, options.clock)
        yield f"device_put, {name}", a / b, bound
        pairs = (_call(mine, options.calls), _call(peer, options.calls))
        a, b = best_times(pairs, options.repeat, options.clock)
        yield f"jitted call, {name}", a / b, bound
        for warmth, columns, map_bound in (("cold", None, 1.0), ("warm", 8, 1.5)):
            pairs = (_maps(mine, columns, own_dict=True), _maps(peer, columns, own_dict=False))
            a, b = best_times(pairs, options.repeat, options.clock)
            yield f"{warmth}: devices_indices_map, {name}", a / b, map_bound
    for name, build, their_build in constructions(devices):
        a, b = best_times((_build(build), _build(their_build)), options.repeat, options.clock)
        yield f"construction, {name}", a / b, 2.0


def constructions(
    devices: Sequence[Any],
) -> Iterator[tuple[str, Callable[[], Any], Callable[[], Any]]]:
    """The classes that JAX has as well, but for ``NamedSharding``: how each is made."""
    device = devices[0]
    single = jax.sharding.SingleDeviceSharding
    yield "SingleDeviceSharding", lambda: ours.SingleDeviceSharding(device), lambda: single(device)
    tiles = ours.GSPMDSharding(devices, "{devices=[4,2]<=[8]}").to_jax()._hlo_sharding
    yield (
        "GSPMDSharding",
        lambda: ours.GSPMDSharding(devices, tiles),
        lambda: GSPMDSharding(devices, tiles),
    )


def _maps(sharding: Any, columns: int | None, *, own_dict: bool) -> Contender:
    """Index maps as the caller's own, read to the end: of new shapes, or of ``(8, columns)``."""

    def read(shapes: list[tuple[int, int]]) -> int:
        total = 0
        for asked in shapes:
            found = sharding.devices_indices_map(asked)
            for index in (found if own_dict else dict(found)).values():
                total += len(index)
        return total

    def prepare() -> list[tuple[int, int]]:
        shapes = [(8, columns or 8 * next(_numbers)) for _ in range(200)]
        if columns:
            read(shapes)
        return shapes

    return Contender(repr(sharding), read, prepare)


def _build(build: Callable[[], Any]) -> Contender:
    def run(_: None) -> None:
        for _ in range(1000):
            build()

    return Contender("construction", run)


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
