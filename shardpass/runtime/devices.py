"""Which devices a run takes, and how to have eight of them on a machine that has one.

XLA can show one CPU as many devices, but the number is read once, when the CPU backend starts.
:func:`request_cpu_devices` therefore has to come before anything asks JAX for a device; it works
before jax is imported as well as after, and says so plainly when it comes too late.

Devices made of one CPU need threads as well. A device waits for the others inside a thread of XLA's
pool, once for each collective that it has reached; the pool has one for each device (or core), so a
program with two independent collectives can wait for ever, until XLA aborts the process after 40 s
(a scanned GPT-2 step under GSPMD on jaxlib 0.10.2 and 0.12.0.1: every time). Four threads for each
device are enough for what was met so far; the pool is sized by ``PJRT_NPROC`` when the backend
starts.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from shardpass.diagnostics import ShardingError

#: ``jax.Device``, which type checkers see as a variable.
Device: TypeAlias = Any

_FLAG: Final = "--xla_force_host_platform_device_count"
_THREADS: Final = "PJRT_NPROC"
_THREADS_PER_DEVICE: Final = 4
#: The most CPU devices to ask XLA for. It starts 1024 with their threads in 4 s, 2048 in a minute,
#: and at 4000 is not up after 100 s (jaxlib 0.10.2 on Linux).
MOST_CPU_DEVICES: Final = 1024
_COUNT: Final = re.compile(rf"{_FLAG}=(\d+)")


def request_cpu_devices(count: int) -> None:
    """Arrange for at least ``count`` CPU devices in this process and in those that it starts.

    Harmless beside real accelerators: it sets the number of devices of the CPU backend alone.

    Raises:
      ShardingError: ``not-enough-devices``, if JAX's backends have started with fewer.
    """
    if count < 1:
        raise ShardingError("usage", f"{count} devices asked for; a run needs at least one")
    if count > MOST_CPU_DEVICES:
        raise ShardingError(
            "not-enough-devices",
            f"{count} devices asked for; XLA makes up to {MOST_CPU_DEVICES} of one CPU",
            help="shard for a smaller mesh of the same axes to run it here",
        )
    flags = os.environ.get("XLA_FLAGS", "")
    stated = max((int(n) for n in _COUNT.findall(flags)), default=0)
    if stated < count:
        os.environ["XLA_FLAGS"] = f"{_COUNT.sub('', flags)} {_FLAG}={count}".strip()
    _request_threads(count)
    if "jax" not in sys.modules:
        return
    import jax

    from shardpass.compat.xla_client import backends_are_initialized

    if backends_are_initialized():
        devices_for(count)
    elif getattr(jax.config, "jax_num_cpu_devices", -1) < (wanted := max(count, stated)):
        # Where the option is set, JAX does not look at the flag; and XLA reads the flag once, which
        # it may have done already, for a module that was read from HLO.
        jax.config.update("jax_num_cpu_devices", wanted)


def devices_for(devices: int | Sequence[Device]) -> tuple[Device, ...]:
    """The devices of a run, in the order in which meshes number them.

    Args:
      devices: how many, taken from the front of the default backend's, or of the CPU backend's
        where the default one has too few; or the devices themselves.

    Raises:
      ShardingError: ``not-enough-devices``, ``duplicate-device``; ``usage`` for anything else.
    """
    import jax

    if isinstance(devices, (str, bool)) or not isinstance(devices, (int, np.integer, Iterable)):
        raise ShardingError(
            "usage", f"devices = {devices!r}", help="give their number, or the devices of a run"
        )
    if isinstance(devices, Iterable):
        chosen = tuple(devices)
        wrong = [each for each in chosen if not isinstance(each, jax.Device)]
        if wrong:
            raise ShardingError(
                "usage",
                f"{wrong[0]!r} among devices is no device",
                help="give their number, or the devices of a run: jax.devices()[:8]",
            )
        if not chosen:
            raise ShardingError("not-enough-devices", "an empty list of devices")
        if len(set(chosen)) != len(chosen):
            raise ShardingError("duplicate-device", f"a device stands twice among {list(chosen)}")
        return chosen
    if devices < 1:
        raise ShardingError("not-enough-devices", f"{devices} devices asked for")
    _request_threads(devices)
    found = jax.local_devices()
    if len(found) < devices and found[0].platform != "cpu":
        cpus = jax.local_devices(backend="cpu")
        found = cpus if len(cpus) >= devices else found
    if len(found) < devices:
        raise ShardingError(
            "not-enough-devices",
            f"{devices} devices asked for, but there are {len(found)} ({found[0].platform})",
            help=f"set XLA_FLAGS={_FLAG}={devices} before jax starts to have {devices} CPU devices",
        )
    return tuple(found[:devices])


def _request_threads(devices: int) -> None:
    """Ask for a pool large enough for ``devices``, unless the user has said how large.

    Without effect where the CPU backend has started.
    """
    if devices > 1:
        wanted = max(os.cpu_count() or 1, _THREADS_PER_DEVICE * devices)
        os.environ.setdefault(_THREADS, str(wanted))
