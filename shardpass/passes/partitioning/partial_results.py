"""Partial results that Shardy's propagation ends the process on.

Its pipeline writes out what constraints move, and takes for granted that what is still to be
reduced has somewhere to be reduced. Both supported jaxlibs were tried with arguments whose values
are unreduced in front of every kind of op.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func

from shardpass.canon import AxisRef, MeshShape
from shardpass.diagnostics import Sink
from shardpass.mlir import ADVANCE, SDY_SHARDING, locate, operations, visit
from shardpass.passes.base import Look
from shardpass.passes.identities import CONSTRAINTS
from shardpass.passes.partitioning.placements import Placements

_HELP: Final = "reduce them first (an sdy.sharding_constraint without unreduced axes)"
#: Where shardings of values stand.
_HOLDING: Final = (SDY_SHARDING, "sharding", "arg_attrs")


def _check(root: ir.Operation, sink: Sink) -> None:
    if not _has_partial_results(root):
        return
    placements = Placements(root)
    for op in operations(root):
        if isinstance(op, CONSTRAINTS):
            _constraint(op, placements, sink)
        elif not (op.results or isinstance(op, func.FuncOp) or op.operation.name in _ENDS):
            taken = [axis for value in op.operands for axis in _unreduced(placements, value)]
            if taken:
                sink.error(
                    "not-supported",
                    f"{op.operation.name} takes partial results over {_listed(taken)}, and gives "
                    "nothing that they could be reduced in",
                    location=locate(op),
                    help=_HELP,
                )


#: Errors: ops without results that take partial ones, and constraints that ask for partial results
#: over other axes than those of what they are given.
REFUSE_LOST_PARTIAL_RESULTS: Final = Look(_check)

#: Ops that hand on what they take.
_ENDS: Final = frozenset({"func.return", "stablehlo.return", "sdy.return", "sdy.sharding_group"})


def _constraint(op: ir.OpView, placements: Placements, sink: Sink) -> None:
    asked = placements.of(op.results[0])
    if asked is None:
        return
    given = _unreduced(placements, op.operands[0])
    gone, new = (
        _without(given, asked.unreduced, asked.mesh),
        _without(asked.unreduced, given, asked.mesh),
    )
    if gone and new:
        sink.error(
            "not-supported",
            f"{op.operation.name} asks for partial results over {_listed(asked.unreduced)} of a "
            f"value whose partial results are over {_listed(given)}",
            location=locate(op),
            help=_HELP,
        )


def _without(axes: Sequence[AxisRef], others: Sequence[AxisRef], mesh: MeshShape) -> list[AxisRef]:
    """Those of ``axes`` that are no part of one of ``others``."""
    return [axis for axis in axes if not any(_is_within(axis, other, mesh) for other in others)]


def _is_within(axis: AxisRef, other: AxisRef, mesh: MeshShape) -> bool:
    if axis.name != other.name or axis.name not in mesh.names:
        return axis == other
    (start, end), (first, last) = axis.bounds(mesh), other.bounds(mesh)
    return first <= start and end <= last


def _unreduced(placements: Placements, value: ir.Value) -> tuple[AxisRef, ...]:
    sharding = placements.of(value)
    return sharding.unreduced if sharding is not None else ()


def _has_partial_results(root: ir.Operation) -> bool:
    seen: set[ir.Attribute] = set()
    found = False

    def look(op: ir.Operation) -> ir.WalkResult:
        nonlocal found
        attributes = op.attributes
        for name in _HOLDING:
            if name in attributes:
                attribute = attributes[name]
                if attribute not in seen:
                    seen.add(attribute)
                    found = found or "unreduced=" in str(attribute)
        return ir.WalkResult.INTERRUPT if found else ADVANCE

    visit(root, look)
    return found


def _listed(axes: Sequence[AxisRef]) -> str:
    return ", ".join(map(str, dict.fromkeys(axes)))
