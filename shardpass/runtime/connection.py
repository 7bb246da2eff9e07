"""What a child process tells its parent, a message at a time."""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
from dataclasses import dataclass, field
from typing import Any, Final

_LENGTH: Final = struct.Struct("<Q")


@dataclass(frozen=True)
class Line:
    """One end of a connection of two processes: the files that it reads from and writes to."""

    ends: tuple[int, int]
    _arrived: bytearray = field(default_factory=bytearray)

    def __enter__(self) -> None:
        return

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of this end: whoever reads at the other one finds that nothing comes any more."""
        for end in self.ends:
            os.close(end)

    def send(self, message: tuple[str, Any]) -> None:
        """Send what can be pickled, and go on."""
        data = pickle.dumps(message)
        data = memoryview(_LENGTH.pack(len(data)) + data)
        while data:
            data = data[os.write(self.ends[1], data) :]

    def tell(self, step: str) -> None:
        """Send ``step`` and wait until it was heard, or nobody listens any more."""
        self.send(("progress", step))
        os.read(self.ends[0], 1)

    def receive(self) -> tuple[str, Any] | None:
        """What the other end sent, or ``None`` where it ended before it had.

        A signal that ends the waiting with an exception costs no message.
        """
        while (message := self._next()) is None:
            if not self._read():
                return None
        return message

    def receive_some(self) -> tuple[list[tuple[str, Any]], bool]:
        """What has arrived whole, where something has; and whether more may come.

        Waits for no more than the next bytes, whoever may have stopped in the middle of a message.
        """
        is_open = self._read()
        return list(iter(self._next, None)), is_open

    def _read(self) -> bool:
        piece = os.read(self.ends[0], 1 << 16)
        self._arrived.extend(piece)
        return bool(piece)

    def _next(self) -> tuple[str, Any] | None:
        size = _LENGTH.size
        if len(self._arrived) < size:
            return None
        end = size + _LENGTH.unpack_from(self._arrived)[0]
        if len(self._arrived) < end:
            return None
        message = pickle.loads(self._arrived[size:end])
        del self._arrived[:end]
        return message

    def acknowledge(self) -> None:
        """Let the other end go on, if it still waits."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self.ends[1], b"\n")


def connected() -> tuple[Line, Line]:
    """Both ends of a new connection."""
    (here_in, there_out), (there_in, here_out) = os.pipe(), os.pipe()
    return Line((here_in, here_out)), Line((there_in, there_out))
