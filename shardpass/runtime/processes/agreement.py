"""That all processes of a run were started for the same.

On a cluster each is started by a command of its own. XLA would run whatever programs these make on
whatever inputs they have, and give numbers that belong to none.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import zipfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import jax

from shardpass.compat import coordination
from shardpass.diagnostics import ShardingError
from shardpass.runtime.processes.group import Group
from shardpass.runtime.processes.job import Job
from shardpass.runtime.processes.meeting import FOR_EVER, late, value_of

if TYPE_CHECKING:
    from shardpass.runtime.inputs import Inputs

_TERMS: Final = "shardpass/terms"
#: Seconds in which a process hears what process 0 found, which ends then.
_HEARD: Final = 5.0
#: Seconds in which it says so, before JAX's client ends it for the loss of process 0.
_SAID: Final = 2.0


def terms_of(job: Job, group: Group) -> dict[str, str]:
    """What has to be the same in all processes, by what a user calls it.

    The module is not among them: the processes hold it against each other as XLA gets it, when they
    meet to compile. Paths are not either, as each machine may have its own.
    """
    return {
        "--num-processes": str(group.count),
        "--devices": str(job.devices),
        "--check": _given(job.check),
        "--inputs": _contents(job.inputs),
        "--seed": str(job.seed),
        "--tolerance": "not given" if job.tolerance is None else f"{job.tolerance:g}",
        "--partitioner": job.partitioner,
        "--save-results": _given(job.save is not None),
        "jax": jax.__version__,
    }


def _given(is_given: bool) -> str:
    return "given" if is_given else "not given"


def _contents(inputs: Inputs) -> str:
    """What an ``.npz`` holds, by the checksums that are in it: a file of gigabytes is not read."""
    if inputs is None:
        return "not given"
    if not isinstance(inputs, (str, os.PathLike)):
        return "given"
    with zipfile.ZipFile(inputs) as archive:
        members = sorted((each.filename, each.CRC, each.file_size) for each in archive.infolist())
    return f"with contents {hashlib.sha256(repr(members).encode()).hexdigest()[:8]}"


def agree(number: int, group: Group, terms: Mapping[str, str]) -> None:
    """See to it that all processes have the same ``terms``.

    All of them find the same fault, so that each command says it. It comes before JAX's first look
    at devices, which already is one at those of all processes.

    Args:
      number: of this process.
      group: the processes, as this one was told of them.
      terms: what has to be the same, by its name.

    Raises:
      ShardingError: ``processes-differ``; in process 0, ``process-lost`` for one that says nothing.
    """
    if number:
        coordination.put(f"{_TERMS}/{number}", json.dumps(dict(terms)))
        found = coordination.wait_for(f"{_TERMS}/found", FOR_EVER)
        coordination.put(f"{_TERMS}/heard/{number}", "")
    else:
        found = _difference(group, terms)
        coordination.put(f"{_TERMS}/found", found)
        until = time.monotonic() + _HEARD
        for other in range(1, group.count) if found else ():
            value_of(f"{_TERMS}/heard/{other}", until - time.monotonic())
        time.sleep(_SAID if found else 0)
    if found:
        raise ShardingError(
            "processes-differ", found, help="give every process the same options and the same files"
        )


def _difference(group: Group, terms: Mapping[str, str]) -> str:
    """In words, what the first process has otherwise that has anything otherwise than this one."""
    until = time.monotonic() + group.timeout
    for other in range(1, group.count):
        answer = value_of(f"{_TERMS}/{other}", until - time.monotonic())
        if answer is None:
            raise late(other, group.count, "say what it was started for", group.timeout)
        theirs = json.loads(answer)
        differing = [
            f"{name} {theirs.get(name, 'unknown')} instead of {terms.get(name, 'unknown')}"
            for name in dict.fromkeys((*terms, *theirs))
            if theirs.get(name) != terms.get(name)
        ]
        if differing:
            return f"process {other} was started for something else than process 0: " + ", ".join(
                differing
            )
    return ""
