"""A command that fails or is interrupted leaves its output as it was, and says so in its code."""

from pathlib import Path

from tests.cli.conftest import Run

GOOD = "func.func @main() {\n  return\n}\n"
SPLIT = "// -----\n"


def test_opt_writes_no_part_of_a_file_where_another_fails(shardpass: Run, folder: Path) -> None:
    (folder / "two.mlir").write_text(f"{GOOD}{SPLIT}func.func @b( {{ return }}\n")
    (folder / "out.mlir").write_text("old\n")
    done = shardpass("opt", "two.mlir", "--split-input-file", "-o", "out.mlir")
    assert done.returncode == 1
    assert done.stderr.startswith("two.mlir:5:14: error[mlir]")
    assert (folder / "out.mlir").read_text() == "old\n"
    assert shardpass("opt", "two.mlir", "--split-input-file").stdout == ""


def test_opt_writes_nothing_where_a_pass_fails_in_one_part(shardpass: Run, folder: Path) -> None:
    faulty = GOOD.replace("return", "stablehlo.custom_call @Sharding() : () -> ()\n  return")
    (folder / "two.mlir").write_text(f"{GOOD}{SPLIT}{faulty}{SPLIT}{GOOD}")
    done = shardpass("opt", "two.mlir", "--sp-verify", "--split-input-file", "-o", "out.mlir")
    assert (done.returncode, done.stdout) == (1, "")
    assert "error[missing-sharding]" in done.stderr
    assert not (folder / "out.mlir").exists()


def test_opt_writes_the_other_parts_where_the_error_was_expected(
    shardpass: Run, folder: Path
) -> None:
    faulty = GOOD.replace(
        "return",
        "// expected-error @+1 {{carries no mhlo.sharding}}\n"
        "  stablehlo.custom_call @Sharding() : () -> ()\n  return",
    )
    (folder / "two.mlir").write_text(f"{GOOD}{SPLIT}{faulty}")
    done = shardpass(
        "opt", "two.mlir", "--sp-verify", "--split-input-file", "--verify-diagnostics", "-o", "o"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (folder / "o").read_text().count("func.func @main") == 1


def test_opt_refuses_a_folder_that_is_not_there_before_the_work(
    shardpass: Run, folder: Path
) -> None:
    done = shardpass("opt", "nowhere.mlir", "-o", "no/out.mlir")
    assert done.returncode == 1
    assert "error[unwritable]: cannot write no/out.mlir" in done.stderr
