"""The process that a script of ``shardpass run-script`` runs in, from its first line."""

from __future__ import annotations

import atexit
import json
import os
import sys
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Final, NoReturn

from shardpass.cli.console import Console
from shardpass.cli.guard import FAILED, USAGE, CommandLineError, reading_the_command_line
from shardpass.cli.run_script import Request
from shardpass.diagnostics import Diagnostic, ShardingError
from shardpass.runtime.ending import die_with
from shardpass.runtime.script import program_of, run_script

if TYPE_CHECKING:
    from shardpass.runtime.plugged import Plugin

#: How plugin mode's notes on its errors begin; its modules are not to be imported before jax.
_COMPILING: Final = "plugin mode was compiling "


def main() -> NoReturn:
    """Run the script that the command line names."""
    die_with(int(os.environ.pop("SHARDPASS_PARENT")))
    request = Request(**json.loads(sys.argv[1]))
    console = Console.of_terminal(as_json=request.as_json, quiet=request.quiet)
    program = program_of(request.script)  # The script may go to another folder.
    plugged: list[Plugin] = []
    ending = _Ending(console, request, plugged)
    code: object = 0
    try:
        run_script(request.script, request.arguments, lambda: plugged.append(_enabled(request)))
    except SystemExit as left:
        code = left.code
        ending.has_failed = code not in (0, None)
    except ShardingError as error:
        told = _ours(error, request)
        code = FAILED
        ending.has_failed = True
        if told is None:
            _print_traceback(error, program)
        else:
            console.report(told)
            code = USAGE if isinstance(error, CommandLineError) else FAILED
    except KeyboardInterrupt:
        # Python knows what a shell expects of an interrupted program, once it is printed.
        ending.has_failed = True
        printing = sys.excepthook
        sys.excepthook = lambda kind, error, trace: printing(
            kind, error.with_traceback(own := _own(trace, program)), own
        )
        raise
    except BaseException as error:
        _print_traceback(error, program)
        code = FAILED
        ending.has_failed = True
    sys.exit(code)  # pyright: ignore[reportArgumentType]


def _enabled(request: Request) -> Plugin:
    """Plugin mode as asked for, on in all threads."""
    from shardpass.partition_rules.mesh_text import parse_mesh
    from shardpass.passes import build
    from shardpass.runtime import request_cpu_devices
    from shardpass.runtime.plugged.block import plugin_for_later

    with reading_the_command_line():
        shape = None if request.mesh is None else parse_mesh(request.mesh)
        pipeline = None if request.pipeline is None else build(request.pipeline)
    plugged = plugin_for_later(
        shape=shape, rules=request.rules, pipeline=pipeline, leave_alone=request.leave_alone
    )
    request_cpu_devices(request.devices or plugged.mesh_shape.size)
    plugged.enable()
    return plugged


class _Ending:
    """Says what there is to say when the script is done, its threads and what it left for the end.

    Attributes:
      has_failed: whether the script has ended otherwise than it meant to.
    """

    def __init__(self, console: Console, request: Request, plugged: list[Plugin]) -> None:
        self.has_failed = False
        self._console = console
        self._request = request
        self._plugged = plugged
        self._process = os.getpid()
        # Python calls this behind what the script registers, and when all threads have ended.
        atexit.register(self._say)

    def _say(self) -> None:
        if os.getpid() != self._process:
            return  # A fork of the script's own.
        if not self._plugged:
            if not self.has_failed:
                self._console.say(
                    f"{self._request.script} has not imported jax: there was nothing to compile"
                )
            return
        report = self._plugged[0].report()
        if not self.has_failed:
            self._console.report(report.warnings)
        if self._request.report:
            as_json = self._request.as_json
            text = json.dumps(report.to_json()) if as_json else str(report)
            self._console.write(f"{text}\n")


def _ours(error: ShardingError, request: Request) -> list[Diagnostic] | None:
    """What to say of an error of plugin mode's; ``None`` for one that the script raised itself."""
    trace = error.__traceback__
    script = None
    is_ours = isinstance(error, CommandLineError)
    while trace is not None:
        frame = trace.tb_frame
        is_ours = is_ours or frame.f_code is _enabled.__code__
        if frame.f_globals.get("__name__") == "__main__":
            script = f"{frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    notes = getattr(error, "__notes__", ())
    told = [note for note in notes if note.startswith(_COMPILING)]
    if not told and not is_ours:
        return None
    if told and script:
        told.append(f"called at {script}")
    first, *rest = error.diagnostics
    help = first.help
    if first.slug == "not-enough-devices" and request.devices is not None:
        help = "give --devices as many as the mesh has, or leave it out; or another mesh (--mesh)"
    return [replace(first, notes=(*first.notes, *told), help=help), *rest]


def _print_traceback(error: BaseException, program: str | None) -> None:
    """As Python would have, had it run the script itself."""
    trace = _own(error.__traceback__, program)
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def _own(trace: TracebackType | None, program: str | None) -> TracebackType | None:
    """The traceback from the script's first frame on; empty where it did not come to that."""
    while trace is not None and trace.tb_frame.f_code.co_filename != program:
        trace = trace.tb_next
    return trace
