"""Options that several commands have, spelt once."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import click

from shardpass.cli.console import Console

Command = TypeVar("Command", bound=Callable[..., Any])

module_argument = click.argument("module", type=click.Path(), metavar="MODULE")


class FilePath(click.ParamType):
    """The name of a file, which ``-`` is not: the standard streams carry modules alone."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """``value`` itself."""
        if value == "-":
            self.fail(
                "'-' stands for a standard stream with modules alone; name a file (./- for one of "
                "that name)",
                param,
                ctx,
            )
        return value


#: The forms of :data:`shardpass.mlir.FORMS`, which only a process with jax in it can import.
FORMS = ("text", "bytecode", "portable", "exported", "hlo", "hlo-proto")


class FormToWrite(click.ParamType):
    """A form of a module, with a version of StableHLO where it is a portable artifact."""

    name = "form"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """What the help shows."""
        return f"[{'|'.join(FORMS)}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """``value`` itself."""
        form, equals, version = value.partition("=")
        if form not in FORMS:
            self.fail(f"{value!r} is not one of {', '.join(FORMS)}", param, ctx)
        if equals and not (form == "portable" and re.fullmatch(r"\d+\.\d+\.\d+", version)):
            self.fail(f"{value!r}: a version goes with portable=1.9.0 alone", param, ctx)
        return value


emit_option = click.option(
    "--emit",
    type=FormToWrite(),
    help="The form of the output, portable=1.9.0 with a version of StableHLO. If not said: what "
    "the name ends in (.mlir text, .mlirbc bytecode, .hlo and .hlo.pb HLO), else exported if that "
    "was read, else text; and text on standard output.",
)

devices_option = click.option(
    "--devices",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many devices; by default as many as the module is for. Where the machine has no "
    "accelerators, N virtual CPU devices are made.",
)

partitioner_option = click.option(
    "--partitioner",
    type=click.Choice(["auto", "shardy", "gspmd"]),
    default="auto",
    show_default=True,
    help="Insist on a partitioner of XLA; auto takes the one that the module's notation needs.",
)


def processes_options(command: Command) -> Command:
    """The options of a run on the devices of several processes."""
    several = click.option(
        "--num-processes",
        type=click.IntRange(min=1),
        metavar="N",
        help="Run on the devices of N processes, an equal share of each.",
    )
    number = click.option(
        "--process-id",
        type=click.IntRange(min=0),
        metavar="I",
        help="On a cluster: which of the N processes, from 0, this command is to run.",
    )
    coordinator = click.option(
        "--coordinator",
        metavar="HOST:PORT",
        help="On a cluster: where process 0 runs, and a free port there.",
    )
    timeout = click.option(
        "--process-timeout",
        type=click.FloatRange(min=1),
        metavar="SECONDS",
        help="How long a process may be silent before it is taken to be lost; 30 if not said.",
    )
    start = click.option(
        "--start-timeout",
        type=click.FloatRange(min=1),
        metavar="SECONDS",
        help="On a cluster: how long the processes wait for each other to start; 300 if not said.",
    )
    return several(number(coordinator(timeout(start(command)))))


def _set_diagnostics(context: click.Context, _: click.Parameter, form: str | None) -> None:
    if form is not None:
        context.obj = replace(_console_of(context), as_json=form == "json")


def _set_quiet(context: click.Context, _: click.Parameter, quiet: bool) -> None:
    if quiet:
        context.obj = replace(_console_of(context), quiet=True)


def _console_of(context: click.Context) -> Console:
    return context.find_object(Console) or Console.of_terminal(as_json=False, quiet=False)


def console_options(command: Command) -> Command:
    """The options about messages, which may stand before a command's name or behind it."""
    diagnostics = click.option(
        "--diagnostics",
        type=click.Choice(["text", "json"]),
        expose_value=False,
        callback=_set_diagnostics,
        help="Print errors and warnings for people (text), or a line of JSON each.",
    )
    quiet = click.option(
        "-q",
        "--quiet",
        is_flag=True,
        expose_value=False,
        callback=_set_quiet,
        help="No progress and no remarks.",
    )
    return diagnostics(quiet(command))


def example(*lines: str) -> str:
    """The part of a command's help that shows how it is called."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)
