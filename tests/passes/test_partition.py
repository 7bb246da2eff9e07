"""``sp-partition``: the program of one device computes what the whole one does, or is refused.

What Shardy's converter makes of an op, the numbers of eight devices say. A child runs them: it may
die of what it is given, and must not.
"""

from __future__ import annotations

from collections import Counter
from importlib.metadata import version

import pytest

from shardpass.diagnostics import ShardingError
from shardpass.mlir import argument_attributes, load, operations
from shardpass.passes import run_pipeline
from shardpass.passes.partitioning.faults import knows_control_flow
from shardpass.runtime.child import in_child
from tests.passes import partitioned
from tests.passes.helpers import MESH, faults, said

NEWER = tuple(int(part) for part in version("jaxlib").split(".")[:2]) >= (0, 12)

NO = "not-partitionable"
#: What no jaxlib takes apart rightly.
REFUSED = {
    "all": NO,
    "factorization, matrix cut": NO,
    "moved by a pad": NO,
    "products of columns": NO,
    "uneven": "indivisible",
}
#: What jaxlib 0.12 does not, whose exchange of borders knows neither.
REFUSED_BY_NEWER = {"padded twice": NO, "slice in steps": NO}
#: What jaxlib 0.10.2 does not.
REFUSED_BY_OLDER = dict.fromkeys(
    (
        "argmax",
        "axes change places",
        "drawn bits",
        "drawn numbers",
        "dynamic slice",
        "dynamic update",
        "loop",
        "maximum",
        "parts of an axis",
        "rows of a table",
        "scan",
    ),
    NO,
)


def test_the_converter_is_told_by_its_options() -> None:
    assert knows_control_flow() is NEWER


def test_programs_of_each_kind_give_the_numbers_of_one_device_or_are_refused() -> None:
    names = list(partitioned.PROGRAMS)
    expected = dict.fromkeys(names, "right") | REFUSED
    expected |= REFUSED_BY_NEWER if NEWER else REFUSED_BY_OLDER
    assert in_child(partitioned.outcomes, names) == expected


def test_the_training_step_of_the_example() -> None:
    """Donated state, six reductions: what XLA's own partitioner gives, to the last digits."""
    assert in_child(partitioned.mlp_differs) < 1e-5


def test_devices_in_another_order() -> None:
    names = ["product", "sums", "gathered", "cut", "other dimension", "numbered rows", "constant"]
    found = in_child(partitioned.outcomes, names, partitioned.SHUFFLED)
    assert found == dict.fromkeys(names, "right")


def test_generated_programs_are_never_wrong() -> None:
    found = in_child(partitioned.generated_outcomes, list(range(12)))
    counted = Counter(found.values())
    refused = {"indivisible", NO, f"indivisible, {NO}"}
    assert set(counted) <= {"right"} | refused, found
    assert counted["right"] >= (9 if NEWER else 5), counted


def module(body: str, argument: str = '[{"x"}, {}]', head: str = "") -> str:
    """A function of one 8x8 argument, propagated by hand."""
    return f"""{head}
sdy.mesh @mesh = <["x"=2, "y"=4]>
func.func @main(%a: tensor<8x8xf32> {{sdy.sharding = #sdy.sharding<@mesh, {argument}>}})
    -> (tensor<8x8xf32> {{sdy.sharding = #sdy.sharding<@mesh, {argument}>}}) {{
{body}
}}
"""


def test_the_callers_module_is_as_it_was_after_an_error() -> None:
    kept = load(module("  return %a : tensor<8x8xf32>", '[{"x"}, {}], unreduced={"y"}'))
    before = kept.text()
    assert said(faults(kept, "sp-partition"))[0] == (
        "error",
        "not-partitionable",
        'argument 0 ("arg0") of @main holds partial results over "y"',
    )
    assert kept.text() == before


def test_values_and_ops_are_reported_in_one_run() -> None:
    text = module(
        """
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.pad %a, %zero, low = [-1, 0], high = [1, 0], interior = [0, 0]
    {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>}
    : (tensor<8x8xf32>, tensor<f32>) -> tensor<8x8xf32>
  %1 = stablehlo.slice %a [0:8, 0:3]
    {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {"y"}]>]>}
    : (tensor<8x8xf32>) -> tensor<8x3xf32>
  %2 = stablehlo.custom_call @show(%1) {has_side_effect = true}
    : (tensor<8x3xf32>) -> tensor<8x3xf32>
  return %0 : tensor<8x8xf32>"""
    )
    found = {d.slug for d in faults(text, "sp-partition")}
    assert {"indivisible", "not-partitionable"} <= found


def test_every_fault_of_a_kind_is_reported_with_its_place() -> None:
    lines = [
        f"  %{i} = stablehlo.slice %a [0:4, 0:{size}] "
        '{sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {"y"}]>]>}'
        f" : (tensor<8x8xf32>) -> tensor<4x{size}xf32>"
        for i, size in enumerate((3, 6, 7))
    ]
    text = module("\n".join([*lines, "  return %a : tensor<8x8xf32>"]), '[{}, {"y"}]')
    found = [d for d in faults(text, "sp-partition") if d.slug == "indivisible"]
    assert [(d.message, d.location and d.location.line) for d in found] == [
        (f"the result of stablehlo.slice, dimension 1: {size} elements into 4 pieces", 5 + i)
        for i, size in enumerate((3, 6, 7))
    ]


@pytest.mark.parametrize("wrap", [False, True])
def test_names_and_attributes_of_arguments_stay(wrap: bool) -> None:
    text = """
sdy.mesh @mesh = <["x"=2, "y"=4]>
func.func @step(
    %a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>, jax.buffer_donor = true}
      loc("state['w']"),
    %b: tensor<8xf32> {tf.aliasing_output = 1 : i32} loc("state['b']"))
    -> (tensor<8x8xf32> {jax.result_info = "result['w']"}, tensor<8xf32>) {
  %0 = stablehlo.abs %a : tensor<8x8xf32>
  return %0, %b : tensor<8x8xf32>, tensor<8xf32>
}
"""
    result = run_pipeline(text, f"sp-propagate,sp-partition{{wrap={str(wrap).lower()}}}").module
    assert result.main.name.value == "step"
    assert [value.path for value in result.arguments] == ["state.w", "state.b"]
    assert result.results[0].path == "result.w"
    donated, aliased = argument_attributes(result.main)
    assert "jax.buffer_donor" in donated
    assert "tf.aliasing_output" in aliased
    assert result.arguments[0].shape == ((8, 8) if wrap else (4, 8))


def test_it_can_be_loaded_and_partitioned_is_not_partitioned_again() -> None:
    text = module("  %0 = stablehlo.abs %a : tensor<8x8xf32>\n  return %0 : tensor<8x8xf32>")
    local = run_pipeline(text, "sp-propagate,sp-partition").module
    again = run_pipeline(load(local.text()), "sp-partition").module
    assert again.text() == local.text()


def test_it_takes_a_module_that_shows_its_collectives_already() -> None:
    """Shardy would write a second ``all_reduce`` behind the first."""
    text = partitioned.PROGRAMS["product"].module().text(debug_info=False)
    direct = run_pipeline(text, "sp-propagate,sp-partition").module
    shown = run_pipeline(text, "sp-propagate,sp-explicit-collectives,sp-partition").module
    assert shown.text(debug_info=False) == direct.text(debug_info=False)
    assert partitioned.collectives(shown) == {"all-reduce": 1}


def test_a_wrapped_program_is_a_fixed_point_of_propagation_and_partition() -> None:
    text = module("  %0 = stablehlo.abs %a : tensor<8x8xf32>\n  return %0 : tensor<8x8xf32>")
    local = run_pipeline(text, "sp-propagate,sp-partition").module
    wrapped = run_pipeline(text, "sp-propagate,sp-partition{wrap}").module
    back = run_pipeline(wrapped, "sp-propagate,sp-partition").module
    assert back.text(debug_info=False) == local.text(debug_info=False)


def test_groups_by_axes_become_lists_since_the_mesh_goes() -> None:
    if not NEWER:
        return
    text = module("""
  %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"x"}, {}]>]
      out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x", "y"} (%b: tensor<4x8xf32>) {
    %1 = "stablehlo.all_reduce"(%b) <{
      channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids,
      replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh,
        axes = [#stablehlo.axis_ref<name = "y">]>}> ({
    ^bb0(%l: tensor<f32>, %r: tensor<f32>):
      %2 = stablehlo.add %l, %r : tensor<f32>
      stablehlo.return %2 : tensor<f32>
    }) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    sdy.return %1 : tensor<4x8xf32>
  } : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>""")
    local = run_pipeline(text, "sp-partition").module
    assert not [op for op in operations(local.root) if op.operation.name == "sdy.mesh"]
    assert "dense<[[0, 1, 2, 3], [4, 5, 6, 7]]>" in local.text()


def test_several_public_functions_need_one_that_is_main() -> None:
    text = (
        MESH
        + """
func.func @one(%a: tensor<8xf32>) -> tensor<8xf32> { return %a : tensor<8xf32> }
func.func @two(%a: tensor<8xf32>) -> tensor<8xf32> { return %a : tensor<8xf32> }
"""
    )
    with pytest.raises(ShardingError) as caught:
        run_pipeline(text, "sp-partition")
    assert caught.value.slug == "no-entry-function"


def test_nothing_is_left_of_what_was_written_for_shardy() -> None:
    shown = run_pipeline(
        partitioned.PROGRAMS["sums"].module(), "sp-propagate,sp-explicit-collectives"
    ).module
    local = run_pipeline(shown, "sp-partition").module
    assert "shardpass." not in shown.text() + local.text()
    assert "stablehlo.all_reduce" in local.text()
