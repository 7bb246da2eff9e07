"""Which axes are manual where: in a manual computation, and in the functions called from one."""

from __future__ import annotations

from collections.abc import Iterator

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, sdy

from shardpass.diagnostics import ShardingError
from shardpass.mlir import collect, locate
from shardpass.passes.inlining import functions_of, holds_sdy

#: Names of axes, those of the outermost region first.
ManualAxes = tuple[str, ...]


def axes_of(op: ir.Operation | ir.OpView) -> ManualAxes:
    """The axes that ``op``, a manual computation, itself makes manual."""
    axes = sdy.ManualAxesAttr(op.attributes["manual_axes"])
    return tuple(axes[i] for i in range(len(axes)))


def of_functions(root: ir.Operation) -> dict[str, ManualAxes]:
    """Function -> the axes that are manual wherever it is called, if there are any.

    Raises:
      ShardingError: ``not-supported`` for a function that holds shardings and is called where
        different axes are manual, since it cannot be written for both.
    """
    if not collect(root, sdy.ManualComputationOp):
        return {}
    functions = functions_of(root)
    calls = {
        name: [(call.callee.value, axes, call) for call, axes in _calls(function)]
        for name, function in functions.items()
    }
    called = {callee for of_one in calls.values() for callee, _, _ in of_one}
    found: dict[str, dict[ManualAxes, func.CallOp | None]] = {
        name: {} if name in called else {(): None} for name in functions
    }
    waiting = [name for name in functions if name not in called]
    while waiting:
        name = waiting.pop()
        for callee, inner, call in calls[name]:
            known = found.get(callee)
            if known is None:
                continue
            for outer in found[name]:
                if outer + inner not in known:
                    known[outer + inner] = call
                    waiting.append(callee)
    for name, contexts in found.items():
        if len(contexts) > 1 and holds_sdy(functions[name]):
            raise _called_in_several(name, contexts)
    return {
        name: next(iter(contexts)) for name, contexts in found.items() if contexts and any(contexts)
    }


def _calls(op: ir.OpView, axes: ManualAxes = ()) -> Iterator[tuple[func.CallOp, ManualAxes]]:
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                if isinstance(inner, func.CallOp):
                    yield inner, axes
                own = axes_of(inner) if isinstance(inner, sdy.ManualComputationOp) else ()
                yield from _calls(inner, axes + own)


def _called_in_several(name: str, contexts: dict[ManualAxes, func.CallOp | None]) -> ShardingError:
    told = [", ".join(f'"{axis}"' for axis in axes) or "none" for axes in contexts]
    call = next(call for call in reversed(contexts.values()) if call is not None)
    return ShardingError(
        "not-supported",
        f"@{name} holds shardings and is called where {told[0]} and where {told[1]} are manual",
        location=locate(call),
        help="inline it first (inline), or give each call its own (sdy-flatten-call-graph)",
    )
