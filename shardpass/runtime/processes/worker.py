"""A worker as its supervisor holds it."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from typing import IO, Any, Final

from shardpass.diagnostics import ShardingError
from shardpass.runtime.child import Say, read, spawn
from shardpass.runtime.connection import connected
from shardpass.runtime.ending import Spawned
from shardpass.runtime.processes.group import Group
from shardpass.runtime.processes.phases import APART, PHASES, TOGETHER, WAITING
from shardpass.runtime.processes.verdict import Seen

#: What a worker does: it is given further arguments, its group, its number, and ``progress``.
Task = Callable[..., Any]

_DEVICES: Final = re.compile(r"--xla_force_host_platform_device_count=\d+ ?")
_COLLECTIVES: Final = "--xla_cpu_collective_timeout_seconds"
#: What heartbeats and waiting take of a processor at the most: seconds now and then, and a part.
_SPENT: Final = 0.2
_IDLE: Final = 0.03
#: What gloo writes to standard output as it connects.
_GLOO: Final = re.compile(r"^.*\[Gloo\].*\n?|^.*connected to \d+ peer ranks.*\n?", re.MULTILINE)


class Worker:
    """One process of a group, started here as a child.

    Attributes:
      number: of its process.
      child: the process.
      line: what it tells.
      is_connected: whether it may tell more.
      result: what it answered.
      stopped: seconds that it has been stopped for.
      idle: seconds in which it has computed nothing.
      phase: one of :data:`~shardpass.runtime.processes.phases.PHASES`.
    """

    def __init__(self, task: Task, arguments: tuple[Any, ...], group: Group, number: int) -> None:
        self.number = number
        self.line, its_line = connected()
        self._errors: IO[bytes] = tempfile.TemporaryFile(prefix="shardpass-")  # noqa: SIM115
        with its_line:
            self.child: Spawned = spawn(
                (task.__module__, task.__qualname__, (*arguments, group, number), {}, True),
                its_line,
                self._errors,
                environment=_environment(group),
                apart=True,
            )
        self.is_connected = True
        self.result: Any = None
        self.stopped = 0.0
        self.idle = 0.0
        self.phase = APART
        self._used = 0.0  # As this idleness began.
        self._count = group.count
        self._step = ""
        self._is_done = False
        self._error: ShardingError | tuple[str, str] | None = None

    def hear(self, say: Say) -> None:
        """Take in what it tells."""
        messages, self.is_connected = self.line.receive_some()
        for kind, value in messages:
            if kind == "progress":
                self.idle = 0.0
                if value in PHASES:
                    self.phase = value
                else:
                    self.phase = APART if self.phase == TOGETHER else self.phase
                    self._step = value
                    say(value)
                self.line.acknowledge()
            elif kind == "result":
                self._is_done, self.result = True, value
            else:
                self._error = value

    def look(self, seconds: float) -> None:
        """See whether it computes, ``seconds`` after the last look."""
        used = self._used if self.child.code is not None else self.child.processor_seconds
        self.idle += seconds
        if used is None or used - self._used > _SPENT + _IDLE * self.idle:
            self.idle, self._used = 0.0, used or 0.0

    @property
    def is_together(self) -> bool:
        """See :attr:`Seen.is_together`."""
        return self.phase == TOGETHER

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for others, which may have something to do."""
        return self.phase == WAITING

    @property
    def seen(self) -> Seen:
        """What is known of it."""
        return Seen(
            number=self.number,
            count=self._count,
            pid=self.child.pid,
            step=self._step,
            is_done=self._is_done,
            error=self._error,
            code=self._code,
            told=self.told,
            stopped=self.stopped,
            idle=self.idle,
            is_together=self.is_together,
            is_waiting=self.is_waiting,
        )

    @property
    def told(self) -> str:
        """What it wrote, without what gloo says as it connects."""
        return _GLOO.sub("", read(self._errors))

    @property
    def has_failed(self) -> bool:
        """See :attr:`Seen.has_failed`."""
        return self._error is not None or (self._code is not None and not self._is_done)

    @property
    def _code(self) -> int | None:
        """Its exit code, once all that it told before has been heard."""
        return None if self.is_connected else self.child.code

    @property
    def is_over(self) -> bool:
        """Whether nothing is to be expected of it any more."""
        return self._is_done or self.has_failed

    def close(self) -> None:
        """Let go of what it wrote, once it has ended."""
        self.line.close()
        self._errors.close()


def _environment(group: Group) -> dict[str, str]:
    variables = dict(os.environ)
    flags = _DEVICES.sub("", variables.get("XLA_FLAGS", ""))
    if _COLLECTIVES not in flags:
        flags = f"{flags} {_COLLECTIVES}={max(1, round(group.timeout))}"
    variables["XLA_FLAGS"] = flags.strip()
    if group.is_here:
        # gRPC would ask a proxy for this machine's own address, and JAX warns of it.
        return {name: value for name, value in variables.items() if "_proxy" not in name.lower()}
    return variables
