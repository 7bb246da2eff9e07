"""Custom calls with tuples, as HLO has them, with a result for each leaf instead.

HLO returns several values as one tuple, which Shardy's dialect gives no layout. What comes back
from HLO has the tuple and ``stablehlo.get_tuple_element`` behind it.
"""

from __future__ import annotations

from collections.abc import Sequence

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

_SHAPE = "xla_shape"
_TUPLE = stablehlo.TupleOp.OPERATION_NAME


def flatten(call: ir.OpView) -> ir.OpView:
    """``call`` with its tuples taken apart, if they can be; the call that stands there now.

    A result is taken apart if ``get_tuple_element`` alone uses it, an operand if it is made by
    ``stablehlo.tuple``.
    """
    operands = _operands(call)
    leaves = _leaves(call)
    if leaves is None and operands is None:
        return call
    types = [result.type for result in call.results] if leaves is None else leaves
    attributes = {name: call.attributes[name] for name in call.attributes if name != _SHAPE}
    made = ir.Operation.create(
        call.operation.name,
        results=types,
        operands=list(call.operands) if operands is None else operands,
        attributes=attributes,
        loc=call.location,
        ip=ir.InsertionPoint(call.operation),
    )
    tuples = [v.owner for v in call.operands] if operands is not None else []
    if leaves is None:
        for old, new in zip(call.results, made.results, strict=True):
            old.replace_all_uses_with(new)
    else:
        for use in list(call.results[0].uses):
            element = use.owner
            index = ir.IntegerAttr(element.attributes["index"]).value
            element.results[0].replace_all_uses_with(made.results[index])
            element.operation.erase()
    call.operation.erase()
    for owner in dict.fromkeys(tuples):
        if not isinstance(owner, ir.Block) and owner.name == _TUPLE and not _is_used(owner):
            owner.erase()
    return made.opview


def _leaves(call: ir.OpView) -> Sequence[ir.Type] | None:
    kind = call.results[0].type if len(call.results) == 1 else None
    if not isinstance(kind, ir.TupleType):
        return None
    types = [kind.get_type(index) for index in range(kind.num_types)]
    if any(isinstance(leaf, ir.TupleType) for leaf in types):
        return None
    for use in call.results[0].uses:
        if not isinstance(use.owner.opview, stablehlo.GetTupleElementOp):
            return None
    return types


def _operands(call: ir.OpView) -> Sequence[ir.Value] | None:
    found: list[ir.Value] = []
    changed = False
    for value in call.operands:
        owner = value.owner
        if not isinstance(owner, ir.Block) and owner.name == _TUPLE:
            found += owner.operands
            changed = True
        else:
            found.append(value)
    return found if changed else None


def _is_used(op: ir.Operation | ir.OpView) -> bool:
    return any(True for result in op.results for _ in result.uses)
