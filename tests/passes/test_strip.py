"""``sp-strip``: back to a module that nobody annotated."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from shardpass.mlir import load, operations
from shardpass.partition_rules import Rule
from shardpass.passes import run_pipeline
from shardpass.runtime import compile_module
from tests.passes.helpers import MESH, attribute_of, faults, said

AXES = {"x": 2, "y": 4}


def strip(text: Any) -> Any:
    result = run_pipeline(text, "sp-strip")
    assert result.diagnostics == ()
    return result.module


def step(params: Any, x: jax.Array) -> Any:
    def layer(h: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
        return jnp.tanh(h @ w), None

    def loss(p: Any) -> jax.Array:
        return (jax.lax.scan(layer, x, p["w"])[0] + p["b"]).sum()

    value, grad = jax.value_and_grad(loss)(params)
    return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, grad)


PARAMS = {"w": jnp.ones((3, 8, 8)), "b": jnp.ones(8)}
BATCH = jnp.ones((4, 8))
RULES = [
    Rule(op="stablehlo.tanh", spec=["x"]),
    Rule(op="stablehlo.dot_general", spec=["x", "?"]),
    ("w$", P(None, None, "y")),
    ("b$", P("y")),
    ("^x", P("x")),
    ("result", P()),
]


def lowered() -> Any:
    return load(jax.jit(step, donate_argnums=0).lower(PARAMS, BATCH))


def test_annotating_and_stripping_changes_nothing() -> None:
    """strip . annotate is the identity, to the byte, on a module that states its partitions."""
    module = lowered()
    annotated = run_pipeline(module, "sp-annotate", mesh=AXES, rules=RULES).module
    assert annotated.text() != module.text()
    assert annotated.text().count("sdy.sharding_constraint") >= 2
    assert strip(annotated).text() == module.text()
    assert strip(annotated).bytecode() == strip(module).bytecode()


def test_stripping_twice_is_stripping_once() -> None:
    annotated = run_pipeline(lowered(), "sp-annotate,sp-propagate", mesh=AXES, rules=RULES).module
    once = strip(annotated)
    assert strip(once).text() == once.text()


@pytest.mark.parametrize(
    "pipeline",
    [
        "sp-annotate,sp-propagate",
        "sp-annotate,sp-propagate,sp-export-mhlo",
        "sp-annotate,sp-propagate{debug-sharding-origins keep-sharding-rules}",
        "sp-annotate,sp-propagate,sdy-insert-explicit-reshards",
    ],
)
def test_the_program_computes_what_it_computed_before(pipeline: str) -> None:
    """After a trip through everything: no trace of a sharding, and the same numbers."""
    module = lowered()
    annotated = run_pipeline(module, pipeline, mesh=AXES, rules=RULES).module
    assert "sharding" in annotated.text(debug_info=False)
    stripped = strip(annotated)
    text = stripped.text(debug_info=False)
    assert "sdy." not in text
    assert "sharding" not in text
    assert "mesh" not in text
    assert "mhlo.num_partitions = 1 : i32" in text
    assert attribute_of(stripped, "tf.aliasing_output") == attribute_of(
        module, "tf.aliasing_output"
    )
    assert [v.path for v in stripped.arguments] == [v.path for v in module.arguments]
    for own, original in zip(evaluate(stripped), evaluate(module), strict=True):
        np.testing.assert_allclose(own, original, rtol=1e-6)


def evaluate(module: Any) -> list[np.ndarray]:
    """The module on one device, with inputs that differ in every place."""
    rng = np.random.default_rng(3)
    inputs = [rng.normal(size=value.shape).astype(np.float32) for value in module.arguments]
    executable = compile_module(module, devices=1)
    placed = [executable.place(index, array) for index, array in enumerate(inputs)]
    return [np.asarray(blocks[0]) for blocks in executable.execute(placed)]


def inside(op: str) -> str:
    return (
        f"{MESH}func.func @main(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {{\n"
        f"  %0 = {op}\n  return %0 : tensor<8x8xf32>\n}}\n"
    )


@pytest.mark.parametrize(
    "op",
    [
        'sdy.sharding_constraint %a <@mesh, [{"x"}, {}]> : tensor<8x8xf32>',
        'sdy.reshard %a <@mesh, [{"x"}, {}]> : tensor<8x8xf32>',
        "sdy.propagation_barrier %a allowed_direction=FORWARD : tensor<8x8xf32>",
        "sdy.data_flow_edge %a : tensor<8x8xf32>",
        "sdy.func_data_flow_edge %a : tensor<8x8xf32>",
        'stablehlo.custom_call @Sharding(%a) {mhlo.sharding = "{replicated}"}'
        " : (tensor<8x8xf32>) -> tensor<8x8xf32>",
        'sdy.all_slice [{"x"}, {}] %a out_sharding=<@mesh, [{"x"}, {}]> : tensor<8x8xf32>',
    ],
)
def test_ops_that_only_say_where_a_value_lies(op: str) -> None:
    text = inside(op)
    if "all_slice" in op:
        text = text.replace(
            "tensor<8x8xf32>)",
            "tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>})",
            1,
        )
    names = [op.operation.name for op in operations(strip(text).root)]
    assert names == ["func.func", "func.return"]


def test_groups_and_constants() -> None:
    text = inside(
        "sdy.constant {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {}]>]>} dense<1.0>"
        " : tensor<8x8xf32>\n  sdy.sharding_group %0 group_id=1 : tensor<8x8xf32>"
    )
    assert strip(text).text(debug_info=False) == (
        "module {\n"
        "  func.func @main(%arg0: tensor<8x8xf32>) -> tensor<8x8xf32> {\n"
        "    %cst = stablehlo.constant dense<1.000000e+00> : tensor<8x8xf32>\n"
        "    return %cst : tensor<8x8xf32>\n  }\n}\n"
    )


def test_named_computations_stay_without_their_shardings() -> None:
    text = inside(
        'sdy.named_computation<"f">(%a) in_shardings=[<@mesh, [{"x"}, {}]>]\n'
        '    out_shardings=[<@mesh, [{"y"}, {}]>] (%b: tensor<8x8xf32>) {\n'
        "    sdy.return %b : tensor<8x8xf32>\n  } : (tensor<8x8xf32>) -> tensor<8x8xf32>"
    )
    stripped = strip(text).text()
    assert 'sdy.named_computation<"f">(%arg0) (%arg1: tensor<8x8xf32>) {' in stripped
    assert "mesh" not in stripped


def test_every_attribute_of_the_dialect_goes() -> None:
    text = (
        'module attributes {mhlo.frontend_attributes = {xla.sdy.meshes = "{}", keep = "1"}} {\n'
        f"{MESH}"
        "func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>, "
        "jax.buffer_donor = true, mhlo.frontend_attributes = "
        '{xla.sdy.sharding = "x"}}) -> (tensor<8xf32> {mhlo.sharding = "{replicated}", '
        'jax.result_info = "r"}) {\n'
        "  %0 = stablehlo.abs %a {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}]>]>, "
        'mhlo.sharding = "{replicated}", mhlo.frontend_attributes = {xla.sdy.sharding = "x"}}'
        " : tensor<8xf32>\n  return %0 : tensor<8xf32>\n}\n}\n"
    )
    assert strip(text).text(debug_info=False) == (
        'module attributes {mhlo.frontend_attributes = {keep = "1"}} {\n'
        "  func.func @main(%arg0: tensor<8xf32> {jax.buffer_donor = true}) -> (tensor<8xf32> "
        '{jax.result_info = "r"}) {\n'
        "    %0 = stablehlo.abs %arg0 : tensor<8xf32>\n"
        "    return %0 : tensor<8xf32>\n  }\n}\n"
    )


@pytest.mark.parametrize(
    "op",
    [
        'sdy.manual_computation(%a) in_shardings=[<@mesh, [{"x"}, {}]>]\n'
        '    out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x"} (%b: tensor<4x8xf32>) {\n'
        "    sdy.return %b : tensor<4x8xf32>\n  } : (tensor<8x8xf32>) -> tensor<8x8xf32>",
        'stablehlo.custom_call @SPMDShardToFullShape(%a) {mhlo.sharding = "{replicated}"}'
        " : (tensor<8x8xf32>) -> tensor<8x8xf32>",
    ],
)
def test_manual_computations_are_refused(op: str) -> None:
    (fault,) = faults(inside(op), "sp-strip")
    assert said([fault]) == [
        (
            "error",
            "not-supported",
            "a manual computation cannot be stripped: its body is written in local shapes",
        )
    ]
    assert str(fault.location) == "<text>:3:8"


def test_a_module_without_annotations_stays_as_it_is() -> None:
    module = lowered()
    assert strip(module).text() == module.text()
    bare = load("func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> { return %a : tensor<8xf32> }")
    assert strip(bare).text() == bare.text()
