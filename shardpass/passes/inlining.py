"""Functions put in place of their calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func

from shardpass.diagnostics import Sink
from shardpass.mlir import (
    collect,
    is_of_shardy,
    is_public,
    mhlo_shardings,
    operations,
)


class Inliner:
    """Inlines annotated functions where no call of them can stand.

    XLA does not know which axes are manual in a function that is called from a manual computation.
    JAX's own lowering for Shardy calls none there that holds an annotation.
    """

    def __init__(self, functions: Mapping[str, func.FuncOp]) -> None:
        """``functions``: those of the module that have bodies, by name."""
        self._functions = dict(functions)
        self._annotated: dict[str, bool] = {}
        self._inlined: dict[str, None] = {}

    def into(self, body: ir.Block) -> None:
        """Put every annotated function in place of its calls within ``body``."""
        calls = self._calls_to_inline(body)
        while calls:  # Again for what was called there.
            for call in calls:
                self._inlined[call.callee.value] = None
                inline(call, self._functions[call.callee.value])
            calls = self._calls_to_inline(body)

    def forget(self, name: str) -> None:
        """Function ``name`` is no longer there."""
        self._functions.pop(name, None)

    def erase_uncalled(self) -> None:
        """Erase the private functions that were inlined everywhere."""
        calls = Counter(name for f in self._functions.values() for name in callees_of(f))
        for name in self._inlined:
            function = self._functions[name]
            if not is_public(function) and not calls[name]:
                calls.subtract(callees_of(function))
                del self._functions[name]
                function.operation.erase()

    def _calls_to_inline(self, body: ir.Block) -> list[func.CallOp]:
        calls = (op for op in operations(body.owner) if isinstance(op, func.CallOp))
        return [call for call in calls if self._is_annotated(call.callee.value)]

    def _is_annotated(self, name: str) -> bool:
        known = self._annotated.get(name)
        if known is None and name in self._functions:
            function = self._functions[name]
            known = self._annotated[name] = holds_annotations(function) or any(
                map(self._is_annotated, callees_of(function))
            )
        return bool(known)


def holds_annotations(function: func.FuncOp) -> bool:
    """Whether ``function``, or an op in it, is annotated in either notation."""
    return holds_sdy(function) or any(map(mhlo_shardings, (function, *operations(function))))


def holds_sdy(function: func.FuncOp) -> bool:
    """Whether ``function``, or an op in it, is annotated in Shardy's notation."""
    return any(map(is_of_shardy, (function, *operations(function))))


def functions_of(root: ir.Operation) -> dict[str, func.FuncOp]:
    """The functions of a module that have bodies, by name."""
    return {
        op.name.value: op
        for op in root.regions[0].blocks[0].operations
        if isinstance(op, func.FuncOp) and not op.is_external
    }


def callees_of(function: func.FuncOp) -> list[str]:
    """The names that ``function`` calls, once a call."""
    return [op.callee.value for op in operations(function) if isinstance(op, func.CallOp)]


def inline(call: func.CallOp, function: func.FuncOp) -> None:
    """Put the body of ``function`` in place of ``call``; the function stays as it is."""
    move_body(
        function.operation.clone(),
        list(call.operands),
        lambda op: op.operation.move_before(call.operation),
        lambda values: _replace_results(call, values),
    )
    call.operation.erase()


def inline_calls(root: ir.Operation, sink: Sink | None = None) -> None:
    """Inline every call of a module without recursion.

    Callees come first, so that each body is copied in its final form. Functions that nobody calls
    any more stay; ``symbol-dce`` drops the private ones.
    """
    functions = functions_of(root)
    done: set[str] = set()

    def finish(name: str) -> None:
        if name in done:
            return
        done.add(name)
        for call in collect(functions[name], func.CallOp):
            finish(call.callee.value)
            inline(call, functions[call.callee.value])

    for name in functions:
        finish(name)


def move_body(
    function: ir.Operation,
    operands: list[ir.Value],
    move: Callable[[ir.OpView], None],
    give: Callable[[list[ir.Value]], None],
) -> None:
    """Take the body out of ``function``, which is erased.

    Args:
      function: a ``func.func``.
      operands: what stands for its arguments.
      move: puts an op where it belongs.
      give: takes what the function returns.
    """
    block = function.regions[0].blocks[0]
    *ops, end = list(block.operations)
    for argument, operand in zip(block.arguments, operands, strict=True):
        argument.replace_all_uses_with(operand)
    for op in ops:
        move(op)
    give(list(end.operands))
    end.operation.erase()
    function.erase()


def _replace_results(call: func.CallOp, values: list[ir.Value]) -> None:
    for result, value in zip(call.results, values, strict=True):
        result.replace_all_uses_with(value)
