"""``shardpass report``: what a module's shardings mean, in bytes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from shardpass.cli.guard import console, guarded
from shardpass.cli.options import (
    console_options,
    devices_option,
    example,
    module_argument,
    partitioner_option,
)
from shardpass.cli.streams import load_module

if TYPE_CHECKING:
    from shardpass.mlir import Module
    from shardpass.report import CompiledFigures
    from shardpass.runtime.preflight import PartitionerChoice


@click.command(
    short_help="Show what each device holds, and what it sends.",
    epilog=example(
        "shardpass report sharded.mlir",
        "shardpass report sharded.mlir --compile --json > report.json",
    ),
)
@module_argument
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--all", "show_all", is_flag=True, help="Show every row; do not fold numbered layers."
)
@click.option(
    "--compile",
    "compiled",
    is_flag=True,
    help="Compile the module, and add the collectives and the memory of each device.",
)
@devices_option
@partitioner_option
@console_options
@click.pass_context
def report(
    context: click.Context,
    module: str,
    as_json: bool,
    show_all: bool,
    compiled: bool,
    devices: int | None,
    partitioner: PartitionerChoice,
) -> None:
    """List MODULE's arguments and results with path, shape, sharding and bytes per device.

    MODULE is a file, or - for standard input. Collectives are read from XLA's optimized HLO, by
    kind, with count and bytes; those in a loop count as often as it runs.
    """
    if not compiled and devices is not None:
        raise click.UsageError("--devices goes with --compile")
    if not compiled and partitioner != "auto":
        raise click.UsageError("--partitioner goes with --compile")
    guarded(context, _report, module, as_json, show_all, compiled, devices, partitioner)


def _report(
    path: str,
    as_json: bool,
    show_all: bool,
    compiled: bool,
    devices: int | None,
    partitioner: PartitionerChoice,
) -> int:
    from shardpass.cli.tables import standard_output
    from shardpass.report import build_report, render_terminal

    module = load_module(path)
    figures = _compile(module, devices, partitioner) if compiled else None
    found = build_report(module, figures)
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=2))
    else:
        render_terminal(found, standard_output(), show_all=show_all)
    console().report(found.diagnostics)
    return 0


def _compile(
    module: Module, devices: int | None, partitioner: PartitionerChoice
) -> CompiledFigures:
    from shardpass.report import compiled_figures
    from shardpass.runtime import compile_module, request_cpu_devices
    from shardpass.runtime.preflight import device_count

    count = devices or device_count(module)
    request_cpu_devices(count)
    with console().step(f"compile for {count} devices"):
        executable = compile_module(module, devices=count, partitioner=partitioner)
    return compiled_figures(
        executable.hlo_text,
        executable.memory_stats,
        [layout.sharding for layout in executable.argument_layouts],
        [layout.sharding for layout in executable.result_layouts],
    )
