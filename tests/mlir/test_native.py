"""The C++ passes inside jaxlib: which there are, and the op that each runs on."""

import subprocess
import sys

import pytest

from shardpass.mlir import load, native
from shardpass.passes import run_pipeline

TEXT = """\
sdy.mesh @mesh = <["x"=2, "y"=4]>
func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
    -> tensor<8x8xf32> {
  %0 = stablehlo.add %a, %a : tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
"""

#: Where each pass runs on jaxlib 0.10.2 and 0.12.0.1, where it is not the module.
ON_FUNCTIONS = {
    "chlo-legalize-to-stablehlo",
    "sdy-constant-or-scalar-merger",
    "sdy-drop-sharding-rules",
    "sdy-insert-explicit-reshards",
    "sdy-populate-op-sharding-rules",
    "sdy-reshard-to-collectives",
    "sdy-sharding-constraint-to-reshard",
    "sdy-sink-data-flow-edges",
    "stablehlo-canonicalize-dynamism",
    "stablehlo-complex-math-expander",
    "stablehlo-legalize-deprecated-ops",
}
#: What has to run first, so that a pass finds what it works on.
BEFORE = {"sdy-convert-global-to-local": "sdy-propagation-pipeline,"}
#: Does nothing without an option, and says so.
NEEDS_OPTION = "stablehlo-refine-arguments"


@pytest.mark.parametrize("name", native.NATIVE_PASSES)
def test_every_listed_pass_is_there(name: str) -> None:
    where = native.FUNCTION if name in ON_FUNCTIONS else native.MODULE
    assert native.anchor(name) == where
    assert native.NATIVE_PASSES[name].endswith(".")


@pytest.mark.parametrize("name", [n for n in native.NATIVE_PASSES if n != NEEDS_OPTION])
def test_every_listed_pass_runs_from_a_pipelines_text(name: str) -> None:
    """Nested as it needs, on a module that is annotated and not yet propagated."""
    module = run_pipeline(TEXT, BEFORE.get(name, "") + name).module
    assert module.main.name.value == "main"
    assert load(module.text()).text() == module.text()


def test_names_that_nobody_registers() -> None:
    assert native.anchor("sdy-no-such-pass") is None
    assert native.anchor("no-such-pipeline") is None
    assert native.anchor("sp-annotate") is None


def test_passes_that_are_not_listed_work_as_well() -> None:
    assert native.anchor("strip-debuginfo") == native.MODULE
    assert "loc(" not in run_pipeline(TEXT, "strip-debuginfo").module.text()


def test_pipelines_are_never_tried_on_a_function() -> None:
    """That would abort the process; so a child process asks, about one that does not exist too."""
    script = (
        "from shardpass.mlir import native\n"
        "names = ['sdy-propagation-pipeline', 'sdy-nothing-pipeline', 'sdy-import-pipeline']\n"
        "print([native.anchor(name) for name in names])\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.stdout == "['builtin.module', None, 'builtin.module']\n"


def test_what_mlir_has_against_a_text() -> None:
    assert native.fault_of("cse,canonicalize") is None
    assert native.fault_of("func.func(cse)") is None
    said = native.fault_of("canonicalize{no-such-option=3}")
    assert said is not None
    assert "no-such-option" in said
