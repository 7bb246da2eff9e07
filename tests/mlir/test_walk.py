"""Going over ops: with their classes, or plainly."""

import pytest
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, stablehlo

from shardpass.diagnostics import ShardingError
from shardpass.mlir import ADVANCE, collect, load, operations, visit, with_attribute

TEXT = """\
func.func @main(%a: tensor<8xf32>) -> tensor<f32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %sum = stablehlo.reduce(%a init: %zero) across dimensions = [0]
      : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
    reducer(%x: tensor<f32>, %y: tensor<f32>) {
    %0 = stablehlo.add %x, %y {acme.mark} : tensor<f32>
    stablehlo.return %0 : tensor<f32>
  }
  return %sum : tensor<f32>
}
"""
NAMES = [
    "func.func",
    "stablehlo.constant",
    "stablehlo.reduce",
    "stablehlo.add",
    "stablehlo.return",
    "func.return",
]


def test_operations_come_in_program_order_with_their_classes() -> None:
    module = load(TEXT)
    found = list(operations(module.root))
    assert [op.operation.name for op in found] == NAMES
    assert isinstance(found[0], func.FuncOp)
    assert isinstance(found[3], stablehlo.AddOp)


def test_visit_begins_with_the_root() -> None:
    names: list[str] = []
    module = load(TEXT)

    def look(op: ir.Operation) -> ir.WalkResult:
        names.append(op.name)
        return ADVANCE

    visit(module.root, look)
    assert names == ["builtin.module", *NAMES]
    names.clear()
    visit(module.main, look)
    assert names == NAMES


def test_visit_raises_what_the_look_raises() -> None:
    seen: list[str] = []

    def look(op: ir.Operation) -> ir.WalkResult:
        seen.append(op.name)
        if op.name == "func.func":
            raise ShardingError("syntax", "not this one")
        return ADVANCE

    with pytest.raises(ShardingError, match="not this one"):
        visit(load(TEXT).root, look)
    assert seen == ["builtin.module", "func.func"]


def test_visit_may_set_and_remove_attributes() -> None:
    module = load(TEXT)

    def move(op: ir.Operation) -> ir.WalkResult:
        if "acme.mark" in op.attributes:
            op.attributes["acme.moved"] = op.attributes["acme.mark"]
            del op.attributes["acme.mark"]
        return ADVANCE

    visit(module.root, move)
    assert with_attribute(module.root, "acme.mark") == []
    assert with_attribute(module.root, "acme.moved") == collect(module.root, stablehlo.AddOp)
