"""One number of devices for the tiles of a module."""

from __future__ import annotations

from jax.extend.mlir import ir

from shardpass.canon import HloSharding
from shardpass.diagnostics import Sink
from shardpass.mlir import locate


class DeviceCounts:
    """Reports tiles over another number of devices than the module, or other tiles, are for.

    Args:
      stated: what the module says; ``None`` or 1 where it says nothing.
      sink: is told of each wrong number once, at the op where it was met first.
    """

    def __init__(self, stated: int | None, sink: Sink) -> None:
        self._stated = None if stated in (None, 1) else stated
        self._sink = sink
        self._first: HloSharding | None = None
        self._told: set[int] = set()

    def check(self, sharding: HloSharding, op: ir.Operation | ir.OpView) -> None:
        """Take note of ``sharding``, which stands at ``op``."""
        if sharding.tile is None:
            return
        self._first = self._first or sharding
        assert self._first.tile is not None
        count = sharding.tile.size
        wanted = self._stated or self._first.tile.size
        if count == wanted or count in self._told:
            return
        self._told.add(count)
        other = (
            f"the module is for {wanted} (mhlo.num_partitions)"
            if self._stated
            else f"{self._first.describe()} is for {wanted}"
        )
        self._sink.error(
            "device-count",
            f"{sharding.describe()} is for {count} devices, and {other}",
            location=locate(op),
            help="put all shardings on meshes of as many devices (sp-retarget, sp-merge-meshes)",
        )
