"""A command that fails or is interrupted leaves its output as it was, and says so in its code."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import PROJECT, Run

GOOD = "func.func @main() {\n  return\n}\n"
SPLIT = "// -----\n"


def test_opt_writes_no_part_of_a_file_where_another_fails(shardpass: Run, folder: Path) -> None:
    (folder / "two.mlir").write_text(f"{GOOD}{SPLIT}func.func @b( {{ return }}\n")
    (folder / "out.mlir").write_text("old\n")
    done = shardpass("opt", "two.mlir", "--split-input-file", "-o", "out.mlir")
    assert done.returncode == 1
    assert done.stderr.startswith("two.mlir:5:14: error[mlir]")
    assert (folder / "out.mlir").read_text() == "old\n"


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


#: Runs the command line with one function of ``os`` watched, which a fork inherits: when it is
#: called, the signal goes to the parent, and as from a terminal to the child as well.
INTERRUPTING = """
import os, sys, time
from shardpass.cli.main import main
from shardpass.runtime.child import may_fork

name, number, to_child, *arguments = sys.argv[1:]
called = getattr(os, name)


def interrupting(*given):
    os.kill(os.getppid(), int(number))
    if to_child == "both":
        os.kill(os.getpid(), int(number))
    time.sleep(0.5)
    return called(*given)


setattr(os, name, interrupting)
assert may_fork()
main(arguments)
"""
CODES = {signal.SIGINT: 130, signal.SIGHUP: 129, signal.SIGTERM: 143}


def interrupted(
    folder: Path, watched: str, number: signal.Signals, to_child: str, *arguments: str
) -> tuple[int, str]:
    """The exit code, and whether the output is the ``old`` one or the ``new``."""
    (folder / "out.mlir").write_text("old\n")
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTING, watched, str(int(number)), to_child, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PROJECT), "XLA_FLAGS": ""},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert b"Traceback" not in done.stderr
    assert [path.name for path in folder.iterdir() if path.name.startswith(".out")] == []
    text = (folder / "out.mlir").read_text()
    return done.returncode, "old" if text == "old\n" else "new" if "func.func" in text else text


SHARD = ("-q", "shard", "m.mlir", "-o", "out.mlir", "--rules", "r.toml")
OPT = ("-q", "opt", "m.mlir", "-o", "out.mlir", "--cse")


@pytest.mark.parametrize("command", [SHARD, OPT], ids=["shard", "opt"])
@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("to_child", ["parent", "both"])
def test_a_signal_before_the_rename_leaves_the_old_file(
    folder: Path, command: tuple[str, ...], number: signal.Signals, to_child: str
) -> None:
    code = CODES[number]
    assert interrupted(folder, "fsync", number, to_child, *command) == (code, "old")


@pytest.mark.parametrize("command", [SHARD, OPT], ids=["shard", "opt"])
@pytest.mark.parametrize("number", CODES)
def test_a_signal_that_comes_with_the_rename_comes_too_late(
    folder: Path, command: tuple[str, ...], number: signal.Signals
) -> None:
    assert interrupted(folder, "replace", number, "both", *command) == (0, "new")
