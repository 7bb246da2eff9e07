"""Writing that a value is whole, where nothing is said of it and a pass wants to read something."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, sdy

from shardpass.canon import TensorSharding
from shardpass.diagnostics import Sink
from shardpass.mlir import (
    SDY_SHARDING,
    Shardings,
    argument_attributes,
    collect,
    meshes_of,
    native,
    operations,
    set_argument_attributes,
    with_attribute,
    with_entry,
)
from shardpass.passes.identities import COLLECTIVES

#: On ops that got their sharding here.
_SAID: Final = "shardpass.said_whole"


def say_whole(root: ir.Operation, sink: Sink) -> None:
    """Write that values of functions are whole where nothing is said of them.

    Shardy's exchange of borders compares what is written on both sides of an op, and ends the
    process where one side says "whole" and the other says nothing.
    """
    shardings = Shardings(root)
    whole = _whole(root, shardings)
    if whole is None:
        return
    for op in list(operations(root)):
        if isinstance(op, func.FuncOp):
            set_argument_attributes(
                op,
                [
                    entries
                    if SDY_SHARDING in entries or not isinstance(kind, ir.RankedTensorType)
                    else with_entry(entries, SDY_SHARDING, shardings.write(*whole(kind)))
                    for entries, kind in zip(argument_attributes(op), op.type.inputs, strict=True)
                ],
            )
        elif op.operation.name.startswith("stablehlo.") and _is_of_function(op):
            _say(op, shardings, whole)


def say_what_collectives_take(root: ir.Operation, sink: Sink) -> None:
    """The same for what ``sdy`` collectives take, which Shardy of jaxlib 0.12 asks for.

    :func:`take_back` makes it undone.
    """
    shardings = Shardings(root)
    whole = _whole(root, shardings)
    if whole is None:
        return
    for op in collect(root, *COLLECTIVES):
        owner = op.operands[0].owner
        if not isinstance(owner, ir.Block) and not owner.name.startswith("sdy."):
            if SDY_SHARDING not in owner.attributes:
                owner.attributes[_SAID] = ir.UnitAttr.get(root.context)
            _say(owner.opview, shardings, whole)


def take_back(root: ir.Operation, sink: Sink) -> None:
    """Remove what :func:`say_what_collectives_take` wrote, so that nothing is left of it."""
    for op in with_attribute(root, _SAID):
        del op.attributes[_SAID]
        if SDY_SHARDING in op.attributes:
            del op.attributes[SDY_SHARDING]


_Whole = Callable[[ir.Type], tuple[TensorSharding, str]]


def _whole(root: ir.Operation, shardings: Shardings) -> _Whole | None:
    """Type -> the sharding that cuts nothing, and the name of its mesh; ``None`` without a mesh."""
    name = next((name for name, mesh in meshes_of(root).items() if mesh.names), None)
    if name is None:
        return None
    mesh = shardings.meshes[name]

    def of(kind: ir.Type) -> tuple[TensorSharding, str]:
        rank = kind.rank if isinstance(kind, ir.RankedTensorType) else 0
        return TensorSharding.replicated_on(mesh, rank), name

    return of


def _say(op: ir.OpView, shardings: Shardings, whole: _Whole) -> None:
    if len(op.results) and SDY_SHARDING not in op.attributes:
        op.attributes[SDY_SHARDING] = shardings.write_per_value(
            whole(result.type) for result in op.results
        )


def _is_of_function(op: ir.OpView) -> bool:
    holder = op.operation.parent
    return holder is not None and holder.name in (
        native.FUNCTION,
        sdy.ManualComputationOp.OPERATION_NAME,
    )
