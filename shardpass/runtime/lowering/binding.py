"""What passes of the user's write on ops inside a function, said so that XLA heeds it.

XLA throws annotations on ordinary ops away. What propagation leaves there follows from arguments,
results and constraints, and XLA finds it again; what a pass has written there before is a decision,
and becomes a constraint on the op's results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, sdy

from shardpass.canon import TensorSharding
from shardpass.diagnostics import Sink
from shardpass.mlir import SDY_SHARDING, Shardings, Writer, operations
from shardpass.passes import Pass
from shardpass.passes.propagate import Propagate
from shardpass.passes.units import Step

#: Ops whose sharding XLA does read, or that end a block.
_HEEDED: Final = ("stablehlo.custom_call", "sdy.manual_computation")
_OURS: Final = "shardpass."


@dataclass(frozen=True, kw_only=True)
class BindAnnotations(Pass):
    """Constrain the results of annotated ops inside functions to their annotations.

    Leaves alone: custom calls and manual computations, which are heeded as they are.
    Order: behind the passes that annotate, before propagation annotates everything.
    """

    name: ClassVar[str] = "shardpass-bind-annotations"

    def run(self, root: ir.Operation, sink: Sink) -> None:
        """Collect, and then insert."""
        shardings = Shardings(root)
        found: list[tuple[ir.OpView, tuple[TensorSharding, ...]]] = []
        for op in operations(root):
            is_ordinary = not isinstance(op, func.FuncOp) and op.operation.name not in _HEEDED
            if is_ordinary and SDY_SHARDING in op.attributes and len(op.results):
                found.append((op, shardings.read_per_value(op.attributes[SDY_SHARDING])))
        write = Writer(root)
        for op, layouts in found:
            for result, layout in zip(op.results, layouts, strict=True):
                _constrain(op, result, write(layout))


def _constrain(op: ir.OpView, result: ir.Value, attribute: ir.Attribute) -> None:
    with ir.InsertionPoint.after(op), op.location:
        constraint = sdy.ShardingConstraintOp(result, sdy.TensorShardingAttr(attribute))
    result.replace_all_uses_except(constraint.results[0], constraint.operation)


def with_bindings(pipeline: Sequence[Step]) -> list[Step]:
    """``pipeline`` with :class:`BindAnnotations` where passes that are not ours have been.

    That is in front of the first propagation, or at the end where there is none: behind it nobody
    can tell what is a decision.
    """
    first = next((n for n, step in enumerate(pipeline) if _propagates(step)), len(pipeline))
    if not any(is_foreign(step) for step in pipeline[:first]):
        return list(pipeline)
    return [*pipeline[:first], BindAnnotations(), *pipeline[first:]]


def _propagates(step: Step) -> bool:
    return isinstance(step, (str, Propagate))


def is_foreign(step: Step) -> bool:
    """Whether it is a pass of somebody else's than ours, written in Python."""
    return isinstance(step, Pass) and not type(step).__module__.startswith(_OURS)
