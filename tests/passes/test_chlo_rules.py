"""CHLO's ops under propagation: the rules that Shardy lacks."""

from __future__ import annotations

import re

import pytest

from shardpass.diagnostics import ShardingError
from shardpass.mlir import load
from shardpass.passes import run_pipeline
from shardpass.passes.shardy.chlo_rules import _ELEMENTWISE

_TO_BOOL = {"chlo.is_inf", "chlo.is_neg_inf", "chlo.is_pos_inf"}
_TWO_OPERANDS = {"chlo.mulhi", "chlo.next_after", "chlo.polygamma", "chlo.zeta"}


def module(op: str, results: str, shape: str = "8x16xf32") -> str:
    """One op on an argument cut by `x`, its results returned."""
    return f"""
sdy.mesh @mesh = <["x"=2, "y"=4]>
func.func @main(
    %a: tensor<{shape}> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}, {{}}]>}})
    -> ({results}) {{
{op}
}}
"""


def spread(text: str, pipeline: str = "sp-propagate") -> str:
    return run_pipeline(load(text), pipeline).module.text(debug_info=False)


@pytest.mark.parametrize("name", sorted(_ELEMENTWISE))
def test_propagation_passes_through_an_elementwise_op(name: str) -> None:
    element = "i32" if name == "chlo.mulhi" else "f32"
    kind = f"tensor<8x16x{element}>"
    result = "tensor<8x16xi1>" if name in _TO_BOOL else kind
    operands, types = ("%a, %a", f"{kind}, {kind}") if name in _TWO_OPERANDS else ("%a", kind)
    op = f'  %0 = "{name}"({operands}) : ({types}) -> {result}\n  return %0 : {result}'
    text = spread(module(op, result, f"8x16x{element}"))
    (line,) = [line for line in text.splitlines() if name in line]
    assert '#sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>' in line
    assert "sharding_rule" not in text


def test_the_rule_is_the_one_shardy_has_for_an_op_of_that_kind() -> None:
    op = """
  %0 = chlo.square %a : tensor<8x16xf32> -> tensor<8x16xf32>
  %1 = stablehlo.abs %0 : tensor<8x16xf32>
  return %1 : tensor<8x16xf32>"""
    text = spread(module(op, "tensor<8x16xf32>"), "sp-propagate{keep-sharding-rules}")
    ours, theirs = re.findall(r"#sdy\.op_sharding_rule<.*?>", text.replace("->", "to"))
    assert ours == theirs == "#sdy.op_sharding_rule<([i, j])to([i, j]) {i=8, j=16}>"


def test_rows_of_top_k_stay_where_they_are() -> None:
    op = """
  %0:2 = chlo.top_k(%a, k=4) : tensor<8x16xf32> -> (tensor<8x4xf32>, tensor<8x4xi32>)
  return %0#0, %0#1 : tensor<8x4xf32>, tensor<8x4xi32>"""
    text = spread(module(op, "tensor<8x4xf32>, tensor<8x4xi32>"))
    placed = '<@mesh, [{"x"}, {}]>'
    assert f"#sdy.sharding_per_value<[{placed}, {placed}]>" in text


def test_a_cut_row_of_top_k_does_not_cut_what_is_taken_from_it() -> None:
    op = """
  %0:2 = chlo.top_k(%a, k=4) : tensor<8x16xf32> -> (tensor<8x4xf32>, tensor<8x4xi32>)
  return %0#0, %0#1 : tensor<8x4xf32>, tensor<8x4xi32>"""
    text = module(op, "tensor<8x4xf32>, tensor<8x4xi32>").replace('[{"x"}, {}]', '[{}, {"y"}]')
    assert "sharding_per_value" not in spread(text)


def test_a_rule_of_the_users_is_kept() -> None:
    rule = "#sdy.op_sharding_rule<([i, j])->([i, k]) {i=8, j=16, k=16}>"
    op = f"""
  %0 = chlo.square %a {{sdy.sharding_rule = {rule}}} : tensor<8x16xf32> -> tensor<8x16xf32>
  return %0 : tensor<8x16xf32>"""
    text = module(op, "tensor<8x16xf32>").replace('[{"x"}, {}]', '[{}, {"y"}]')
    kept = spread(text, "sp-propagate{keep-sharding-rules}")
    assert rule in kept
    assert "sharding_per_value" not in kept


def test_operands_that_are_broadcast_are_left_to_shardy() -> None:
    op = """
  %0 = stablehlo.constant dense<1.0> : tensor<16xf32>
  %1 = chlo.broadcast_add %a, %0 : (tensor<8x16xf32>, tensor<16xf32>) -> tensor<8x16xf32>
  return %1 : tensor<8x16xf32>"""
    text = spread(module(op, "tensor<8x16xf32>"), "sp-propagate{keep-sharding-rules}")
    (line,) = [line for line in text.splitlines() if "chlo.broadcast_add" in line]
    assert "sharding_rule" not in line


def test_a_dynamic_shape_is_still_shardys_to_refuse() -> None:
    text = """
func.func @main(%a: tensor<?xf32>) -> tensor<?xf32> {
  %0 = chlo.square %a : tensor<?xf32> -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
"""
    with pytest.raises(ShardingError, match="static shape"):
        spread(text)
