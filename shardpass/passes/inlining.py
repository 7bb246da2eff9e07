"""Function calls replaced by the bodies of the functions."""

from __future__ import annotations

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func

from shardpass.diagnostics import Sink
from shardpass.mlir import collect


def inline_call(call: func.CallOp, function: func.FuncOp) -> None:
    """Put the body of ``function`` in place of ``call``; the function stays as it is."""
    copy = function.operation.clone()
    block = copy.regions[0].blocks[0]
    *ops, end = list(block.operations)
    for argument, operand in zip(block.arguments, call.operands, strict=True):
        argument.replace_all_uses_with(operand)
    for op in ops:
        op.operation.move_before(call.operation)
    for result, value in zip(call.results, end.operands, strict=True):
        result.replace_all_uses_with(value)
    call.operation.erase()
    copy.erase()


def inline_calls(root: ir.Operation, sink: Sink | None = None) -> None:
    """Inline every call of a module without recursion.

    Callees come first, so that each body is copied in its final form. Functions that nobody calls
    any more stay; ``symbol-dce`` drops the private ones.
    """
    functions = {
        op.name.value: op
        for op in root.regions[0].blocks[0].operations
        if isinstance(op, func.FuncOp)
    }
    done: set[str] = set()

    def finish(name: str) -> None:
        if name in done:
            return
        done.add(name)
        for call in collect(functions[name], func.CallOp):
            finish(call.callee.value)
            inline_call(call, functions[call.callee.value])

    for name in functions:
        finish(name)
