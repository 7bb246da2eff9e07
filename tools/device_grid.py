"""Where the programs of a StableHLO process grid meet: one thread a device, collectives in between.

StableHLO runs a program on a grid of replicas by partitions. A process is a pair (replica,
partition); a collective names groups of them in one of the ways of the specification's section
"Collective ops", and the processes of a group exchange their values.

Only one thread runs at a time, and another gets its turn where one waits for its group: what the
threads share, MLIR's context first of all, needs no lock of its own, and a group that can never be
complete is noticed at once rather than after a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

Process = tuple[int, int]
Result = TypeVar("Result")


class StuckError(Exception):
    """The processes that are left wait for others that never come."""


@dataclass
class _Meeting:
    """What the processes of one group have brought so far."""

    values: dict[Process, Any] = field(default_factory=dict)
    complete: bool = False


class Grid:
    """Replicas by partitions, and what their processes say to each other."""

    def __init__(self, replicas: int, partitions: int) -> None:
        self.replicas = replicas
        self.partitions = partitions
        self._turn = threading.Condition()
        self._meetings: dict[tuple[object, tuple[Process, ...]], _Meeting] = {}
        self._running = 0
        self._waiting = 0
        self._failure: BaseException | None = None

    @property
    def processes(self) -> list[Process]:
        """All processes, the partitions of a replica side by side."""
        return [(r, p) for r in range(self.replicas) for p in range(self.partitions)]

    def run(self, program: Callable[[Process], Result]) -> list[Result]:
        """What ``program`` gives for each process, in order, each run in a thread of its own.

        Raises:
          StuckError: a process waits for one that has ended.
          Exception: whatever the first program to fail has raised.
        """
        results: dict[Process, Result] = {}

        def thread(process: Process) -> None:
            with self._turn:
                try:
                    if self._failure is None:
                        results[process] = program(process)
                except BaseException as error:
                    self._failure = self._failure or error
                self._running -= 1
                self._check_stuck()
                self._turn.notify_all()

        self._running = len(self.processes)
        threads = [threading.Thread(target=thread, args=(p,)) for p in self.processes]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        if self._failure is not None:
            raise self._failure
        return [results[process] for process in self.processes]

    def exchange(
        self, what: object, group: Sequence[Process], process: Process, value: Result
    ) -> dict[Process, Result]:
        """Bring ``value`` and wait for the others of ``group``: what each of them brought.

        Args:
          what: tells meetings of one group apart, as a channel does; the processes of a group come
            to meetings of equal ``what`` in one order.
          group: the processes, ``process`` among them.
        """
        key = (what, tuple(group))
        meeting = self._meetings.setdefault(key, _Meeting())
        meeting.values[process] = value
        if len(meeting.values) == len(group):
            del self._meetings[key]
            meeting.complete = True
            self._waiting -= len(group) - 1
            self._turn.notify_all()
        else:
            self._waiting += 1
            self._check_stuck()
        while not meeting.complete:
            if self._failure is not None:
                raise self._failure
            self._turn.wait()
        return {member: meeting.values[member] for member in group}

    def _check_stuck(self) -> None:
        if self._failure is None and self._running and self._waiting == self._running:
            waits = sorted(f"{what}" for what, _ in self._meetings)
            self._failure = StuckError(f"every process that is left waits: {', '.join(waits)}")
            self._turn.notify_all()

    def cross_replica(self, groups: Sequence[Sequence[int]]) -> list[list[Process]]:
        """Groups of replicas, each once for every partition."""
        return [[(r, p) for r in group] for group in groups for p in range(self.partitions)]

    def cross_partition(self, groups: Sequence[Sequence[int]]) -> list[list[Process]]:
        """Groups of partitions, each once for every replica."""
        return [[(r, p) for p in group] for group in groups for r in range(self.replicas)]

    def cross_replica_and_partition(self, groups: Sequence[Sequence[int]]) -> list[list[Process]]:
        """Groups of replicas, with all their partitions."""
        return [[(r, p) for p in range(self.partitions) for r in group] for group in groups]

    def flattened(self, groups: Sequence[Sequence[int]]) -> list[list[Process]]:
        """Groups of ids that count the partitions of the first replica, then of the second."""
        return [[divmod(number, self.partitions) for number in group] for group in groups]
