"""What the processes of ``test_running.py`` do."""

from __future__ import annotations

import time

import jax

from shardpass.runtime import check, run
from shardpass.runtime.processes import meeting


def check_everywhere(module: str) -> tuple[bool, list[float]]:
    result = check(module, devices=jax.devices())
    return result.ok, [row.error for row in result.rows]


def run_another_program(one: str, other: str) -> None:
    run(one if jax.process_index() == 0 else other, devices=jax.devices())


def come_late() -> None:
    meeting.set_timeout(0.5)
    meeting._started = time.monotonic()
    if jax.process_index() == 1:
        time.sleep(60)
    meeting.meet(jax.devices(), "run")
