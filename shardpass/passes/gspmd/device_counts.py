"""One number of devices for the tiles of a module."""

from __future__ import annotations

from dataclasses import replace

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func

from shardpass.canon import HloSharding
from shardpass.diagnostics import Diagnostic, Note, Severity, Sink, SourceLocation
from shardpass.mlir import at_place, locate
from shardpass.passes.gspmd.holders import Holder, entry_with


class DeviceCounts:
    """Reports tiles over another number of devices than the module, or other tiles, are for.

    Args:
      stated: what the module says; ``None`` or 1 where it says nothing.
      sink: is told of each wrong number once, at the op where it was met first.
    """

    def __init__(self, stated: int | None, sink: Sink) -> None:
        self._stated = None if stated in (None, 1) else stated
        self._sink = sink
        self._first: tuple[HloSharding, Holder | None, SourceLocation | None] | None = None
        self._told: set[int] = set()
        self._single: dict[HloSharding, SourceLocation | None] = {}

    @property
    def devices(self) -> int | None:
        """How many devices the tiles are for; ``None`` where there were none yet."""
        tile = self._first[0].tile if self._first else None
        return tile.size if tile else None

    def check(
        self,
        sharding: HloSharding,
        op: ir.Operation | ir.OpView,
        attribute: ir.Attribute | None = None,
    ) -> None:
        """Take note of ``sharding``, which stands at ``op``.

        Args:
          sharding: no tuple.
          op: an op, or the function of an argument or a result.
          attribute: what the function has for it.
        """
        if sharding.device is not None and sharding not in self._single:
            self._single[sharding] = locate(op)
        if sharding.tile is None:
            return
        if self._first is None:
            self._first = (sharding, *_place(op, attribute))
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
        holder, place = _place(op, attribute)
        self._error(
            f"{sharding.describe()} is for {count} devices, and {other}",
            place,
            path=holder.path if holder else None,
            help="put all shardings on meshes of as many devices (sp-retarget, sp-merge-meshes)",
        )

    def finish(self, most: int | None) -> None:
        """Report single devices that are not there.

        Args:
          most: the devices of the largest mesh, where neither the module nor a tile says how many.
        """
        count = self._stated or self.devices or most
        if count is None or count == 1:
            return
        for sharding, place in self._single.items():
            if sharding.device is not None and sharding.device >= count:
                self._error(
                    f"{sharding.describe()} names a device beyond the {count} that there are",
                    place,
                    help="put the value elsewhere, or all others on a larger mesh",
                )

    def _error(
        self,
        message: str,
        place: SourceLocation | None,
        *,
        path: str | None = None,
        help: str,
    ) -> None:
        told = Diagnostic(Severity.ERROR, "device-count", message, place, path=path, help=help)
        if self._first is not None and not self._stated and self._first[2] != place:
            sharding, holder, other = self._first
            why = holder.note(sharding) if holder else Note(f"{sharding.describe()} is here", other)
            told = replace(
                told, notes=(at_place(why.message, other),), attached=(why,) * bool(other)
            )
        self._sink.report(told)


def _place(
    op: ir.Operation | ir.OpView, attribute: ir.Attribute | None
) -> tuple[Holder | None, SourceLocation | None]:
    view = op.opview if isinstance(op, ir.Operation) else op
    if attribute is not None and isinstance(view, func.FuncOp):
        holder = entry_with(view, attribute)
        if holder is not None:
            return holder, holder.location
    return None, locate(op)
