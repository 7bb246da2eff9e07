"""The example suite, copied to a folder with a space in its name: run, linted and proven."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shardpass.lit.discovery import LIT

PROJECT = Path(__file__).resolve().parents[2]
EXAMPLE = PROJECT / "examples" / "lit_suite"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    copy = tmp_path / "a suite"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("Output", "__pycache__"))
    return copy


def keep(suite: Path, *names: str) -> None:
    """Leave only these tests, for the sake of time."""
    for path in suite.iterdir():
        if path.suffix in (".mlir", ".test") and path.name not in names:
            path.unlink()


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def run(suite: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "NO_COLOR": "1"}
    return subprocess.run(
        command, cwd=suite, env=environment, capture_output=True, text=True, check=False
    )


def lit(suite: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return run(suite, *LIT, *options, ".")


def lint(suite: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return run(suite, sys.executable, "-W", "error", "-m", "shardpass", "lit-lint", *options)


def test_all_pass_and_are_clean(suite: Path):
    done = lit(suite)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Passed: 4 (100.00%)" in done.stdout
    done = lint(suite, ".")
    assert (done.stdout, done.stderr, done.returncode) == ("4 tests, 0 faults\n", "", 0)


def test_a_test_that_finds_something_else_fails(suite: Path):
    keep(suite, "strip.mlir")
    change(
        suite / "strip.mlir",
        "// CHECK-NEXT: %[[ABS:.+]] = stablehlo.abs",
        "// CHECK-NEXT: %[[ABS:.+]] = stablehlo.sine",
    )
    done = lit(suite)
    assert done.returncode == 1
    assert "Failed: 1 (100.00%)" in done.stdout


def test_a_test_for_other_versions_is_not_run(suite: Path):
    keep(suite, "strip.mlir", "verify-errors.mlir")
    change(suite / "strip.mlir", "// CHECK-NOT", "// UNSUPPORTED: jax-0.10+\n// CHECK-NOT")
    change(suite / "verify-errors.mlir", "sdy.mesh", "// REQUIRES: python-3.99+\nsdy.mesh")
    done = lit(suite)
    assert "Unsupported: 2 (100.00%)" in done.stdout


def test_a_misspelt_directive_is_found(suite: Path):
    change(suite / "strip.mlir", "CHECK-NEXT: %[[ABS", "CHEKC-NEXT: %[[ABS")
    done = lint(suite, ".", "--prove")
    assert (done.stdout, done.returncode) == ("4 tests, 1 fault\n", 1)
    assert done.stderr.splitlines() == [
        "strip.mlir:5: error[unread-directive]: CHEKC-NEXT: not read; did you mean CHECK-NEXT:?",
        "// CHEKC-NEXT: %[[ABS:.+]] = stablehlo.abs %arg0",
        "   ^^^^^^^^^^",
    ]
    done = lint(suite, "strip.mlir", "--diagnostics=json")
    (fault,) = map(json.loads, done.stderr.splitlines())
    assert (fault["slug"], fault["location"]["line"]) == ("unread-directive", 5)


def test_tests_that_pass_with_a_pass_off_are_found(suite: Path):
    """One of two passes of which it needs one, and one that fails anyway."""
    keep(suite, "plan.mlir", "verify-errors.mlir")
    text = (suite / "plan.mlir").read_text()
    lines = [line for line in text.splitlines() if "CHECK" not in line]
    lines[1:1] = ['// CHECK: sdy.mesh @mesh = <["data"=2, "model"=4]>']
    (suite / "plan.mlir").write_text("\n".join(lines) + "\n")
    change(suite / "verify-errors.mlir", "6 elements into 4", "6 elements into 3")
    done = lint(suite, ".", "--prove")
    assert done.returncode == 1
    faults = [line for line in done.stderr.splitlines() if "error[" in line]
    checks_nothing = "it checks nothing of what the pass does"
    assert sorted(faults) == [
        f"plan.mlir:1: error[not-a-proof]: passes without sp-propagate as well: {checks_nothing}",
        "verify-errors.mlir:1: error[not-a-proof]: fails with its passes on as well (lit: FAIL)",
    ]


def test_the_example_is_proven(suite: Path):
    """Without the program that is run, which names no pass."""
    keep(suite, "plan.mlir", "strip.mlir", "verify-errors.mlir")
    done = lint(suite, ".", "--prove")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "3 tests, of which 3 were run without their passes and failed, 0 faults\n"
    )


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            "import lit.formats\nconfig.name, config.suffixes = 'own', ['.mlir']\n"
            "config.test_format = lit.formats.ShTest()\nconfig.substitutions += ["
            "('%shardpass', 'echo'), ('%filecheck', 'true')]\n",
            "the suite's lit.cfg.py does not call shardpass.lit.configure",
        ),
        (None, "no test runs a pass of `%shardpass opt`"),
    ],
)
def test_where_nothing_can_be_switched_off(config: str | None, said: str, suite: Path):
    keep(suite, "strip.mlir")
    if config:
        (suite / "lit.cfg.py").write_text(config)
    else:
        change(suite / "strip.mlir", "--sp-strip", "")
        change(suite / "strip.mlir", "// CHECK-NOT: sdy.", "")
        change(suite / "strip.mlir", "  %1 = sdy.sharding_constraint", "  // %1 =")
        change(suite / "strip.mlir", "return %1", "return %0")
    done = lint(suite, ".", "--prove")
    assert said in done.stderr
    assert (done.stdout, done.returncode) == ("", 1)


@pytest.mark.parametrize(
    ("paths", "said", "code"),
    [
        (["none"], "error[unreadable]: cannot read none: no such file or directory\n", 1),
        (["Inputs"], "error[no-tests]: lit finds no tests in Inputs\n", 1),
        ([], "Error: Missing argument 'DIR...'.\n", 2),
    ],
)
def test_what_cannot_be_linted(paths: list[str], said: str, code: int, suite: Path):
    done = lint(suite, *paths)
    assert said in done.stderr
    assert (done.stdout, done.returncode) == ("", code)


@pytest.mark.parametrize(
    ("redirection", "code", "said"),
    [
        (">/dev/full", 1, "error[unwritable]: cannot write standard output: no space left"),
        (">&-", 1, "error[unwritable]: cannot write standard output: bad file descriptor"),
    ],
)
def test_an_output_that_takes_nothing(redirection: str, code: int, said: str, suite: Path):
    words = [sys.executable, "-m", "shardpass", "lit-lint", "strip.mlir"]
    done = run(suite, "sh", "-c", f'exec "$@" {redirection}', "sh", *words)
    assert said in done.stderr
    assert done.returncode == code


def test_neither_jax_nor_the_passes_are_loaded(suite: Path):
    code = (
        "import sys\nfrom shardpass.cli.main import main\n"
        "try:\n    main(['lit-lint', '.'])\n"
        "except SystemExit as end:\n"
        "    print(end.code, *sorted({'jax', 'jaxlib', 'shardpass.passes'} & set(sys.modules)))\n"
    )
    done = run(suite, sys.executable, "-W", "error", "-c", code)
    assert done.stdout == "4 tests, 0 faults\n0\n", done.stderr
