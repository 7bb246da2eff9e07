"""What passes report and raise: where it ends a pipeline, and how it comes back."""

import subprocess
import sys

import pytest

from shardpass.diagnostics import ShardingError
from shardpass.mlir import load
from shardpass.passes import run_pipeline
from tests.passes.helpers import faults, said
from tests.passes.own_passes import TEXT, Break, CountOps, Raise, ran

DYNAMIC = """\
func.func @main(%a: tensor<?xf32>) -> tensor<?xf32> {
  %0 = stablehlo.abs %a : tensor<?xf32>
  return %0 : tensor<?xf32>
}
"""


@pytest.fixture(autouse=True)
def _forget() -> None:
    ran.clear()


def test_an_exception_says_in_which_pass_it_was_raised() -> None:
    with pytest.raises(KeyError) as caught:
        run_pipeline(TEXT, ["cse", Raise(what=KeyError("k"))])
    assert caught.value.__notes__ == ["raised in acme-raise"]


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyError("k"), KeyboardInterrupt()])
def test_an_exception_of_a_pass_leaves_with_its_own_type(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        run_pipeline(TEXT, [Raise(what=error), CountOps])
    assert caught.value is error or caught.value.args == error.args
    assert ran == ["raise"]


def test_a_pass_may_raise_a_sharding_error() -> None:
    error = ShardingError("not-supported", "not this one", help="another")
    found = faults(TEXT, [CountOps(loud=True), Raise(what=error), CountOps])
    assert said(found) == [
        ("remark", "acme/counted", "found stablehlo.add"),
        ("error", "not-supported", "not this one"),
    ]
    assert ran == ["stablehlo.add 10 1.0 True", "raise"]


def test_a_reported_error_ends_the_pipeline_behind_its_pass() -> None:
    found = faults(TEXT, [CountOps(most=0, loud=True), CountOps, "sp-strip"])
    assert [(d.slug, str(d.location)) for d in found] == [
        ("acme/counted", "<text>:4:8"),
        ("acme/too-many", "<text>:4:8"),
    ]
    assert found[1].excerpt is not None
    assert found[1].excerpt.text == "  %0 = stablehlo.add %a, %a : tensor<8x8xf32>"
    assert ran == ["stablehlo.add 0 1.0 True"]


def test_remarks_and_warnings_come_back_placed() -> None:
    result = run_pipeline(load(TEXT, name="step.mlir"), CountOps(loud=True))
    assert said(result.diagnostics) == [("remark", "acme/counted", "found stablehlo.add")]
    assert str(result.diagnostics[0].location) == "step.mlir:4:8"


def test_the_verifier_runs_behind_each_pass() -> None:
    found = faults(TEXT, [Break, CountOps])
    assert [d.slug for d in found] == ["mlir"]
    assert ran == ["break"]


def test_the_verifier_can_be_left_out() -> None:
    """What the next pass does then is its own business: here it looks, and nothing more."""
    module = load(TEXT)
    run_pipeline(module, [Break, CountOps], in_place=True, verify_each=False)
    assert ran == ["break", "stablehlo.add 10 1.0 False"]


def test_warnings_of_native_passes_are_heard() -> None:
    """Shardy warns of an op that its registry does not know, once in the life of a process."""
    text = TEXT.replace("stablehlo.add %a, %a", "chlo.acos %a").replace(
        ": tensor<8x8xf32>\n  %1", ": tensor<8x8xf32> -> tensor<8x8xf32>\n  %1"
    )
    script = (
        "from shardpass.passes import run_pipeline\n"
        f"for found in run_pipeline({text!r}, 'sdy-propagation-pipeline').diagnostics:\n"
        "    print(found.severity.value, found.slug, found.location, end=' ')\n"
        "    print('chlo.acos' in found.message)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.stdout == "warning mlir <text>:4:8 True\n"


def test_errors_of_native_passes_are_heard() -> None:
    (found,) = faults(DYNAMIC, "sp-propagate")
    assert found.slug == "mlir"
    assert "static shape" in found.message


def test_nothing_is_printed_by_mlir(capfd: pytest.CaptureFixture[str]) -> None:
    faults(DYNAMIC, "sp-propagate")
    faults(TEXT, [Break])
    assert capfd.readouterr() == ("", "")
