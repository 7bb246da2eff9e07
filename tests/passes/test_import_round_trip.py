"""``sp-import-mhlo`` on XLA's round-trip form: of old JAX, of both jaxlibs, and by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy, stablehlo
from jaxlib import _jax  # noqa: TID251 - XLA's own exporter, as an oracle.

from shardpass import run, run_pipeline
from shardpass.diagnostics import ShardingError
from shardpass.mlir import Module, collect, load, make_context, meshes_of, num_partitions
from tests.passes.helpers import MESH, faults, shardings

FILES = Path(__file__).parent / "round_trips"
A = np.arange(64, dtype=np.float32).reshape(8, 8) / 17
B = np.arange(128, dtype=np.float32).reshape(8, 16) / 31


def imported(text: Any) -> Module:
    module = run_pipeline(text, "sp-import-mhlo").module
    assert "mhlo.sharding" not in module.text(debug_info=False)
    assert "xla.sdy" not in module.text(debug_info=False)
    assert load(module.text()).root.verify()
    return module


def through_hlo(text: str) -> str:
    """``text`` as it comes back when XLA has carried it through HLO."""
    computation = _jax.mlir.mlir_module_to_xla_computation(
        text, use_tuple_args=False, return_tuple=False
    )
    data = _jax.mlir.hlo_to_stablehlo(computation.as_serialized_hlo_module_proto())
    with make_context():
        return str(ir.Module.parse(data))


def regions(module: Module) -> list[tuple[str, str, str]]:
    return [
        tuple(str(op.attributes[name]) for name in ("in_shardings", "out_shardings", "manual_axes"))
        for op in collect(module.root, sdy.ManualComputationOp)
    ]


def constraints(module: Module) -> list[str]:
    found = collect(module.root, sdy.ShardingConstraintOp)
    return [str(op.attributes["sharding"]).removeprefix("#sdy.sharding") for op in found]


# What JAX and XLA wrote --------------------------------------------------------------------------


def test_what_jax_exported_in_2024() -> None:
    """The quotes are escaped twice, and the call of the body says what the region is."""
    module = imported(FILES / "jax_0_4_38.mlir")
    assert {name: str(mesh) for name, mesh in meshes_of(module.root).items()} == {
        "mesh": '<["x"=2, "y"=4]>'
    }
    assert shardings(module) == ['<@mesh, [{"x"}, {"y"}]>', '<@mesh, [{}, {"y"}]>']
    assert shardings(module, results=True) == ['<@mesh, [{"x"}, {}]>', None]
    assert constraints(module) == ['<@mesh, [{"x"}, {?}]>']
    assert regions(module) == [
        (
            '#sdy.sharding_per_value<[<@mesh, [{}, {"x"}]>, <@mesh, [{"x"}, {}]>]>',
            '#sdy.sharding_per_value<[<@mesh, [{}, {}]>, <@mesh, [{"x"}]>]>',
            '#sdy<manual_axes{"x", "y"}>',
        )
    ]
    found = run(module, devices=8, inputs={"arg0": A, "arg1": B})
    np.testing.assert_allclose(found.arrays[0], A @ B + 1, rtol=1e-5)
    np.testing.assert_allclose(found.arrays[1], [A[:, :4].sum(), A[:, 4:].sum()], rtol=1e-5)


PROGRAM = f"""\
{MESH}
func.func public @main(
    %a: tensor<8x8xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x", ?}}p1, {{}}], replicated={{"y"}}>}},
    %t: !stablehlo.token)
    -> (tensor<8x8xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"y"}}, {{}}]>}}, tensor<8x8xf32>) {{
  %0 = sdy.sharding_constraint %a <@mesh, [{{"y"}}, {{?}}]> : tensor<8x8xf32>
  sdy.sharding_group %0 group_id = 12 : tensor<8x8xf32>
  %1 = sdy.propagation_barrier %0 allowed_direction=BACKWARD : tensor<8x8xf32>
  %2 = stablehlo.custom_call @foo(%1) {{
    sdy.sharding_rule = #sdy.op_sharding_rule<([i, j])->([i, j]) {{i=8, j=8}}, custom>}}
    : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %3 = sdy.sharding_constraint %2 <@mesh, [{{"y":(2)2}}, {{?}}]> : tensor<8x8xf32>
  %4 = func.call @g(%3) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %2, %4 : tensor<8x8xf32>, tensor<8x8xf32>
}}
func.func private @g(%a: tensor<8x8xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"y"}}, {{}}]>}})
    -> (tensor<8x8xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{}}, {{"x"}}]>}}) {{
  %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{{"x", ?}}, {{}}]>]
      out_shardings=[<@mesh, [{{"x"}}, {{}}]>] manual_axes={{"x"}} (%x: tensor<4x8xf32>) {{
    %1 = sdy.sharding_constraint %x <@mesh, [{{"y"}}, {{?}}]> : tensor<4x8xf32>
    %2 = sdy.manual_computation(%1) in_shardings=[<@mesh, [{{}}, {{"y"}}]>]
        out_shardings=[<@mesh, [{{}}, {{"y"}}]>] manual_axes={{"y"}} (%y: tensor<4x2xf32>) {{
      %3 = stablehlo.abs %y : tensor<4x2xf32>
      sdy.return %3 : tensor<4x2xf32>
    }} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    sdy.return %2 : tensor<4x8xf32>
  }} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}}
"""  # noqa: E501


def groups(module: Module) -> list[str]:
    found = collect(module.root, sdy.ShardingGroupOp, sdy.PropagationBarrierOp)
    return [str(op.attributes[name]) for op in found for name in op.attributes]


def rules(module: Module) -> list[str]:
    return [
        str(op.attributes["sdy.sharding_rule"])
        for op in collect(module.root, stablehlo.CustomCallOp)
        if "sdy.sharding_rule" in op.attributes
    ]


def test_what_goes_through_hlo_comes_back() -> None:
    """XLA's own exporter and this importer, in both jaxlibs: nothing is lost."""
    text = through_hlo(PROGRAM)
    assert "xla.sdy.GlobalToLocalShape" in text
    before, after = load(PROGRAM), imported(text)
    for said in (meshes_of, num_partitions):
        assert said(after.root) == (said(before.root) or 8)
    for said in (shardings, groups, rules):
        assert said(after) == said(before)
    for said in (regions, constraints):
        assert sorted(said(after)) == sorted(said(before))
    assert shardings(after, results=True) == shardings(before, results=True)


def test_what_jaxlib_0_12_carries_in_named_shardings() -> None:
    module = imported(FILES / "jaxlib_0_12.mlir")
    assert [str(mesh) for mesh in meshes_of(module.root).values()] == ['<["a"=2, "b"=4]>']
    assert shardings(module) == ['<@mesh, [{"a", ?}, {}], replicated={"b"}>']
    assert constraints(module) == [
        '<@mesh, [{"b"}, {?}]>',
        '<@mesh, [{"b"}, {?}]>',
        '<@mesh, [{"b":(2)2}, {?}]>',
    ]
    assert regions(module) == [
        (
            '#sdy.sharding_per_value<[<@mesh, [{"a", ?}, {}]>]>',
            '#sdy.sharding_per_value<[<@mesh, [{"a"}, {}]>]>',
            '#sdy<manual_axes{"a"}>',
        ),
        (
            '#sdy.sharding_per_value<[<@mesh, [{}, {"b"}]>]>',
            '#sdy.sharding_per_value<[<@mesh, [{}, {"b"}]>]>',
            '#sdy<manual_axes{"b"}>',
        ),
    ]
    assert len(groups(module)) == 2
    found = run(module, devices=8, inputs={"arg0": -A})
    for array in found.arrays:
        np.testing.assert_array_equal(array, A)


# By hand -----------------------------------------------------------------------------------------

HEAD = r'mhlo.frontend_attributes = {xla.sdy.meshes = "{mesh = #sdy.mesh<[\22x\22=2, \22y\22=4]>}"}'
X = r'mhlo.frontend_attributes = {xla.sdy.sharding = "#sdy.sharding<@mesh, [{\22x\22}]>"}'
EACH_X = X.replace("sharding<@mesh", "sharding_per_value<[<@mesh").replace("]>", "]>]>")
BORDER = r'mhlo.frontend_attributes = {xla.sdy.manual_axes = "#sdy<manual_axes{\22x\22}>", '
ENTER = BORDER + r'xla.sdy.in_shardings = "#sdy.sharding_per_value<[<@mesh, [{\22x\22}]>]>"}'
LEAVE = ENTER.replace("in_sh", "out_sh")
BODY = """
func.func private @xla.sdy.manual_computation_body(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.abs %a : tensor<4xf32>
  return %0 : tensor<4xf32>
}"""


def module_of(*lines: str, head: str = HEAD, functions: str = "", given: str = "%0") -> str:
    body = "\n  ".join(lines)
    return (
        f"module attributes {{{head}}} {{\nfunc.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {{\n"
        f"  {body}\n  return {given} : tensor<8xf32>\n}}{functions}\n}}\n"
    )


def region(name: str, operand: str, callee: str = "xla.sdy.manual_computation_body") -> list[str]:
    return [
        f"%{name}i = stablehlo.custom_call @xla.sdy.GlobalToLocalShape({operand}) {{{ENTER}}}"
        " : (tensor<8xf32>) -> tensor<4xf32>",
        f"%{name}c = func.call @{callee}(%{name}i) : (tensor<4xf32>) -> tensor<4xf32>",
        f"%{name} = stablehlo.custom_call @xla.sdy.LocalToGlobalShape(%{name}c) {{{LEAVE}}}"
        " : (tensor<4xf32>) -> tensor<8xf32>",
    ]


def test_a_body_that_two_calls_share() -> None:
    """XLA's importer gives up; each call gets the body here."""
    module = imported(module_of(*region("p", "%a"), *region("q", "%p"), functions=BODY, given="%q"))
    assert len(regions(module)) == 2
    assert len(collect(module.root, stablehlo.AbsOp)) == 2
    assert "manual_computation_body" not in module.text(debug_info=False)


def test_a_body_that_calls_an_annotated_function() -> None:
    body = BODY.replace("stablehlo.abs %a", "func.call @f(%a)").replace(
        "%a) : tensor<4xf32>", "%a) : (tensor<4xf32>) -> tensor<4xf32>"
    )
    inner = """
func.func private @f(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @Sharding(%a) {SHARDING} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}""".replace("SHARDING", EACH_X.replace("x", "y").replace("yla", "xla"))
    module = imported(module_of(*region("p", "%a"), functions=body + inner, given="%p"))
    (op,) = collect(module.root, sdy.ManualComputationOp)
    assert [inner.operation.name for inner in op.regions[0].blocks[0].operations] == [
        "sdy.sharding_constraint",
        "sdy.return",
    ]
    assert "@f" not in module.text(debug_info=False)


def test_a_region_without_operands_or_results() -> None:
    functions = """
func.func private @xla.sdy.manual_computation_body_1(%a: tensor<4xf32>) {
  stablehlo.custom_call @f(%a) {has_side_effect = true} : (tensor<4xf32>) -> ()
  return
}
func.func private @xla.sdy.manual_computation_body_2() -> tensor<4xf32> {
  %0 = stablehlo.constant dense<1.0> : tensor<4xf32>
  return %0 : tensor<4xf32>
}"""
    enter, _, _ = region("p", "%a")
    _, _, leave = region("q", "%a")
    module = imported(
        module_of(
            enter,
            "func.call @xla.sdy.manual_computation_body_1(%pi) : (tensor<4xf32>) -> ()",
            "%qc = func.call @xla.sdy.manual_computation_body_2() : () -> tensor<4xf32>",
            leave,
            functions=functions,
            given="%q",
        )
    )
    one = '#sdy.sharding_per_value<[<@mesh, [{"x"}]>]>'
    none = "#sdy.sharding_per_value<[]>"
    axes = '#sdy<manual_axes{"x"}>'
    assert regions(module) == [(one, none, axes), (none, one, axes)]


@pytest.mark.parametrize(
    "meshes",
    [
        r'"{mesh = #sdy.mesh<[\22x\22=2, \22y\22=4]>}"',
        r'"{mesh = #sdy.mesh<[\\\22x\\\22=2, \\\22y\\\22=4]>}"',
        r'"{mesh = \22#sdy.mesh<\\22x\\22=2, \\22y\\22=4>\22}"',
        r'{mesh = #sdy.mesh<["x"=2, "y"=4]>}',
    ],
    ids=["plain", "escaped twice", "a string in a string", "no string"],
)
def test_how_meshes_were_written(meshes: str) -> None:
    head = f"mhlo.frontend_attributes = {{xla.sdy.meshes = {meshes}}}"
    module = imported(module_of("%0 = stablehlo.abs %a : tensor<8xf32>", head=head))
    assert str(meshes_of(module.root)["mesh"]) == '<["x"=2, "y"=4]>'


def test_a_mesh_whose_name_is_taken() -> None:
    text = module_of(
        f"%0 = stablehlo.custom_call @Sharding(%a) {{{EACH_X}}} : (tensor<8xf32>) -> tensor<8xf32>",
        functions="\nfunc.func private @mesh() {\n  return\n}",
    )
    module = imported(text)
    assert list(meshes_of(module.root)) == ["mesh_0"]
    assert constraints(module) == ['<@mesh_0, [{"x"}]>']


def test_shardings_of_tuples_stand_on_the_module() -> None:
    entry = r'"#sdy.sharding_per_value<[<@mesh, [{\22NAME\22}]>]>"'
    head = HEAD.replace(
        "{xla",
        f'{{xla.sdy.use_tuple_args = "t", xla.sdy.tuple_args_shardings = '
        f"{entry.replace('NAME', 'x')}, xla.sdy.tuple_results_shardings = "
        f"{entry.replace('NAME', 'y')}, xla",
        1,
    )
    module = imported(module_of("%0 = stablehlo.abs %a : tensor<8xf32>", head=head))
    assert shardings(module) == ['<@mesh, [{"x"}]>']
    assert shardings(module, results=True) == ['<@mesh, [{"y"}]>']


RESULT = f"stablehlo.custom_call @xla.sdy.FuncResultSharding(%a) {{{EACH_X}}}"
TO_8 = " : (tensor<8xf32>) -> tensor<8xf32>"


def test_a_result_that_is_used_beside_is_constrained_with_all_open() -> None:
    module = imported(
        module_of(
            f"%r = {RESULT}{TO_8}",
            "%0 = stablehlo.abs %r : tensor<8xf32>",
        )
    )
    assert constraints(module) == ['<@mesh, [{"x", ?}]>']
    assert shardings(module, results=True) == [None]


def test_a_result_of_two_halves() -> None:
    """What is left when a TPU's compiler has split a 64-bit value."""
    text = module_of(
        f"%r:2 = {RESULT.replace('(%a)', '(%a, %a)')}"
        " : (tensor<8xf32>, tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>)",
        "%0 = stablehlo.custom_call @X64Combine(%r#0, %r#1)"
        " : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>",
    )
    module = imported(text)
    assert shardings(module, results=True) == ['<@mesh, [{"x"}]>']
    (call,) = collect(module.root, stablehlo.CustomCallOp)
    assert str(call.attributes["sdy.sharding"]) == '#sdy.sharding_per_value<[<@mesh, [{"x"}]>]>'


def test_what_has_no_elements_was_replaced_by_constants() -> None:
    empty = BODY.replace("tensor<4xf32>", "tensor<0xf32>")
    lines = [line.replace("<4x", "<0x").replace("<8x", "<0x") for line in region("p", "%e")]
    lines[1] = lines[1].replace("(%pi)", "(%e)")
    text = module_of(
        "%e = stablehlo.constant dense<1.0> : tensor<0xf32>",
        *lines,
        "%1 = stablehlo.custom_call @f(%p) : (tensor<0xf32>) -> tensor<8xf32>",
        functions=empty,
        given="%1",
    )
    with pytest.raises(Exception, match="GlobalToLocalShape"):
        imported(text)  # No operand of the call shows where the values came from.


def test_shardings_of_other_shapes_are_dropped() -> None:
    """XLA hands the strings on to whatever it makes of an op."""
    two = EACH_X.replace("[{", "[{}, {")
    module = imported(module_of(f"%0 = stablehlo.abs %a {{{two}}} : tensor<8xf32>"))
    assert "sdy.sharding =" not in module.text(debug_info=False)
    kept = imported(module_of(f"%0 = stablehlo.abs %a {{{EACH_X}}} : tensor<8xf32>"))
    assert 'sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}]>]>' in kept.text()


def test_what_gspmd_alone_was_asked_for_is_not_lost() -> None:
    """A constraint in GSPMD's notation beside others is one, on the mesh that is there."""
    text = module_of(
        f"%r = stablehlo.custom_call @Sharding(%a) {{{EACH_X}, "
        f'mhlo.sharding = "{{devices=[2,4]<=[8] last_tile_dim_replicate}}"}}{TO_8}',
        '%s = stablehlo.abs %r {mhlo.sharding = "{devices=[8]<=[8]}"} : tensor<8xf32>',
        '%0 = stablehlo.custom_call @Sharding(%s) {mhlo.sharding = "{devices=[8]<=[8]}"}' + TO_8,
    )
    module = imported(text)
    assert constraints(module) == ['<@mesh, [{"x"}]>', '<@mesh, [{"x", "y"}]>']
    assert "sdy.sharding =" not in module.text(debug_info=False)


def test_other_frontend_attributes_stay() -> None:
    both = EACH_X.replace("{xla", '{a = "b", xla', 1)
    module = imported(module_of(f"%0 = stablehlo.abs %a {{{both}}} : tensor<8xf32>"))
    assert 'mhlo.frontend_attributes = {a = "b"}' in module.text(debug_info=False)


# Faults ------------------------------------------------------------------------------------------


def call(target: str, entries: str, results: str = "tensor<8xf32>") -> str:
    return (
        f"%0 = stablehlo.custom_call @xla.sdy.{target}(%a) {{mhlo.frontend_attributes = "
        f"{{{entries}}}}} : (tensor<8xf32>) -> {results}"
    )


@pytest.mark.parametrize(
    ("text", "slug", "said"),
    [
        (module_of("%0 = stablehlo.abs %a : tensor<8xf32>", head=HEAD.replace("=2", "=-2")),
         "syntax", "xla.sdy.meshes cannot be read"),
        (module_of("%0 = stablehlo.abs %a : tensor<8xf32>", head=HEAD.replace("mesh<", "mash<")),
         "syntax", "xla.sdy.meshes cannot be read"),
        (module_of("%0 = stablehlo.abs %a : tensor<8xf32>",
                   head='mhlo.frontend_attributes = {xla.sdy.meshes = "3 : i32"}'),
         "syntax", "xla.sdy.meshes is 3 : i32, where a dictionary of meshes belongs"),
        (module_of(f"%0 = {RESULT.replace('@mesh', '@grid')}{TO_8}"),
         "syntax", "unknown mesh @grid"),
        (module_of(f"%0 = {RESULT.replace('[{', '[{}, {')}{TO_8}"), "rank-mismatch",
         "is on tensor<8xf32>, and [{}, {\"x\"}] is for 2 dimensions"),
        (module_of(f"%0 = stablehlo.abs %a {{{X}}} : tensor<8xf32>"), "syntax",
         "where a list of shardings belongs"),
        (module_of(call("PropagationBarrier", "")), "missing-sharding",
         "carries no xla.sdy.allowed_direction"),
        (module_of(call("PropagationBarrier", 'xla.sdy.allowed_direction = "9 : i32"')),
         "not-supported", "9, which is no direction"),
        (module_of(call("PropagationBarrier", 'xla.sdy.allowed_direction = "[]"')),
         "syntax", "where a number belongs"),
        (module_of(call("ShardingGroup", 'xla.sdy.sharding_group_id = "1 : i64"')),
         "not-supported", "no result that is used"),
        (module_of("%k = stablehlo.constant dense<1.0> : tensor<4xf32>",
                   region("p", "%a")[1].replace("%pi", "%k"), region("p", "%a")[2],
                   functions=BODY, given="%p"),
         "unpaired-manual", "nothing goes into it by @xla.sdy.GlobalToLocalShape"),
        (module_of(*region("p", "%a")[:2],
                   "%0 = stablehlo.concatenate %pc, %pc, dim = 0"
                   " : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>", functions=BODY),
         "unpaired-manual", "its results are not made whole by @xla.sdy.LocalToGlobalShape"),
        (module_of(region("p", "%a")[0], region("p", "%a")[2].replace("%pc", "%pi"), given="%p"),
         "unpaired-manual", "stands at no call of a function"),
    ],
)  # fmt: skip
def test_faults(text: str, slug: str, said: str) -> None:
    module = load(text)
    before = module.text()
    found = faults(module, "sp-import-mhlo")
    assert any(fault.slug.startswith(slug) and said in fault.message for fault in found), found
    assert all(fault.location for fault in found)
    assert module.text() == before


def test_every_fault_is_reported() -> None:
    text = module_of(
        f"%1 = stablehlo.abs %a {{{X}}} : tensor<8xf32>",
        f"%2 = stablehlo.abs %1 {{{X}}} : tensor<8xf32>",
        call("PropagationBarrier", 'xla.sdy.allowed_direction = "9 : i32"'),
    )
    assert [fault.location.line for fault in faults(text, "sp-import-mhlo") if fault.location] == [
        3,
        4,
        5,
    ]


@pytest.mark.parametrize(
    "pass_name", ["sp-export-mhlo", "sp-propagate", "sp-retarget{mesh=x=2}", "sp-partition"]
)
def test_no_other_pass_takes_the_strings_for_a_plain_module(pass_name: str) -> None:
    text = (
        f"module attributes {{{HEAD}}} {{\n"
        "  func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {\n"
        "    return %a : tensor<8xf32>\n  }\n}\n"
    )
    with pytest.raises(ShardingError) as caught:
        run_pipeline(text, pass_name)
    (fault,) = caught.value.diagnostics
    assert (fault.slug, fault.help) == ("already-annotated", "import it first: sp-import-mhlo")
