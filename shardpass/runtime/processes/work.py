"""What a worker does: join the others, run what they all run, and leave with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import jax

from shardpass.diagnostics import ShardingError
from shardpass.mlir import load
from shardpass.runtime.checking import check
from shardpass.runtime.compile import compile_module
from shardpass.runtime.devices import Device, request_cpu_devices
from shardpass.runtime.inputs import input_source
from shardpass.runtime.processes.group import Group
from shardpass.runtime.processes.job import Job
from shardpass.runtime.processes.meeting import meet, set_timeout
from shardpass.runtime.result import CheckResult
from shardpass.runtime.running import RunResult, results_of_run, run

Progress = Callable[[str], None]

#: Seconds that processes wait for each other to start; on a cluster, machines come up one by one.
_START: Final = 300


def work(job: Job, group: Group, number: int, progress: Progress) -> RunResult | CheckResult | None:
    """Do ``job`` as process ``number`` of ``group``; process 0 has the result.

    Raises:
      ShardingError: as :func:`shardpass.runtime.run` and :func:`shardpass.runtime.check`.
    """
    progress("join the other processes")
    devices = _joined(group, number, group.share(job.devices))
    result = (_checked if job.check else _ran)(job, number, devices, progress)
    progress("leave")
    meet(devices, "leave")
    jax.distributed.shutdown()
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


def _joined(group: Group, number: int, share: int) -> tuple[Device, ...]:
    """Make this process one of ``group``; ``share`` devices of each process, in their order."""
    request_cpu_devices(share)
    set_timeout(group.timeout)
    port = group.coordinator.rpartition(":")[2]
    seconds = max(1, round(group.timeout))
    jax.distributed.initialize(
        group.coordinator,
        group.count,
        number,
        # On one machine the processes share out its accelerators.
        local_device_ids=range(number * share, (number + 1) * share) if group.is_here else None,
        cluster_detection_method="deactivate",
        initialization_timeout=_START,
        # Nobody else need reach processes that are all on this machine.
        coordinator_bind_address=group.coordinator if group.is_here else f"[::]:{port}",
        heartbeat_timeout_seconds=seconds,
        shutdown_timeout_seconds=seconds,
    )
    wanted = group.count * share
    devices = jax.devices()
    if len(devices) < wanted and devices[0].platform != "cpu":
        devices = jax.devices("cpu")
    chosen: list[Device] = []
    for process in range(group.count):
        own = [device for device in devices if device.process_index == process]
        if len(own) < share:
            raise ShardingError(
                "not-enough-devices",
                f"process {process} of {group.count} has {len(own)} devices "
                f"({devices[0].platform}), and its share is {share}",
                help="run on fewer devices (--devices), or in more processes",
            )
        chosen += own[:share]
    return tuple(chosen)
