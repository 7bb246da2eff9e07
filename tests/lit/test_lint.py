"""The linter of lit tests finds what FileCheck and lit pass over in silence."""

from pathlib import Path

import pytest

from shardpass.diagnostics import ShardingError
from shardpass.lit.lint import lint_file, lint_text

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
RUN = "%shardpass opt %s --sp-annotate | %filecheck %s"


def messages(text: str) -> list[str]:
    found = lint_text(Path("suite/test.mlir"), text)
    return [f"{each.location.line}: {each.message}" for each in found if each.location]


def with_line(line: str) -> str:
    """The clean test with one more line, its twelfth."""
    lines = CLEAN.splitlines()
    return "\n".join([*lines[:11], line, *lines[11:]]) + "\n"


def with_run(run: str) -> str:
    return CLEAN.replace(RUN, run)


def test_a_clean_file_has_no_faults():
    assert messages(CLEAN) == []


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("// CHEKC: x", "CHEKC: not read; did you mean CHECK:?"),
        ("// CHEKC-NEXT: x", "CHEKC-NEXT: not read; did you mean CHECK-NEXT:?"),
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
        ("// REQUIRE: x", "REQUIRE: not read; did you mean REQUIRES:?"),
        ("// UNSUPORTED: x", "UNSUPORTED: not read; did you mean UNSUPPORTED:?"),
        ("// REQUIRES jax-0.12", "REQUIRES without a colon right after it is not read"),
        ("// REQUIRES: jax>=0.12", "jax>=0.12: no such feature"),
        ("// UNSUPPORTED: asan, !jax-0.12.1", "jax-0.12.1: no such feature"),
        ("// XFAIL: python3.12", "python3.12: no such feature"),
        ("%0 = stablehlo.add // CHEKC: x", "CHEKC: not read; did you mean CHECK:?"),
        ("; CHEKC: x", "CHEKC: not read; did you mean CHECK:?"),
        ("// expected-error {{x}}", "expected-error: no RUN line has --verify-diagnostics"),
        ("// expected-note-re {{x}}", "expected-note-re: no RUN line has --verify-diagnostics"),
        ("// expeced-error {{x}}", "expeced-error: not read; write expected-error"),
        ("// expected-hint {{x}}", None),
        ("// expected-errors {{x}}", "expected-errors: not read; write expected-error"),
        ("// expected-eror {{x}}", "expected-eror: not read; write expected-error"),
        ("// expected-wanring@+1 {{x}}", "expected-wanring: not read; write expected-error"),
        ("// expected-error @+1 x", "expected-error: not of the form"),
        ("// expected-error @next {{x}}", "expected-error: not of the form"),
    ],
)
def test_a_line_that_is_not_read_is_a_fault(line: str, fault: str | None):
    found = messages(with_line(line))
    if fault is None:
        assert found == []
        return
    assert len(found) == 1
    assert found[0].startswith(f"12: {fault}")


@pytest.mark.parametrize(
    "line",
    [
        "// Checks that x: y",
        "// CHECK-NEXT: x",
        "// RUN: %shardpass opt %s | %filecheck %s",
        "# no",
        "// TODO: more",
        "// NOTE: x",
        "// REQUIRES: jax-0.12+ && !python-3.12, asan",
        "// DEFINE: %{x} = y",
    ],
)
def test_prose_and_right_directives_are_no_faults(line: str):
    assert messages(with_line(line)) == []


def test_a_fault_shows_the_line_and_where_in_it():
    (fault,) = lint_text(Path("suite/test.mlir"), with_line("  // CHEKC: x"))
    assert fault.slug == "unread-directive"
    assert str(fault).splitlines() == [
        "suite/test.mlir:12: error[unread-directive]: CHEKC: not read; did you mean CHECK:?",
        "  // CHEKC: x",
        "     ^^^^^",
    ]


def test_a_directive_behind_a_comment_prefix_is_a_fault():
    """filecheck drops a line with ``RUN`` or ``COM`` anywhere before the prefix."""
    found = messages(with_line("stablehlo.RUN_COM // CHECK: x"))
    assert found == ["12: filecheck skips a line with RUN or COM before its prefix"]


@pytest.mark.parametrize(
    ("run", "fault"),
    [
        ("%shardpass opt %s --sp-annotate", "nothing looks at what this line prints or reports"),
        ("%shardpass opt %s --sp-annotate 2>&1", "nothing looks at what this line prints"),
        ("%shardpass opt --sp-annotate | %filecheck %s", "%shardpass without %s, %t or %S"),
        ("%shardpass opt %s --sp-annotate | %filecheck", "%filecheck without %s"),
        ("%shardpass opt %s --sp-annotate | FileCheck", "%filecheck without %s"),
        ("shardpass opt %s --sp-annotate | %filecheck %s", "shardpass: write %shardpass"),
        ("%shardpass opt %s --sp-annotate | %filecheck %s || true", "|| hides a failure"),
        ("%shardpass opt %S/a.mlir -o %t | %filecheck %S/b", "no RUN line uses the file (%s)"),
        (
            "%shardpass opt %s --sp-annotate --split-input-file | %filecheck %s",
            "--split-input-file, and no `// -----` in the file",
        ),
        (
            '%shardpass opt %s --sp-annotate -split-input-file="// ==" | %filecheck %s',
            "--split-input-file, and no `// ==` in the file",
        ),
    ],
)
def test_a_run_line_that_proves_nothing_is_a_fault(run: str, fault: str):
    text = with_run(run)
    assert any(found.startswith(f"1: {fault}") for found in messages(text)), messages(text)


@pytest.mark.parametrize(
    "run",
    [
        "not %shardpass opt %s --sp-annotate 2>&1 | %filecheck %s",
        "%shardpass opt %s --sp-a | %shardpass opt --sp-b | %filecheck %s",
        "cat %s | %shardpass opt --sp-a | %filecheck %s",
        "%shardpass opt %s --sp-a='match=a|b;c' | %filecheck %s",
        "%shardpass opt %s --sp-a -o %t.mlir && %filecheck %s < %t.mlir",
        "%shardpass opt %s --sp-a > %t1 && %filecheck %s --input-file %t1",
        "%shardpass opt %s --sp-a | FileCheck --check-prefix=CHECK %s",
        "%shardpass opt --list-passes | %filecheck %s",
        "%shardpass opt %s | %filecheck %s %if jax-0.12+ %{ --check-prefix=CHECK %}",
        "%my_tool %s | %filecheck %s",
    ],
)
def test_a_run_line_whose_outcome_is_checked_is_no_fault(run: str):
    assert messages(with_run(run)) == []


def test_substitutions_of_the_suite_may_check():
    """What ``%{run}`` stands for is said in a configuration that the linter does not read."""
    assert messages("// RUN: %{run} --sp-a\n// CHECK-NEXT: x\n// -----\n// OTHER: y\n") == []


def test_a_file_without_a_run_line_is_a_fault():
    assert messages("module {}\n") == ["1: no RUN line"]


def test_a_separator_that_no_run_line_reads_is_a_fault():
    found = messages(CLEAN + "// -----\n")
    assert found == ["1: `// -----` in the file, and no RUN line has --split-input-file"]


def test_separators_that_a_run_line_reads_are_no_fault():
    run = RUN.replace("--sp", "-split-input-file --sp")
    assert messages(with_run(run) + "// -----\n") == []
    run = RUN.replace("--sp", "--split-input-file='// ==' --sp")
    assert messages(with_run(run) + "// ==\n") == []


def test_a_prefix_without_lines_is_a_fault():
    second = "// RUN: %shardpass opt %s --sp-annotate | %filecheck %s --check-prefixes=CHECK,TWO\n"
    assert messages(second + CLEAN) == ["1: no TWO: line in the file"]


def test_a_prefix_of_a_branch_is_known():
    run = f"{RUN} %if jax-0.12+ %{{--check-prefix=NEW%}} %else %{{--check-prefix=OLD%}}"
    assert messages(with_run(run).replace("CHECK", "NEW") + "// OLD: x\n") == []


def test_nothing_but_not_is_a_fault():
    text = "// RUN: %shardpass opt %s --sp-annotate | %filecheck %s\n// CHECK-NOT: x\n"
    assert messages(text) == ["1: nothing but CHECK-NOT: an empty output passes"]


@pytest.mark.parametrize("option", ["--verify-diagnostics", "-verify-diagnostics=all"])
def test_verified_diagnostics_count_as_checks(option: str):
    text = (
        f"// RUN: %shardpass opt %s --sp-annotate {option}\n"
        "// expected-error @+1 {{x}}\n"
        "// expected-note-re@below {{a {{.*}}}}\n"
        "module {}\n"
    )
    assert messages(text) == []


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path):
    for path in (tmp_path / "none.mlir", tmp_path):
        with pytest.raises(ShardingError, match=r"^cannot read .*: (No such|Is a)"):
            lint_file(path)


def test_a_directive_needs_no_space_behind_its_colon(tmp_path: Path) -> None:
    text = "// RUN: %shardpass opt %s -cse | %filecheck %s\n//CHECK-LABEL:func.func @f\n"
    assert (
        lint_text(tmp_path / "a.mlir", text + "// CHECK:return\nfunc.func @f() { return }\n") == []
    )


def test_what_follows_a_semicolon_hides_a_failure(tmp_path: Path) -> None:
    text = (
        "// RUN: %shardpass opt %s -cse | %filecheck %s ; true\n"
        "// CHECK: nosuch\nfunc.func @f() { return }\n"
    )
    (fault,) = lint_text(tmp_path / "a.mlir", text)
    assert "; hides a failure of what stands in front of it: write &&" in fault.message


def test_a_test_that_cannot_be_read_is_one_fault_among_others(tmp_path: Path) -> None:
    (tmp_path / "a.mlir").write_bytes(b"// RUN: \xff\n")
    (fault,) = lint_file(tmp_path / "a.mlir")
    assert fault.slug == "unreadable"
    assert "not text in UTF-8" in fault.message
