"""A pass is taken off a command line; what a run without it proves."""

from pathlib import Path

import pytest

from shardpass.cli.lit_lint import opt_options
from shardpass.lit.passes_off import named_after, passes_of, pipeline_without, without_pass
from shardpass.lit.prove import verdict
from shardpass.lit.switch import Call

OPTIONS = {
    "-o": True,
    "--output": True,
    "-q": False,
    "--pass-pipeline": True,
    "--split-input-file": False,
    "--verify-each": True,
}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["opt", "f", "--sp-a", "--sp-b"], ["opt", "f", "--sp-b"]),
        (["opt", "f", "-sp-a", "-q"], ["opt", "f", "-q"]),
        (["opt", "f", "--sp-a=rules=r.toml"], ["opt", "f"]),
        (["opt", "f", "--sp-a=x=1\ny=2"], ["opt", "f"]),
        (["opt", "f", "--sp-ab"], ["opt", "f", "--sp-ab"]),
        (["opt", "f", "--sp-a", "-o", "--sp-a"], ["opt", "f", "-o"]),
        (["opt", "-o", "sp-a", "f", "--sp-a"], ["opt", "-o", "sp-a", "f"]),
        (["opt", "--pass-pipeline=sp-a,sp-b", "f"], ["opt", "--pass-pipeline=sp-b", "f"]),
        (["opt", "-pass-pipeline=sp-a,sp-b", "f"], ["opt", "-pass-pipeline=sp-b", "f"]),
        (["opt", "--pass-pipeline", "sp-a,sp-b", "f"], ["opt", "--pass-pipeline", "sp-b", "f"]),
        (["opt", "--pass-pipeline", "sp-a", "f"], ["opt", "f"]),
        (["opt", "-pass-pipeline", "sp-a", "f"], ["opt", "f"]),
        (["opt", "--pass-pipeline=sp-a{x=1}", "f"], ["opt", "f"]),
        (["opt", "--verify-each", "--sp-a", "f"], ["opt", "--verify-each", "f"]),
    ],
)
def test_the_pass_is_taken_off_the_command(words: list[str], expected: list[str]):
    assert without_pass(words, "sp-a", OPTIONS) == expected


@pytest.mark.parametrize(
    ("pipeline", "expected"),
    [
        ("sp-a{rules='x,y.toml' keep=1},sp-b", "sp-b"),
        ("sp-b,sp-a", "sp-b"),
        ("func.func(sp-a,sp-b),sp-ab{of=sp-a}", "func.func(sp-b),sp-ab{of=sp-a}"),
        ("func.func(sp-a)", ""),
        ("builtin.module(func.func(sp-a))", ""),
    ],
)
def test_the_pass_is_taken_out_of_a_pipeline(pipeline: str, expected: str):
    assert pipeline_without(pipeline, "sp-a") == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["opt", "f", "--sp-b", "-cse", "--sp-b=x=1", "--split-input-file"], ["sp-b", "cse"]),
        (["opt", "f", "-split-input-file", "-q", "-oout", "-o", "x", "-"], []),
        (
            ["opt", "--pass-pipeline=builtin.module(func.func(cse,sp-a{x}),sp-b)"],
            ["cse", "sp-a", "sp-b"],
        ),
        (["opt", "--pass-pipeline", "cse", "f"], ["cse"]),
        (["opt", "f"], []),
    ],
)
def test_the_passes_on_a_command_line(words: list[str], expected: list[str]):
    assert passes_of(words, OPTIONS) == expected


def test_the_options_of_opt_are_no_passes():
    options = opt_options()
    words = [f"{name}=x" if takes_value else name for name, takes_value in options.items()]
    words = [word for word in words if not word.startswith(("--pass-pipeline", "-o="))]
    assert passes_of(["opt", *words], options) == []
    assert options["--output"]
    assert not options["--list-passes"]
    assert "--sp-strip" not in options


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("annotate.mlir", "sp-annotate"),
        ("annotate-errors.mlir", "sp-annotate"),
        ("sp-annotate.test", "sp-annotate"),
        ("merge-meshes.mlir", "sp-merge-meshes"),
        ("merge_meshes_errors.mlir", "sp-merge-meshes"),
        ("merge-mesh.mlir", "sp-merge"),
        ("cse.mlir", "cse"),
        ("merges.mlir", None),
        ("pipelines.mlir", None),
    ],
)
def test_a_test_is_about_the_pass_with_the_longest_fitting_name(name: str, expected: str | None):
    passes = ["sp-annotate", "sp-merge-meshes", "sp-merge", "cse"]
    assert named_after(Path("suite") / name, passes) == expected


ON = [Call(["opt", "f", "--sp-a"], ["sp-a"], switched_off=False, status=0)]


def off(status: int) -> list[Call]:
    return [Call(["opt", "f", "--sp-a"], ["sp-a"], switched_off=True, status=status)]


@pytest.mark.parametrize(
    ("code", "calls", "reason"),
    [
        ("FAIL", off(0), None),
        ("FAIL", off(1), None),
        ("FAIL", [], "no command line with sp-a on it was run"),
        ("FAIL", ON, "no command line with sp-a on it was run"),
        ("PASS", off(0), "passes without sp-a as well: it checks nothing of what the pass does"),
        (
            "FAIL",
            off(3),
            "without sp-a the command line dies, which says nothing about the checks",
        ),
        (
            "FAIL",
            [*off(0), *off(-6)],
            "without sp-a the command line dies, which says nothing about the checks",
        ),
        (
            "FAIL",
            off(2),
            "without sp-a the command line is refused, which says nothing about the checks",
        ),
    ],
)
def test_only_a_failure_of_the_checks_is_a_proof(code: str, calls: list[Call], reason: str | None):
    assert verdict(code, calls, ON, "sp-a") == reason


def test_what_was_refused_before_may_be_refused():
    refused = [Call(["opt", "f", "--sp-a"], ["sp-a"], switched_off=False, status=2)]
    assert verdict("FAIL", [*off(2), *off(0)], refused, "sp-a") is None
