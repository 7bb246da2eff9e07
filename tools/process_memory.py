"""How much memory a command and all its children hold at once, at the most.

Standard library only. On Linux the kernel tells what each process holds, shared
pages counted in part (``Pss`` of smaps_rollup); where it does not, the largest
single process is taken.
"""

from __future__ import annotations

import contextlib
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_EVERY_SECONDS = 0.5


def tree(root: int) -> list[int]:
    """The process ``root`` and all that descend from it, as /proc lists them now."""
    parents: dict[int, int] = {}
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name, in brackets, may hold spaces; state and parent come after it.
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
    found = [root]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found


def held_bytes(process: int) -> int:
    """What one process holds now; 0 for one that has ended."""
    with contextlib.suppress(OSError, ValueError):
        for line in (_PROC / str(process) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


class PeakMemory:
    """The most that commands run under :meth:`of` held, in bytes."""

    def __init__(self) -> None:
        self.bytes = 0

    @contextlib.contextmanager
    def of(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        """Watch a process and its children while the block runs."""
        done = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(process.pid, done), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
            # Of all children so far, and never below what this process itself once held.
            self.bytes = self.bytes or _largest_child()

    def _watch(self, root: int, done: threading.Event) -> None:
        while not done.wait(_EVERY_SECONDS):
            self.bytes = max(self.bytes, sum(map(held_bytes, tree(root))))


def _largest_child() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit
