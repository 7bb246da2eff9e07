"""Which passes do more to a program than lay it out.

A plan says where values lie, and that is all that ``jax.jit`` can be told. So what is computed is
compared before and behind each pass that may be of another mind: the user's own, and native ones
that are not Shardy's.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, sdy

from shardpass.diagnostics import Sink
from shardpass.mlir import MHLO_SHARDING, operations
from shardpass.passes import Pass
from shardpass.passes.identities import is_annotation
from shardpass.passes.pipeline_text import NestText, PassText, parse_pipeline
from shardpass.passes.units import Step
from shardpass.runtime.lowering.binding import is_foreign

_SHARDYS: Final = "sdy"
#: Attributes that say nothing of what is computed.
_BESIDE: Final = ("sdy.", "shardpass", MHLO_SHARDING)
_OF_FUNCTIONS: Final = ("sym_name", "function_type")


@dataclass(frozen=True, kw_only=True)
class WatchProgram(Pass):
    """Compare what the module computes with what it did at the last look."""

    name: ClassVar[str] = "shardpass-watch-program"

    seen: list[int] = field(default_factory=list)
    """What was computed at each look."""
    rewriting: dict[str, None] = field(default_factory=dict)
    """The passes that have changed it, in order."""
    behind: str | None = None
    """The pass that has just been; none for a look in front of one."""

    def run(self, root: ir.Operation, sink: Sink) -> None:
        """Look; nothing is changed."""
        self.seen.append(hash(tuple(_computed(root))))
        if self.behind is not None and self.seen[-1] != self.seen[-2]:
            self.rewriting[self.behind] = None


def watched(steps: Sequence[Step], rewriting: dict[str, None]) -> list[Step]:
    """``steps`` with looks around those that may rewrite, which are put into ``rewriting``."""
    seen: list[int] = []
    found: list[Step] = []
    for step in steps:
        if _may_rewrite(step):
            name = step.name if isinstance(step, Pass) else step
            found += [
                WatchProgram(seen=seen, rewriting=rewriting),
                step,
                WatchProgram(seen=seen, rewriting=rewriting, behind=name),
            ]
        else:
            found.append(step)
    return found


def _may_rewrite(step: Step) -> bool:
    if isinstance(step, Pass):
        return is_foreign(step)
    return not all(name.startswith(_SHARDYS) for name in _names(parse_pipeline(step)))


def _names(elements: Sequence[PassText | NestText]) -> Iterator[str]:
    for element in elements:
        if isinstance(element, NestText):
            yield from _names(element.elements)
        else:
            yield element.name


def _computed(root: ir.Operation) -> Iterator[tuple[object, ...]]:
    """What each op computes and from what, in order, whatever is said of layouts."""
    numbers: dict[ir.Value, int] = {}
    fresh = itertools.count()
    for op in operations(root):
        if isinstance(op, (sdy.MeshOp, sdy.ShardingGroupOp)):
            continue
        if is_annotation(op):
            numbers[op.results[0]] = numbers[op.operands[0]]
            continue
        yield (
            op.operation.name,
            _attributes(op),
            tuple(numbers[operand] for operand in op.operands),
            tuple(str(result.type) for result in op.results),
        )
        for region in op.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    numbers[argument] = next(fresh)
        for result in op.results:
            numbers[result] = next(fresh)


def _attributes(op: ir.OpView) -> tuple[str, ...]:
    if op.operation.name.startswith("sdy."):
        return ()
    names = _OF_FUNCTIONS if isinstance(op, func.FuncOp) else sorted(op.attributes.keys())
    return tuple(f"{n} = {op.attributes[n]}" for n in names if not n.startswith(_BESIDE))
