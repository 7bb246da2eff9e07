"""The linter of lit tests finds what FileCheck and lit pass over in silence."""

from pathlib import Path

import pytest
from lit_lint import Fault, lint_file, pass_faults, prefixes_of, run_lines
from lit_passes import PassSource, pass_of, passes_in

PASSES = Path("lit_tests/passes")
NAMES = ["sp-annotate", "sp-merge-meshes", "sp-merge"]

CLEAN = """\
// RUN: %shardpass opt %s --sp-annotate | %filecheck %s

sdy.mesh @mesh = <["x"=2, "y"=4]>

// What is checked here: that nothing changes. NOTE: CHECK may stand in prose
// after the first word.
// CHECK-LABEL: func.func @same
func.func @same(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
  // CHECK-NEXT: return
  // CHECK-COUNT-2: x
  // CHECK{LITERAL}: [[x]]
  return %a : tensor<8x8xf32>
}
"""


def lint(text: str, name: str = "annotate.mlir") -> list[Fault]:
    return lint_file(PASSES / name, text, NAMES, PASSES)


def messages(text: str, name: str = "annotate.mlir") -> list[str]:
    return [f"{fault.line}: {fault.message}" for fault in lint(text, name)]


def with_line(line: str) -> str:
    """The clean test with one more line, its twelfth."""
    lines = CLEAN.splitlines()
    return "\n".join([*lines[:11], line, *lines[11:]]) + "\n"


def test_a_clean_file_has_no_faults():
    assert lint(CLEAN) == []


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("// CHEKC: x", "CHEKC: not read; did you mean CHECK:?"),
        ("// CHECK-NXT: x", "CHECK-NXT: no such directive"),
        ("// CHECK-COUNT: x", "CHECK-COUNT: no such directive"),
        ("// CHECK-COUNT-0: x", "CHECK-COUNT-0: no such directive"),
        ("// CHECK_NEXT: x", "CHECK_NEXT: not read; did you mean CHECK-NEXT:?"),
        ("// check-next: x", "check-next: not read; did you mean CHECK-NEXT:?"),
        ("// Check: x", "Check: not read; did you mean CHECK:?"),
        ("// CHECKNEXT x", "CHECKNEXT: not read; did you mean CHECK-NEXT:?"),
        ("// CHECK x", "CHECK without a colon right after it is not read"),
        ("// CHECK-NEXT return", "CHECK-NEXT without a colon right after it is not read"),
        ("// CHECK-NEXT : return", "CHECK-NEXT without a colon right after it is not read"),
        ("// SDY-NEXT: x", "SDY-NEXT: no RUN line has --check-prefix=SDY"),
        ("// MHLO: x", "MHLO: no RUN line has --check-prefix=MHLO"),
        ("// CHECK{REGEX}: x", "CHECK{REGEX}: only {LITERAL} is known"),
        ("// RUN %shardpass opt %s", "RUN without a colon right after it is not read"),
        ("// RUNS: %shardpass opt %s", "RUNS: not read; did you mean RUN:?"),
        ("// XFAIL: *", "XFAIL: a test is neither skipped"),
        ("// REQUIRES: tpu", "REQUIRES: a test is neither skipped"),
        ("// TODO: more", "TODO: a test is neither skipped"),
        ("%0 = stablehlo.add // CHEKC: x", "CHEKC: not read; did you mean CHECK:?"),
        ("// expected-error {{x}}", "expected-error: no RUN line has --verify-diagnostics"),
        ("// expeced-error {{x}}", "expeced-error: not read; write expected-error"),
        ("// expected-note {{x}}", "expected-note: not read; write expected-error"),
        ("// expected-error @+1 x", "expected-error: not of the form"),
    ],
)
def test_a_line_that_is_not_read_is_a_fault(line: str, fault: str):
    found = messages(with_line(line))
    assert len(found) == 1
    assert found[0].startswith(f"12: {fault}")


@pytest.mark.parametrize(
    "line",
    [
        "// Checks that x: y",
        "// CHECK-NEXT: x",
        "// RUN: %shardpass opt %s | %filecheck %s",
        "# no",
    ],
)
def test_prose_and_right_directives_are_no_faults(line: str):
    assert messages(with_line(line)) == []


def test_a_directive_behind_a_comment_prefix_is_a_fault():
    """filecheck drops a line with ``RUN`` or ``COM`` anywhere before the prefix."""
    found = messages(with_line("stablehlo.RUN_COM // CHECK: x"))
    assert found == ["12: filecheck skips a line with RUN or COM before its prefix"]


@pytest.mark.parametrize(
    ("run", "fault"),
    [
        ("%shardpass opt %s --sp-annotate", "nothing looks at what this line prints or reports"),
        ("%shardpass opt --sp-annotate | %filecheck %s", "%shardpass without %s, %t or %S"),
        ("%shardpass opt %s --sp-annotate | %filecheck", "%filecheck without %s"),
        ("shardpass opt %s --sp-annotate | %filecheck %s", "shardpass: write %shardpass"),
        ("%shardpass opt %s --sp-annotate | FileCheck %s", "FileCheck: write %shardpass"),
        ("%shardpass opt %s --sp-annotate | %filecheck %s || true", "|| hides a failure"),
        ("%shardpass opt %s --sp-strip | %filecheck %s", "no RUN line runs sp-annotate"),
        ("%shardpass opt %s --sp-annotated | %filecheck %s", "no RUN line runs sp-annotate"),
        (
            "%shardpass opt %s --sp-annotate --split-input-file | %filecheck %s",
            "--split-input-file, and no `// -----` in the file",
        ),
    ],
)
def test_a_run_line_that_proves_nothing_is_a_fault(run: str, fault: str):
    text = CLEAN.replace("%shardpass opt %s --sp-annotate | %filecheck %s", run)
    assert any(found.startswith(f"1: {fault}") for found in messages(text)), messages(text)


def test_a_file_without_a_run_line_is_a_fault():
    assert "1: no RUN line" in messages("module {}\n")


def test_a_separator_that_no_run_line_reads_is_a_fault():
    found = messages(CLEAN + "// -----\n")
    assert found == ["1: `// -----` in the file, and no RUN line has --split-input-file"]


def test_a_prefix_without_lines_is_a_fault():
    second = "// RUN: %shardpass opt %s --sp-annotate | %filecheck %s --check-prefixes=CHECK,TWO\n"
    assert messages(second + CLEAN) == ["1: no TWO: line in the file"]


def test_nothing_but_not_is_a_fault():
    text = "// RUN: %shardpass opt %s --sp-annotate | %filecheck %s\n// CHECK-NOT: x\n"
    assert messages(text) == ["1: nothing but CHECK-NOT: an empty output passes"]


def test_verified_diagnostics_count_as_checks():
    text = (
        "// RUN: %shardpass opt %s --sp-annotate --verify-diagnostics\n"
        "// expected-error @+1 {{x}}\n"
        "module {}\n"
    )
    assert messages(text, "annotate-errors.mlir") == []


def test_continued_run_lines_are_read_as_one():
    runs = run_lines("// RUN: %shardpass opt %s \\\n// RUN:   | %filecheck %s --check-prefix SDY\n")
    assert [(run.line, run.command) for run in runs] == [
        (1, "%shardpass opt %s | %filecheck %s --check-prefix SDY")
    ]
    assert prefixes_of(runs) == {"SDY": 1}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("annotate.mlir", "sp-annotate"),
        ("annotate-errors.mlir", "sp-annotate"),
        ("merge-meshes.mlir", "sp-merge-meshes"),
        ("merge-mesh.mlir", "sp-merge"),
        ("merges.mlir", None),
    ],
)
def test_a_test_is_about_the_pass_with_the_longest_fitting_name(name: str, expected: str | None):
    assert pass_of(PASSES / name, NAMES) == expected


def test_a_file_named_after_no_pass_is_a_fault():
    found = messages(CLEAN, "anotate.mlir")
    assert found == ["1: no pass is named sp-anotate; did you mean annotate.mlir?"]


def test_files_elsewhere_need_not_be_named_after_a_pass():
    assert lint_file(Path("lit_tests/cli/anything.mlir"), CLEAN, NAMES, PASSES) == []


def test_passes_are_read_from_their_sources(tmp_path: Path):
    source = (
        "class First:\n    pass\n\n\n"
        'class DropMeshes(Pass):\n    name: ClassVar[str] = "sp-drop-meshes"\n'
    )
    path = tmp_path / "drop_meshes.py"
    path.write_text(source)
    assert passes_in(tmp_path) == [PassSource("sp-drop-meshes", "DropMeshes", path, 6)]


def test_a_pass_whose_names_differ_or_without_a_test_is_a_fault(tmp_path: Path):
    (tmp_path / "right.mlir").touch()
    passes = [
        PassSource("sp-right", "Right", Path("right.py"), 3),
        PassSource("sp-two-words", "Twowords", Path("two_word.py"), 3),
    ]
    assert [fault.message for fault in pass_faults(passes, tmp_path)] == [
        "sp-two-words belongs in two_words.py",
        "sp-two-words is the name of a class TwoWords",
        "sp-two-words has no lit test passes/two-words.mlir",
    ]
