"""A small module, and passes that count, raise and break; ``ran`` tells which of them ran."""

from dataclasses import dataclass
from typing import ClassVar

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, stablehlo

from shardpass.diagnostics import Sink
from shardpass.mlir import collect, locate
from shardpass.passes import Pass, option
from tests.passes.helpers import MESH

TEXT = (
    MESH
    + """\
func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
    -> tensor<8x8xf32> {
  %0 = stablehlo.add %a, %a : tensor<8x8xf32>
  %1 = stablehlo.multiply %0, %a : tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}
"""
)

ran: list[str] = []


@dataclass(frozen=True, kw_only=True)
class CountOps(Pass):
    """Count the ops of one kind.

    A second paragraph, which is not part of the summary.
    """

    name: ClassVar[str] = "acme-count-ops"

    kind: str = option("stablehlo.add", help="the op")
    most: int = option(10, help="refuse more")
    scale: float = option(1.0, help="a factor")
    loud: bool = option(False, help="say so")

    def run(self, root: ir.Operation, sink: Sink) -> None:
        ran.append(f"{self.kind} {self.most} {self.scale} {self.loud}")
        for op in collect(root, stablehlo.AddOp):
            if self.loud:
                sink.remark("acme/counted", f"found {op.operation.name}", location=locate(op))
            if self.most == 0:
                sink.error("acme/too-many", "there is an add", location=locate(op))


@dataclass(frozen=True, kw_only=True)
class Raise(Pass):
    """Raise what one is told to."""

    name: ClassVar[str] = "acme-raise"
    what: BaseException

    def run(self, root: ir.Operation, sink: Sink) -> None:
        ran.append("raise")
        for op in collect(root, stablehlo.MulOp):
            op.results[0].replace_all_uses_with(op.operands[0])
            op.erase()
        raise self.what


@dataclass(frozen=True, kw_only=True)
class Break(Pass):
    """Leave the function without its return."""

    name: ClassVar[str] = "acme-break"

    def run(self, root: ir.Operation, sink: Sink) -> None:
        ran.append("break")
        collect(root, func.ReturnOp)[0].erase()
