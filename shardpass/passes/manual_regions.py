"""GSPMD's manual regions: what goes in must come out.

Between ``@SPMDFullToShardShape`` and ``@SPMDShardToFullShape`` values have local shapes. A local
value that leaves the function, or a border that is crossed outwards by a global value, means that
half of the region is missing.
"""

from __future__ import annotations

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func

from shardpass.diagnostics import Sink
from shardpass.mlir import locate
from shardpass.passes.identities import ENTER_MANUAL, LEAVE_MANUAL, call_target


def check_manual_regions(function: func.FuncOp, sink: Sink) -> None:
    """Report manual regions of ``function`` that are entered and not left, or the reverse."""
    if function.is_external or not any(
        call_target(op) in (ENTER_MANUAL, LEAVE_MANUAL) for op in function.body.blocks[0].operations
    ):
        return
    # The borders that a local value is inside of, outermost first; and the global values that
    # depend on an argument (a constant may be handed out of a region that nothing goes into).
    inside: dict[ir.Value, tuple[ir.OpView, ...]] = {}
    from_arguments: set[ir.Value] = set(function.arguments)
    for op in function.body.blocks[0].operations:
        operands = all_operands(op)
        borders = max((inside.get(value, ()) for value in operands), key=len, default=())
        target = call_target(op)
        if target == ENTER_MANUAL:
            inside.update(dict.fromkeys(op.results, (*borders, op)))
            continue
        if target == LEAVE_MANUAL:
            if not borders and any(value in from_arguments for value in operands):
                sink.error(
                    "unpaired-manual",
                    f"@{LEAVE_MANUAL} leaves a manual region that was not entered",
                    location=locate(op),
                    help=f"put @{ENTER_MANUAL} on the values that go in",
                )
            borders = borders[:-1]
            from_arguments.update(() if borders else op.results)
        elif isinstance(op, func.ReturnOp):
            if borders:
                sink.error(
                    "unpaired-manual",
                    f"the manual region entered by this @{ENTER_MANUAL} is not left before the "
                    "function returns",
                    location=locate(borders[0]),
                    help=f"put @{LEAVE_MANUAL} on the values that come out",
                )
        elif not borders and any(value in from_arguments for value in operands):
            from_arguments.update(op.results)
        if borders:
            inside.update(dict.fromkeys(op.results, borders))


def all_operands(op: ir.OpView) -> list[ir.Value]:
    """The operands of ``op``, and of the ops in its regions, which may use values from outside."""
    found = list(op.operands)
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                found += all_operands(inner)
    return found
