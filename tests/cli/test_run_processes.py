"""``shardpass run --num-processes``, up to what becomes of a process that is lost."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import PROJECT, Run

LAYER = """
module @layer {
  sdy.mesh @mesh = <["x"=2, "y"=2]>
  func.func public @main(
      %a: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>} loc("a"),
      %w: tensor<16x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>} loc("w"))
      -> (tensor<8x32xf32> {jax.result_info = "result['y']",
                            sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>}) {
    %0 = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
    return %0 : tensor<8x32xf32>
  }
}
"""

#: Sums over the devices, again and again, for longer than any test takes.
ENDLESS = """
module @endless {
  sdy.mesh @mesh = <["x"=2]>
  func.func public @main(
      %a: tensor<2x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> tensor<4xf32> {
    %most = stablehlo.constant dense<2000000000> : tensor<i32>
    %none = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %start = stablehlo.constant dense<0.0> : tensor<4xf32>
    %half = stablehlo.constant dense<0.5> : tensor<4xf32>
    %0:2 = stablehlo.while(%i = %none, %sum = %start) : tensor<i32>, tensor<4xf32>
      cond {
        %1 = stablehlo.compare LT, %i, %most : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %1 : tensor<i1>
      } do {
        %1 = stablehlo.add %i, %one : tensor<i32>
        %2 = stablehlo.broadcast_in_dim %sum, dims = [1] : (tensor<4xf32>) -> tensor<2x4xf32>
        %3 = stablehlo.add %a, %2 : tensor<2x4xf32>
        %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [0]
          : (tensor<2x4xf32>, tensor<f32>) -> tensor<4xf32>
        %5 = stablehlo.multiply %4, %half : tensor<4xf32>
        stablehlo.return %1, %5 : tensor<i32>, tensor<4xf32>
      }
    return %0#1 : tensor<4xf32>
  }
}
"""

#: The second device never comes to the sum: it counts, and starts again at nought.
HALF_ENDLESS = """
module @half_endless {
  sdy.mesh @mesh = <["d"=2]>
  func.func public @main(%a: tensor<2xf32>) -> tensor<1xf32> {
    %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"d"}]>] out_shardings=[<@mesh, [{}]>]
        manual_axes={"d"} (%part: tensor<1xf32>) {
      %id = stablehlo.partition_id : tensor<ui32>
      %number = stablehlo.convert %id : (tensor<ui32>) -> tensor<f32>
      %start = stablehlo.constant dense<0.0> : tensor<f32>
      %1:2 = stablehlo.while(%n = %number, %i = %start) : tensor<f32>, tensor<f32>
        cond {
          %most = stablehlo.constant dense<1.0> : tensor<f32>
          %5 = stablehlo.compare LT, %i, %most : (tensor<f32>, tensor<f32>) -> tensor<i1>
          stablehlo.return %5 : tensor<i1>
        } do {
          %one = stablehlo.constant dense<1.0> : tensor<f32>
          %none = stablehlo.constant dense<0.0> : tensor<f32>
          %next = stablehlo.add %i, %one : tensor<f32>
          %5 = stablehlo.compare GE, %n, %one : (tensor<f32>, tensor<f32>) -> tensor<i1>
          %6 = stablehlo.select %5, %none, %next : tensor<i1>, tensor<f32>
          stablehlo.return %n, %6 : tensor<f32>, tensor<f32>
        }
      %2 = stablehlo.broadcast_in_dim %1#1, dims = [] : (tensor<f32>) -> tensor<1xf32>
      %3 = stablehlo.add %part, %2 : tensor<1xf32>
      %4 = "stablehlo.all_reduce"(%3) <{
          channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
          replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
        ^bb0(%l: tensor<f32>, %r: tensor<f32>):
          %5 = stablehlo.add %l, %r : tensor<f32>
          stablehlo.return %5 : tensor<f32>
      }) : (tensor<1xf32>) -> tensor<1xf32>
      sdy.return %4 : tensor<1xf32>
    } : (tensor<2xf32>) -> tensor<1xf32>
    return %0 : tensor<1xf32>
  }
}
"""


def test_a_check_and_a_run(shardpass: Run, folder: Path):
    (folder / "layer.mlir").write_text(LAYER)
    checked = shardpass("run", "layer.mlir", "--num-processes", "2", "--check", "--json")
    assert checked.returncode == 0, checked.stderr
    steps = [line.removesuffix(" ...") for line in checked.stderr.splitlines()]
    assert steps[:3] == ["join the other processes", "compile unsharded", "run unsharded"]
    assert steps[3:5] == ["compile sharded", "run sharded"]
    assert steps[-1] == "leave"
    found = json.loads(checked.stdout)
    assert (found["ok"], found["devices"]) == (True, 4)

    ran = shardpass("run", "-", "-q", "--num-processes", "2", "--save-results", "all.npz",
                    input=LAYER)  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "ran on 4 devices through shardy: 1 results" in ran.stdout
    assert "Gloo" not in ran.stdout
    with np.load(folder / "all.npz") as results:
        assert {name: results[name].shape for name in results} == {"result.y": (8, 32)}


def test_a_cluster_of_two_machines(folder: Path):
    """Each runs the same command with a number of its own; process 0 tells what there is."""
    (folder / "layer.mlir").write_text(LAYER)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"localhost:{probe.getsockname()[1]}"
    with contextlib.ExitStack() as stack:
        machines = [
            stack.enter_context(
                started(folder, "layer.mlir", "--num-processes", "2", "--process-id", number,
                         "--coordinator", address, "--json", "-q")
            )
            for number in ("0", "1")
        ]  # fmt: skip
        told = [machine.communicate(timeout=120) for machine in machines]
    assert [machine.returncode for machine in machines] == [0, 0], told
    assert json.loads(told[0][0])["devices"] == 4
    assert told[1] == ("", "")


@pytest.mark.parametrize(
    ("sent", "how"),
    [
        (signal.SIGKILL, r"was ended by SIGKILL"),
        (signal.SIGSTOP, r"has been stopped by a signal for \d+ s"),
    ],
)
def test_a_process_that_is_lost_in_the_middle(sent: signal.Signals, how: str, folder: Path):
    with _in_the_middle(folder) as (command, workers):
        os.kill(workers[1], sent)
        before = time.monotonic()
        out, told = command.communicate(timeout=120)
    assert time.monotonic() - before < 30
    assert (command.returncode, out) == (1, "")
    errors = [line for line in told.splitlines() if line.startswith("error")]
    assert len(errors) == 1, told
    name = rf"error\[process-lost\]: process 1 of 2 \(pid {workers[1]}\) "
    assert re.fullmatch(name + how, errors[0]), told
    assert '\n  note: it was at "compile and run"\n' in told
    assert not any(Path("/proc", str(pid)).exists() for pid in workers)


@pytest.mark.parametrize(("timeout", "waited"), [("3", r"\d"), ("60", "30")])
def test_a_process_that_does_not_come_to_its_first_sum(
    timeout: str, waited: str, shardpass: Run, folder: Path
):
    """Gloo waits 30 s for it, whatever it is told. Who waits that is seen before, where it has to
    be.
    """
    (folder / "half.mlir").write_text(HALF_ENDLESS)
    before = time.monotonic()
    done = shardpass("run", "half.mlir", "--num-processes", "2", "--process-timeout", timeout)
    assert time.monotonic() - before < 120
    assert (done.returncode, done.stdout) == (1, "")
    told = [line for line in done.stderr.splitlines() if line.startswith("error")]
    assert len(told) == 1, done.stderr
    assert re.fullmatch(
        r"error\[process-lost\]: process 1 of 2 \(pid \d+\) does not answer: the others waited "
        + waited
        + " s for it",
        told[0],
    ), done.stderr
    assert '\n  note: it was at "compile and run"\n' in done.stderr


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_ends_all(sent: signal.Signals, code: int, folder: Path):
    with _in_the_middle(folder) as (command, workers):
        command.send_signal(sent)
        out, told = command.communicate(timeout=60)
    assert (command.returncode, out) == (code, "")
    assert "error" not in told
    assert not any(Path("/proc", str(pid)).exists() for pid in workers)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--process-id", "0"], "--process-id goes with --num-processes"),
        (["--coordinator", "a:1"], "--coordinator goes with --num-processes"),
        (["--process-timeout", "9"], "--process-timeout goes with --num-processes"),
        (["--start-timeout", "9"], "--start-timeout goes with --num-processes"),
        (["--num-processes", "2", "--start-timeout", "0"], "0.0 is not in the range x>=1"),
        (["--num-processes", "2", "--process-id", "0"], "give both --process-id and --coordin"),
        (["--num-processes", "3"], "4 devices cannot be shared out evenly among 3 processes"),
        (["--num-processes", "0"], "0 is not in the range x>=1"),
    ],
)
def test_what_makes_no_sense(words: list[str], told: str, shardpass: Run, folder: Path):
    (folder / "layer.mlir").write_text(LAYER)
    done = shardpass("run", "layer.mlir", *words)
    assert done.returncode == 2
    assert told in done.stderr


@contextlib.contextmanager
def started(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    command = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "shardpass", "run", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PROJECT), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield command
    finally:
        command.kill()
        command.communicate()


@contextlib.contextmanager
def _in_the_middle(folder: Path) -> Iterator[tuple[Any, list[int]]]:
    """A command whose two processes are running, and their process ids."""
    (folder / "endless.mlir").write_text(ENDLESS)
    words = ("--num-processes", "2", "--process-timeout", "3")
    with started(folder, "endless.mlir", *words) as command:
        for line in iter(command.stderr.readline if command.stderr else str, ""):
            if line == "compile and run ...\n":
                break
        # What it is to be lost in is not the compiler.
        workers = _workers(command.pid)
        start = [_seconds(pid) for pid in workers]
        while any(_seconds(pid) < s + 1.0 for pid, s in zip(workers, start, strict=True)):
            time.sleep(0.1)
        yield command, workers


def _workers(pid: int) -> list[int]:
    """The processes that ``pid`` and its children have started, and that start none."""
    task = Path(f"/proc/{pid}/task")
    children = [
        int(child)
        for thread in task.iterdir()
        for child in (thread / "children").read_text().split()
    ]
    return [w for child in children for w in _workers(child)] if children else [pid]


def _seconds(pid: int) -> float:
    """Of a processor that ``pid`` has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
