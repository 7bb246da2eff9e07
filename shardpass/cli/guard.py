"""A command's work, kept away from the person's terminal.

The body of every command runs here: in a child process, so that an abort inside XLA or a native
pass becomes a message, and inside a net that turns whatever is raised into diagnostics and an exit
code.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import click

from shardpass.cli.console import Console
from shardpass.cli.streams import NobodyReadsError, guard_streams
from shardpass.diagnostics import Diagnostic, Severity, ShardingError

FAILED = 1
USAGE = 2
DIED = 3
#: As a shell says it of a program that SIGINT or SIGPIPE ended.
INTERRUPTED = 130
NOBODY_READS = 141

#: In front of what the child tells its parent and no console shows.
_MARK = "\0"
#: That an output is in its place.
_WRITTEN = "written"

#: What reading may take, in seconds of the processor's time: some for anything, and one for so many
#: bytes. GPT-2's step comes in at 3.5 MB a second in the slowest of its forms, a portable artifact.
_TO_READ = 10.0
_BYTES_A_SECOND = 200_000

#: How a pipeline notes on an exception which pass it comes from.
RAISED_IN = "raised in "

_current = Console()


class CommandLineError(ShardingError):
    """What is wrong with the command line itself, rather than with what it names."""


@contextlib.contextmanager
def reading_the_command_line() -> Iterator[None]:
    """Make what is wrong with an option's text a fault of the command line."""
    try:
        yield
    except ShardingError as error:
        raise CommandLineError.of(error.diagnostics) from error


def console() -> Console:
    """The console of the command whose body is running."""
    return _current


@dataclass(frozen=True)
class Attempt:
    """How a command's work went.

    Attributes:
      code: the exit code.
      death: how the process ended that did the work, where it gave no answer.
      marks: what the work told the command of how far it had come; see :func:`mark`.
    """

    code: int
    death: ShardingError | None = None
    marks: tuple[str, ...] = ()

    @property
    def was_interrupted(self) -> bool:
        """Whether a signal of the user's ended it, or nobody reads on."""
        return self.code > 128


def guarded(context: click.Context, body: Callable[..., int], *arguments: object) -> None:
    """Run ``body(*arguments)`` in a child process and exit with the code that it returns.

    ``body`` is a function of a module, and its arguments can be pickled: where this process cannot
    be forked they travel to a new one.
    """
    console = console_of(context)
    attempt = attempted(console, body, *arguments)
    if attempt.death:
        console.report(attempt.death.diagnostics)
    context.exit(attempt.code)


def console_of(context: click.Context) -> Console:
    """The console that a command's options ask for."""
    return context.find_object(Console) or Console()


def attempted(
    console: Console,
    body: Callable[..., int],
    *arguments: object,
    sift: Callable[[str], str] = str,
) -> Attempt:
    """Run ``body(*arguments)`` in a child process; see :func:`guarded`. A death is not reported.

    ``sift`` is that of :func:`shardpass.runtime.child.in_child`.
    """
    from shardpass.runtime.child import in_child
    from shardpass.runtime.ending import Ended

    settings = replace(console, write=None)  # pyright: ignore[reportArgumentType]
    marks: list[str] = []

    def hear(told: str) -> None:
        if told.startswith(_MARK):
            marks.append(told.removeprefix(_MARK))
        else:
            console.write(told)

    death: ShardingError | None = None
    try:
        code = in_child(run_body, body, arguments, settings, progress=hear, sift=sift)
    except ShardingError as error:
        death = error
        code = DIED
    except (KeyboardInterrupt, Ended) as error:
        # It came too late where the output is there already: the command has done its work.
        interrupted = 128 + error.signal if isinstance(error, Ended) else INTERRUPTED
        code = 0 if _WRITTEN in marks else interrupted
    return Attempt(code, death, tuple(marks))


def mark(what: str) -> None:
    """In a command's work: tell the command how far it has come, in words of its own."""
    _current.write(_MARK + what)


def in_this_process(context: click.Context, body: Callable[..., int], *arguments: object) -> None:
    """Run ``body(*arguments)``, which touches neither XLA nor a native pass, and exit."""
    global _current
    _current = context.find_object(Console) or Console()
    context.exit(_code_of(body, *arguments) or _code_of(_flush))


def run_body(
    body: Callable[..., int],
    arguments: tuple[object, ...],
    settings: Console,
    progress: Callable[[str], None],
) -> int:
    """The exit code of ``body``, with everything it raises reported through ``progress``."""
    global _current
    with imports():
        from shardpass.mlir import files, reading

    _current = replace(settings, write=progress)
    files.around_rename = lambda: _to_the_end(progress)
    reading.around_reading = _in_time
    guard_streams()
    code = _code_of(body, *arguments)
    # What is still on its way out may not arrive.
    return _code_of(_flush) or code


@contextlib.contextmanager
def imports() -> Iterator[None]:
    """Import inside what will stay: a hundred thousand objects that need no looking through."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


@contextlib.contextmanager
def _to_the_end(progress: Callable[[str], None]) -> Iterator[None]:
    """Let no signal come between an output's arrival and what is said of it."""
    from shardpass.runtime.ending import hear_no_more

    hear_no_more()
    yield
    progress(_MARK + _WRITTEN)


@contextlib.contextmanager
def _in_time(size: int) -> Iterator[None]:
    """End this process where the reading of ``size`` bytes does not end.

    Nothing of Python's runs while MLIR reads, so that the kernel has to see to it.
    """
    signal.setitimer(signal.ITIMER_PROF, _TO_READ + size / _BYTES_A_SECOND)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _flush() -> int:
    sys.stdout.flush()
    return 0


def _code_of(body: Callable[..., int], *arguments: object) -> int:
    try:
        return body(*arguments)
    except ShardingError as error:
        _current.report(error.diagnostics)
        is_usage = isinstance(error, CommandLineError) or error.slug == "usage"
        return USAGE if is_usage else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except NobodyReadsError:
        return NOBODY_READS
    except MemoryError:
        _report_fault("out of memory", "give the process more, or take a smaller module")
        return DIED
    except Exception as error:
        try:
            fault = internal_fault(error)
        except KeyboardInterrupt:
            return INTERRUPTED
        _current.report([fault])
        return DIED


def internal_fault(error: Exception) -> Diagnostic:
    """What to report of an exception that nobody expected.

    It is the border to the person's terminal: no traceback crosses it unless asked for.

    Raises:
      MemoryError, NobodyReadsError: as they are: these say something of the machine.
      KeyboardInterrupt: where a signal is behind it.
    """
    from shardpass.runtime.ending import was_told_to_end

    if isinstance(error, (MemoryError, NobodyReadsError)):
        raise error
    if was_told_to_end():
        raise KeyboardInterrupt  # MLIR makes an error of its own of what a signal raises in it.
    if os.environ.get("SHARDPASS_TRACEBACK"):
        import traceback

        _current.write("".join(traceback.format_exception(error)))
    notes = tuple(getattr(error, "__notes__", ()))
    foreign = next((n for n in notes if n.startswith(RAISED_IN) and "sp-" not in n), None)
    whose = foreign.removeprefix(RAISED_IN) if foreign else "shardpass"
    return Diagnostic(
        Severity.ERROR,
        "internal",
        f"{type(error).__name__}: {' '.join(str(error).split())}",
        notes=notes,
        help=f"this is a fault of {whose}; SHARDPASS_TRACEBACK=1 shows where it comes from",
    )


def _report_fault(message: str, help: str) -> None:
    _current.report([Diagnostic(Severity.ERROR, "internal", message, help=help)])
