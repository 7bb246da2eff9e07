"""Something done in a child process, so that its death is an error message and not ours.

XLA ends the process for some bad modules: a failed internal check aborts it, a stray attribute
makes it touch memory that is not there. :func:`in_child` runs a function in a child and hands its
result back. A ``ShardingError`` raised there is raised here; a death becomes ``process-aborted``,
with the signal and what XLA wrote last.

Where that is safe the child is a fork of this process, which costs nothing on top of the imports
that are done already. It is safe as long as this process has a single thread beside those of
numpy's linear algebra, which see to forks themselves: once MLIR has parsed anything, or JAX has a
backend, there are threads whose locks a fork would inherit without the threads. Then the child is a
new Python, which imports again.

The child never outlives this process, whatever ends it; see :mod:`shardpass.runtime.ending`.
"""

from __future__ import annotations

import importlib
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Final, NoReturn, TypeVar

from shardpass.diagnostics import ShardingError
from shardpass.runtime.connection import Line, connected
from shardpass.runtime.ending import Child, Ended, Forked, Spawned, die_with, ending, obey
from shardpass.runtime.xla_text import without_traces

T = TypeVar("T")
Say = Callable[[str], None]

_MOST_LINES: Final = 4


def in_child(
    function: Callable[..., T],
    *args: Any,
    progress: Say | None = None,
    sift: Callable[[str], str] = str,
    **kwargs: Any,
) -> T:
    """``function(*args, **kwargs)``, run in a child process.

    What the child writes to standard error is held back: XLA's log lines are dropped, the rest is
    passed on when the child has ended well. The file that holds it is the child's, who may take
    from it what it has written.

    Args:
      function: a function of a module, by its own name there. It, the arguments and the result are
        pickled on the way, so a module travels as a path or as bytes.
      args: its arguments.
      progress: is told what the function tells the ``progress`` that it is then called with, which
        returns when that is done: what both processes write to one place stands there in order.
      sift: is given what is left in that file when the child has ended, however it did, and gives
        back what of it is to be treated as said above.
      kwargs: its keyword arguments.

    Raises:
      ShardingError: what ``function`` raises; ``process-aborted``, if the child ends without an
        answer; ``internal``, if it raises anything else.
      SystemExit: with 128 and its number, if a signal ends this process meanwhile that nobody
        handles; the child has ended by then.
    """
    task = (function.__module__, function.__qualname__, args, kwargs, progress is not None)
    with tempfile.TemporaryFile(prefix="shardpass-") as errors, ending():
        line, its_line = connected()
        with line:
            start = _fork if may_fork() else _spawn
            with its_line:
                child = start(task, its_line, line, errors)
            try:
                answer = _listen(line, progress)
                code = child.wait()
            except BaseException:  # An interrupt above all: no child is left behind.
                child.end()
                _listen(line, progress)  # What it told before it ended.
                sift(read(errors))
                raise
        told = sift(read(errors))
    if answer is None:
        raise death(code, told)
    pass_on(told)
    kind, value = answer
    if kind == "result":
        return value
    if isinstance(value, ShardingError):
        raise value
    raise ShardingError(
        "internal", f"{function.__qualname__} failed: {value[0]}", notes=value[1].splitlines()[-6:]
    )


def read(errors: IO[bytes]) -> str:
    """What a child wrote to standard error so far."""
    errors.seek(0)
    return errors.read().decode(errors="replace")


def may_fork() -> bool:
    """Whether a fork of this process inherits no lock that another thread of it may hold."""
    if not hasattr(os, "fork") or threading.active_count() > 1:
        return False
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        return False
    # Threads that a library starts have names of their own or a loaded client behind them; those of
    # numpy's linear algebra carry the process's name, and are rebuilt in a fork.
    own = (tasks / str(os.getpid()) / "comm").read_text()
    if any((task / "comm").read_text() != own for task in tasks.iterdir()):
        return False
    if "jax" not in sys.modules:
        return True
    from shardpass.compat.xla_client import backends_are_initialized

    return not backends_are_initialized()


def _fork(task: Any, line: Line, parents: Line, errors: IO[bytes]) -> Child:
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    with warnings.catch_warnings():
        # Python 3.12 counts the threads of numpy's linear algebra, too.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            die_with(parent)
            obey()
            os.dup2(errors.fileno(), 2)
            parents.close()
            _answer(task, line)
        finally:  # Nothing that is raised here goes on through the parent's code.
            os._exit(1)
    return Forked(child)


def _spawn(task: Any, line: Line, _: Line, errors: IO[bytes]) -> Child:
    return spawn(task, line, errors)


def spawn(
    task: Any,
    line: Line,
    errors: IO[bytes],
    *,
    environment: Mapping[str, str] | None = None,
    apart: bool = False,
) -> Spawned:
    """Start a new Python for a task.

    Args:
      task: module and name of a function, its arguments by position and by name, and whether it
        takes ``progress``.
      line: the child's end of a connection, which gets what it tells and its answer.
      errors: what it writes to standard error.
      environment: its environment; this process's by default.
      apart: whether its standard output goes to ``errors`` as well, and a terminal's interrupt does
        not reach it.
    """
    variables = dict(os.environ if environment is None else environment)
    paths = [path or os.getcwd() for path in sys.path]
    variables["PYTHONPATH"] = os.pathsep.join(paths)
    task_end, give_end = os.pipe()
    with os.fdopen(give_end, "wb") as pipe:
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "shardpass.runtime.child",
                 str(os.getpid()), str(task_end), *map(str, line.ends)],
                stdout=errors if apart else None,
                stderr=errors,
                pass_fds=(task_end, *line.ends),
                env=variables,
                process_group=0 if apart else None,
            )  # fmt: skip
        finally:
            os.close(task_end)
        child = Spawned(process)
        try:
            pickle.dump(task, pipe)
            pipe.flush()
        except BrokenPipeError:
            pass  # It is dead already, and how it died is told in a moment.
        except BaseException:
            child.end()
            raise
    return child


def _answer(task: Any, line: Line) -> NoReturn:
    """In the child: do the task, send the answer, end."""
    module, name, args, kwargs, tells = task
    status = 0
    try:
        function: Any = importlib.import_module(module)
        for part in name.split("."):
            function = getattr(function, part)
        if tells:
            kwargs = {**kwargs, "progress": line.tell}
        line.send(("result", function(*args, **kwargs)))
    except ShardingError as error:
        line.send(("error", error))
    except Ended as error:
        # Nothing is left to clean up: die of it, as whoever sent it expects.
        signal.signal(error.signal, signal.SIG_DFL)
        os.kill(os.getpid(), error.signal)
    except BaseException as error:
        # The border of the process: whatever it is, the parent is told.
        import traceback

        line.send(("error", (f"{type(error).__name__}: {error}", traceback.format_exc())))
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # No clean-up at exit: it belongs to the parent, and joining XLA's threads takes its time.
    os._exit(status)


def _listen(line: Line, progress: Say | None) -> tuple[str, Any] | None:
    """The child's answer, or ``None`` where it ended without one."""
    while (message := line.receive()) is not None and message[0] == "progress":
        if progress is not None:
            progress(message[1])
        line.acknowledge()
    return message


# What a dead child leaves.

#: What XLA's own log puts in front of a line: severity, date, time, thread, file and line.
#: LLVM, where it is the one to end the process, writes the same behind a word of its own.
_LOG: Final = re.compile(r"^(?:LLVM ERROR: )?[IWEF]\d{4} [\d:.]+ +\d+ (?P<where>\S+:\d+)\] ")
#: Lines of stack traces, registers and tips, which say nothing to a user.
_TRACE: Final = re.compile(
    r"^\s*(@ |\*\*\*|=== |#\d+ |0x|File \"|Thread 0x|Current thread|Stack dump|PLEASE submit"
    r"|\d+\.\s|Extension modules|external/|_?Py|__libc|_start)|^\s*$|<no Python frame>"
)
_FATAL: Final = re.compile(r"^F\d{4} |LLVM ERROR|Check failed|Assertion|RET_CHECK|terminate called")


def death(code: int, told: str, who: str = "the child process") -> ShardingError:
    """The error for a child that ended with ``code`` (a signal where negative), saying ``told``."""
    name = _signal_of(code)
    how = f"was ended by {name}" if name else f"ended with exit status {code} and no answer"
    lines = [line for line in without_traces(told).splitlines() if not _TRACE.search(line)]
    fatal = [line for line in lines if _FATAL.search(line)]
    quiet = [line for line in lines if not re.match(r"[IW]\d{4} ", line)]
    last = [without_log(line) for line in (fatal or quiet)[-_MOST_LINES:]]
    return ShardingError(
        "process-aborted",
        f"{who} {how}",
        notes=[line if len(line) <= 300 else f"{line[:300]}..." for line in last],
        help=_STARVED if "Termination timeout" in told else _REMEDIES.get(name, _REMEDY),
    )


def without_log(line: str) -> str:
    """``line`` without what XLA's log puts in front of it."""
    return _LOG.sub("", line).strip()


def _signal_of(code: int) -> str:
    if code >= 0:
        return ""
    return signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"


_STARVED: Final = "XLA's threads waited for each other: set PJRT_NPROC to a larger number"
_REMEDY: Final = (
    "XLA or MLIR died of this module without an error of its own; shardpass opt --sp-verify checks "
    "its annotations, and where those are right, the likely cause is an op or element type that "
    "XLA does not support here: see whether the module runs without annotations (sp-strip)"
)
_REMEDIES: Final = {
    "SIGKILL": "most often that is the kernel, out of memory: use a smaller batch or more devices",
    "SIGTERM": "somebody ended it",
    "SIGPROF": "reading the file took far longer than any of its size does, and was ended: it is "
    "damaged, in a way that MLIR's reader goes on for ever",
    "SIGINT": "somebody interrupted it",
}


def pass_on(told: str) -> None:
    """Print what a child wrote to standard error, without XLA's log."""
    for line in without_traces(told).splitlines():
        if not _LOG.match(line):
            print(line, file=sys.stderr)


def _main() -> NoReturn:
    parent, task_end, *ends = map(int, sys.argv[1:])
    die_with(parent)
    obey()
    with ending(), os.fdopen(task_end, "rb") as pipe:
        _answer(pickle.load(pipe), Line((ends[0], ends[1])))


if __name__ == "__main__":
    _main()
