"""Which process is lost, from what was seen of each.

A lost process takes others along: their collectives fail, or JAX's client aborts them. What is seen
of those names another one, and is told from what is seen of the lost one itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from shardpass.diagnostics import Diagnostic, Severity, ShardingError
from shardpass.runtime.child import death, without_log

#: What a process says that gives up because of another one: JAX's client, gloo, NCCL.
_TAKEN_ALONG: Final = re.compile(
    r"JAX distributed service detected fatal errors|Gloo \S+ failed|NCCL operation"
    r"|[Cc]oordination service"
)
#: How JAX's client names the process that it misses.
_MISSED: Final = re.compile(
    r"\b[Tt]ask (\d+) heartbeat timeout|stopped sending heartbeats\):\s*(\d+)"
)
#: How process 0 does.
_NAMED: Final = re.compile(r"(?:error\[process-lost\]: )?process (\d+) of ")
_MOST_NOTES: Final = 4


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


def verdict(seen: Sequence[Seen], timeout: float) -> ShardingError:
    """The one error for a run that is over.

    Args:
      seen: each worker, those that failed in the order in which they did.
      timeout: seconds that a process may be silent.
    """
    failed = [one for one in seen if one.has_failed]
    origins = [one for one in failed if not one.is_taken_along]
    stopped = sorted(
        (one for one in seen if one.stopped and not one.has_failed),
        key=lambda one: -one.stopped,
    )
    died = [one for one in origins if one.has_died]
    if died:
        found = death(died[0].code or 0, died[0].told, died[0].who)
        return _of_one(replace(found.diagnostic, slug="process-lost"), died[0])
    if stopped and (stopped[0].stopped >= timeout or not origins):
        return _lost(stopped[0], f"has been stopped by a signal for {stopped[0].stopped:.0f} s")
    if origins:
        return _raised(origins)
    if not failed:
        # Process 0 waits for the others with a time-out, and they for process 0 as long as it
        # lives.
        first = min((one for one in seen if not one.is_done), key=lambda one: one.number)
        return _lost(first, f"does nothing, and neither does any other: for {first.idle:.0f} s")
    waited_for = _waited_for(seen, failed)
    if waited_for is not None:
        return _lost(waited_for, f"does not answer: the others waited {timeout:g} s for it")
    return _elsewhere(failed[0], timeout)


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


def _lost(one: Seen, how: str) -> ShardingError:
    return ShardingError(
        "process-lost",
        f"{one.who} {how}",
        notes=[one.where],
        help="see what holds it up; where it is only slow, give it more time (--process-timeout)",
    )


def _of_one(found: Diagnostic, one: Seen) -> ShardingError:
    return ShardingError.of([replace(found, notes=(one.where, *found.notes))])


def _raised(origins: Sequence[Seen]) -> ShardingError:
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
    where = f"{first.who} raised this, and the others were ended"
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
