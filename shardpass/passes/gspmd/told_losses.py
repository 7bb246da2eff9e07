"""What an import into Shardy's notation drops, since nothing there says it."""

from __future__ import annotations

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from shardpass.canon import HloKind, HloSharding, MeshShape, manual_axes
from shardpass.diagnostics import Sink
from shardpass.mlir import mhlo_shardings, read_mhlo
from shardpass.passes.gspmd.holders import Holder, holders_at


class ToldLosses:
    """Warns of each sharding that is dropped, or loses its manual part, at the first value with it.

    Manual is what lies between a manual region's borders; it means nothing to Shardy outside of
    one. Partial sums are over the axes of a mesh.

    Args:
      mesh: what the import is on; ``None`` or one without axes where nothing says for how many
        devices the module is.
    """

    def __init__(self, mesh: MeshShape | None) -> None:
        self._mesh = mesh if mesh is not None and mesh.axes else None
        self._lossy: dict[ir.Attribute, dict[HloSharding, str]] = {}
        self._first: dict[HloSharding, tuple[Holder, str]] = {}
        self._more: dict[HloSharding, int] = {}

    def look(self, op: ir.OpView) -> None:
        """Take note of what ``op``, which is about to be converted, loses."""
        if not any(self._losses(attribute) for attribute in mhlo_shardings(op)):
            return
        if _is_in_manual_region(op):
            return
        for attribute, holder in holders_at(op):
            for sharding, loss in self._losses(attribute).items():
                if sharding in self._first:
                    self._more[sharding] = self._more.get(sharding, 0) + 1
                else:
                    self._first[sharding] = holder, loss

    def report(self, sink: Sink) -> None:
        """Warn of all that was noted."""
        for sharding, (holder, loss) in self._first.items():
            more = self._more.get(sharding, 0)
            sink.warning(
                "not-expressible",
                f"{holder.text}: {loss}",
                location=holder.location,
                path=holder.path,
                notes=[f"so it is on {more} other {'values' if more > 1 else 'value'}"]
                if more
                else (),
                help="state the number of devices (mhlo.num_partitions), or give a mesh: "
                "sp-import-mhlo{mesh=…}"
                if sharding.kind is HloKind.UNREDUCED
                else "put the value between @SPMDFullToShardShape and @SPMDShardToFullShape, or "
                "give it another sharding",
            )

    def _losses(self, attribute: ir.Attribute) -> dict[HloSharding, str]:
        found = self._lossy.get(attribute)
        if found is None:
            whole = read_mhlo(attribute)
            parts = whole.elements if whole.is_tuple else (whole,)
            losses = {part: self._loss(part) for part in parts}
            found = {part: loss for part, loss in losses.items() if loss}
            self._lossy[attribute] = found
        return found

    def _loss(self, sharding: HloSharding) -> str:
        if sharding.kind is HloKind.UNREDUCED and self._mesh is None:
            return (
                f"{sharding.describe()} is dropped: partial sums need a mesh, and nothing says for "
                "how many devices the module is"
            )
        if sharding.kind is HloKind.MANUAL:
            return f"{sharding.describe()} is dropped: the value is in no manual region"
        if self._mesh is not None and manual_axes(sharding, self._mesh):
            return (
                f"of {sharding.describe()} the manual part is dropped: the value is in no manual "
                "region"
            )
        return ""


def _is_in_manual_region(op: ir.OpView) -> bool:
    around = op.operation.parent
    while around is not None:
        if around.name == sdy.ManualComputationOp.OPERATION_NAME:
            return True
        around = around.parent
    return False
