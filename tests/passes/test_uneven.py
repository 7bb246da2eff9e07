"""``sp-import-mhlo`` of arguments and results that their tiles do not divide."""

import pytest
from jax.extend.mlir.dialects import sdy

from shardpass import check
from shardpass.mlir import collect, load
from shardpass.passes import run_pipeline
from tests.passes.helpers import faults, said, shardings

REPLICATE = "sp-import-mhlo{indivisible=replicate}"

UNEVEN = """
func.func @main(%a: tensor<6x8xf32> {mhlo.sharding = "{devices=[4,2]<=[8]}"},
                %b: tensor<8xf32> {mhlo.sharding = "{devices=[2,4]<=[8] last_tile_dim_replicate}"})
    -> (tensor<6x8xf32> {mhlo.sharding = "{devices=[8,1]<=[8]}"}) {
  %0 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<8xf32>) -> tensor<6x8xf32>
  %1 = stablehlo.subtract %a, %0 : tensor<6x8xf32>
  return %1 : tensor<6x8xf32>
}
"""

DUMP = """
HloModule step, input_output_alias={ {0}: (0, {}, may-alias) }, entry_computation_layout={(f32[6,8]{1,0}, f32[7]{0})->(f32[6,8]{1,0}, f32[7]{0})}, num_partitions=8

ENTRY main {
  p = f32[6,8]{1,0} parameter(0), sharding={devices=[4,2]<=[8]}
  q = f32[7]{0} parameter(1), sharding={devices=[8]<=[8]}
  t = f32[6,8]{1,0} tanh(p), sharding={devices=[4,2]<=[8]}
  s = f32[7]{0} tanh(q)
  ROOT o = (f32[6,8]{1,0}, f32[7]{0}) tuple(t, s), sharding={{devices=[4,2]<=[8]}, {devices=[8]<=[8]}}
}
"""  # noqa: E501


def constraints(text: str) -> list[str]:
    module = run_pipeline(text, REPLICATE).module
    return [
        str(op.attributes["sharding"]).removeprefix("#sdy.sharding<@mesh, ")[:-1]
        for op in collect(module.root, sdy.ShardingConstraintOp)
    ]


def test_it_is_an_error_once_for_each_and_says_what_there_is_to_do() -> None:
    module = load(UNEVEN)
    before = module.text()
    found = faults(module, "sp-import-mhlo")
    assert said(found) == [
        ("error", "indivisible", 'argument 0 ("arg0"), dimension 0: 6 elements into 4 pieces'),
        ("error", "indivisible", 'result 0 ("result"), dimension 0: 6 elements into 8 pieces'),
    ]
    assert all("sp-import-mhlo{indivisible=replicate}" in str(fault.help) for fault in found)
    assert module.text() == before
    (without,) = {fault.help for fault in faults(module, "sp-verify")[:1]}
    assert "indivisible=" not in str(without)


def test_such_a_dimension_may_stay_whole_on_the_border() -> None:
    result = run_pipeline(UNEVEN, REPLICATE)
    assert said(result.diagnostics) == [
        (
            "warning",
            "replicated",
            'argument 0 ("arg0"), dimension 0: 6 elements into 4 pieces; left whole',
        ),
        (
            "warning",
            "replicated",
            'result 0 ("result"), dimension 0: 6 elements into 8 pieces; left whole',
        ),
    ]
    assert shardings(result.module) == [
        '<@mesh, [{}, {"_axis_2"}]>',
        '<@mesh, [{"_axis_0"}]>',
    ]
    assert shardings(result.module, results=True) == ["<@mesh, [{}, {}]>"]
    assert constraints(UNEVEN) == [
        '[{"_axis_0", "_axis_1"}, {"_axis_2"}]',
        '[{"_axis_0", "_axis_1", "_axis_2"}, {}]',
    ]
    again = run_pipeline(result.module, REPLICATE)
    assert again.module.text() == result.module.text()
    assert {d.slug for d in again.diagnostics} == {"indivisible"}  # XLA pads them inside.


@pytest.mark.parametrize("text", [UNEVEN, DUMP])
@pytest.mark.parametrize("further", ["", ",sp-propagate"])
def test_the_numbers_are_those_of_the_unsharded_run(text: str, further: str) -> None:
    module = run_pipeline(text, REPLICATE + further).module
    check(module, devices=8).raise_if_failed()


def test_what_divides_stays_as_it_is() -> None:
    even = UNEVEN.replace("6x8", "8x8")
    assert run_pipeline(even, REPLICATE).module.text() == (
        run_pipeline(even, "sp-import-mhlo").module.text()
    )


def test_no_constraint_where_there_is_just_that_one() -> None:
    assert constraints("""
        func.func @main(%a: tensor<6xf32> {mhlo.sharding = "{devices=[4]<=[4]}"})
            -> (tensor<6xf32> {mhlo.sharding = "{devices=[4]<=[4]}"}) {
          %0 = stablehlo.custom_call @Sharding(%a) {mhlo.sharding = "{devices=[4]<=[4]}"}
            : (tensor<6xf32>) -> tensor<6xf32>
          return %0 : tensor<6xf32>
        }""") == ['[{"_axis_0"}]']


def test_an_argument_that_is_returned() -> None:
    assert constraints("""
        func.func @main(%a: tensor<6x6xf32> {mhlo.sharding = "{devices=[4,1]<=[4]}"})
            -> (tensor<6x6xf32> {mhlo.sharding = "{devices=[1,4]<=[4]}"}) {
          return %a : tensor<6x6xf32>
        }""") == ['[{"_axis_0"}, {}]', '[{}, {"_axis_0"}]']


def test_a_group_holds_what_is_inside() -> None:
    module = run_pipeline(
        """
        func.func @main(
            %a: tensor<6xf32> {mhlo.sharding = "{devices=[4]<=[4] shard_as 1}"},
            %b: tensor<6xf32> {mhlo.sharding = "{devices=[4]<=[4] shard_like 1}"}) {
          return
        }""",
        REPLICATE + ",sp-propagate",
    ).module
    assert shardings(module) == ["<@mesh, [{}]>"] * 2


DONATED = """
func.func @main(%a: tensor<6x8xf32> {mhlo.sharding = "{devices=[4,1]<=[4]}",
                                     tf.aliasing_output = 0 : i32})
    -> (tensor<6x8xf32> {mhlo.sharding = "RESULT"}) {
  return %a : tensor<6x8xf32>
}
"""


def test_a_donated_argument_is_held_against_its_result_as_both_lie_then() -> None:
    (fault,) = (
        fault
        for fault in faults(DONATED.replace("RESULT", "{devices=[1,4]<=[4]}"), REPLICATE)
        if fault.slug == "alias-layout"
    )
    assert "their shards differ in size: 6x8 and 6x2" in fault.message
    both = run_pipeline(DONATED.replace("RESULT", "{devices=[4,1]<=[4]}"), REPLICATE)
    assert {d.slug for d in both.diagnostics} == {"replicated"}


ROUND_TRIP = """
module attributes {mhlo.frontend_attributes = {xla.sdy.meshes = "{mesh = #sdy.mesh<[\\"x\\"=4]>}"}} {
func.func @main(%a: tensor<6xf32> {mhlo.frontend_attributes = {
    xla.sdy.sharding = "#sdy.sharding<@mesh, [{\\"x\\"}]>"}}) {
  return
}
}
"""  # noqa: E501


def test_what_stood_in_the_round_trip_form() -> None:
    (fault,) = faults(ROUND_TRIP, "sp-import-mhlo")
    assert said([fault]) == [
        ("error", "indivisible", 'argument 0 ("arg0"), dimension 0: 6 elements into 4 pieces')
    ]
    assert "indivisible=replicate" in str(fault.help)
    module = run_pipeline(ROUND_TRIP, REPLICATE).module
    assert shardings(module) == ["<@mesh, [{}]>"]


def test_a_declaration_has_no_inside() -> None:
    module = run_pipeline(
        'func.func private @f(tensor<6xf32> {mhlo.sharding = "{devices=[4]<=[4]}"})\n'
        "func.func @main() {\n  return\n}",
        REPLICATE,
    ).module
    assert "@f(tensor<6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>})" in module.text()
