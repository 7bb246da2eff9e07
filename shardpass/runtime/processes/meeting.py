"""Points that all processes of a run pass together."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Final

import jax

from shardpass.compat import coordination
from shardpass.diagnostics import ShardingError
from shardpass.runtime.devices import Device
from shardpass.runtime.processes.group import TIMEOUT
from shardpass.runtime.processes.phases import APART, TOGETHER, WAITING

#: Milliseconds that are as good as for ever. JAX ends the process if process 0 dies meanwhile.
FOR_EVER: Final = 10**9
_meetings = itertools.count()
_started = time.monotonic()
_timeout = TIMEOUT


def _say_nothing(_: str) -> None:
    pass


_tell: Callable[[str], None] = _say_nothing
#: Where a program of all processes is run.
_TOGETHER: Final = "run"


def set_timeout(seconds: float) -> None:
    """How long process 0 waits for the others at the least."""
    global _timeout
    _timeout = seconds


def tell_phases(tell: Callable[[str], None]) -> None:
    """Have ``tell`` told each phase of this process as it begins."""
    global _tell
    _tell = tell


def value_of(key: str, seconds: float) -> str | None:
    """The value of ``key``; ``None`` where it has none in time."""
    try:
        return coordination.wait_for(key, max(1, int(seconds * 1000)))
    except jax.errors.JaxRuntimeError as error:
        if "DEADLINE_EXCEEDED" not in str(error):
            raise
        return None


def late(other: int, count: int, what: str, seconds: float) -> ShardingError:
    """The error for a process that process 0 has waited for in vain."""
    return ShardingError(
        "process-lost",
        f"process {other} of {count} is not ready to {what} {seconds:.0f} s after process 0",
        help="see what it does; where it is only slow, give it more time (--process-timeout)",
    )


def processes_of(devices: Sequence[Device]) -> tuple[int, ...]:
    """The processes that ``devices`` belong to."""
    return tuple(sorted({device.process_index for device in devices}))


def meet(devices: Sequence[Device], where: str, doing: str = "") -> None:
    """Wait until every process that ``devices`` belong to is here.

    Process 0 waits for the others as long again as it took itself, and for the time-out at the
    least. The others wait for process 0 as long as it lives: it may have more to do. All of them
    have to meet equally often.

    Args:
      devices: those of a run.
      where: what comes next, in words.
      doing: what has to be the same in all processes.

    Raises:
      ShardingError: in process 0, ``process-lost`` for one that does not come;
        ``processes-differ`` for one that is ``doing`` something else.
    """
    _tell(WAITING)
    _pass(devices, where, doing)
    _tell(TOGETHER if where == _TOGETHER and devices[0].platform == "cpu" else APART)


def _pass(devices: Sequence[Device], where: str, doing: str) -> None:
    leader, *others = processes_of(devices)
    meeting = f"shardpass/meeting/{next(_meetings)}"
    if jax.process_index() != leader:
        coordination.put(f"{meeting}/{jax.process_index()}", doing)
        coordination.wait_for(f"{meeting}/go", FOR_EVER)
        return
    patience = max(_timeout, time.monotonic() - _started)
    until = time.monotonic() + patience
    for other in others:
        found = value_of(f"{meeting}/{other}", until - time.monotonic())
        if found is None:
            raise late(other, jax.process_count(), where, patience)
        if found != doing:
            raise ShardingError(
                "processes-differ",
                f"process {other} of {jax.process_count()} is about to {where} another program "
                f"than process {leader}",
                help="hand the same module and the same options to every process",
            )
    coordination.put(f"{meeting}/go", "")
