"""``shardpass run`` where each process is started by a command of its own, and what goes wrong."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardpass.runtime.npz import NpzWriter
from tests.cli.conftest import Run
from tests.cli.test_run_processes import ENDLESS, LAYER, started


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(autouse=True)
def modules(folder: Path) -> None:
    (folder / "layer.mlir").write_text(LAYER)
    (folder / "endless.mlir").write_text(ENDLESS)


def words(number: int, port: int, *more: str, host: str = "localhost", count: int = 2) -> list[str]:
    return ["--num-processes", str(count), "--process-id", str(number),
            "--coordinator", f"{host}:{port}", *more]  # fmt: skip


def together(folder: Path, *commands: list[str]) -> list[tuple[int, str, str]]:
    """Exit code, output and messages of commands that run at the same time."""
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(started(folder, *each)) for each in commands]
        told = [each.communicate(timeout=180) for each in running]
    return [(each.returncode, *said) for each, said in zip(running, told, strict=True)]


def errors(told: str) -> list[str]:
    return [line for line in told.splitlines() if line.startswith("error")]


def test_process_0_alone(folder: Path, port: int):
    """It says what it waits for before it gives up, which is when it was told to."""
    begun = time.monotonic()
    ((code, out, told),) = together(
        folder, ["layer.mlir", *words(0, port, "--start-timeout", "8", count=4)]
    )
    assert (code, out) == (1, "")
    assert time.monotonic() - begun < 90
    lines = told.splitlines()
    assert lines[0] == f"join the other processes, 4 in all, at localhost:{port} ..."
    assert lines[1].startswith(f"wait until all 4 processes have come to localhost:{port} (for up ")
    assert errors(told) == ["error[process-lost]: not all of 4 processes joined within 8 s"]
    assert "the same --num-processes and --coordinator" in lines[-1]


def test_process_0_that_does_not_come(folder: Path, port: int):
    ((code, out, told),) = together(folder, ["layer.mlir", *words(1, port, "--start-timeout", "8")])
    assert (code, out) == (1, "")
    waits = f"wait for process 0, which cannot be reached at localhost:{port}: Connection refused"
    assert told.splitlines()[1].startswith(waits)
    assert errors(told) == ["error[process-lost]: not all of 2 processes joined within 8 s"]


def test_a_host_that_nobody_knows(shardpass: Run):
    """Said at once; and tried again, as that of a machine that is yet to come up."""
    done = shardpass(
        "run", "layer.mlir", *words(1, 21351, "--start-timeout", "3", host="nohost.invalid")
    )
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert re.match(r"nohost\.invalid cannot be found: .+; try again for 3 s \(--sta", lines[0])
    assert re.match(r"error\[bad-coordinator\]: nohost\.invalid cannot be found: ", lines[1])
    assert len(errors(done.stderr)) == 1


def test_a_port_that_somebody_listens_at(shardpass: Run):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        done = shardpass("run", "layer.mlir", *words(0, port))
    assert done.returncode == 1
    assert errors(done.stderr) == [
        f"error[bad-coordinator]: process 0 cannot listen at port {port} of this machine: another "
        "program does"
    ]
    assert "choose another port" in done.stderr


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (["--seed", "1"], ["--seed", "2"], "--seed 2 instead of 1"),
        (
            ["--check"],
            ["--save-results", "out.npz"],
            "--check not given instead of given, --save-results given instead of not given",
        ),
    ],
)
def test_commands_that_differ(
    first: list[str], second: list[str], told: str, folder: Path, port: int
):
    """Both say so, and nothing is run."""
    done = together(
        folder,
        ["layer.mlir", *words(0, port, *first)],
        ["layer.mlir", *words(1, port, *second)],
    )
    for code, out, said in done:
        assert (code, out) == (1, "")
        assert errors(said) == [
            "error[processes-differ]: process 1 was started for something else than process 0: "
            + told
        ]
    assert not (folder / "out.npz").exists()


def test_inputs_that_differ(folder: Path, port: int):
    """By what is in them, which is the same in files of two names."""
    values: dict[str, Any] = {"a": np.ones((8, 16), "float32"), "w": np.ones((16, 32), "float32")}
    for name in ("one.npz", "two.npz", "other.npz"):
        with NpzWriter(folder / name) as file:
            for argument, value in values.items():
                file.write(argument, value * (2 if name == "other.npz" else 1))
    done = together(
        folder,
        ["layer.mlir", "--inputs", "one.npz", *words(0, port)],
        ["layer.mlir", "--inputs", "other.npz", *words(1, port)],
    )
    assert [code for code, _, _ in done] == [1, 1]
    for _, _, said in done:
        assert re.search(r"process 0: --inputs with contents \w+ instead of with contents ", said)
    done = together(
        folder,
        ["layer.mlir", "--inputs", "one.npz", *words(0, port)],
        ["layer.mlir", "--inputs", "two.npz", *words(1, port)],
    )
    assert [code for code, _, _ in done] == [0, 0], done


def test_counts_that_differ(folder: Path, port: int):
    done = together(
        folder,
        ["layer.mlir", *words(0, port)],
        ["layer.mlir", *words(1, port, count=4)],
    )
    for code, _, said in done:
        assert code == 1
        assert "process 0: --num-processes 4 instead of 2" in said


def test_two_commands_for_one_process(folder: Path, port: int):
    with (
        started(folder, "endless.mlir", *words(0, port)) as first,
        started(folder, "endless.mlir", *words(1, port)) as second,
    ):
        for line in iter(second.stderr.readline if second.stderr else str, ""):
            if line == "compile and run ...\n":
                break
        with started(folder, "endless.mlir", *words(1, port, "--start-timeout", "6")) as third:
            told = [each.communicate(timeout=120)[1] for each in (first, second, third)]
    assert [each.returncode for each in (first, second, third)] == [1, 1, 1]
    assert "error[process-lost]: there are two processes 1 of 2" in told[0]
    assert "error[process-lost]: there are two processes 1 of 2" in told[1]
    assert len(errors(told[2])) == 1


def test_who_waits_to_start_can_be_interrupted(folder: Path, port: int):
    with started(folder, "layer.mlir", *words(0, port)) as command:
        for line in iter(command.stderr.readline if command.stderr else str, ""):
            if line.startswith("wait until all 2 processes"):
                break
        command.send_signal(signal.SIGINT)
        out, told = command.communicate(timeout=60)
    assert (command.returncode, out) == (130, "")
    assert "error" not in told
