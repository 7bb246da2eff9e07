"""What the workers of ``test_supervisor.py`` do; functions have to be importable by name."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from shardpass.diagnostics import ShardingError
from shardpass.runtime.processes.group import Group
from shardpass.runtime.processes.phases import TOGETHER, WAITING

Progress = Callable[[str], None]


def number_and_group(group: Group, number: int, progress: Progress) -> tuple[int, int, int]:
    progress(f"answer as {number}")
    return number, group.count, os.getpid()


def talk(group: Group, number: int, progress: Progress) -> None:
    print("[Gloo] Rank 0 is connected to 1 peer ranks. Expected number of connected peer ranks is")
    print(f"process {number} talks", file=sys.stderr)


def one_of_them(how: str, who: int, group: Group, number: int, progress: Progress) -> int:
    """One process ends, or does not, as ``how`` says; the others wait for what never comes."""
    progress("wait")
    if number == who:
        if how == "raise":
            raise KeyError("what only one looks for")
        if how == "refuse":
            raise ShardingError("bad-inputs", "no such file here", help="copy it")
        if how == "exit":
            os._exit(3)
        if how == "return":
            return number
        os.kill(os.getpid(), signal.Signals[how])
    time.sleep(600)
    return number


def all_refuse(group: Group, number: int, progress: Progress) -> None:
    raise ShardingError("indivisible", "6 elements into 4 pieces", help="pad to 8")


def give_up(group: Group, number: int, progress: Progress) -> None:
    """Process 1 hangs without a sound; gloo gives up waiting for it in the others."""
    progress("reduce")
    if number == 1:
        time.sleep(600)
    time.sleep(0.1 * number)
    raise ShardingError("run-failed", "UNKNOWN: Gloo all-reduce failed: Timed out waiting 2000ms")


def wait_in_a_collective(folder: str, group: Group, number: int, progress: Progress) -> None:
    """Process 1 does not come to a real sum over the devices of all."""
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from shardpass.runtime.processes.joining import join

    devices = join(group, number, 1)
    sharding = NamedSharding(Mesh(np.array(devices), ("x",)), PartitionSpec("x"))
    shape = (len(devices),)
    ones = jax.make_array_from_callback(shape, sharding, lambda index: np.ones(shape)[index])
    total = jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(sharding.mesh, PartitionSpec()))
    assert total(ones) == len(devices)
    progress("add up")
    (Path(folder) / f"{number}").touch()
    while number == 1:
        time.sleep(0.1)
    total(ones).block_until_ready()


def compute(seconds: float, group: Group, number: int, progress: Progress) -> int:
    """Process 0 has much to do, and process 1 waits."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if number:
            time.sleep(0.1)
    return number


def compute_together(who: int, group: Group, number: int, progress: Progress) -> None:
    """In a program of all, one computes for ever, and the others wait for it."""
    progress("run")
    progress(TOGETHER)
    while number == who:
        pass
    time.sleep(600)


def wait_in_vain(group: Group, number: int, progress: Progress) -> None:
    """It waits for others that are not here, longer than it would hang."""
    progress(WAITING)
    time.sleep(14)


def hang(group: Group, number: int, progress: Progress) -> None:
    progress("compile")
    time.sleep(600)


def join_for(seeds: dict[int, str], group: Group, number: int, progress: Progress) -> int:
    from shardpass.runtime.processes.joining import join, leave

    devices = join(group, number, 1, terms={"--seed": seeds.get(number, "0")})
    leave(devices)
    return len(devices)


def do_not_come(folder: str, group: Group, number: int, progress: Progress) -> None:
    """Process 0 does not come to a meeting that the others wait at."""
    from shardpass.runtime.processes.joining import join
    from shardpass.runtime.processes.meeting import meet

    devices = join(group, number, 1)
    progress("compile")
    (Path(folder) / f"{number}").touch()
    while number == 0:
        time.sleep(0.1)
    meet(devices, "run")


def write_and_wait(folder: str, group: Group, number: int, progress: Progress) -> None:
    (Path(folder) / f"{os.getpid()}").touch()
    time.sleep(600)
