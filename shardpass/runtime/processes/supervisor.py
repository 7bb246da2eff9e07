"""Starting the processes of a run, watching them, and ending them."""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from typing import Any, Final

from shardpass.runtime.child import Say, pass_on
from shardpass.runtime.ending import end_all, ending
from shardpass.runtime.processes.address import settled
from shardpass.runtime.processes.group import Group
from shardpass.runtime.processes.verdict import verdict, waits_for_another
from shardpass.runtime.processes.worker import Task, Worker

#: Seconds between two looks at processes that tell nothing.
_LOOK: Final = 0.05
#: Seconds in which others may say more, once one has failed by itself or along with another.
_SETTLE: Final = 0.3
_SETTLE_TAKEN_ALONG: Final = 3.0
#: Seconds in which all processes raise what they all raise.
_SETTLE_RAISED: Final = 3.0
#: Seconds between two looks at what processes use of the processor.
_LOOK_AT_USE: Final = 0.5
#: How many time-outs nobody may do anything in, and how many seconds at the least: collectives and
#: JAX's client end their waiting before.
_DEADLOCK: Final = 4
_DEADLOCK_SECONDS: Final = 10.0
#: The most seconds to count of one look: in a longer one this process was stopped as well.
_MOST: Final = 1.0


def supervise(task: Task, arguments: tuple[Any, ...], group: Group, say: Say) -> list[Any]:
    """Do a task in the processes of ``group``, as far as they are started here.

    No process is left behind, however this ends.

    Args:
      task: a function of a module, by its own name there. It is called with the arguments, the
        group, the number of its process, and a ``progress`` to tell its steps to. It, they and the
        result are pickled on the way.
      arguments: what it is given first.
      group: the processes.
      say: is told the steps of the first process here.

    Returns:
      What each process that was started here answered, in their order.

    Raises:
      ShardingError: ``process-lost``, with its number, for a process that dies, stops or hangs;
        ``bad-coordinator``; what a process raises.
    """
    workers: list[Worker] = []
    with ending(), settled(group, say) as group:
        try:
            for number in group.numbers_here:
                workers.append(Worker(task, arguments, group, number))
            _watch(workers, group, say)
            for worker in workers:
                worker.child.wait()
            pass_on(workers[0].told)
            return [worker.result for worker in workers]
        finally:
            end_all([worker.child for worker in workers])
            for worker in workers:
                worker.close()


def _watch(workers: Sequence[Worker], group: Group, say: Say) -> None:
    """Return when all have done their part.

    Raises:
      ShardingError: the verdict, where one will not.
    """
    failed: list[Worker] = []
    until = float("inf")
    last = looked = time.monotonic()
    most_idle = max(_DEADLOCK * group.timeout, _DEADLOCK_SECONDS)
    while not all(worker.is_over for worker in workers):
        _hear(workers, say)
        now = time.monotonic()
        for worker in workers:
            counted = min(now - last, _MOST)
            worker.stopped = worker.stopped + counted if worker.child.is_stopped else 0.0
        last = now
        if now - looked >= _LOOK_AT_USE:
            for worker in workers:
                worker.look(min(now - looked, _MOST))
            looked = now
        new = [worker for worker in workers if worker.has_failed and worker not in failed]
        failed += new
        if new:
            until = min(until, now + max(_patience(worker) for worker in new))
        stopped = any(worker.stopped >= group.timeout for worker in workers)
        # On a cluster, who does nothing here may wait for a process elsewhere that does something.
        idle = all(worker.idle >= most_idle for worker in workers) and (
            group.is_here or not any(worker.is_waiting for worker in workers)
        )
        waits = waits_for_another(workers, group.timeout)
        if stopped or idle or waits or now >= until:
            break
    failed += [worker for worker in workers if worker.has_failed and worker not in failed]
    rest = [worker for worker in workers if worker not in failed]
    if failed or not all(worker.is_over for worker in workers):
        seen = [worker.seen for worker in (*failed, *rest)]
        raise verdict(seen, group.timeout, group.start)


def _patience(failed: Worker) -> float:
    seen = failed.seen
    if seen.is_taken_along:
        return _SETTLE_TAKEN_ALONG
    return _SETTLE if seen.has_died else _SETTLE_RAISED


def _hear(workers: Sequence[Worker], say: Say) -> None:
    by_end = {worker.line.ends[0]: worker for worker in workers if worker.is_connected}
    if not by_end:
        time.sleep(_LOOK)
    for end in select.select(list(by_end), [], [], _LOOK)[0] if by_end else ():
        by_end[end].hear(say if by_end[end] is workers[0] else _say_nothing)


def _say_nothing(_: str) -> None:
    pass
