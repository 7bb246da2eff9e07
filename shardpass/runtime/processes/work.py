"""What a worker does: join the others, run what they all run, and leave with them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import jax

from shardpass.diagnostics import ShardingError
from shardpass.mlir import load
from shardpass.runtime.checking import check
from shardpass.runtime.compile import compile_module
from shardpass.runtime.devices import Device
from shardpass.runtime.inputs import input_source
from shardpass.runtime.processes.group import Group
from shardpass.runtime.processes.job import Job
from shardpass.runtime.processes.joining import join, leave
from shardpass.runtime.processes.verdict import tells_of_another
from shardpass.runtime.result import CheckResult
from shardpass.runtime.running import RunResult, results_of_run, run

Progress = Callable[[str], None]

#: Time-outs in which JAX's client hears of a process that is gone.
_WORD: Final = 1.5


def work(job: Job, group: Group, number: int, progress: Progress) -> RunResult | CheckResult | None:
    """Do ``job`` as process ``number`` of ``group``; process 0 has the result.

    Raises:
      ShardingError: as :func:`shardpass.runtime.run` and :func:`shardpass.runtime.check`.
    """
    progress("join the other processes")
    devices = join(group, number, group.share(job.devices))
    try:
        result = (_checked if job.check else _ran)(job, number, devices, progress)
    except (ShardingError, jax.errors.JaxRuntimeError) as error:
        if not group.is_here and tells_of_another(str(error)):
            # A collective says that some process is gone; JAX's client, when it ends this one for
            # it in a while, says which.
            time.sleep(_WORD * group.timeout)
        raise
    progress("leave")
    leave(devices)
    return result


def _ran(
    job: Job, number: int, devices: tuple[Device, ...], progress: Progress
) -> RunResult | None:
    progress("compile and run")
    result = run(
        load(job.module, name=job.name),
        devices=devices,
        inputs=job.inputs,
        seed=job.seed,
        partitioner=job.partitioner,
        keep=False,
        save=None if number else job.save,
    )
    return None if number else result


def _checked(
    job: Job, number: int, devices: tuple[Device, ...], progress: Progress
) -> CheckResult | None:
    module = load(job.module, name=job.name)
    if number == 0:
        return check(
            module,
            devices=devices,
            inputs=job.inputs,
            seed=job.seed,
            tolerance=job.tolerance,
            partitioner=job.partitioner,
            progress=progress,
        )
    # All that is compared is compared in process 0: the others lend their devices.
    progress("compile sharded")
    executable = compile_module(module, devices=devices, partitioner=job.partitioner)
    progress("run sharded")
    source = input_source(module, job.inputs, seed=job.seed)
    for _ in results_of_run(executable, source, copies=True):
        pass
    return None
