"""The processes that take part in a run."""

from __future__ import annotations

import math
import socket
from dataclasses import dataclass
from typing import Final

from shardpass.diagnostics import ShardingError

TIMEOUT: Final = 30.0
#: On a cluster, machines come up one by one.
START: Final = 300.0
HERE: Final = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class Group:
    """Processes that know each other through one of them, the coordinator.

    Attributes:
      count: how many there are.
      number: which one is to be started here, from 0; ``None`` for all of them.
      coordinator: the address that process 0 listens at, ``host:port``. Where all are to be started
        here, one that was free; see :func:`~shardpass.runtime.processes.address.settled`.
      timeout: seconds that a process may be silent before it is taken to be lost.
      start: seconds that processes wait for each other to start.
    """

    count: int
    number: int | None
    coordinator: str
    timeout: float = TIMEOUT
    start: float = START

    @classmethod
    def of(
        cls,
        count: int,
        number: int | None,
        coordinator: str | None,
        timeout: float = TIMEOUT,
        start: float = START,
    ) -> Group:
        """Check what a user asks for; without ``number``, all processes are here.

        Raises:
          ShardingError: ``usage``.
        """
        if (number is None) != (coordinator is None):
            raise ShardingError(
                "usage",
                "a process of a cluster needs its number and the address of process 0",
                help="give both --process-id and --coordinator; or neither, to start all "
                "processes on this machine",
            )
        if count < 1 or (number is not None and not 0 <= number < count):
            raise ShardingError(
                "usage",
                f"process {number} of {count}" if count > 0 else f"{count} processes",
                help="processes are numbered from 0",
            )
        for seconds in (timeout, start):
            if not (seconds >= 1 and math.isfinite(seconds)):
                raise ShardingError("usage", f"a time-out of {seconds:g} s; it is at least 1 s")
        if coordinator is None:
            address = f"{HERE}:{_free_port()}"
            return cls(count=count, number=None, coordinator=address, timeout=timeout, start=start)
        host, colon, port = coordinator.rpartition(":")
        if not (host and colon and port.isdecimal() and 0 < int(port) < 65536):
            raise ShardingError(
                "usage", f'"{coordinator}" is no address', help="say node-0:1234, a host and a port"
            )
        return cls(
            count=count, number=number, coordinator=coordinator, timeout=timeout, start=start
        )

    @property
    def is_here(self) -> bool:
        """Whether all processes are started on this machine, by one supervisor."""
        return self.number is None

    @property
    def host(self) -> str:
        """The coordinator's host, an IPv6 address without its brackets."""
        return self.coordinator.rpartition(":")[0].removeprefix("[").removesuffix("]")

    @property
    def port(self) -> int:
        """The port that process 0 listens at."""
        return int(self.coordinator.rpartition(":")[2])

    @property
    def numbers_here(self) -> tuple[int, ...]:
        """The processes that are started here."""
        return tuple(range(self.count)) if self.number is None else (self.number,)

    def share(self, devices: int) -> int:
        """How many of ``devices`` each process has.

        Raises:
          ShardingError: ``usage``, where they are not shared out evenly.
        """
        if devices % self.count:
            raise ShardingError(
                "usage",
                f"{devices} devices cannot be shared out evenly among {self.count} processes",
                help="give a number of devices (--devices) that the number of processes divides",
            )
        return devices // self.count


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HERE, 0))
        return probe.getsockname()[1]
