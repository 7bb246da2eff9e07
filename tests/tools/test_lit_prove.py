"""A lit test that passes without the pass it is about is found."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from lit_prove import verdict
from without_pass import command_without, pipeline_without

PROJECT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["opt", "f", "--sp-a", "--sp-b"], ["opt", "f", "--sp-b"]),
        (["opt", "f", "--sp-a=rules=r.toml"], ["opt", "f"]),
        (["opt", "f", "--sp-ab"], ["opt", "f", "--sp-ab"]),
        (["opt", "--pass-pipeline=sp-a,sp-b", "f"], ["opt", "--pass-pipeline=sp-b", "f"]),
        (["opt", "--pass-pipeline", "sp-a", "f"], ["opt", "f"]),
        (["shard", "--pipeline", "sp-a,sp-b", "f"], ["shard", "--pipeline", "sp-b", "f"]),
        (["opt", "--pass-pipeline=sp-a{x=1}", "f"], ["opt", "f"]),
    ],
)
def test_the_pass_is_taken_off_the_command(words: list[str], expected: list[str]):
    assert command_without(words, "sp-a") == expected


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
    ("code", "log", "reason"),
    [
        ("FAIL", "", None),
        ("FAIL", None, "no command line with sp-a on it was run"),
        ("PASS", "", "passes without sp-a as well: it checks nothing of what the pass does"),
        (
            "FAIL",
            "Traceback (most recent call last):\n",
            "without sp-a the command line crashes, which says nothing about the checks",
        ),
        (
            "FAIL",
            "Usage: ...\nexit status 2\n",
            "without sp-a the command line is refused, which says nothing about the checks",
        ),
    ],
)
def test_only_a_failure_of_the_checks_is_a_proof(code: str, log: str | None, reason: str | None):
    assert verdict(code, log, "sp-a") == reason


FAKE_COMMAND_LINE = """\
import sys
from pathlib import Path

text = Path(sys.argv[2]).read_text().split("=====")[1]
print(text.replace("old", "new") if "--sp-renew" in sys.argv else text)
"""

GOOD = "// RUN: %shardpass opt %s --sp-renew | %filecheck %s\n// CHECK: new\n// =====\nold\n"
IDLE = "// RUN: %shardpass opt %s --sp-renew | %filecheck %s\n// CHECK: same\n// =====\nsame\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of one pass, in a folder whose name has a space, with a good and an idle test."""
    root = tmp_path / "a project"
    shutil.copytree(PROJECT / "tools", root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "shardpass" / "passes").mkdir(parents=True)
    (root / "shardpass" / "__main__.py").write_text(FAKE_COMMAND_LINE)
    (root / "shardpass" / "passes" / "renew.py").write_text('class Renew:\n    name = "sp-renew"\n')
    tests = root / "lit_tests" / "passes"
    tests.mkdir(parents=True)
    shutil.copy(PROJECT / "lit_tests" / "lit.cfg.py", root / "lit_tests")
    (tests / "renew.mlir").write_text(GOOD)
    (tests / "renew-idle.mlir").write_text(IDLE)
    return root


def run(project: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *command],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_both_pass_with_their_pass_and_one_is_no_proof(project: Path):
    lit = run(project, "-c", "from lit.main import main; main()", "lit_tests")
    assert lit.returncode == 0, lit.stdout + lit.stderr
    assert "Passed: 2 (100.00%)" in lit.stdout

    proof = run(project, "tools/lit_lint.py", "--prove")
    assert proof.returncode == 1, proof.stdout + proof.stderr
    assert proof.stdout.splitlines() == [
        "lit_tests/passes/renew-idle.mlir:1: passes without sp-renew as well: "
        "it checks nothing of what the pass does",
        "lit lint: 2 tests, 2 run without their pass, 1 faults",
    ]
