"""How ``opt`` reads its words: as mlir-opt does."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from shardpass import __version__
from shardpass.cli.main import cli
from shardpass.cli.opt import opt
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


def read(*words: str) -> click.Context:
    """The words as the command has them, without anything done; it keeps the names of its help."""
    return opt.make_context("opt", [*words], help_option_names=["-h", "--help"])


@pytest.fixture(autouse=True)
def twice(folder: Path) -> None:
    (folder / "t.mlir").write_text(TWICE)
    (folder / "-t.mlir").write_text(TWICE)


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
        ("-cse", "--", "-t.mlir"),
        ("-cse", "-verify-each=", "t.mlir", "-cse", "-sp-strip="),
    ],
)
def test_one_dash_is_as_good_as_two(words: tuple[str, ...], shardpass: Run) -> None:
    done = shardpass("opt", *words)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", ONCE)


@pytest.mark.parametrize(
    "words",
    [
        ("-o", "-out"),
        ("-o-out",),
        ("-qo", "-out"),
        ("-qo-out",),
    ],
)
def test_short_options_stay_short(words: tuple[str, ...], shardpass: Run, folder: Path) -> None:
    done = shardpass("opt", "t.mlir", "-cse", *words)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
    assert (folder / "-out").read_text() == ONCE


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("-o", "a", "-o", "b"), "-o"),
        (("-o", "a", "--output=b"), "--output"),
        (("--pass-pipeline=cse", "-pass-pipeline", "cse"), "--pass-pipeline"),
        (("--verify-each", "--verify-each=false"), "--verify-each"),
        (("--mlir-timing=false", "-mlir-timing"), "--mlir-timing"),
    ],
)
def test_an_option_stands_there_once(words: tuple[str, ...], name: str) -> None:
    """As in mlir-opt: of two outputs nobody knows which one was meant."""
    with pytest.raises(click.UsageError) as caught:
        read("t.mlir", *words)
    assert caught.value.message == f"{name} may stand there but once"


@pytest.mark.parametrize(
    "words",
    [
        ("-q", "-o=-out"),
        ("-qo=-out",),
        ("-q", "--o", "-out"),
        ("--o=-out", "--q"),
        ("--q", "--output=-out"),
        ("--quiet", "-output", "-out"),
    ],
)
def test_one_letter_is_an_option_however_it_is_written(words: tuple[str, ...]) -> None:
    context = read("t.mlir", *words, "--cse")
    assert context.params["output"] == "-out"
    assert context.params["words"] == ("t.mlir", "--cse")
    assert context.obj.quiet


def test_what_prints_between_passes_may_be_said_of_several(shardpass: Run) -> None:
    done = shardpass(
        "opt",
        "t.mlir",
        "-cse",
        "-sp-strip",
        *(f"-mlir-print-ir-after={n}" for n in ("cse", "sp-strip")),
    )
    assert (done.returncode, done.stderr.count("IR Dump After")) == (0, 2)


def test_an_output_without_a_name(shardpass: Run) -> None:
    done = shardpass("opt", "t.mlir", "-o=")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error[unwritable]: cannot write to a file without a name\n")


def test_an_empty_word_is_a_file(shardpass: Run) -> None:
    done = shardpass("opt", "t.mlir", "--sp-strip", "")
    assert (done.returncode, done.stdout) == (2, "")
    assert "one file at most, not 2: t.mlir ''" in done.stderr


def test_lines_that_end_as_on_windows(shardpass: Run, folder: Path) -> None:
    faulty = "func.func @x() {\n  // expected-error @+1 {{of undeclared}}\n  return %a : i1\n}\n"
    text = f"{faulty}// -----\n{TWICE}"
    (folder / "t.mlir").write_bytes(text.replace("\n", "\r\n").encode())
    done = shardpass("opt", "t.mlir", "-split-input-file", "-verify-diagnostics=", "-cse")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", f"{BORDER}{ONCE}")


@pytest.mark.parametrize(
    ("word", "wanted"),
    [
        ("-h", "--mlir-print-ir-after-all"),
        ("--h", "--mlir-print-ir-after-all"),
        ("-help", "--mlir-print-ir-after-all"),
        ("-version", f"shardpass, version {__version__}\n"),
    ],
)
def test_what_is_shown(word: str, wanted: str) -> None:
    CliRunner().invoke(opt, ["-cse", "--help"])  # By itself, without the group that it is in.
    done = CliRunner().invoke(cli, ["opt", "-cse", word])
    assert (done.exit_code, wanted in done.stdout) == (0, True)


@pytest.mark.parametrize(
    "word",
    [
        "--sp-name-axes={mesh=a=2}",
        "--sp-name-axes={mesh={a=2}}",
        "--sp-name-axes=mesh={a=2}",
        "--sp-name-axes=mesh=a=2",
    ],
)
def test_options_in_the_braces_of_a_pipeline(word: str, shardpass: Run, folder: Path) -> None:
    text = 'sdy.mesh @mesh = <["x"=2]>\nfunc.func @f() { return }\n'
    (folder / "braces.mlir").write_text(text)
    done = shardpass("opt", "braces.mlir", word)
    assert (done.returncode, done.stderr) == (0, "")
    assert 'sdy.mesh @mesh = <["a"=2]>' in done.stdout


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
