"""Where numbers of devices are baked into a program, so that it fits no other mesh.

A region that is manual is written for one device among so many. What JAX lowers from ``axis_index``
divides the number of the partition by sizes of axes that stand there as constants; a collective
lists which devices take part, unless it names them by axes.
"""

from __future__ import annotations

from typing import Final

from jax.extend.mlir import ir

from shardpass.diagnostics import Sink
from shardpass.mlir import ADVANCE, locate, visit
from shardpass.passes.gspmd.frontend_attributes import has_sdy_attributes
from shardpass.passes.meshes.replica_groups import BY_AXES, REPLICA_GROUPS

_PARTITION_ID: Final = "stablehlo.partition_id"
_PAIRS: Final = "source_target_pairs"
_HELP: Final = "lower the program for the new mesh instead"


def report_baked_devices(root: ir.Operation, sink: Sink) -> None:
    """An error for each op of ``root`` that counts on the devices that there are."""

    def look(op: ir.Operation) -> ir.WalkResult:
        attributes = op.attributes
        if op.name == _PARTITION_ID:
            message = "asks for the number of the device, out of as many as there were"
        elif REPLICA_GROUPS in attributes and not str(attributes[REPLICA_GROUPS]).startswith(
            BY_AXES
        ):
            message = "lists the devices that take part (replica_groups)"
        elif _PAIRS in attributes:
            message = "lists the devices that send and receive (source_target_pairs)"
        elif has_sdy_attributes(op):
            sink.error(
                "already-annotated",
                f"{op.name} has Shardy's annotations as strings (mhlo.frontend_attributes)",
                location=locate(op),
                help="import them first: sp-import-mhlo",
            )
            return ADVANCE
        else:
            return ADVANCE
        sink.error("not-supported", f"{op.name} {message}", location=locate(op), help=_HELP)
        return ADVANCE

    visit(root, look)
