"""``sp-export-mhlo``: every place that holds a sharding, in GSPMD's notation."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P
from jaxlib import _jax  # noqa: TID251 - XLA's own reader of modules, as an oracle.

from shardpass.mlir import collect, load, mesh_ops, num_partitions, operations
from shardpass.passes import run_pipeline
from tests.passes.helpers import MESH, attribute_of, faults


def export(text: Any) -> Any:
    result = run_pipeline(text, "sp-export-mhlo")
    assert result.diagnostics == ()
    assert mesh_ops(result.module.root) == []
    assert "sdy." not in result.module.text(debug_info=False)
    assert load(result.module.text()).root.verify()
    return result.module


def on_ops(module: Any) -> dict[str, str]:
    return {
        op.operation.name: str(op.attributes["mhlo.sharding"]).strip('"')
        for op in operations(module.root)
        if "mhlo.sharding" in op.attributes
    }


def value(sharding: str, kind: str = "tensor<8x8xf32>", mesh: str = MESH) -> str:
    return (
        f"{mesh}func.func @main(%a: {kind} {{sdy.sharding = #sdy.sharding<{sharding}>}})"
        f" -> ({kind} {{sdy.sharding = #sdy.sharding<{sharding}>}}) {{\n  return %a : {kind}\n}}\n"
    )


@pytest.mark.parametrize(
    ("sharding", "text"),
    [
        ('@mesh, [{"x"}, {}]', "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"),
        ('@mesh, [{"y"}, {"x"}]', "{devices=[4,2]<=[2,4]T(1,0)}"),
        ('@mesh, [{"y", "x"}, {}]', "{devices=[8,1]<=[2,4]T(1,0)}"),
        ("@mesh, [{}, {}]", "{replicated}"),
        ('@mesh, [{?}, {"y", ?}]', "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}"),
        (
            '@mesh, [{"y":(2)2}, {}]',
            "{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}",
        ),
        (
            '@mesh, [{"x"}p1, {}], replicated={"y"}',
            "{devices=[2,1,4]<=[8] last_tile_dim_replicate}",
        ),
        ('mesh<["x"=2]>, [{"x"}, {}]', "{devices=[2,1]<=[2]}"),
    ],
)
def test_values(sharding: str, text: str) -> None:
    module = export(value(sharding))
    assert attribute_of(module, "mhlo.sharding") == [f'"{text}"']
    assert attribute_of(module, "mhlo.sharding", results=True) == [f'"{text}"']


@pytest.mark.parametrize(
    ("mesh", "sharding", "text", "devices"),
    [
        ('<["x"=4], device_ids=[3, 2, 1, 0]>', '{"x"}', "{devices=[4]3,2,1,0}", 4),
        (
            '<["x"=2, "y"=2], device_ids=[0, 2, 1, 3]>',
            '{"x", "y"}',
            "{devices=[4]<=[2,2]T(1,0)}",
            4,
        ),
        ("<[], device_ids=[3]>", None, "{maximal device=3}", 1),
    ],
)
def test_meshes_with_device_ids(mesh: str, sharding: str | None, text: str, devices: int) -> None:
    dims = f"[{sharding}]" if sharding else "[]"
    module = export(value(f"@mesh, {dims}", "tensor<8xf32>", f"sdy.mesh @mesh = {mesh}\n"))
    assert attribute_of(module, "mhlo.sharding") in ([f'"{text}"'], ['"{devices=[4]0,2,1,3}"'])
    assert num_partitions(module.root) == devices


def test_scalars_and_tokens() -> None:
    for kind in ("tensor<f32>", "!stablehlo.token"):
        assert attribute_of(export(value("@mesh, []", kind)), "mhlo.sharding") == ['"{replicated}"']


def test_the_device_count_is_stated_once() -> None:
    assert num_partitions(export(value("@mesh, [{}, {}]")).root) == 8
    stated = (
        f"module attributes {{mhlo.num_partitions = 16 : i32}} {{\n{value('@mesh, [{}, {}]')}}}"
    )
    assert num_partitions(export(stated).root) == 16
    bare = export("func.func @main() { return }")
    assert num_partitions(bare.root) is None


SEVERAL = (
    MESH
    + """\
func.func @main(%a: tensor<8x8xf32>, %p: tensor<i1>) -> tensor<8x8xf32> {
  %0:2 = stablehlo.custom_call @f(%a) {sdy.sharding = #sdy.sharding_per_value<[
      <@mesh, [{"x"}, {}]>, <@mesh, []>]>} : (tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<f32>)
  %1:2 = stablehlo.while(%i = %0#0, %j = %0#1) : tensor<8x8xf32>, tensor<f32>
      attributes {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {"y"}]>, <@mesh, []>]>}
  cond {
    %c = stablehlo.compare LT, %j, %j : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %c = stablehlo.abs %i {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {"y"}]>]>}
      : tensor<8x8xf32>
    stablehlo.return %c, %j : tensor<8x8xf32>, tensor<f32>
  }
  %2 = "stablehlo.if"(%p) ({
    stablehlo.return %a : tensor<8x8xf32>
  }, {
    stablehlo.return %1#0 : tensor<8x8xf32>
  }) {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"y"}, {}]>]>}
    : (tensor<i1>) -> tensor<8x8xf32>
  %3 = stablehlo.negate %2 : tensor<8x8xf32>
  return %3 : tensor<8x8xf32>
}
"""
)


def test_several_results_become_a_tuple() -> None:
    assert on_ops(export(SEVERAL)) == {
        "stablehlo.custom_call": "{{devices=[2,1,4]<=[8] last_tile_dim_replicate}, {replicated}}",
        "stablehlo.while": "{{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}, {replicated}}",
        "stablehlo.abs": "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
        "stablehlo.if": "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
    }


def one_op(op: str) -> str:
    return (
        f"{MESH}func.func @main(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {{\n"
        f"  %0 = {op}\n  return %0 : tensor<8x8xf32>\n}}\n"
    )


@pytest.mark.parametrize(
    ("op", "sharding", "config"),
    [
        (
            'sdy.sharding_constraint %a <@mesh, [{"x"}, {}]> : tensor<8x8xf32>',
            "{devices=[2,1,4]<=[8] last_tile_dim_replicate}",
            None,
        ),
        (
            'sdy.sharding_constraint %a <@mesh, [{"x"}, {?}]> : tensor<8x8xf32>',
            "{devices=[2,1,4]<=[8] last_tile_dim_replicate}",
            "unspecified_dims=[1]",
        ),
        (
            'sdy.sharding_constraint %a <@mesh, [{?}, {"x", ?}]> : tensor<8x8xf32>',
            "{devices=[1,2,4]<=[8] last_tile_dim_replicate}",
            "unspecified_dims=[0,1]",
        ),
        (
            'sdy.reshard %a <@mesh, [{"y"}, {}]> : tensor<8x8xf32>',
            "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
            None,
        ),
        (
            'sdy.all_gather [{"x"}, {}] %a out_sharding=<@mesh, [{}, {}]> : tensor<8x8xf32>',
            "{replicated}",
            None,
        ),
    ],
)
def test_constraints_become_sharding_calls(op: str, sharding: str, config: str | None) -> None:
    text = one_op(op)
    if "all_gather" in op:
        text = text.replace(
            "%a: tensor<8x8xf32>)",
            '%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})',
        )
    module = export(text)
    (call,) = [op for op in operations(module.root) if op.operation.name.endswith("custom_call")]
    assert str(call.attributes["call_target_name"]) == '"Sharding"'
    assert str(call.attributes["mhlo.sharding"]) == f'"{sharding}"'
    written = (
        str(call.attributes["backend_config"]) if "backend_config" in call.attributes else None
    )
    assert (written or '""').strip('"') == (config or "")


def test_marks_go_and_constants_become_stablehlos() -> None:
    text = (
        MESH
        + """\
func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
  %0 = sdy.data_flow_edge %a sharding=<@mesh, [{"x"}]> : tensor<8xf32>
  %1 = sdy.propagation_barrier %0 allowed_direction=NONE : tensor<8xf32>
  %2 = sdy.constant {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}]>]>} dense<1.0>
    : tensor<8xf32>
  %3 = stablehlo.add %1, %2 : tensor<8xf32>
  return %3 : tensor<8xf32>
}
"""
    )
    names = [op.operation.name for op in operations(export(text).root)]
    assert names == ["func.func", "stablehlo.constant", "stablehlo.add", "func.return"]


def test_constants_keep_their_sharding() -> None:
    text = one_op(
        'sdy.constant {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>}'
        " dense<1.0> : tensor<8x8xf32>"
    )
    assert on_ops(export(text)) == {
        "stablehlo.constant": "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"
    }


def test_calls_and_private_functions() -> None:
    text = (
        value('@mesh, [{"x"}, {}]').replace(
            "return %a", "%0 = call @f(%a) : (tensor<8x8xf32>) -> tensor<8x8xf32>\n  return %0"
        )
        + """\
func.func private @f(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>})
    -> tensor<8x8xf32> {
  return %a : tensor<8x8xf32>
}
"""
    )
    text = text.removeprefix(MESH)
    module = export(MESH + text)
    assert '@f(%arg0: tensor<8x8xf32> {mhlo.sharding = "{devices=[4,1,2]' in module.text()


def test_what_propagation_noted_goes_too() -> None:
    text = value('@mesh, [{"x"}, {}]').replace(
        "return %a", "%0 = stablehlo.abs %a : tensor<8x8xf32>\n  return %0"
    )
    noted = run_pipeline(
        text, "sp-propagate{debug-sharding-origins debug-edge-sharding keep-sharding-rules}"
    ).module
    assert on_ops(export(noted)) == {
        "stablehlo.abs": "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"
    }


def test_frontend_attributes_of_shardy_go_and_others_stay() -> None:
    text = (
        'module attributes {mhlo.frontend_attributes = {xla.sdy.meshes = "{}", a = "b"}} {\n'
        "func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {\n"
        '  %0 = stablehlo.abs %a {mhlo.frontend_attributes = {xla.sdy.sharding = "x"}}'
        " : tensor<8xf32>\n  return %0 : tensor<8xf32>\n}\n}\n"
    )
    module = export(text)
    assert str(module.root.attributes["mhlo.frontend_attributes"]) == '{a = "b"}'
    assert "xla.sdy" not in module.text()


def test_a_named_computation_gives_way_to_its_body() -> None:
    module = export(
        one_op(
            'sdy.named_computation<"f">(%a) in_shardings=[<@mesh, [{"x"}, {}]>]\n'
            '    out_shardings=[<@mesh, [{"y"}, {}]>] (%b: tensor<8x8xf32>) {\n'
            "    %c = stablehlo.abs %b {sdy.sharding = "
            '#sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>} : tensor<8x8xf32>\n'
            "    sdy.return %c : tensor<8x8xf32>\n  } : (tensor<8x8xf32>) -> tensor<8x8xf32>"
        )
    )
    found = [
        (op.operation.name, str(op.attributes["mhlo.sharding"]))
        for op in operations(module.root)
        if "mhlo.sharding" in op.attributes
    ]
    assert found == [
        ("stablehlo.custom_call", '"{devices=[2,1,4]<=[8] last_tile_dim_replicate}"'),
        ("stablehlo.abs", '"{devices=[2,1,4]<=[8] last_tile_dim_replicate}"'),
        ("stablehlo.custom_call", '"{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}"'),
    ]


def test_two_notations_on_one_op() -> None:
    text = one_op(
        'stablehlo.abs %a {mhlo.sharding = "{replicated}", '
        "sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {}]>]>} : tensor<8x8xf32>"
    )
    (fault,) = faults(text, "sp-export-mhlo")
    assert (fault.slug, str(fault.location)) == ("mixed-notations", "<text>:3:8")


def test_a_module_without_shardings_stays_as_it_is() -> None:
    text = load("func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> { return %a : tensor<8xf32> }")
    assert export(text).text() == text.text()


def hlo_shardings(module: Any) -> list[str]:
    """Shardings of parameters and of the root in the HLO that XLA makes of a module."""
    # XLA rewrites loops before it reads their shardings, and crashes: hence the finishing step.
    module = run_pipeline(module, "sp-prepare-for-xla").module
    computation = _jax.mlir.mlir_module_to_xla_computation(module.text(), return_tuple=False)
    lines = computation.as_hlo_text().split("ENTRY")[1].splitlines()
    kept = [line for line in lines if " parameter(" in line or "ROOT" in line]
    kept.sort(key=lambda line: int(re.findall(r" parameter\((\d+)\)", line + " parameter(99)")[0]))
    return [re.sub(r".*sharding=(\{.*?\})(, |$).*", r"\1", line) for line in kept]


def step(params: Any, x: jax.Array) -> Any:
    def layer(h: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
        return jnp.tanh(h @ w), None

    def loss(p: Any) -> jax.Array:
        return (jax.lax.scan(layer, x, p["w"])[0] + p["b"]).sum()

    return jax.value_and_grad(loss)(params)


def test_a_whole_step_reads_in_xla_as_it_was_meant() -> None:
    """XLA's own reader finds the same sharding on each parameter, in either notation."""
    params = {"w": jnp.zeros((3, 8, 8)), "b": jnp.zeros(8)}
    lowered = load(jax.jit(step).lower(params, jnp.zeros((4, 8))))
    rules = [("w", P(None, None, "y")), ("b", P("y")), ("x", P("x"))]
    annotated = run_pipeline(
        lowered, "sp-annotate,sp-propagate", mesh={"x": 2, "y": 4}, rules=rules
    ).module
    exported = export(annotated)
    assert hlo_shardings(exported)[:3] == [
        "{devices=[4,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
        "{devices=[1,1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
        "{devices=[2,1,4]<=[8] last_tile_dim_replicate}",
    ]
    written = attribute_of(exported, "mhlo.sharding")
    assert [text.strip('"') if text else None for text in written] == hlo_shardings(exported)[:3]
    assert len(collect(exported.root, type(exported.main))) >= 1


@pytest.mark.parametrize(
    "spec", [("x", None), (None, "y"), ("y", "x"), (("x", "y"), None), (("y", "x"), None), ()]
)
def test_the_same_text_as_jaxs_gspmd_lowering(spec: Any) -> None:
    """JAX with Shardy switched off writes ``mhlo.sharding`` itself: the oracle."""
    mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    sharding = jax.sharding.NamedSharding(mesh, P(*spec))
    rules = [("arg0|^x$|result", P(*spec))]
    plain = load(jax.jit(lambda x: x + 1).lower(jnp.zeros((8, 8))))
    own = run_pipeline(plain, "sp-annotate,sp-export-mhlo", mesh=mesh, rules=rules).module
    (written,) = attribute_of(own, "mhlo.sharding")
    assert written == f'"{sharding._to_xla_hlo_sharding(2)}"'
