"""Standard output and standard error, as a command line meets them: full, closed, or cut short.

Every library has its own idea of what to do where standard output cannot be written: click and
Python print tracebacks, rich exits. So the stream itself says it, once, in an exception that none
of them knows.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING, Any, Final, TextIO

from shardpass.diagnostics import ShardingError

if TYPE_CHECKING:
    from shardpass.mlir import Module


#: What messages call a module that came by standard input.
STANDARD_INPUT: Final = "<stdin>"


class NobodyReadsError(Exception):
    """Whoever read standard output (``| head``) has had enough of it."""


class _Output(io.FileIO):
    """Standard output. After a failure it takes everything, so that no flush fails again."""

    failed = False

    def write(self, data: Any, /) -> int:
        if self.failed:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except OSError as error:
            self.failed = True
            if error.errno == errno.EPIPE:
                raise NobodyReadsError from error
            raise ShardingError(
                "unwritable", f"cannot write standard output: {(error.strerror or '').lower()}"
            ) from error


class _Errors(io.FileIO):
    """Standard error. Where that cannot be written there is nobody left to tell."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def guard_streams() -> None:
    """Make the standard streams of this process say what is wrong as shardpass does.

    A stream that is closed gets a file in its place that refuses what a closed one does, so that
    no other file takes its number. Streams that somebody has put in place of Python's own are left
    alone.
    """
    _occupy()
    if sys.stdout is None or sys.stdout is sys.__stdout__:
        sys.stdout = _text(_Output(1, "wb", closefd=False), sys.stdout)
    if sys.stderr is None or sys.stderr is sys.__stderr__:
        sys.stderr = _text(_Errors(2, "wb", closefd=False), sys.stderr)


def _occupy() -> None:
    for number, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is the one that open gives.
            os.set_inheritable(os.open(os.devnull, mode), True)


def _text(raw: io.FileIO, like: TextIO | None) -> io.TextIOWrapper:
    buffer = io.BufferedWriter(raw)
    if not isinstance(like, io.TextIOWrapper):
        return io.TextIOWrapper(buffer, encoding="utf-8", errors="backslashreplace")
    return io.TextIOWrapper(
        buffer,
        encoding=like.encoding,
        errors=like.errors,
        line_buffering=like.line_buffering,
        write_through=like.write_through,
    )


def read_standard_input() -> bytes:
    """All of it.

    Raises:
      ShardingError: ``unreadable``, with the system's reason.
    """
    try:
        if sys.stdin is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return sys.stdin.buffer.read()
    except OSError as error:
        raise ShardingError(
            "unreadable", f"cannot read standard input: {(error.strerror or str(error)).lower()}"
        ) from error


def load_module(path: str) -> Module:
    """The module at ``path``, or that on standard input for ``-``; see :func:`shardpass.load`."""
    from shardpass.cli.guard import console
    from shardpass.mlir import load

    name = STANDARD_INPUT if path == "-" else path
    with console().step(f"read {name}"):
        return load(read_standard_input() if path == "-" else path, name=name)
