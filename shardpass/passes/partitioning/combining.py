"""What the partial results of an op are to be combined by, and what a collective says of it.

Shardy's ``all_reduce`` and ``reduce_scatter`` stand for the sum; that of jaxlib 0.12 knows ``max``
and ``min`` too. Where an op reduces by something else over a dimension that is cut, Shardy writes
the sum all the same. Source: ``reduction_op`` in Shardy's dialect, and what each jaxlib was seen to
write for each kind.
"""

from __future__ import annotations

import re
from typing import Final

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy, stablehlo

from shardpass.diagnostics import Sink
from shardpass.mlir import collect, locate, operations
from shardpass.passes.base import Look
from shardpass.passes.identities import replace_by_operand

_REDUCING: Final = (sdy.AllReduceOp, sdy.ReduceScatterOp)
#: Ops that combine what their body says.
_WITH_BODY: Final = (
    stablehlo.ReduceOp,
    stablehlo.ReduceWindowOp,
    stablehlo.ScatterOp,
    stablehlo.SelectAndScatterOp,
)
#: Body -> how Shardy calls it.
_KINDS: Final = {"stablehlo.add": "sum", "stablehlo.maximum": "max", "stablehlo.minimum": "min"}
#: The attribute that says so, and its values in jaxlib 0.12.
_REDUCTION: Final = "reduction_op"
_REDUCTIONS: Final = {0: "sum", 1: "max", 2: "min"}
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
#: Ops that only pass on what is still to be reduced.
_PASSING_ON: Final = (sdy.AllGatherOp, sdy.AllSliceOp, sdy.AllToAllOp, sdy.CollectivePermuteOp)


def wrongly_combined(op: ir.OpView) -> str | None:
    """What the operand of ``op`` must be combined by, if ``op`` combines it by something else."""
    if not isinstance(op, _REDUCING):
        return None
    wanted = _combiner(op.operands[0])
    return None if wanted is None or _KINDS.get(wanted) == _kind_of(op) else wanted


def _kind_of(op: ir.OpView) -> str:
    """``sum``, ``max`` or ``min``."""
    if _REDUCTION not in op.attributes:
        return "sum"
    return _REDUCTIONS.get(ir.IntegerAttr(op.attributes[_REDUCTION]).value, "another")


def _combiner(value: ir.Value) -> str | None:
    """The name of the op that partial results of ``value`` are combined by, where it is known."""
    while not isinstance(value.owner, ir.Block) and isinstance(value.owner.opview, _PASSING_ON):
        value = value.owner.operands[0]
    if isinstance(value.owner, ir.Block):
        return None
    op = value.owner.opview
    if not isinstance(op, _WITH_BODY):
        return None
    body = op.regions[1 if isinstance(op, stablehlo.SelectAndScatterOp) else 0]
    names = [inner.operation.name for inner in body.blocks[0].operations]
    return names[0] if len(names) == 2 else "more than one op"


def _warn_of_combiners(root: ir.Operation, sink: Sink) -> None:
    for op in operations(root):
        wanted = wrongly_combined(op)
        if wanted is not None:
            sink.warning(
                "not-expressible",
                f"{op.operation.name} stands for a combination by {wanted}, which it cannot say",
                location=locate(op),
                help="read it as where data moves and how much; XLA combines rightly",
            )


#: A warning for each collective that says another combination than the program asks for.
WARN_OF_COMBINERS: Final = Look(_warn_of_combiners)


def drop_repeated_reductions(root: ir.Operation, sink: Sink) -> None:
    """Take away each ``all_reduce`` of partial results that another one behind it reduces.

    Shardy writes one behind every op that leaves partial results, whether there is one or not. In a
    module that shows its collectives already, the second would add up finished sums. What stands
    between the two, like a gather, passes on what is still to be reduced.
    """
    for op in collect(root, sdy.AllReduceOp):
        if _is_reduced(op.results[0], op):
            replace_by_operand(op)


def _is_reduced(value: ir.Value, op: sdy.AllReduceOp) -> bool:
    """Whether all that uses ``value`` reduces over axes of ``op``, or passes it on to what does."""
    users = [use.owner.operation.opview for use in value.uses]
    return bool(users) and all(
        _is_reduced(user.results[0], op)
        if isinstance(user, _PASSING_ON)
        else isinstance(user, _REDUCING) and bool(_axes(user) & _axes(op))
        for user in users
    )


def _axes(op: ir.OpView) -> set[str]:
    """The names of the axes that ``op`` reduces over, as MLIR writes them."""
    key = "reduction_axes" if isinstance(op, sdy.AllReduceOp) else "reduce_scatter_axes"
    return set(_QUOTED.findall(str(op.attributes[key])))
