"""The commands, and the options that all of them have."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import click

import shardpass
from shardpass.cli.console import Console
from shardpass.cli.guard import FAILED, INTERRUPTED, NOBODY_READS
from shardpass.cli.options import console_options, example
from shardpass.cli.streams import NobodyReadsError, guard_streams
from shardpass.diagnostics import ShardingError, did_you_mean

_COMMANDS = ("shard", "run", "run-script", "report", "opt", "lit-lint")


class _Commands(click.Group):
    """Finds each command in the module of its name, when it is asked for."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an interrupt while it is still being read is one like any other."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        return getattr(importlib.import_module(f"shardpass.cli.{name}"), name)

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
@console_options
@click.pass_context
def cli(context: click.Context) -> None:
    """Say how tensors lie on a device mesh, write it into a StableHLO module, and prove it.

    Exit codes: 0, it worked; 1, the input is at fault or the check failed; 2, the command line
    cannot be understood; 3, the process that did the work died.
    """
    if context.obj is None:
        context.obj = Console.of_terminal(as_json=False, quiet=False)


def main(arguments: Sequence[str] | None = None) -> Any:
    """Run the command line; exits."""
    guard_streams()
    try:
        return cli.main(arguments, prog_name="shardpass")
    except NobodyReadsError:
        return NOBODY_READS
    except ShardingError as error:  # Help that nobody can be shown.
        Console.of_terminal(as_json=False, quiet=False).report(error.diagnostics)
        return FAILED
