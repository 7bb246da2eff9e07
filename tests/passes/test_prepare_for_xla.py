"""What the finishing step changes, and that XLA takes the outcome."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from shardpass.mlir import load
from shardpass.passes import run_pipeline
from shardpass.passes.prepare_for_xla import PrepareForXla
from shardpass.runtime import compile_module, run

MESH = 'sdy.mesh @mesh = <["x"=2, "y"=4]>'


def prepared(body: str) -> str:
    text = run_pipeline(load(f"module {{\n{body}\n}}"), [PrepareForXla()]).module.text()
    assert "error" not in text
    return text


def test_reshards_become_constraints():
    text = prepared(
        f"""{MESH}
  func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {{
    %0 = sdy.reshard %a <@mesh, [{{"x"}}]> : tensor<8xf32>
    return %0 : tensor<8xf32>
  }}"""
    )
    assert "sdy.reshard" not in text
    assert '%0 = sdy.sharding_constraint %arg0 <@mesh, [{"x"}]> : tensor<8xf32>' in text
    assert "return %0" in text


@pytest.mark.parametrize(
    ("op", "target"),
    [
        ('sdy.all_gather [{"x"}, {}] %a', "[{}, {}]"),
        ('sdy.all_slice [{}, {"y"}] %a', '[{"x"}, {"y"}]'),
        ('sdy.all_to_all [{"x"}: 0->1] %a', '[{}, {"x"}]'),
        ("sdy.collective_permute %a", '[{"y"}, {}]'),
        ('sdy.all_reduce {"y"} %a', '[{"x"}, {}]'),
        ('sdy.reduce_scatter [{}, {"y"}] %a', '[{"x"}, {"y"}]'),
    ],
)
def test_collectives_become_constraints(op: str, target: str):
    """Of where they put their value: XLA takes none, and makes its own."""
    text = prepared(collective(op, target))
    assert f"%0 = sdy.sharding_constraint %arg0 <@mesh, {target}> : tensor<8x8xf32>" in text
    assert "return %0" in text
    assert "out_sharding" not in text


def test_collectives_that_leave_a_partial_sum_go():
    text = prepared(collective('sdy.sharded_to_unreduced [{"x"}, {}] %a', UNREDUCED))
    assert "return %arg0" in text
    assert "constraint" not in text


UNREDUCED = '[{}, {}], unreduced={"x"}'


def collective(op: str, target: str) -> str:
    return f"""sdy.mesh @mesh = <["x"=2, "y"=2]>
  func.func @main(%a: tensor<8x8xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}, {{}}]>}})
      -> tensor<8x8xf32> {{
    %0 = {op} out_sharding=<@mesh, {target}> : tensor<8x8xf32>
    return %0 : tensor<8x8xf32>
  }}"""


def test_shardings_of_control_flow_go_and_others_stay():
    text = prepared(
        f"""{MESH}
  func.func @main(%a: tensor<8xf32>, %i: tensor<i32>) -> tensor<8xf32> {{
    %0 = stablehlo.add %a, %a
      {{sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{{"x"}}]>]>}} : tensor<8xf32>
    %1 = "stablehlo.case"(%i) ({{
      stablehlo.return %0 : tensor<8xf32>
    }}, {{
      stablehlo.return %a : tensor<8xf32>
    }}) {{sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{{"y"}}]>]>}}
      : (tensor<i32>) -> tensor<8xf32>
    return %1 : tensor<8xf32>
  }}"""
    )
    assert text.count("sharding_per_value") == 1
    assert '<[<@mesh, [{"x"}]>]>' in text


def test_mhlo_shardings_of_control_flow_go_and_others_stay():
    text = prepared(
        """func.func @main(%a: tensor<8xf32>, %i: tensor<i32>) -> tensor<8xf32> {
    %0 = stablehlo.add %a, %a {mhlo.sharding = "{devices=[2]<=[2]}"} : tensor<8xf32>
    %1 = "stablehlo.case"(%i) ({
      stablehlo.return %0 : tensor<8xf32>
    }, {
      stablehlo.return %a : tensor<8xf32>
    }) {mhlo.sharding = "{replicated}"} : (tensor<i32>) -> tensor<8xf32>
    return %1 : tensor<8xf32>
  }"""
    )
    assert text.count("mhlo.sharding") == 1
    assert "{devices=[2]<=[2]}" in text


def broadcast(operand: str, dimensions: str, result: str) -> str:
    return f"""func.func @main(%a: tensor<{operand}>) -> tensor<{result}> {{
    %0 = stablehlo.broadcast_in_dim %a, dims = {dimensions}
      {{mhlo.sharding = "{{devices=[2,1,4]<=[8] last_tile_dim_replicate}}"}}
      : (tensor<{operand}>) -> tensor<{result}>
    return %0 : tensor<{result}>
  }}"""


@pytest.mark.parametrize(
    ("operand", "dimensions", "reshaped", "left"),
    [
        ("1x4xf32", "[0, 1]", "4xf32", "[1]"),
        ("1x1xf32", "[0, 1]", "f32", "[]"),
        ("4x1xf32", "[1, 0]", "4xf32", "[1]"),
        ("8x1xi32", "[0, 1]", "8xi32", "[0]"),
    ],
)
def test_a_stretched_dimension_is_taken_off_before(
    operand: str, dimensions: str, reshaped: str, left: str
):
    result = f"8x4x{operand[-3:]}"
    text = prepared(broadcast(operand, dimensions, result))
    assert f"%0 = stablehlo.reshape %arg0 : (tensor<{operand}>) -> tensor<{reshaped}>" in text
    assert f"%1 = stablehlo.broadcast_in_dim %0, dims = {left} {{mhlo.sharding = " in text
    assert f"(tensor<{reshaped}>) -> tensor<{result}>" in text


@pytest.mark.parametrize(
    ("operand", "dimensions", "result"),
    [
        ("4xf32", "[1]", "8x4xf32"),
        ("1x4xf32", "[0, 1]", "1x4xf32"),
        ("?x4xf32", "[0, 1]", "8x4xf32"),
    ],
)
def test_what_is_not_stretched_stays(operand: str, dimensions: str, result: str):
    text = prepared(broadcast(operand, dimensions, result))
    assert "reshape" not in text
    assert f"stablehlo.broadcast_in_dim %arg0, dims = {dimensions} {{mhlo.sharding" in text


def test_one_element_is_not_cut_and_sent_around():
    """GSPMD sends nothing for a bias, and without the reshape it would."""
    text = """func.func @main(
      %a: tensor<8x4xf32> {mhlo.sharding = "{devices=[2,4]<=[8]}"},
      %b: tensor<1x4xf32> {mhlo.sharding = "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}"}
    ) -> (tensor<8x4xf32> {mhlo.sharding = "{devices=[2,4]<=[8]}"}) {
    %0 = stablehlo.broadcast_in_dim %b, dims = [0, 1] {mhlo.sharding = "{devices=[2,4]<=[8]}"}
      : (tensor<1x4xf32>) -> tensor<8x4xf32>
    %1 = stablehlo.multiply %a, %0 {mhlo.sharding = "{devices=[2,4]<=[8]}"} : tensor<8x4xf32>
    return %1 : tensor<8x4xf32>
  }"""
    module = load(text)
    assert not re.search("all-|permute", compile_module(module, devices=8).hlo_text)
    a, b = np.arange(32, dtype=np.float32).reshape(8, 4), np.arange(4, dtype=np.float32)[None]
    ran = run(module, devices=8, inputs={"arg0": a, "arg1": b})
    np.testing.assert_array_equal(ran.arrays[0], a * b)


def test_sharding_rules_go():
    text = prepared(
        f"""{MESH}
  func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {{
    %0 = stablehlo.abs %a {{sdy.sharding_rule = #sdy.op_sharding_rule<([i])->([i]) {{i=8}}>}}
      : tensor<8xf32>
    return %0 : tensor<8xf32>
  }}"""
    )
    assert "sharding_rule" not in text


def test_the_empty_mesh_is_merged_wherever_it_is_named():
    text = prepared(
        f"""{MESH}
  sdy.mesh @empty_mesh = <[]>
  sdy.mesh @empty_mesh_2 = <["z"=8]>
  func.func @main(%k: tensor<2xui32> {{sdy.sharding = #sdy.sharding<@empty_mesh, [{{}}]>}},
                  %a: tensor<8xf32> {{sdy.sharding = #sdy.sharding<@empty_mesh_2, [{{"z"}}]>}})
      -> (tensor<2xui32> {{sdy.sharding = #sdy.sharding<@empty_mesh, [{{?}}]>}}, tensor<8xf32>) {{
    %0 = sdy.sharding_constraint %k <@empty_mesh, [{{}}]> : tensor<2xui32>
    %1 = stablehlo.abs %a
      {{sdy.sharding = #sdy.sharding_per_value<[<@empty_mesh, [{{}}]>]>}} : tensor<8xf32>
    return %0, %1 : tensor<2xui32>, tensor<8xf32>
  }}"""
    )
    assert "@empty_mesh," not in text
    assert "@empty_mesh =" not in text
    assert "sdy.sharding<@mesh, [{}]>" in text
    assert "sdy.sharding<@mesh, [{?}]>" in text
    assert "sharding_constraint %arg0 <@mesh, [{}]>" in text
    assert "sharding_per_value<[<@mesh, [{}]>]>" in text
    assert '@empty_mesh_2, [{"z"}]' in text


def test_an_empty_mesh_alone_stays():
    body = """sdy.mesh @empty_mesh = <[]>
  func.func @main(%k: tensor<2xui32> {sdy.sharding = #sdy.sharding<@empty_mesh, [{}]>})
      -> tensor<2xui32> {
    return %k : tensor<2xui32>
  }"""
    assert "sdy.sharding<@empty_mesh, [{}]>" in prepared(body)


def test_nothing_to_do_changes_nothing():
    module = load(
        f"""module {{
  {MESH}
  func.func @main(%a: tensor<8xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}]>}})
      -> tensor<8xf32> {{
    %0 = sdy.sharding_constraint %a <@mesh, [{{"y"}}]> : tensor<8xf32>
    return %0 : tensor<8xf32>
  }}
}}"""
    )
    assert run_pipeline(module, [PrepareForXla()]).module.text() == module.text()


def test_a_propagated_scan_with_typed_keys_compiles():
    """Each of the rewrites is needed for this one: without them XLA stops or dies."""
    mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    rows = NamedSharding(mesh, PartitionSpec("x"))

    def program(key, x, w):
        def body(carry, weight):
            return jax.lax.with_sharding_constraint(jnp.tanh(carry @ weight), rows), carry[0]

        y, firsts = jax.lax.scan(body, x, w)
        return y + jax.random.normal(key, y.shape), firsts, jax.random.split(key)

    shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((8, 16), (3, 16, 16))]
    lowered = jax.jit(program, in_shardings=(None, rows, None)).lower(jax.random.key(0), *shapes)
    module = load(lowered.as_text(debug_info=True))
    propagated = run_pipeline(module, "sdy-propagation-pipeline").module
    text = propagated.text()
    assert "sdy.reshard" in text
    assert "@empty_mesh" in text
    executable = compile_module(propagated)
    assert executable.argument_layouts[1].shard_shape == (4, 16)
    assert np.prod(executable.result_layouts[0].shard_shape) < 8 * 16


def test_named_mhlo_shardings_become_tiles() -> None:
    text = """
    func.func @main(%a: tensor<8x8xf32> {mhlo.sharding = "{mesh['x'=2,'y'=4], [{'x', ?}, {}]}"})
        -> (tensor<8x8xf32> {mhlo.sharding = "{single_device[device_id=3]}"}) {
      %0 = stablehlo.custom_call @Sharding(%a) {
        mhlo.sharding = "{mesh['x'=2,'y'=4], [{}, {}], manual={'x'}}"}
        : (tensor<8x8xf32>) -> tensor<8x8xf32>
      %1 = stablehlo.abs %0 {mhlo.sharding = "{devices=[4,2]0,4,1,5,2,6,3,7}"} : tensor<8x8xf32>
      %2 = stablehlo.abs %1 {mhlo.sharding = "{mesh[banana"} : tensor<8x8xf32>
      return %2 : tensor<8x8xf32>
    }"""
    found = run_pipeline(text, "sp-prepare-for-xla").module.text(debug_info=False)
    for told in (
        '{mhlo.sharding = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"}',
        '{mhlo.sharding = "{maximal device=3}"}',
        '{mhlo.sharding = "{devices=[1,1,2,4]<=[8] last_tile_dims={manual, replicated}}"}',
        '{mhlo.sharding = "{devices=[4,2]0,4,1,5,2,6,3,7}"}',  # As it was.
        '{mhlo.sharding = "{mesh[banana"}',  # For the verifier to tell of.
    ):
        assert told in found


DISAGREEING = f"""{MESH}
func.func @main(%a: tensor<8x8xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}, {{}}]>}},
                %i: tensor<i32>) -> tensor<8x8xf32> {{
  %0 = "stablehlo.case"(%i) ({{
    %1 = stablehlo.negate %a
      {{sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{{"x"}}, {{}}]>]>}} : tensor<8x8xf32>
    stablehlo.return %1 : tensor<8x8xf32>
  }}, {{
    %2 = stablehlo.sine %a
      {{sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{{}}, {{"y"}}]>]>}} : tensor<8x8xf32>
    stablehlo.return %2 : tensor<8x8xf32>
  }}) : (tensor<i32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}}
"""


def test_branches_that_end_in_different_shardings_compile_in_both_notations():
    """XLA: "Inconsistent conditional sharding among instructions"."""
    a = np.arange(64, dtype=np.float32).reshape(8, 8) / 7
    assert "sharding_per_value" not in prepared(DISAGREEING)
    for pipeline in ([], ["sp-export-mhlo"]):
        module = run_pipeline(DISAGREEING, pipeline).module
        ran = run(module, devices=8, inputs={"arg0": a, "arg1": np.int32(1)})
        np.testing.assert_allclose(ran.arrays[0], np.sin(a), rtol=1e-6)


def test_branches_that_agree_keep_what_they_say():
    agreeing = DISAGREEING.replace('[{}, {"y"}]', '[{"x"}, {}]')
    assert prepared(agreeing).count("sharding_per_value") == 2
