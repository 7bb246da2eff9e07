"""The way into a group of processes, and out of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import jax

from shardpass.diagnostics import ShardingError
from shardpass.runtime.devices import Device, request_cpu_devices
from shardpass.runtime.processes.agreement import agree
from shardpass.runtime.processes.group import Group
from shardpass.runtime.processes.meeting import meet, set_timeout
from shardpass.runtime.processes.starting import Say, say_nothing, waiting_for

_GPU: Final = re.compile(r"nvidia\d+")


def join(
    group: Group,
    number: int,
    share: int,
    *,
    terms: Mapping[str, str] | None = None,
    say: Say = say_nothing,
) -> tuple[Device, ...]:
    """Make this process, in which no backend of JAX has started yet, process ``number`` of a group.

    On one machine the processes share out its GPUs, where there are enough for all, and else have
    virtual CPU devices (unless JAX was told of a platform). On a cluster each has its machine's.

    Args:
      group: the processes.
      number: which of them this one is.
      share: how many devices each has.
      terms: what has to be the same in all of them.
      say: is told what is waited for, where that takes long.

    Returns:
      ``share`` devices of each process, in the order of the processes.

    Raises:
      ShardingError: ``not-enough-devices``, where a process has fewer; ``processes-differ``.
    """
    request_cpu_devices(share)
    set_timeout(group.timeout)
    own = _accelerators(number, share, group.count) if group.is_here else None
    told = jax.config.jax_platforms  # pyright: ignore[reportAttributeAccessIssue]
    if group.is_here and own is None and not told:
        jax.config.update("jax_platforms", "cpu")
    seconds = max(1, round(group.timeout))
    with waiting_for(group, number, say):
        jax.distributed.initialize(
            group.coordinator,
            group.count,
            number,
            local_device_ids=own,
            cluster_detection_method="deactivate",
            initialization_timeout=max(1, round(group.start)),
            # Nobody else need reach processes that are all on this machine.
            coordinator_bind_address=group.coordinator if group.is_here else f"[::]:{group.port}",
            heartbeat_timeout_seconds=seconds,
            shutdown_timeout_seconds=seconds,
        )
    agree(number, group, terms or {})
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


def _accelerators(
    number: int, share: int, count: int, devices: Path = Path("/dev")
) -> Sequence[int] | None:
    """The GPUs of this machine that are process ``number``'s; ``None``, where they are too few.

    They are counted by their files (NVIDIA's driver makes one for each), since asking JAX would
    claim them all for this process.
    """
    there = sum(bool(_GPU.fullmatch(path.name)) for path in devices.iterdir())
    if there < count * share:
        return None
    return range(number * share, (number + 1) * share)


def leave(devices: Sequence[Device]) -> None:
    """Leave the group together with the others, once all have done their part."""
    meet(devices, "leave")
    jax.distributed.shutdown()
