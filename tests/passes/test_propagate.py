"""``sp-propagate``: Shardy's passes with options, and a word where they are silent."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from shardpass.mlir import load
from shardpass.passes import run_pipeline
from shardpass.passes.propagate import Propagate
from tests.passes.helpers import MESH, faults, said, shardings

RESHAPE = (
    'sdy.mesh @mesh = <["x"=4]>\n'
    "func.func @main(%a: tensor<2x30720xf32> "
    '{sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>}) -> tensor<2x6x5120xf32> {\n'
    "  %0 = stablehlo.reshape %a : (tensor<2x30720xf32>) -> tensor<2x6x5120xf32>\n"
    "  return %0 : tensor<2x6x5120xf32>\n}\n"
)

MATMUL = (
    MESH
    + """\
func.func @main(%a: tensor<16x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>},
                %b: tensor<32x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>})
    -> tensor<16x64xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<16x32xf32>, tensor<32x64xf32>) -> tensor<16x64xf32>
  %1 = stablehlo.constant dense<1.0> : tensor<16x64xf32>
  %2 = stablehlo.add %0, %1 : tensor<16x64xf32>
  return %2 : tensor<16x64xf32>
}
"""
)


def propagate(text: Any, options: str = "") -> Any:
    return run_pipeline(text, f"sp-propagate{options}")


def test_the_same_as_shardys_pipeline_with_default_options() -> None:
    def step(params: Any, x: jax.Array) -> Any:
        def layer(h: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
            return jnp.tanh(h @ w), None

        return jax.value_and_grad(lambda p: jax.lax.scan(layer, x, p["w"])[0].sum())(params)

    lowered = load(jax.jit(step).lower({"w": jnp.zeros((3, 8, 8))}, jnp.zeros((4, 8))))
    rules = [("w", jax.P(None, None, "y")), ("x", jax.P("x")), ("", jax.P())]
    annotated = run_pipeline(lowered, "sp-annotate", mesh={"x": 2, "y": 4}, rules=rules).module
    own = run_pipeline(annotated, "sp-propagate").module
    direct = run_pipeline(annotated, "sdy-propagation-pipeline").module
    assert own.text() == direct.text()
    assert '{"y"}' in own.text()


def test_shardings_spread() -> None:
    result = propagate(MATMUL)
    assert shardings(result.module, results=True) == ['<@mesh, [{"x"}, {}]>']
    assert "%0 = stablehlo.dot_general" in result.module.text()
    assert result.module.text().count('[<@mesh, [{"x"}, {}]>]') == 3
    assert result.diagnostics == ()


def test_conservative() -> None:
    text = propagate(RESHAPE).module.text()
    assert 'sdy.sharding_per_value<[<@mesh, [{}, {"x":(1)2}, {}]>]>' in text
    text = propagate(RESHAPE, "{conservative}").module.text()
    assert '"x":(1)2' not in text


def test_strategy_and_op_priority_reach_shardys_passes() -> None:
    default = Propagate().native_pipeline()
    assert "propagation-strategy=aggressive" in default
    assert "run-op-priority-propagation=true" in default
    assert "sdy-save-module" not in default
    basic = Propagate(strategy="basic", op_priority=False).native_pipeline()
    assert "propagation-strategy=basic" in basic
    assert "run-op-priority-propagation=false" in basic
    assert "sdy-save-module" not in basic


@pytest.mark.parametrize(
    "options",
    [
        "conservative",
        "strategy=basic",
        "strategy=aggressive",
        "op-priority=false",
        "keep-sharding-rules",
        "debug-sharding-origins",
        "debug-edge-sharding",
        "warn-replicated-bytes=0",
        "conservative strategy=basic op-priority=false keep-sharding-rules "
        "debug-sharding-origins debug-edge-sharding",
    ],
)
def test_every_option_leaves_a_whole_module(options: str) -> None:
    result = propagate(MATMUL, f"{{{options}}}")
    assert shardings(result.module, results=True) == ['<@mesh, [{"x"}, {}]>']
    assert load(result.module.text()).text() == result.module.text()


def test_the_expanded_pipeline_does_what_the_whole_one_does() -> None:
    native = run_pipeline(MATMUL, "sdy-propagation-pipeline").module.text()
    assert "sdy.sharding_per_value" in native
    assert propagate(MATMUL).module.text() == native


def test_sharding_rules_are_kept_when_asked() -> None:
    assert "sdy.sharding_rule" in propagate(MATMUL, "{keep-sharding-rules}").module.text()
    assert "sdy.sharding_rule" not in propagate(MATMUL).module.text()


def test_origins_and_edges_are_noted_when_asked() -> None:
    origins = propagate(MATMUL, "{debug-sharding-origins}").module.text()
    edges = propagate(MATMUL, "{debug-edge-sharding}").module.text()
    assert 'sdy.sharding_origins = [{x = "input: 0"}]' in origins
    assert "sdy.propagation_edges" not in origins
    assert "sdy.propagation_edges" in edges
    assert "sdy.sharding_origins" not in edges


def test_edges_in_a_loop() -> None:
    """Shardy in jaxlib 0.10 writes edges there that its own verifier refuses."""
    text = MATMUL.split("  %0")[0] + (
        "  %c = stablehlo.constant dense<0> : tensor<i32>\n"
        "  %0:2 = stablehlo.while(%i = %c, %x = %a) : tensor<i32>, tensor<16x32xf32>\n"
        "  cond {\n"
        "    %p = stablehlo.compare LT, %i, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        "    stablehlo.return %p : tensor<i1>\n"
        "  } do {\n"
        "    %y = stablehlo.abs %x : tensor<16x32xf32>\n"
        "    stablehlo.return %i, %y : tensor<i32>, tensor<16x32xf32>\n"
        "  }\n"
        "  %1 = stablehlo.constant dense<0.0> : tensor<16x64xf32>\n"
        "  %2 = stablehlo.dot_general %0#1, %b, contracting_dims = [1] x [0]\n"
        "    : (tensor<16x32xf32>, tensor<32x64xf32>) -> tensor<16x64xf32>\n"
        "  return %2 : tensor<16x64xf32>\n}\n"
    )
    if jax.__version_info__ < (0, 11):
        (fault,) = faults(text, "sp-propagate{debug-edge-sharding}")
        assert fault.help == (
            "jaxlib 0.10's Shardy cannot note edges in a module with loops: leave out "
            "debug-edge-sharding"
        )
    else:
        assert "sdy.propagation_edges" in propagate(text, "{debug-edge-sharding}").module.text()


def test_an_uneven_sharding_that_shardy_rewrites() -> None:
    text = (
        MESH
        + """\
func.func public @other(%a: tensor<6x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>})
    -> (tensor<6x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>}) {
  return %a : tensor<6x8xf32>
}
func.func public @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>})
    -> tensor<8x8xf32> {
  return %a : tensor<8x8xf32>
}
"""
    )
    found = propagate(text).diagnostics
    assert said(found) == [
        (
            "warning",
            "uneven-rewritten",
            f"{value}, dimension 0: 6 elements into 4 pieces is uneven, and Shardy makes "
            '[{"y":(1)2}, {}] of [{"y"}, {}]',
        )
        for value in ('argument 0 ("arg0")', 'result 0 ("result")')
    ]
    assert found[0].help == "pad to 8 (nearest sizes that work: 4 and 8), or drop an axis"


TWO_MESHES = """\
sdy.mesh @a = <["x"=4]>
sdy.mesh @b = <["z"=2, "w"=2]>
func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@a, [{"x"}, {}]>},
                %b: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@b, [{"z"}, {}]>})
    -> tensor<8x8xf32> {
  %0 = stablehlo.add %a, %b : tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
"""


def test_values_on_different_meshes() -> None:
    found = [d for d in propagate(TWO_MESHES).diagnostics if d.slug == "propagation-stopped"]
    assert said(found) == [
        (
            "warning",
            "propagation-stopped",
            "propagation stops at stablehlo.add: its operands lie on different meshes, (x=4) and "
            "(z=2, w=2)",
        )
    ]
    assert str(found[0].location) == "<text>:6:8"
    assert found[0].help == "put both on one mesh"


def test_a_second_mesh_that_nobody_cuts_over_stops_nothing() -> None:
    text = TWO_MESHES.replace('@b, [{"z"}, {}]', "@b, [{}, {}]")
    assert [d for d in propagate(text).diagnostics if d.slug == "propagation-stopped"] == []


def big(sharding: str) -> str:
    return (
        MESH
        + f"""\
func.func @main(%a: tensor<1000x1000xf32> {{sdy.sharding = #sdy.sharding<@mesh, {sharding}>}},
                %small: tensor<8xf32>) -> tensor<1000x1000xf32> {{
  %0 = stablehlo.abs %a : tensor<1000x1000xf32>
  %1 = stablehlo.negate %0 : tensor<1000x1000xf32>
  return %1 : tensor<1000x1000xf32>
}}
"""
    )


def test_large_values_that_stay_whole() -> None:
    found = propagate(big("[{}, {}]"), "{warn-replicated-bytes=4000000}").diagnostics
    assert said(found) == [
        ("warning", "replicated", f"{value}, 3.8 MiB, stays whole on every device")
        for value in (
            'argument 0 ("arg0")',
            'result 0 ("result")',
            "the result of stablehlo.abs",
            "the result of stablehlo.negate",
        )
    ]
    assert [str(d.location) for d in found[2:]] == ["<text>:4:8", "<text>:5:8"]


@pytest.mark.parametrize(
    ("sharding", "options"),
    [
        ('[{"x"}, {}]', "{warn-replicated-bytes=4000000}"),
        ("[{}, {}]", "{warn-replicated-bytes=4000001}"),
        ("[{}, {}]", "{warn-replicated-bytes=0}"),
        ("[{}, {}]", ""),
    ],
)
def test_no_word_about_cut_or_small_values(sharding: str, options: str) -> None:
    assert propagate(big(sharding), options).diagnostics == ()


def test_many_large_values_are_counted() -> None:
    lines = "".join(
        f"  %{i} = stablehlo.abs %{i - 1 if i else 'a'} : tensor<1000x1000xf32>\n" for i in range(8)
    )
    text = (
        f"{MESH}func.func @main(%a: tensor<1000x1000xf32>) -> tensor<1000x1000xf32> {{\n{lines}"
        "  return %7 : tensor<1000x1000xf32>\n}\n"
    )
    found = propagate(text, "{warn-replicated-bytes=4000000}").diagnostics
    inner = [d for d in found if d.message.startswith("the result of")]
    assert len(inner) == 5
    assert [d.notes for d in inner] == [()] * 4 + [("3 more values of this size are left out",)]
