"""Which process is lost, from what was seen of each.

A lost process takes others along: their collectives fail, or JAX's client aborts them. What is seen
of those names another one, and is told from what is seen of the lost one itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from shardpass.diagnostics import Diagnostic, Severity, ShardingError
from shardpass.runtime.child import death, without_log
from shardpass.runtime.processes.group import START

#: What a process says that gives up because of another one: JAX's client, gloo, NCCL.
_TAKEN_ALONG: Final = re.compile(
    r"JAX distributed service detected fatal errors|Gloo [\w -]+ failed|NCCL operation"
    r"|[Cc]oordination ?[Ss]ervice"
)
#: How JAX's client names the process that it misses.
_MISSED: Final = re.compile(
    r"\b[Tt]ask (\d+) heartbeat timeout|stopped sending heartbeats\):\s*(\d+)"
)
#: How process 0 does.
_NAMED: Final = re.compile(r"(?:error\[process-lost\]: )?process (\d+) of ")
#: How long who names another has waited for it.
_WAITED: Final = re.compile(r"has waited (\d+) s at")
#: How JAX's client says that not all processes have come, and that one has come again.
_NOT_ALL_CAME: Final = re.compile(r"DEADLINE_EXCEEDED.*?/RegisterTask", re.DOTALL)
_CAME_AGAIN: Final = re.compile(r"\b(\d+) unexpectedly tried to connect with a different incarn")
#: How gRPC says that it cannot listen.
_CANNOT_LISTEN: Final = re.compile(r"Failed to add port to server.*")
_MOST_NOTES: Final = 4
#: How long a process waits for others in a program that all of them run, beyond the time-out: their
#: own errors, which say more, come first.
_MARGIN: Final = 2.0
#: How long who is waited for computes nothing at the most.
_BUSY: Final = 2.0


def tells_of_another(text: str) -> bool:
    """Whether who says ``text`` gives up because of another process."""
    return bool(_TAKEN_ALONG.search(text))


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What is known of a worker.

    Attributes:
      number: of its process.
      count: how many processes there are.
      pid: its process id on this machine.
      step: what it said last that it does.
      is_done: whether it has done its part.
      error: what it raised: a ``ShardingError``, or text and traceback of another exception.
      code: its exit code, a signal's number negative; ``None`` while it runs.
      told: what it wrote to standard error.
      stopped: seconds that it has been stopped for.
      idle: seconds in which it has computed nothing.
      is_together: whether it is in a program that all processes run, on CPUs.
      is_waiting: whether it waits for others, which may have something to do.
    """

    number: int
    count: int
    pid: int
    step: str = ""
    is_done: bool = False
    error: ShardingError | tuple[str, str] | None = None
    code: int | None = None
    told: str = ""
    stopped: float = 0.0
    idle: float = 0.0
    is_together: bool = False
    is_waiting: bool = False

    @property
    def who(self) -> str:
        """The process, for people."""
        return f"process {self.number} of {self.count} (pid {self.pid})"

    @property
    def where(self) -> str:
        """What it was doing."""
        return f'it was at "{self.step}"' if self.step else "it had not begun"

    @property
    def has_died(self) -> bool:
        """Whether it ended without an answer."""
        return self.code is not None and self.error is None and not self.is_done

    @property
    def has_failed(self) -> bool:
        """Whether it will not do its part."""
        return self.has_died or self.error is not None

    @property
    def is_taken_along(self) -> bool:
        """Whether it failed because of another process."""
        if isinstance(self.error, ShardingError):
            if _is_lost(self.error):
                return True  # Process 0 waited for it at a meeting.
            return tells_of_another(_text_of(self.error.diagnostics))
        if self.error is not None:
            return tells_of_another(self.error[0])
        return self.has_died and tells_of_another(self.told)


class Watched(Protocol):
    """What is watched of a worker; see :class:`Seen`."""

    @property
    def idle(self) -> float:
        """Seconds in which it has computed nothing."""
        ...

    @property
    def is_together(self) -> bool:
        """Whether it is in a program that all processes run."""
        ...


def waits_for_another(workers: Sequence[Watched], timeout: float) -> bool:
    """Whether one has waited for longer than the time-out in a program that all of them run.

    A device that goes on for ever keeps its process busy. The others wait for it in a collective,
    and compute nothing. (The first collective of a set of devices has a time-out of gloo's own.)
    """
    if len(workers) < 2 or not all(worker.is_together for worker in workers):
        return False
    most = max(worker.idle for worker in workers)
    return most >= timeout + _MARGIN and min(worker.idle for worker in workers) < _BUSY


def verdict(seen: Sequence[Seen], timeout: float, start: float = START) -> ShardingError:
    """The one error for a run that is over.

    Args:
      seen: each worker, those that failed in the order in which they did.
      timeout: seconds that a process may be silent.
      start: seconds that processes wait for each other to start.
    """
    failed = [one for one in seen if one.has_failed]
    origins = [one for one in failed if not one.is_taken_along]
    stopped = sorted(
        (one for one in seen if one.stopped and not one.has_failed),
        key=lambda one: -one.stopped,
    )
    died = [one for one in origins if one.has_died]
    if died:
        cannot = _CANNOT_LISTEN.search(died[0].told)
        if cannot:
            return _cannot_listen(died[0], cannot[0])
        found = death(died[0].code or 0, died[0].told, died[0].who)
        return _of_one(replace(found.diagnostic, slug="process-lost"), died[0])
    if stopped and (stopped[0].stopped >= timeout or not origins):
        return _lost(stopped[0], f"has been stopped by a signal for {stopped[0].stopped:.0f} s")
    if origins:
        return _raised(origins, seen)
    if not failed:
        # Process 0 waits for the others with a time-out, and they for process 0 as long as it
        # lives.
        if waits_for_another(seen, timeout):
            busy = min(seen, key=lambda one: one.idle)
            waited = max(one.idle for one in seen)
            return _lost(busy, f"does not answer: the others waited {waited:.0f} s for it")
        first = min(
            (one for one in seen if not one.is_done), key=lambda one: (one.is_waiting, one.number)
        )
        if len(seen) < first.count:
            return _lost(first, f"has computed nothing for {first.idle:.0f} s")
        return _lost(first, f"does nothing, and neither does any other: for {first.idle:.0f} s")
    start_failed = _start_failed(seen, failed, start)
    if start_failed is not None:
        return start_failed
    waited_for = _waited_for(seen, failed)
    if waited_for is not None:
        waited = [_WAITED.search(str(one.error)) for one in failed]
        seconds = next((found[1] for found in waited if found), f"{timeout:g}")
        return _lost(
            waited_for,
            f"does not answer: the others waited {seconds} s for it",
            next(
                (_help_of(one.error) for one, found in zip(failed, waited, strict=True) if found),
                _HELP,
            ),
        )
    return _elsewhere(failed[0], timeout)


def _cannot_listen(one: Seen, told: str) -> ShardingError:
    return ShardingError(
        "bad-coordinator",
        f"{one.who} cannot listen for the others",
        notes=[_short(told)],
        help="choose another port (--coordinator, the same in every command)",
    )


def _start_failed(
    seen: Sequence[Seen], failed: Sequence[Seen], start: float
) -> ShardingError | None:
    """The error where the processes have not found together, in as many as were started."""
    for one in failed:
        again = _CAME_AGAIN.search(one.told)
        if again:
            return ShardingError(
                "process-lost",
                f"there are two processes {again[1]} of {one.count}, or it was started again",
                notes=[f"{one.who} gave up; {one.where}"],
                help="give each command a number of its own (--process-id)",
            )
    for one in failed:
        if one.has_died and _NOT_ALL_CAME.search(one.told):
            away = [other for other in seen if not (other.has_failed or other.is_waiting)]
            if away:
                return _lost(away[0], f"has not joined the others within {start:.0f} s", _LATE)
            return ShardingError(
                "process-lost",
                f"not all of {one.count} processes joined within {start:.0f} s",
                notes=[f"{one.who} gave up; {one.where}"],
                help="have all been started, with the same --num-processes and --coordinator and "
                "each with a --process-id of its own, and can they reach it? machines that take "
                "longer to come up need --start-timeout",
            )
    return None


def _waited_for(seen: Sequence[Seen], failed: Sequence[Seen]) -> Seen | None:
    """Whom those waited for that gave up, if it is one of ``seen``."""
    by_number = {one.number: one for one in seen}
    for one in failed:
        # Process 0 knows for whom it waited at a meeting.
        named = _NAMED.match(str(one.error)) if _is_lost(one.error) else None
        if named and int(named[1]) in by_number:
            return by_number[int(named[1])]
    silent = [one for one in seen if not one.has_failed and not one.is_done]
    if not silent and any(one.error is not None for one in failed):
        # A collective raises an error in those that take part in it. JAX's client may have aborted
        # who does not, once it missed process 0, which took part.
        silent = [one for one in failed if one.has_died]
    return silent[0] if silent else None


def _is_lost(error: object) -> bool:
    return isinstance(error, ShardingError) and error.slug == "process-lost"


_LATE: Final = "see what holds it up; where it is only slow, give it more time (--start-timeout)"
_HELP: Final = "see what holds it up; where it is only slow, give it more time (--process-timeout)"


def _help_of(error: object) -> str:
    return (error.diagnostic.help if isinstance(error, ShardingError) else None) or _HELP


def _lost(one: Seen, how: str, help: str = _HELP) -> ShardingError:
    return ShardingError("process-lost", f"{one.who} {how}", notes=[one.where], help=help)


def _of_one(found: Diagnostic, one: Seen) -> ShardingError:
    return ShardingError.of([replace(found, notes=(one.where, *found.notes))])


def _raised(origins: Sequence[Seen], seen: Sequence[Seen]) -> ShardingError:
    first = origins[0]
    if not isinstance(first.error, ShardingError):
        told, trace = first.error or ("", "")
        return ShardingError(
            "process-lost",
            f"{first.who} raised {told}",
            notes=[first.where, *trace.splitlines()[-_MOST_NOTES:]],
        )
    texts = [
        _text_of(one.error.diagnostics) if isinstance(one.error, ShardingError) else None
        for one in origins
    ]
    if len(origins) == first.count and len(set(texts)) == 1:
        return first.error  # The same in all of them, and no matter of processes.
    if first.error.slug == "processes-differ":
        return first.error  # It says whose matter it is.
    ended = ", and the others were ended" if len(seen) > 1 else ""
    where = f"{first.who} raised this{ended}"
    return ShardingError.of(
        [
            replace(each, notes=(*each.notes, where)) if each.severity is Severity.ERROR else each
            for each in first.error.diagnostics
        ]
    )


def _elsewhere(first: Seen, timeout: float) -> ShardingError:
    """For processes all of which name another one, on another machine."""
    told = first.told
    if isinstance(first.error, ShardingError):
        if _is_lost(first.error):
            return first.error
        told = f"{_text_of(first.error.diagnostics)}\n{told}"
    elif first.error is not None:
        told = f"{first.error[0]}\n{told}"
    notes = [f"{first.who} gave up; {first.where}"]
    missed = [a or b for a, b in _MISSED.findall(told)]
    if missed and missed[0] != str(first.number):
        what = f"process {missed[0]} of {first.count} has not been heard of for {timeout:g} s"
    else:
        guess = ", likely process 0, the coordinator" if first.number else ""
        what = f"another of {first.count} processes is lost{guess}"
        last = [without_log(line) for line in told.splitlines() if tells_of_another(line)]
        notes += [_short(line) for line in last[:1]]
    return ShardingError(
        "process-lost", what, notes=notes, help="what that process said itself may say more"
    )


def _text_of(diagnostics: Sequence[Any]) -> str:
    return "\n".join(str(each) for each in diagnostics)


def _short(line: str, most: int = 300) -> str:
    return line if len(line) <= most else f"{line[:most]}..."
