"""How ``opt`` reads its words: as mlir-opt does."""

from pathlib import Path

import pytest

from tests.cli.conftest import Run

TWICE = """\
func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.abs %a : tensor<8xf32>
  %1 = stablehlo.abs %a : tensor<8xf32>
  %2 = stablehlo.add %0, %1 : tensor<8xf32>
  return %2 : tensor<8xf32>
}
"""
ONCE = """\
module {
  func.func @main(%arg0: tensor<8xf32>) -> tensor<8xf32> {
    %0 = stablehlo.abs %arg0 : tensor<8xf32>
    %1 = stablehlo.add %0, %0 : tensor<8xf32>
    return %1 : tensor<8xf32>
  }
}
"""
EMPTY = "module {\n}\n"
BORDER = "\n// -----\n"


@pytest.fixture(autouse=True)
def twice(folder: Path) -> None:
    (folder / "t.mlir").write_text(TWICE)


@pytest.mark.parametrize(
    "words",
    [
        ("--cse", "t.mlir"),
        ("-cse", "t.mlir"),
        ("-cse", "-canonicalize", "t.mlir"),
        ("-cse", "-q", "t.mlir"),
        ("-pass-pipeline", "cse", "t.mlir"),
        ("-pass-pipeline=cse", "t.mlir"),
        ("t.mlir", "-sp-strip", "--cse", "-verify-each=false"),
        ("-verify-each", "t.mlir", "-cse"),
        ("--verify-each=true", "t.mlir", "-cse"),
        ("-cse", "--", "t.mlir"),
    ],
)
def test_one_dash_is_as_good_as_two(words: tuple[str, ...], shardpass: Run) -> None:
    done = shardpass("opt", *words)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", ONCE)


@pytest.mark.parametrize("words", [("-o", "-out"), ("-o-out",), ("-qo", "-out"), ("-qo-out",)])
def test_short_options_stay_short(words: tuple[str, ...], shardpass: Run, folder: Path) -> None:
    done = shardpass("opt", "t.mlir", "-cse", *words)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
    assert (folder / "-out").read_text() == ONCE


def test_a_misspelt_pass_with_one_dash(shardpass: Run) -> None:
    done = shardpass("opt", "-canonicalise", "t.mlir")
    assert (done.returncode, done.stderr) == (
        2,
        'error[unknown-pass]: there is no pass "canonicalise"\n'
        "canonicalise\n"
        "^^^^^^^^^^^^\n"
        '  help: did you mean "canonicalize"?\n',
    )


def test_a_misspelt_option_with_a_value(shardpass: Run) -> None:
    done = shardpass("opt", "--verify-eech=false", "t.mlir")
    assert (done.returncode, done.stderr) == (
        2,
        "error[usage]: there is neither a pass nor an option --verify-eech\n"
        '  help: did you mean "verify-each"?\n',
    )


@pytest.mark.parametrize("empty", ["", "\n", "// nothing here\n  // or here\n", "\n\n\n"])
def test_a_part_may_be_empty(empty: str, shardpass: Run, folder: Path) -> None:
    """As in mlir-opt, which prints an empty module for it."""
    (folder / "t.mlir").write_text(f"{empty}// -----\n{TWICE}\n// -----\n{empty}")
    done = shardpass("opt", "t.mlir", "-split-input-file", "-sp-verify", "-cse")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == BORDER.join([EMPTY, ONCE, EMPTY])


def test_a_module_needs_no_function(shardpass: Run, folder: Path) -> None:
    """As in mlir-opt; a pass that needs one says so."""
    (folder / "t.mlir").write_text('sdy.mesh @m = <["x"=2]>\n')
    done = shardpass("opt", "t.mlir", "-cse")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == 'module {\n  sdy.mesh @m = <["x"=2]>\n}\n'


def test_a_part_that_cannot_be_read_has_its_line(shardpass: Run, folder: Path) -> None:
    (folder / "t.mlir").write_bytes(f"{TWICE}\n// -----\n\n// ".encode() + b"\xff\n")
    done = shardpass("opt", "t.mlir", "--split-input-file")
    assert (done.returncode, done.stderr) == (
        1,
        "t.mlir:10: error[unreadable]: t.mlir is neither MLIR bytecode nor text: byte 12 is not "
        "UTF-8\n",
    )
