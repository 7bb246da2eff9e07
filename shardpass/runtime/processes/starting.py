"""What is said while the processes of a cluster wait for each other to start.

JAX waits without a word, and ends the process when it has waited long enough.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Final

from shardpass.runtime.processes.group import Group

Say = Callable[[str], None]

#: Seconds in which nothing is said, as machines come up one by one; and those of an attempt to
#: reach the coordinator.
_SOON: Final = 5.0
_REACH: Final = 2.0


def say_nothing(_: str) -> None:
    """Say nothing."""


def joining(group: Group) -> str:
    """What a process does that joins the others, in words."""
    if group.is_here:
        return "join the other processes"
    return f"join the other processes, {group.count} in all, at {group.coordinator}"


@contextlib.contextmanager
def waiting_for(group: Group, number: int, say: Say) -> Iterator[None]:
    """Inside, tell ``say`` after some seconds what is waited for; on one machine, nothing."""
    if group.is_here or group.count == 1:
        yield
        return
    over = threading.Event()
    watch = threading.Thread(target=_watch, args=(group, number, say, over), daemon=True)
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join()  # Two threads must not tell at once.


def _watch(group: Group, number: int, say: Say, over: threading.Event) -> None:
    told = ""
    while not over.wait(_SOON):
        what = _waited_for(group, number)
        if what != told and not over.is_set():
            say(f"{what} (for up to {group.start:.0f} s, --start-timeout)")
            told = what


def _waited_for(group: Group, number: int) -> str:
    if number:
        try:
            socket.create_connection((group.host, group.port), _REACH).close()
        except OSError as error:
            why = error.strerror or str(error)
            return f"wait for process 0, which cannot be reached at {group.coordinator}: {why}"
    return f"wait until all {group.count} processes have come to {group.coordinator}"
