"""One number of devices for the tiles of a module."""

from __future__ import annotations

from dataclasses import replace

from jax.extend.mlir import ir

from shardpass.canon import HloSharding
from shardpass.diagnostics import Diagnostic, Note, Severity, Sink, SourceLocation
from shardpass.mlir import at_place, locate


class DeviceCounts:
    """Reports tiles over another number of devices than the module, or other tiles, are for.

    Args:
      stated: what the module says; ``None`` or 1 where it says nothing.
      sink: is told of each wrong number once, at the op where it was met first.
    """

    def __init__(self, stated: int | None, sink: Sink) -> None:
        self._stated = None if stated in (None, 1) else stated
        self._sink = sink
        self._first: tuple[HloSharding, SourceLocation | None] | None = None
        self._told: set[int] = set()
        self._single: dict[HloSharding, SourceLocation | None] = {}

    def check(self, sharding: HloSharding, op: ir.Operation | ir.OpView) -> None:
        """Take note of ``sharding``, which stands at ``op``."""
        if sharding.device is not None and sharding not in self._single:
            self._single[sharding] = locate(op)
        if sharding.tile is None:
            return
        if self._first is None:
            self._first = sharding, locate(op)
        first = self._first[0].tile
        assert first is not None
        count, wanted = sharding.tile.size, self._stated or first.size
        if count == wanted or count in self._told:
            return
        self._told.add(count)
        other = (
            f"the module is for {wanted} (mhlo.num_partitions)"
            if self._stated
            else f"{self._first[0].describe()} is for {wanted}"
        )
        self._error(
            f"{sharding.describe()} is for {count} devices, and {other}",
            locate(op),
            help="put all shardings on meshes of as many devices (sp-retarget, sp-merge-meshes)",
        )

    def finish(self, most: int | None) -> None:
        """Report single devices that are not there.

        Args:
          most: the devices of the largest mesh, where neither the module nor a tile says how many.
        """
        tile = self._first[0].tile if self._first else None
        count = self._stated or (tile.size if tile else most)
        if count is None or count == 1:
            return
        for sharding, place in self._single.items():
            if sharding.device is not None and sharding.device >= count:
                self._error(
                    f"{sharding.describe()} names a device beyond the {count} that there are",
                    place,
                    help="put the value elsewhere, or all others on a larger mesh",
                )

    def _error(self, message: str, place: SourceLocation | None, *, help: str) -> None:
        told = Diagnostic(Severity.ERROR, "device-count", message, place, help=help)
        if self._first is not None and not self._stated and self._first[1] != place:
            sharding, other = self._first
            why = Note(f"{sharding.describe()} is here", other)
            told = replace(
                told, notes=(at_place(why.message, other),), attached=(why,) * bool(other)
            )
        self._sink.report(told)
