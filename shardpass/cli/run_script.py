"""``shardpass run-script``: a training script that nobody edits, in plugin mode."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click

from shardpass.cli.guard import DIED, USAGE, console_of
from shardpass.cli.options import FilePath, console_options, example
from shardpass.cli.witness import Witness, witness
from shardpass.diagnostics import ShardingError
from shardpass.runtime.script import program_of

#: What the child runs, with a folder that holds the package for its first argument. The package
#: comes from there, and the folder is nothing that the script finds on its path.
_PROGRAM: Final = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from shardpass.cli.script_child import main; del sys.path[0]; main()"
)
#: Signals that a script may want to handle in its own way: it gets them, and is waited for.
_HANDED_ON: Final = (
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGTSTP,
    signal.SIGCONT,
)
#: Seconds between two looks at a signal of which nobody knows yet who else got it.
_LOOK: Final = 0.02


@dataclass(frozen=True)
class Request:
    """What the command line asks for."""

    script: str
    arguments: Sequence[str]
    mesh: str | None
    rules: str | None
    pipeline: str | None
    devices: int | None
    leave_alone: Sequence[str]
    report: bool
    as_json: bool
    quiet: bool


@click.command(
    "run-script",
    short_help="Run a Python script whose jax.jit compiles with a plan.",
    epilog=example(
        "shardpass run-script train.py --rules rules.toml --mesh data=2,model=4",
        "shardpass run-script train.py --rules rules.toml --report -- --steps 100",
    ),
)
@click.argument("script", type=FilePath(), metavar="SCRIPT")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGUMENTS...]")
@click.option("--rules", type=FilePath(), metavar="FILE", help="The partition rules, a TOML file.")
@click.option("--mesh", metavar="NAME=SIZE,...", help="The mesh; instead of the one in the rules.")
@click.option(
    "--pipeline",
    metavar="TEXT",
    help="The passes to run; by default sp-annotate,sp-propagate.",
)
@click.option(
    "--devices",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many virtual CPU devices the script has where there are no accelerators; by default "
    "as many as the mesh.",
)
@click.option(
    "--leave-alone",
    multiple=True,
    metavar="NAME",
    help="A function to compile as it is: its name, or a regex for the whole of it. May be given "
    "again.",
)
@click.option(
    "--report",
    is_flag=True,
    help="At the end, print to standard error what was compiled with a plan, and what was left "
    "alone and why.",
)
@console_options
@click.pass_context
def run_script(context: click.Context, **options: Any) -> None:
    """Run SCRIPT as python would, with what it has under jax.jit compiled by rules and passes.

    SCRIPT is a file, or a folder with a file __main__.py.

    The script is not edited, and need not know of shardpass. Its output, its traceback and its exit
    code are its own; 1 stands for a function that the rules do not fit, 2 for what is wrong with
    this command line, 3 for a script whose process died.
    """
    console = console_of(context)
    request = Request(**options, as_json=console.as_json, quiet=console.quiet)
    if request.rules is None and request.pipeline is None:
        raise click.UsageError("nothing says how to shard: give --rules FILE, or --pipeline TEXT")
    if program_of(request.script) is None:
        told = ShardingError(
            "unreadable", f"cannot read {request.script}: {_missing(request.script)}"
        )
        console.report(told.diagnostics)
        context.exit(USAGE)
    code = _run(request)
    if -code in (signal.SIGINT, *_HANDED_ON):
        code = 128 - code
    elif code < 0:
        console.report(_death(request, -code).diagnostics)
        code = DIED
    context.exit(code)


def _run(request: Request) -> int:
    """The exit code of the child that runs the script; the number of a signal, negative."""
    root = str(Path(__file__).parents[2])
    warnings = [f"-W{option}" for option in sys.warnoptions]
    sys.stdout.flush()
    sys.stderr.flush()
    command = [sys.executable, *warnings, "-c", _PROGRAM, root, json.dumps(asdict(request))]
    # Who ignores an interrupt (a shell, of what it starts in the background) has the script do so.
    is_heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    interrupt = (signal.SIGINT,) if is_heard else ()
    numbers = [n for n in _HANDED_ON if signal.getsignal(n) is signal.SIG_DFL]
    with witness([*interrupt, *numbers]) as beside:
        environment = {**os.environ, "SHARDPASS_PARENT": str(os.getpid())}
        child = subprocess.Popen(command, env=environment)
        return _Handing(child, beside).until_it_ends([*interrupt, *numbers])


class _Handing:
    """Waits for the script, and has it get what is sent to this process as if it were this process.

    What has come to the process beside it has come to the script as well, which gets it once.
    """

    def __init__(self, child: subprocess.Popen[bytes], beside: Witness) -> None:
        self._child = child
        self._beside = beside
        self._come: list[tuple[int, float]] = []

    def until_it_ends(self, numbers: Sequence[signal.Signals]) -> int:
        """The script's exit code; the number of a signal, negative."""
        woken, waking = os.pipe()
        for end in (woken, waking):
            os.set_blocking(end, False)
        before = {number: signal.signal(number, self._note) for number in numbers}
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        wakeup = signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
        try:
            while self._child.poll() is None:
                look_again = _LOOK if self._come else None
                ready, _, _ = select.select([woken, self._beside.notes], [], [], look_again)
                if woken in ready:
                    os.read(woken, 512)
                for one in list(self._come):  # More may come at any line.
                    if self._is_settled(*one):
                        self._come.remove(one)
            return self._child.returncode
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(woken)
            os.close(waking)

    def _note(self, number: int, _: object) -> None:
        self._come.append((number, time.monotonic()))

    def _is_settled(self, number: int, when: float) -> bool:
        has_seen = self._beside.has_seen(number, when)
        if has_seen is None:
            return False
        if not has_seen:
            self._child.send_signal(number)
        if number == signal.SIGTSTP:
            # The shell waits for this process, and for it to stop.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            signal.signal(number, self._note)
        return True


def _missing(script: str) -> str:
    if Path(script).is_dir():
        return "it is a folder without a file __main__.py"
    return "there is no file of that name"


def _death(request: Request, number: int) -> ShardingError:
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    return ShardingError(
        "process-aborted",
        f"the process of {request.script} was ended by {name}",
        help="what it wrote last stands above; run it with python alone to see whether the rules "
        "have a part in it",
    )
