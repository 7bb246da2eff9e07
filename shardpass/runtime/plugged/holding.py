"""Which policy holds, whatever order blocks end in.

A block may be held by a generator, a fixture or a task, and end when one that was entered later is
still open: the later one then goes on to hold, and what was before both comes back behind it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, Final

from shardpass.runtime.lowering.hook import current


@dataclass(eq=False)
class Held:
    """A policy that holds in one thread until it ends, or while later ones do.

    Attributes:
      wanted: what is wanted.
    """

    wanted: Any
    _context: Any = None
    _is_over: bool = False
    _among: list[Held] = field(default_factory=list)

    @classmethod
    def begin(cls, wanted: Any) -> Held:
        """Have it hold in this thread from now on."""
        stack = _stack()
        _unwind(stack)
        held = cls(wanted, current(wanted), _among=stack)
        held._context.__enter__()
        stack.append(held)
        return held

    def end(self) -> None:
        """Have it hold no more."""
        self._is_over = True
        # In another thread than its own, nothing can be set back before that one enters a block.
        if self._among is _stack():
            _unwind(self._among)


class _Threads(threading.local):
    def __init__(self) -> None:
        self.stack: list[Held] = []


_threads: Final = _Threads()
_everywhere: Final[list[Any]] = []
_before: Any = None


def _stack() -> list[Held]:
    return _threads.stack


def _unwind(stack: list[Held]) -> None:
    while stack and stack[-1]._is_over:
        stack.pop()._context.__exit__(None, None, None)


def hold_everywhere(wanted: Any) -> None:
    """Have ``wanted`` hold in all threads that have nothing of their own."""
    global _before
    if not _everywhere:
        _before = current.get_global()
    _everywhere.append(wanted)
    current.set_global(wanted)


def release_everywhere(wanted: Any) -> None:
    """Undo the last :func:`hold_everywhere` of ``wanted``; the last one of all holds."""
    last = max(index for index, each in enumerate(_everywhere) if each is wanted)
    del _everywhere[last]
    current.set_global(_everywhere[-1] if _everywhere else _before)
