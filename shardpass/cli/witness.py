"""Whether a signal has reached a process alone, or all that runs with it.

A terminal interrupts a whole process group, and so do many others that end programs: the shell's
``kill %1``, ``timeout``, a batch system or a service manager, each for the processes that it knows.
A process that hands its signals on to a child would give it those twice, and the second one
interrupts what the child does about the first. Neither the receiver nor the kernel can tell them
apart from one that was sent to the receiver alone. So there is a witness: a process beside the
child, that does nothing but take note of what reaches it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Final, NoReturn

from shardpass.runtime.ending import die_with

#: What a witness writes of a signal: its number, and when it came.
_NOTE: Final = struct.Struct("<id")
#: Seconds within which what is sent to several processes reaches them all, on a busy machine too.
TOGETHER: Final = 0.4


class Witness:
    """Knows what has reached a process that stands beside this one.

    Attributes:
      notes: a file that can be read when there is something new.
    """

    def __init__(self, notes: int) -> None:
        self.notes = notes
        self._known: list[tuple[int, float]] = []

    def has_seen(self, number: int, when: float) -> bool | None:
        """Whether a signal that came to this process came to the other as well.

        Each is seen once.

        Args:
          number: the signal.
          when: when it came, as ``time.monotonic`` says it.

        Returns:
          ``None`` while nobody can tell.
        """
        with contextlib.suppress(BlockingIOError):
            while note := os.read(self.notes, _NOTE.size):
                self._known.append(_NOTE.unpack(note))
        for known in self._known:
            if known[0] == number and abs(known[1] - when) < TOGETHER:
                self._known.remove(known)
                return True
        return False if time.monotonic() - when > TOGETHER else None


@contextlib.contextmanager
def witness(signals: Sequence[signal.Signals]) -> Iterator[Witness]:
    """A witness of ``signals`` beside this process, in its group and session, until the end."""
    notes, writing = os.pipe()
    os.set_blocking(notes, False)
    me = os.getpid()
    # What comes while it is being made waits, for both.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        pid = os.fork()
        if pid == 0:
            os.close(notes)
            _watch(signals, writing, me)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.close(writing)
    try:
        yield Witness(notes)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(notes)


def _watch(signals: Sequence[signal.Signals], writing: int, parent: int) -> NoReturn:
    """Write of each of ``signals``, in a process that is there for nothing else."""
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(nothing, standard)
        die_with(parent)
        while True:
            number = signal.sigwait(signals)
            os.write(writing, _NOTE.pack(number, time.monotonic()))
    finally:
        os._exit(0)
