"""``shardpass shard``: a module that nobody annotated, sharded."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from shardpass.cli.folder import same_folder
from shardpass.cli.guard import console, guarded, reading_the_command_line
from shardpass.cli.options import (
    FilePath,
    console_options,
    emit_option,
    example,
    module_argument,
)
from shardpass.cli.streams import load_module

if TYPE_CHECKING:
    from shardpass.mlir import Emit, Module


@dataclass(frozen=True)
class _Request:
    module: str
    output: str
    mesh: str | None
    rules: str | None
    pipeline: str | None
    notation: str | None
    emit: Emit | None
    conflicts: str | None
    indivisible: str | None


@click.command(
    short_help="Annotate a module by rules, and propagate.",
    epilog=example(
        "shardpass shard step.mlir -o sharded.mlir --mesh data=2,model=4 --rules rules.toml",
        "shardpass shard step.mlir -o sharded.mlirbc --rules rules.toml --notation mhlo",
    ),
)
@module_argument
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="OUT",
    help="Where the sharded module goes; - for standard output.",
)
@click.option("--mesh", metavar="NAME=SIZE,...", help="The mesh; instead of the one in the rules.")
@click.option("--rules", type=FilePath(), metavar="FILE", help="The partition rules, a TOML file.")
@click.option(
    "--pipeline",
    metavar="TEXT",
    help="The passes to run; by default sp-verify,sp-annotate,sp-propagate.",
)
@click.option(
    "--notation",
    type=click.Choice(["sdy", "mhlo"]),
    help="Write Shardy's attributes (what is done if not said), or GSPMD's.",
)
@click.option(
    "--conflicts",
    type=click.Choice(["first", "error"]),
    help="Where two rules differ on a value: take the first, or refuse.",
)
@click.option(
    "--indivisible",
    type=click.Choice(["error", "replicate"]),
    help="Where a dimension does not divide: refuse, or leave it whole and say so.",
)
@emit_option
@console_options
@click.pass_context
def shard(context: click.Context, **options: Any) -> None:
    """Read MODULE (a file, or - for standard input), shard it, write it to OUT.

    MODULE may be StableHLO as text, as bytecode or as a portable artifact, what jax.export
    serialized, or HLO as text or as a proto; which of them, its content tells. OUT is written whole
    or not at all.
    """
    request = _Request(**options)
    if request.rules is None and request.pipeline is None:
        raise click.UsageError("nothing says how to shard: give --rules FILE, or --pipeline TEXT")
    guarded(context, _shard, request)


def _shard(request: _Request) -> int:
    from shardpass.mlir import files
    from shardpass.passes import run_pipeline

    out = console()
    if request.output != "-":
        files.check_target(request.output)
    with reading_the_command_line(), same_folder():
        pipeline = _pipeline(request)
    module = load_module(request.module)
    if request.output != "-" or request.emit is not None:
        module.check_form(request.output, request.emit)
    with out.step("shard"), same_folder():
        result = run_pipeline(module, pipeline, in_place=True)
    out.report(result.diagnostics)
    with out.step(f"write {request.output}"):
        if request.output == "-":
            _to_standard_output(result.module, request.emit)
        else:
            result.module.save(request.output, emit=request.emit, warn=lambda d: out.report([d]))
    if request.output != "-":
        click.echo(request.output)
    return 0


def _pipeline(request: _Request) -> list[Any]:
    from shardpass.diagnostics import ShardingError
    from shardpass.partition_rules.mesh_text import parse_mesh
    from shardpass.passes import build
    from shardpass.passes.annotate import Annotate
    from shardpass.passes.export_mhlo import ExportMhlo
    from shardpass.passes.given import fill_in
    from shardpass.passes.propagate import Propagate
    from shardpass.passes.verify import Verify

    given = {
        "rules": request.rules,
        "mesh": None if request.mesh is None else parse_mesh(request.mesh),
        "conflicts": request.conflicts,
        "indivisible": request.indivisible,
    }
    own: list[Any] = [Verify(), Annotate(), Propagate()]
    steps = fill_in(
        own if request.pipeline is None else build(request.pipeline), given, spelling="--{}"
    )
    exports = any(isinstance(step, ExportMhlo) for step in steps)
    if request.notation == "sdy" and exports:
        raise ShardingError(
            "bad-pipeline",
            f"--notation sdy is given, and the pipeline ends in mhlo: it has {ExportMhlo.name}",
            help="leave out one of the two",
        )
    if request.notation == "mhlo" and not exports:
        steps.append(ExportMhlo())
    return steps


def _to_standard_output(module: Module, emit: Emit | None) -> None:
    sys.stdout.buffer.write(module.to_bytes(emit or "text", warn=lambda d: console().report([d])))
