"""Options that several commands have, spelt once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

module_argument = click.argument("module", type=click.Path(), metavar="MODULE")

emit_option = click.option(
    "--emit",
    type=click.Choice(["text", "bytecode"]),
    help="The form of the output; by default text, or bytecode for a name ending in .mlirbc.",
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


def example(*lines: str) -> str:
    """The part of a command's help that shows how it is called."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)
