"""The ends of two processes, tied together: a child never outlives its parent.

A parent that is told to end (SIGTERM, or SIGHUP as its terminal closes) tells its child, waits
until that has put its half-written files away, and ends itself. One that is killed outright can do
nothing; then the kernel kills the child (Linux: ``PR_SET_PDEATHSIG``, see prctl(2)), or where there
is no such thing, the child asks again and again whether its parent is still there.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG: Final = 1
#: Seconds that a child gets to clean up. Inside XLA it does not hear us, and has nothing to clean.
_GRACE: Final = 1.0
#: The same for several at once: less, since who ends them may be given no more itself.
_GRACE_OF_MANY: Final = 0.5
#: Seconds between two looks, at a child that is ending or a parent that may have.
_LOOK: Final = 0.02
_WATCH: Final = 0.5


class Ended(SystemExit):
    """Raised in the main thread by a signal that ends the process; the exit code is a shell's."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.signal = number


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """Inside, the signals that end a process raise :class:`Ended`, so that it can clean up.

    Signals that somebody ignores (``nohup``) or handles are left alone, and so are all of them
    outside the main thread, where Python has none.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    mine = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL]
    for number in mine:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in mine:
            signal.signal(number, signal.SIG_DFL)


def obey() -> None:
    """In a child: end by an interrupt as by the others, each of which ends it once."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def hear_no_more() -> None:
    """In a child: what comes from now on comes too late to be heeded.

    Raises:
      KeyboardInterrupt: where this process was told to end before, even if what that raised was
        lost on the way, as in a callback from C++.
    """
    for number in (signal.SIGINT, *_ENDING):
        # Python runs the handlers of signals that have come before it changes any.
        signal.signal(number, signal.SIG_IGN)
    if was_told_to_end():
        raise KeyboardInterrupt


def was_told_to_end() -> bool:
    """Whether a signal that ends this process has come, and was heard."""
    return _told


_told = False


def _end(number: int, frame: object) -> None:
    global _told
    _told = True
    # A second one must not disturb the cleaning up after the first: a whole process group is told
    # to end, and then the parent tells its child.
    for other in (signal.SIGINT, *_ENDING):
        if signal.getsignal(other) is _end:
            signal.signal(other, signal.SIG_IGN)
    raise KeyboardInterrupt if number == signal.SIGINT else Ended(number)


def die_with(parent: int) -> None:
    """See to it that this process dies when ``parent``, the process that started it, does."""
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError, OSError):
            if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0:
                _die_if_orphaned(parent)  # It may have died just before.
                return
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while True:
        _die_if_orphaned(parent)
        time.sleep(_WATCH)


def _die_if_orphaned(parent: int) -> None:
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


class Child(Protocol):
    """A child process as its parent holds it."""

    def wait(self) -> int:
        """Its exit code, once it has ended; the number of the signal, negative, where one did."""
        ...

    def end(self) -> None:
        """Tell it to end, and return when it has; a terminal may have told it as well."""
        ...


class Forked:
    """A fork of this process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def wait(self) -> int:
        """See :class:`Child`."""
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code

    def end(self) -> None:
        """See :class:`Child`."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._code is None:
                os.kill(self.pid, number)
            if self._ends_within(_GRACE):
                return
        self.wait()

    def _ends_within(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self._code is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                self._code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > until:
                return False
            else:
                time.sleep(_LOOK)
        return True


class Spawned:
    """A new Python."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid = process.pid
        self._process = process

    def wait(self) -> int:
        """See :class:`Child`."""
        return self._process.wait()

    @property
    def code(self) -> int | None:
        """Its exit code, as :meth:`wait` gives it; ``None`` while it runs."""
        return self._process.poll()

    @property
    def is_stopped(self) -> bool:
        """Whether a signal (SIGSTOP) has stopped it, to go on at another."""
        if self.code is not None or not hasattr(os, "waitid"):
            return False
        looking = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        try:
            return os.waitid(os.P_PID, self.pid, looking) is not None
        except ChildProcessError:
            return False  # It has ended since.

    @property
    def processor_seconds(self) -> float | None:
        """What it has used of the processor so far; ``None`` where that cannot be told."""
        try:
            with open(f"/proc/{self.pid}/stat", encoding="ascii") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """See :class:`Child`."""
        self._process.terminate()
        if not self._ends_within(_GRACE):
            self._process.kill()
        self.wait()

    def _ends_within(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


def end_all(children: Sequence[Spawned]) -> None:
    """End several, with one time for all of them to clean up in."""
    running = [child for child in children if child.code is None]
    for child in running:
        os.kill(child.pid, signal.SIGTERM)
    until = time.monotonic() + _GRACE_OF_MANY
    while any(child.code is None for child in running) and time.monotonic() < until:
        time.sleep(_LOOK)
    for child in running:
        if child.code is None:
            os.kill(child.pid, signal.SIGKILL)  # That ends a stopped one, too.
    for child in running:
        child.wait()
