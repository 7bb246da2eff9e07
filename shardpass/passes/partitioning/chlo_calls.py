"""CHLO's ops behind the back of a pass that knows StableHLO alone.

Each op is written as a custom call that carries what is needed to write it back: its name, its
attributes, and the rule of how it may be sharded. The types of the call may change in between, from
those of whole arrays to those of one device's blocks; the op is written back with the new ones.
"""

from __future__ import annotations

from typing import Final

from jax.extend.mlir import ir

from shardpass.diagnostics import Sink
from shardpass.mlir import SDY_SHARDING, operations
from shardpass.passes.identities import call_target
from shardpass.passes.shardy.chlo_rules import CHLO, RULE, ChloRules

_CALL: Final = "stablehlo.custom_call"
_NAME: Final = "shardpass.name"
_ATTRIBUTES: Final = "shardpass.attributes"


def hide_chlo(root: ir.Operation, sink: Sink) -> None:
    """Write each CHLO op as a custom call, with its sharding and its sharding rule."""
    rules = ChloRules()
    for op in [op for op in operations(root) if op.operation.name.startswith(CHLO)]:
        name = op.operation.name
        if len(op.regions):
            continue
        rules.add(op.operation, name)
        own = {key: op.attributes[key] for key in op.attributes}
        carried = {key: own.pop(key) for key in (SDY_SHARDING, RULE) if key in own}
        with op.context, op.location:
            carried["call_target_name"] = ir.StringAttr.get(name)
            carried[_NAME] = ir.StringAttr.get(name)
            carried[_ATTRIBUTES] = ir.DictAttr.get(own)
        _replace(op, _CALL, carried)


def show_chlo(root: ir.Operation, sink: Sink | None = None) -> None:
    """Write the custom calls of :func:`hide_chlo` as the ops that they stand for."""
    for op in [op for op in operations(root) if is_hidden(op)]:
        own = ir.DictAttr(op.attributes[_ATTRIBUTES])
        attributes = {entry.name: entry.attr for entry in own}
        for key in (SDY_SHARDING, RULE):
            if key in op.attributes:
                attributes[key] = op.attributes[key]
        _replace(op, hidden_name(op), attributes)


def is_hidden(op: ir.OpView) -> bool:
    """Whether ``op`` stands for an op of CHLO."""
    return call_target(op) is not None and _NAME in op.attributes


def hidden_name(op: ir.OpView) -> str:
    """The name of the op that ``op`` stands for; of any other op its own."""
    return ir.StringAttr(op.attributes[_NAME]).value if is_hidden(op) else op.operation.name


def _replace(op: ir.OpView, name: str, attributes: dict[str, ir.Attribute]) -> None:
    other = ir.Operation.create(
        name,
        results=[result.type for result in op.results],
        operands=list(op.operands),
        attributes=attributes,
        loc=op.location,
        ip=ir.InsertionPoint(op.operation),
    )
    for result, replacement in zip(op.results, other.results, strict=True):
        result.replace_all_uses_with(replacement)
    op.operation.erase()
