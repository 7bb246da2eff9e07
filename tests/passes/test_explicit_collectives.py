"""``sp-explicit-collectives``: what it shows, and what XLA compiles the same program to."""

from __future__ import annotations

import pytest

from shardpass.mlir import load
from shardpass.passes import run_pipeline
from shardpass.runtime.child import in_child
from tests.passes import partitioned
from tests.passes.helpers import MESH, faults, said
from tests.passes.test_propagate import MATMUL

#: Programs that XLA moves as much for, in as many collectives.
AS_SHOWN = {
    "attention": {},
    "axes change places": {"all-to-all": 1, "collective-permute": 1},
    "columns of a table": {},
    "elementwise, one cut": {"all-to-all": 1},
    "loop": {"all-reduce": 1},
    "maximum": {"all-reduce": 2},
    "other dimension": {"all-to-all": 1},
    "other order of axes": {"collective-permute": 1},
    "product": {"all-reduce": 1},
    "rows of a table": {"all-reduce": 1},
    "scatter": {},
    "transpose": {},
}
#: Programs that it does something else for: what is shown, what is compiled, and why.
OTHERWISE = {
    # The CPU compiler has no reduce-scatter: it reduces, and each device takes its part.
    "product, scattered": ({"reduce-scatter": 1}, {"all-reduce": 1}),
    # Two of the three sums are over the same devices, and XLA makes one collective of them.
    "sums": ({"all-reduce": 3}, {"all-reduce": 2}),
    # XLA gathers one dimension after the other, Shardy both at once.
    "gathered": ({"all-gather": 1}, {"all-gather": 2}),
    # XLA takes the largest of each part first, and gathers these and their places.
    "top k": ({"all-gather": 1}, {"all-gather": 2}),
    # The window reaches over the borders of both dimensions, one step to each side; Shardy shows
    # what a window needs no earlier than in the per-device program.
    "convolution": ({}, {"collective-permute": 4}),
}


def test_xla_does_what_is_shown_or_something_known() -> None:
    expected = {name: (kinds, kinds) for name, kinds in AS_SHOWN.items()} | OTHERWISE
    assert in_child(partitioned.traffic, list(expected)) == expected


def test_the_training_step_of_the_example() -> None:
    """Four gradients and the loss over the batch, and the answer over the hidden layer.

    XLA makes one of those over the batch: each device waits once for all of them.
    """
    shown, compiled = in_child(partitioned.mlp_traffic)
    assert shown == {"all-reduce": 6}
    assert compiled == {"all-reduce": 2}


def test_it_is_idempotent_and_the_same_in_every_run() -> None:
    once = run_pipeline(MATMUL, "sp-propagate,sp-explicit-collectives").module
    again = run_pipeline(once, "sp-explicit-collectives").module
    fresh = run_pipeline(MATMUL, "sp-propagate,sp-explicit-collectives").module
    assert once.text() == again.text() == fresh.text()
    assert "sdy.all_reduce" in once.text()


def test_it_is_idempotent_on_every_program() -> None:
    """Also what the second run says of its own ops is what the first one said."""
    assert in_child(partitioned.shown_twice, list(partitioned.PROGRAMS), range(12)) == {}


def test_a_reduction_whose_result_is_gathered_is_not_shown_again() -> None:
    text = (
        MESH
        + """func.func @main(
    %a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {"x"}]>})
    -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}) {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [1]
    {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"y"}]>]>}
    : (tensor<8x8xf32>, tensor<f32>) -> tensor<8xf32>
  %1 = sdy.all_gather [{"y"}] %0 out_sharding=<@mesh, [{}]> : tensor<8xf32>
  %2 = sdy.all_reduce {"x"} %1 out_sharding=<@mesh, [{}]> : tensor<8xf32>
  return %2 : tensor<8xf32>
}
"""
    )
    shown = run_pipeline(text, "sp-explicit-collectives").module
    assert partitioned.collectives(shown) == {"all-gather": 1, "all-reduce": 1}
    again = run_pipeline(shown, "sp-explicit-collectives").module
    assert again.text() == shown.text()


def test_a_reduction_that_is_shown_is_not_shown_again() -> None:
    scattered = partitioned.PROGRAMS["product, scattered"].module().text(debug_info=False)
    once = run_pipeline(scattered, "sp-propagate,sp-explicit-collectives").module
    again = run_pipeline(once, "sp-explicit-collectives").module
    assert partitioned.collectives(again) == {"reduce-scatter": 1}


def test_shardings_of_arguments_and_results_stay() -> None:
    propagated = run_pipeline(MATMUL, "sp-propagate").module
    shown = run_pipeline(propagated, "sp-explicit-collectives").module
    signature = [
        m.text(debug_info=False).split("func.func", 1)[1].split("{\n")[0]
        for m in (propagated, shown)
    ]
    assert signature[0] == signature[1]


def test_unpropagated_modules_are_left_as_they_were() -> None:
    module = load(
        MESH
        + """func.func @main(
    %a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {?}]>}) -> tensor<8x8xf32> {
  return %a : tensor<8x8xf32>
}
"""
    )
    before = module.text()
    ((severity, slug, message),) = said(faults(module, "sp-explicit-collectives"))
    assert (severity, slug) == ("error", "not-propagated")
    assert message.startswith('argument 0 ("arg0") of @main: [{"x"}, {?}] has open dimensions')
    assert module.text() == before


PARTIAL = '{sdy.sharding = #sdy.sharding<@mesh, [{}, {}], unreduced={"x"}>}'
SORT = """
  %0:2 = "stablehlo.sort"(%a, %a) <{dimension = 0 : i64}> ({
  ^bb0(%b: tensor<f32>, %c: tensor<f32>, %d: tensor<f32>, %e: tensor<f32>):
    %1 = stablehlo.compare LT, %b, %c : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }) {sdy.sharding = #sdy.sharding_per_value<[
    <@mesh, [{}, {}], unreduced={"x"}>, <@mesh, [{}, {}]>]>}
    : (tensor<8x8xf32>, tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>)"""
CALL = """
  stablehlo.custom_call @show(%a) {has_side_effect = true} : (tensor<8x8xf32>) -> ()"""


@pytest.mark.parametrize("name", ["sp-explicit-collectives", "sp-partition"])
@pytest.mark.parametrize("body", [SORT, CALL])
def test_partial_results_that_shardy_would_abort_on(body: str, name: str) -> None:
    text = f"""{MESH}
func.func @main(%a: tensor<8x8xf32> {PARTIAL}) -> (tensor<8x8xf32> {PARTIAL}) {{{body}
  return %a : tensor<8x8xf32>
}}
"""
    op = "stablehlo.sort" if body == SORT else "stablehlo.custom_call"
    assert said(faults(text, name)) == [
        (
            "error",
            "not-supported",
            f"{op} takes or gives partial results beside finished ones",
        )
    ]


@pytest.mark.parametrize("name", ["sp-explicit-collectives", "sp-partition"])
def test_a_mesh_that_is_written_into_the_shardings(name: str) -> None:
    """Shardy's passes look meshes up by name."""
    place = '{sdy.sharding = #sdy.sharding<mesh<["x"=4]>, [{"x"}, {}]>}'
    other = '{sdy.sharding = #sdy.sharding<mesh<["x"=4]>, [{}, {"x"}]>}'
    text = f"""
func.func @main(%a: tensor<8x4xf32> {place}) -> (tensor<8x4xf32> {other}) {{
  return %a : tensor<8x4xf32>
}}
"""
    assert partitioned.collectives(run_pipeline(text, name).module) == {"all-to-all": 1}


@pytest.mark.parametrize("name", ["sp-explicit-collectives", "sp-partition"])
def test_one_mesh_in_two_orders_of_devices(name: str) -> None:
    text = """
sdy.mesh @a = <["x"=4]>
sdy.mesh @b = <["x"=4], device_ids=[3, 2, 1, 0]>
func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@a, [{"x"}]>})
    -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@b, [{"x"}]>}) {
  return %a : tensor<8xf32>
}
"""
    ((severity, slug, message),) = said(faults(text, name))
    assert (severity, slug) == ("error", "mesh-mismatch")
    assert message.endswith("is on mesh x=4, and others are on x=4 in another order of devices")
