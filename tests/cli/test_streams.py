"""The three standard streams, as shells leave them: pipes, full, closed, cut short."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import MODULE, Run

SHARD = ("shard", "--rules", "r.toml", "-o", "-")
#: Commands that print; all of them have to fit in no space at all.
PRINTING = {
    "report": ("report", "m.mlir"),
    "report-json": ("report", "m.mlir", "--json"),
    "run": ("run", "m.mlir"),
    "run-check": ("run", "m.mlir", "--check", "--quiet"),
    "opt": ("opt", "m.mlir"),
    "shard": (*SHARD, "m.mlir"),
    "list-passes": ("opt", "--list-passes"),
    "help": ("--help",),
    "help-of-a-command": ("report", "--help"),
    "version": ("--version",),
}
FULL = "error[unwritable]: cannot write standard output: no space left on device\n"
CLOSED = "error[unwritable]: cannot write standard output: bad file descriptor\n"


class TestOutput:
    @pytest.mark.parametrize("arguments", PRINTING.values(), ids=PRINTING)
    def test_full(self, arguments: tuple[str, ...], shardpass: Run):
        with open("/dev/full", "w") as full:
            done = shardpass(*arguments, stdout=full)
        assert done.stderr.endswith(FULL)
        assert "Traceback" not in done.stderr
        assert done.returncode == 1

    @pytest.mark.parametrize("name", ["report", "opt", "help"])
    def test_closed(self, name: str, shardpass: Run):
        done = shardpass(*PRINTING[name], redirection=">&-")
        assert (done.stderr, done.returncode) == (CLOSED, 1)

    @pytest.mark.parametrize("arguments", PRINTING.values(), ids=PRINTING)
    def test_nobody_reads(self, arguments: tuple[str, ...], shardpass: Run):
        """As a shell says it of a program that SIGPIPE ended: 128 + 13."""
        reads, writes = os.pipe()
        os.close(reads)
        with os.fdopen(writes, "w") as pipe:
            done = shardpass(*arguments, stdout=pipe)
        assert "error" not in done.stderr
        assert "Traceback" not in done.stderr
        assert done.returncode == 141

    def test_what_is_written_before_an_error_stays(self, shardpass: Run, folder: Path):
        (folder / "two.mlir").write_text(f"{MODULE}// -----\n{MODULE[:300]}")
        done = shardpass("opt", "two.mlir", "--split-input-file")
        assert done.stdout.startswith("module @step")
        assert done.returncode == 1


class TestErrors:
    @pytest.mark.parametrize(("arguments", "code"), [(("report", "no"), 1), (("nope",), 2)])
    def test_full_or_closed(self, arguments: tuple[str, ...], code: int, shardpass: Run):
        with open("/dev/full", "w") as full:
            assert shardpass(*arguments, stderr=full).returncode == code
        done = shardpass(*arguments, redirection="2>&-")
        assert (done.stdout, done.stderr, done.returncode) == ("", "", code)


class TestInput:
    def test_a_module_comes_by_standard_input(self, shardpass: Run):
        sharded = shardpass(*SHARD, "-", input=MODULE)
        assert sharded.returncode == 0, sharded.stderr
        by_name = shardpass(*SHARD, "m.mlir").stdout
        # Places in the text are told with the name that it has.
        assert 'loc("m.mlir":8:5)' in by_name
        assert sharded.stdout == by_name.replace('"m.mlir":', '"<stdin>":')
        report = shardpass("report", "-", "--json", input=sharded.stdout)
        first = json.loads(report.stdout)["arguments"][0]
        assert (first["path"], first["shard_shape"]) == ("params.w", [4, 4])
        assert "ran on 8 devices" in shardpass("run", "-", input=sharded.stdout).stdout

    def test_bytecode_too(self, shardpass: Run):
        code: Any = shardpass(*SHARD, "m.mlir", "--emit", "bytecode", text=False)
        assert code.stdout.startswith(b"ML\xefR")
        done = shardpass("report", "-", "--json", input=code.stdout, text=False)
        assert json.loads(done.stdout)["arguments"][0]["shard_shape"] == [4, 4]

    @pytest.mark.parametrize("arguments", [("report", "-"), ("run", "-"), (*SHARD, "-"), ("opt",)])
    def test_nothing_there(self, arguments: tuple[str, ...], shardpass: Run):
        done = shardpass(*arguments, input="")
        assert (done.stderr, done.returncode) == ("error[unreadable]: <stdin> is empty\n", 1)

    def test_closed(self, shardpass: Run):
        done = shardpass("report", "-", redirection="<&-")
        told = "error[unreadable]: cannot read standard input: bad file descriptor\n"
        assert (done.stderr, done.returncode) == (told, 1)


class TestMessages:
    @pytest.mark.parametrize("command", ["report", "run", "opt", "shard"])
    def test_their_options_stand_before_the_command_or_behind(self, command: str, shardpass: Run):
        arguments = (command, "no.mlir", *(SHARD[1:] if command == "shard" else ()))
        before = shardpass("-q", "--diagnostics", "json", *arguments)
        behind = shardpass(*arguments, "--quiet", "--diagnostics=json")
        assert json.loads(before.stderr) == json.loads(behind.stderr)
        assert json.loads(behind.stderr)["slug"] == "unreadable"

    def test_an_output_without_a_name(self, shardpass: Run, folder: Path):
        done = shardpass("shard", "m.mlir", "--rules", "r.toml", "-o", "")
        assert done.stderr == (
            "error[unwritable]: cannot write to a file without a name\n"
            "  help: the name given is empty\n"
        )
        assert sorted(os.listdir(folder)) == ["m.mlir", "r.toml"]


class TestNamesOfStandardOutput:
    def test_dev_stdout_may_be_a_pipe(self, shardpass: Run):
        done = shardpass("opt", "m.mlir", "-o", "/dev/stdout")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == shardpass("opt", "m.mlir").stdout
