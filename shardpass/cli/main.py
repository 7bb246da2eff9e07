"""The commands, and the options that all of them have."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import click

import shardpass
from shardpass.cli.console import Console
from shardpass.cli.options import example
from shardpass.diagnostics import did_you_mean

_COMMANDS = ("shard", "run", "report", "opt")


class _Commands(click.Group):
    """Finds each command in the module of its name, when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"shardpass.cli.{cmd_name}")
        return getattr(module, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            guess = did_you_mean(args[0], _COMMANDS)
            raise click.UsageError(
                f"there is no command {args[0]!r}" + (f"; {guess}" if guess else ""), ctx
            )
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=example(
        "shardpass shard step.mlir -o sharded.mlir --mesh data=2,model=4 --rules rules.toml",
        "shardpass run sharded.mlir --devices 8 --check",
    ),
)
@click.version_option(shardpass.__version__, prog_name="shardpass")
@click.option(
    "--diagnostics",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Print errors and warnings for people, or a line of JSON each.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress and no remarks.")
@click.pass_context
def cli(context: click.Context, diagnostics: str, quiet: bool) -> None:
    """Say how tensors lie on a device mesh, write it into a StableHLO module, and prove it.

    Exit codes: 0, it worked; 1, the input is at fault or the check failed; 2, the command line
    cannot be understood; 3, the process that did the work died.
    """
    context.obj = Console.of_terminal(as_json=diagnostics == "json", quiet=quiet)


def main(arguments: Sequence[str] | None = None) -> Any:
    """Run the command line; exits."""
    return cli.main(arguments, prog_name="shardpass")
