"""What MLIR's pass manager is given: units, joined where nobody looks and apart where one does."""

import pytest

from shardpass import run_pipeline
from shardpass.passes import build
from shardpass.passes.shardy.entry import EntryAsMain
from shardpass.passes.units import units_of
from tests.passes.helpers import faults

TEXT = "func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {\n  return %a : tensor<8xf32>\n}\n"


def names(pipeline: str, *, apart: bool) -> list[str]:
    units = units_of(build(pipeline), EntryAsMain(), needs_entry=True, apart=apart)
    return [unit.name for unit in units if not isinstance(unit.work, str)]


def test_looks_and_passes_in_python_run_as_one() -> None:
    assert names("sp-verify,sp-strip", apart=False) == ["sp-verify+sp-strip"]


def test_apart_each_pass_is_a_unit() -> None:
    assert names("sp-verify,sp-strip", apart=True) == ["sp-verify", "sp-strip"]


@pytest.mark.parametrize(
    "name", ["sp-propagate", "sp-explicit-collectives", "sp-partition", "sp-annotate"]
)
def test_apart_a_pass_begins_and_ends_with_a_unit_of_its_own(name: str) -> None:
    given = f"{name}{{mesh=x=2}}" if name == "sp-annotate" else name
    units = units_of(
        build(f"sp-strip,{given},sp-strip"), EntryAsMain(), needs_entry=True, apart=True
    )
    own = [unit for unit in units if unit.step == 1]
    count = sum(not isinstance(unit.work, str) for unit in own)
    ends = [own[0].name, own[-1].name]
    assert ends == (
        [name] * 2 if count == 1 else [f"{name}(1/{count})", f"{name}({count}/{count})"]
    )


def test_a_pass_manager_that_is_looked_at_gets_the_same_result() -> None:
    pipeline = "sp-annotate,sp-propagate,sp-verify,sp-export-mhlo"
    asked = {"mesh": {"x": 2}, "rules": [("", ("x",))]}
    plain = run_pipeline(TEXT, pipeline, **asked)
    seen = run_pipeline(TEXT, pipeline, instrument=lambda _: None, **asked)
    assert seen.module.text() == plain.module.text()
    assert seen.diagnostics == plain.diagnostics


@pytest.mark.parametrize("text", ["builtin.module()", "builtin.module(func.func())"])
def test_a_pipeline_without_passes_does_nothing(text: str) -> None:
    assert run_pipeline(TEXT, text).module.text() == run_pipeline(TEXT, []).module.text()


def test_an_op_that_does_not_exist_is_refused_though_it_holds_no_pass() -> None:
    (fault,) = faults(TEXT, "no.op()")
    assert fault.slug == "bad-pipeline"
