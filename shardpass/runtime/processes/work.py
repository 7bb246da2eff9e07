"""What a worker does: join the others, run what they all run, and leave with them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Final

import jax

from shardpass.diagnostics import ShardingError
from shardpass.mlir import load
from shardpass.runtime.checking import check
from shardpass.runtime.compile import compile_module
from shardpass.runtime.devices import Device
from shardpass.runtime.inputs import input_source
from shardpass.runtime.processes.agreement import terms_of
from shardpass.runtime.processes.group import Group
from shardpass.runtime.processes.job import Job
from shardpass.runtime.processes.joining import join, leave
from shardpass.runtime.processes.meeting import tell_phases
from shardpass.runtime.processes.phases import APART, WAITING
from shardpass.runtime.processes.starting import joining
from shardpass.runtime.processes.verdict import tells_of_another
from shardpass.runtime.result import CheckResult
from shardpass.runtime.running import RunResult, results_of_run, run

Progress = Callable[[str], None]

#: Time-outs in which JAX's client hears of a process that is gone.
_WORD: Final = 1.5
#: What gloo says in a process that another one does not connect to: the devices of a collective, by
#: their ids, and the place among them of the one that it misses. And how long it waits for it,
#: which nobody can set (``kDefaultTimeout`` in gloo's ``rendezvous/store.h``).
_MISSED: Final = re.compile(r"timed out with key: \S*\bgloo/(?P<ids>[\d,]+)/(?P<place>\d+)\b")
_CONNECTING: Final = 30.0


def work(job: Job, group: Group, number: int, progress: Progress) -> RunResult | CheckResult | None:
    """Do ``job`` as process ``number`` of ``group``; process 0 has the result.

    Raises:
      ShardingError: as :func:`shardpass.runtime.run` and :func:`shardpass.runtime.check`.
    """
    progress(joining(group))
    terms = terms_of(job, group)
    progress(WAITING)
    devices = join(group, number, group.share(job.devices), terms=terms, say=progress)
    progress(APART)
    tell_phases(progress)
    try:
        result = (_checked if job.check else _ran)(job, number, devices, progress)
    except (ShardingError, jax.errors.JaxRuntimeError) as error:
        missed = _missed(str(error), devices)
        if missed is not None:
            raise ShardingError(
                "process-lost",
                f"process {missed} of {group.count} does not come to a collective, which process "
                f"{number} has waited {_CONNECTING:.0f} s at",
                help="see what holds it up; gloo, which carries the collectives of CPUs, waits no "
                "longer for the first one of a set of devices, whatever --process-timeout says",
            ) from error
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


def _missed(text: str, devices: Sequence[Device]) -> int | None:
    """The process that gloo misses, where ``text`` says so."""
    found = _MISSED.search(text)
    if found is None:
        return None
    ids = found["ids"].split(",")
    place = int(found["place"])
    missed = int(ids[place]) if place < len(ids) else None
    return next((device.process_index for device in devices if device.id == missed), None)
