"""Lit tests written for sdy_opt run with shardpass opt, and failures are told apart."""

import re
from pathlib import Path

import pytest
import shardy_lit
from shardy_causes import DIES, FILECHECK, NOT_IN_JAXLIB, OTHER, OURS, Cause, cause_of, failure_of

CLOSE = """sdy.mesh @mesh = <["x"=2]>
func.func @f(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}]>}) { return }
"""

SUITE = {
    "ir/test/passes.mlir": f"""// RUN: sdy_opt %s -sdy-close-shardings 2>&1 | FileCheck %s
// CHECK: func.func @f
// CHECK-SAME: <@mesh, [{{"x"}}]>
{CLOSE}""",
    "ir/test/runs_a_program.mlir": """// RUN: split-file %s %t
// RUN: sdy_opt %t/a.mlir --allow-unregistered-dialect > %t/b.mlir
// RUN: cat %t/b.mlir > %t/c.mlir
// RUN: stablehlo-translate --interpret %t/c.mlir
//--- a.mlir
func.func @main() {
  %0 = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
  "check.expect_eq_const"(%0) {value = dense<[1, 2]> : tensor<2xi32>} : (tensor<2xi32>) -> ()
  return
}
""",
    "ir/test/unknown_pass.mlir": f"// RUN: sdy_opt %s -sdy-acme 2>&1 | FileCheck %s\n"
    f"// CHECK: f\n{CLOSE}",
    "transforms/other_text.mlir": f"// RUN: sdy_opt %s | FileCheck %s\n// CHECK: @g\n{CLOSE}",
    "transforms/no_test.mlir": CLOSE,
}


def test_a_suite_is_run_counted_and_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    tree = tmp_path / "shardy" / "dialect" / "sdy"
    for name, text in SUITE.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    # A file of lit's own there is not read: it asks for LLVM's tools.
    (tmp_path / "shardy" / "lit.cfg.py").write_text("import lit.llvm.nothing")
    assert shardy_lit.main([str(tmp_path), "--logs", str(tmp_path / "logs")]) == 0
    out = capsys.readouterr().out
    assert re.fullmatch(
        r"""ir/test/unknown_pass\.mlir
    not in this jaxlib: there is no pass "sdy-acme"
transforms/other_text\.mlir
    other output or wording of this jaxlib: other_text\.mlir:2: error: Couldn't match "@g"\.
   1 .*
   1 .*
2 passed, 2 failed
""",
        out,
    ), out
    log = tmp_path / "logs" / "transforms" / "other_text.mlir.log"
    assert "Couldn't match" in log.read_text()
    assert not (tmp_path / "logs" / "ir" / "test" / "passes.mlir.log").exists()


def test_a_filter_chooses_by_path(tmp_path: Path):
    (tmp_path / "a").mkdir()
    for name in ("a/x.mlir", "a/y.mlir"):
        (tmp_path / name).write_text("// RUN: true\n")
    assert shardy_lit.find_tests(tmp_path, "/y") == [tmp_path / "a" / "y.mlir"]


def test_a_folder_without_tests_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        shardy_lit.main([str(tmp_path)])
    assert "no file with a RUN line under" in capsys.readouterr().err


def lit_output(program: str, status: int, *said: str) -> str:
    shown = "".join(f"# | {line}\n" for line in said)
    return (
        "# RUN: at line 1\nsdy_opt a.mlir | FileCheck a.mlir\n"
        "# executed command: true\n"
        "# RUN: at line 2\nsdy_opt b.mlir | FileCheck b.mlir\n"
        f"# executed command: {program} b.mlir\n"
        f"# .---command stderr------------\n{shown}# `-----------------------------\n"
        f"# error: command failed with exit status: {status}\n"
    )


def test_the_first_failing_command_is_found_with_its_run_line():
    failed = failure_of(lit_output("'/x y/sdy_opt'", 2, "error[bad-option]: no", "more"))
    assert failed is not None
    assert (failed.program, failed.status) == ("sdy_opt", 2)
    assert failed.output == "error[bad-option]: no\nmore"
    assert failed.run_line == "sdy_opt b.mlir | FileCheck b.mlir"
    assert failure_of("nothing was run") is None


NEVER = {"say": lambda line: f"nobody asked for {line}"}


@pytest.mark.parametrize(
    ("program", "said", "expected"),
    [
        ("sdy_opt", "error[unknown-pass]: there is no p", Cause(NOT_IN_JAXLIB, "there is no p")),
        ("sdy_opt", "error[bad-option]: a takes no b", Cause(NOT_IN_JAXLIB, "a takes no b")),
        ("sdy_opt", "x: error[process-aborted]: in p: SIGSEGV", Cause(DIES, "in p: SIGSEGV")),
        ("sdy_opt", "x:1:2: error[mlir]: expected '>'", Cause(OTHER, "expected '>'")),
        (
            "sdy_opt",
            "x:5: error[unmet-expectation]: expected error was not reported: e",
            Cause(OTHER, "expected error was not reported: e"),
        ),
        ("sdy_opt", "error[internal]: KeyError", Cause(OURS, "error[internal]: KeyError")),
        ("FileCheck", "/t/x.mlir:3: error: no match", Cause(OTHER, "x.mlir:3: error: no match")),
    ],
)
def test_what_a_command_said_gives_the_cause(program: str, said: str, expected: Cause):
    assert cause_of(lit_output(program, 1, said), **NEVER) == expected


def test_a_traceback_of_a_stand_in_is_ours():
    output = lit_output("split-file", 1, "Traceback (most recent call last):", "KeyError: 'x'")
    assert cause_of(output, **NEVER) == Cause(OURS, "KeyError: 'x'")


@pytest.mark.parametrize(
    ("llvm", "jaxlib", "kind"),
    [(True, True, FILECHECK), (False, True, OURS), (False, False, OTHER)],
)
def test_a_check_that_fails_is_tried_with_other_programs(llvm: bool, jaxlib: bool, kind: str):
    tried: list[str] = []

    def trial(answer: bool):
        return lambda line: tried.append(line) or answer

    output = lit_output("FileCheck", 1, "x: error: no match")
    cause = cause_of(output, with_llvm=trial(llvm), with_jaxlib=trial(jaxlib), **NEVER)
    assert cause.kind == kind
    assert set(tried) == {"sdy_opt b.mlir | FileCheck b.mlir"}


def test_words_that_went_to_filecheck_are_asked_for_again():
    asked: list[str] = []

    def say(line: str) -> str:
        asked.append(line)
        return "error[unknown-pass]: there is no pass"

    assert cause_of(lit_output("sdy_opt", 2), say=say).kind == NOT_IN_JAXLIB
    assert asked == ["sdy_opt b.mlir "]
