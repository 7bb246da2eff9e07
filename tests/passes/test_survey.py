"""A module that speaks GSPMD anywhere is refused before Shardy's notation is put beside it."""

import pytest
from jax.sharding import PartitionSpec

from shardpass.diagnostics import Diagnostic
from shardpass.mlir import load
from shardpass.passes import run_pipeline
from shardpass.passes.propagate import Propagate
from tests.passes.helpers import MESH, faults, shardings

TILED = 'mhlo.sharding = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"'
TYPE = "(tensor<8x8xf32>) -> tensor<8x8xf32>"
CALL = f"%0 = stablehlo.custom_call @Sharding(%a) {{{TILED}}} : {TYPE}"
MANUAL = f"""\
{CALL}
  %1 = stablehlo.custom_call @SPMDFullToShardShape(%0) {{mhlo.sharding = "{{manual}}"}}
    : (tensor<8x8xf32>) -> tensor<4x8xf32>
  %2 = stablehlo.custom_call @SPMDShardToFullShape(%1) {{{TILED}}}
    : (tensor<4x8xf32>) -> tensor<8x8xf32>"""
STRIP = (
    "import the old annotations (sp-import-mhlo,sp-propagate), or remove them "
    "(sp-strip,sp-annotate,sp-propagate), or run it as it is, since GSPMD reads it"
)
AS_IT_IS = (
    "import the old annotations (sp-import-mhlo,sp-propagate), or run it as it is, since GSPMD "
    "reads it"
)


def program(body: str, result: str = "", callee: str = "") -> str:
    return (
        f"func.func @main(%a: tensor<8x8xf32>) -> (tensor<8x8xf32>{result}) {{\n  {body}\n"
        f"  return %a : tensor<8x8xf32>\n}}\n{callee}"
    )


CALLEE = (
    f"func.func private @b(%x: tensor<8x8xf32> {{{TILED}}}) -> tensor<8x8xf32> {{\n"
    "  return %x : tensor<8x8xf32>\n}\n"
)
SPEAKING = {
    "a call": (program(CALL), "the custom call @Sharding", STRIP),
    "a call that says nothing": (
        program(f"%0 = stablehlo.custom_call @Sharding(%a) : {TYPE}"),
        "the custom call @Sharding",
        STRIP,
    ),
    "an op": (
        program(f"%0 = stablehlo.abs %a {{{TILED}}} : tensor<8x8xf32>"),
        "stablehlo.abs",
        STRIP,
    ),
    "another function": (
        program(f"%0 = func.call @b(%a) : {TYPE}", callee=CALLEE),
        "argument 0 of @b",
        STRIP,
    ),
    "a manual region": (program(MANUAL), "the custom call @Sharding, with 2 more", AS_IT_IS),
}


@pytest.mark.parametrize("speaking", SPEAKING)
@pytest.mark.parametrize("pipeline", ["sp-annotate", "sp-annotate,sp-propagate", "sp-propagate"])
def test_gspmd_anywhere_is_refused(pipeline: str, speaking: str) -> None:
    text, where, remedy = SPEAKING[speaking]
    rules = {"rules": [("", PartitionSpec("x"))], "mesh": {"x": 2, "y": 4}}
    found = faults(text, pipeline, **(rules if "annotate" in pipeline else {}))
    (fault,) = [fault for fault in found if fault.severity.value == "error"]
    assert fault.slug == "already-annotated"
    assert fault.message == (
        f"the module is annotated in GSPMD's notation already ({where}), and Shardy's cannot stand "
        "beside it"
    )
    assert fault.help == remedy
    assert fault.location is not None


def test_the_help_works() -> None:
    result = run_pipeline(
        program(CALL),
        "sp-strip,sp-annotate,sp-propagate",
        rules=[("", PartitionSpec("x"))],
        mesh={"x": 2, "y": 4},
    )
    assert shardings(result.module) == ['<@mesh, [{"x"}, {}]>']
    assert "mhlo.sharding" not in result.module.text()


def test_a_result_is_told_with_the_arguments() -> None:
    (fault,) = faults(program("", f" {{{TILED}}}"), "sp-propagate")
    assert "(result 0 of @main)" in fault.message


def test_propagation_asks_before_shardy_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Propagate, "native_pipeline", lambda self: "sdy-drop-sharding-and-mesh")
    module = load(MESH + program(CALL))
    faults(module, "sp-propagate", in_place=True)
    assert "sdy.mesh" in module.text()


def test_looks_that_ask_the_same_walk_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from shardpass.mlir import walk
    from shardpass.passes.shardy import survey

    walks: list[str] = []
    visit = walk.visit
    monkeypatch.setattr(survey, "visit", lambda *a: (walks.append("survey"), visit(*a))[1])
    plain = program("")
    rules = [("", PartitionSpec("x"))]
    run_pipeline(plain, "sp-annotate,sp-propagate", rules=rules, mesh={"x": 2})
    assert walks == ["survey"]
    walks.clear()
    run_pipeline(plain, "sp-annotate", rules=rules, mesh={"x": 2})
    assert walks == ["survey"]


def test_what_says_nothing_of_gspmd_is_left_in_peace() -> None:
    text = MESH + program(f"%0 = stablehlo.custom_call @acme(%a) : {TYPE}")
    found: tuple[Diagnostic, ...] = run_pipeline(text, "sp-propagate").diagnostics
    assert [d for d in found if d.slug == "already-annotated"] == []
