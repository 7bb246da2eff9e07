"""``shardpass run``: a module on devices, and the proof that sharding changed nothing."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from shardpass.cli.guard import FAILED, console, guarded
from shardpass.cli.options import (
    FilePath,
    console_options,
    devices_option,
    example,
    module_argument,
    partitioner_option,
    processes_options,
)
from shardpass.cli.streams import load_module

if TYPE_CHECKING:
    from shardpass.mlir import Module
    from shardpass.runtime import CheckResult, RunResult


@dataclass(frozen=True)
class _Request:
    module: str
    devices: int | None
    check: bool
    inputs: str | None
    seed: int | None
    tolerance: float | None
    partitioner: Any
    save_results: str | None
    as_json: bool
    num_processes: int | None
    process_id: int | None
    coordinator: str | None
    process_timeout: float | None
    start_timeout: float | None


@click.command(
    short_help="Run a module on devices, and compare it with its unsharded self.",
    epilog=example(
        "shardpass run sharded.mlir --devices 8 --check",
        "shardpass run sharded.mlir --devices 8 --inputs batch.npz --save-results out.npz",
        "shardpass run sharded.mlir --devices 8 --check --num-processes 2",
    ),
)
@module_argument
@devices_option
@click.option(
    "--check",
    is_flag=True,
    help="Run the unsharded program as well, on one device, and compare every result.",
)
@click.option(
    "--inputs",
    type=FilePath(),
    metavar="FILE",
    help="An .npz with the arguments, by their paths.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    help="What made-up inputs are drawn from; 0 if not said.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    metavar="ERROR",
    help="The relative L2 error to allow; by default that of each element type.",
)
@partitioner_option
@click.option(
    "--save-results", type=FilePath(), metavar="FILE", help="Write the results to an .npz."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@processes_options
@console_options
@click.pass_context
def run(context: click.Context, **options: Any) -> None:
    """Compile MODULE (a file, or - for standard input) through XLA's SPMD partitioner and run it.

    Without --inputs the arguments are made up, the same ones for the same seed: integers that index
    stay in range, arguments of a square root or a logarithm are positive.

    With --num-processes the devices are those of several processes, each with an equal share. They
    are all started here and share out this machine's accelerators, or virtual CPU devices; or each
    is started by a command of its own, on a cluster, with --process-id and --coordinator. Process 0
    prints and writes what there is. A process that dies, hangs or raises an error ends the run with
    exit code 1 and one message that names it. All have to be started with the same options, and
    within --start-timeout of each other.
    """
    request = _Request(**options)
    if request.num_processes is None:
        for option in ("process_id", "coordinator", "process_timeout", "start_timeout"):
            if options[option] is not None:
                name = option.replace("_", "-")
                raise click.UsageError(f"--{name} goes with --num-processes")
    if request.check and request.save_results:
        raise click.UsageError("--save-results goes with a plain run, not with --check")
    if request.tolerance is not None and not request.check:
        raise click.UsageError("--tolerance goes with --check")
    if request.seed is not None and request.inputs is not None and not request.check:
        raise click.UsageError("--seed goes with made-up inputs, or with --check")
    guarded(context, _run, request)


def _run(request: _Request) -> int:
    from shardpass.runtime import request_cpu_devices
    from shardpass.runtime.preflight import device_count

    module = load_module(request.module)
    devices = request.devices or device_count(module)
    if request.num_processes is not None:
        return _run_on_processes(module, devices, request)
    request_cpu_devices(devices)
    if request.check:
        return _check(module, devices, request)
    return _run_once(module, devices, request)


def _run_on_processes(module: Module, devices: int, request: _Request) -> int:
    from shardpass.runtime import CheckResult
    from shardpass.runtime.processes.group import START, TIMEOUT, Group
    from shardpass.runtime.processes.running import run_on_processes

    group = Group.of(
        request.num_processes or 0,
        request.process_id,
        request.coordinator,
        request.process_timeout or TIMEOUT,
        request.start_timeout or START,
    )
    out = console()
    result = run_on_processes(
        module,
        group,
        devices=devices,
        check=request.check,
        inputs=request.inputs,
        seed=request.seed or 0,
        tolerance=request.tolerance,
        partitioner=request.partitioner,
        save=request.save_results,
        progress=lambda step: out.say(f"{step} ..."),
    )
    if result is None:
        return 0  # Process 0 says what there is to say.
    if isinstance(result, CheckResult):
        return _tell_check(result, request)
    return _tell_run(result, request)


def _run_once(module: Module, devices: int, request: _Request) -> int:
    from shardpass.runtime import run as run_module

    with console().step(f"run on {devices} devices"):
        result = run_module(
            module,
            devices=devices,
            inputs=request.inputs,
            seed=request.seed or 0,
            partitioner=request.partitioner,
            keep=False,
            save=request.save_results,
        )
    return _tell_run(result, request)


def _tell_run(result: RunResult, request: _Request) -> int:
    if request.as_json:
        click.echo(json.dumps(result.to_json(), indent=2))
    else:
        _print_run(result)
    console().report(result.diagnostics)
    return 0


def _check(module: Module, devices: int, request: _Request) -> int:
    from shardpass.runtime import check as check_module

    out = console()
    result = check_module(
        module,
        devices=devices,
        inputs=request.inputs,
        seed=request.seed or 0,
        tolerance=request.tolerance,
        partitioner=request.partitioner,
        progress=lambda step: out.say(f"{step} ..."),
    )
    return _tell_check(result, request)


def _tell_check(result: CheckResult, request: _Request) -> int:
    if request.as_json:
        click.echo(json.dumps(result.to_json(), indent=2))
    else:
        _print_check(result)
    console().report([*result.diagnostics, *result.warnings])
    return 0 if result.ok else FAILED


def _print_run(result: RunResult) -> None:
    from shardpass.cli.tables import print_table

    print_table(
        ["result", "shape", "dtype", "shard", "norm"],
        [
            [row.path, _by(row.shape), row.dtype, _by(row.shard_shape), f"{row.norm:.6g}"]
            for row in result.rows
        ],
    )
    partitioner = f" through {result.partitioner}" if result.partitioner else ""
    click.echo(f"ran on {result.devices} devices{partitioner}: {len(result.rows)} results")
    wrong = [row.path for row in result.rows if not row.finite]
    if wrong:
        click.echo(f"not finite: {', '.join(wrong)}")


def _print_check(result: CheckResult) -> None:
    from shardpass.cli.tables import print_table

    nearest = sorted(result.rows, key=lambda row: (row.ok, -row.error / (row.limit or 1)))
    shown = nearest[: max(_MOST, sum(not row.ok for row in result.rows))]
    print_table(
        ["result", "shape", "dtype", "error", "limit", "decided by", ""],
        [
            [
                row.path,
                _by(row.shape),
                row.dtype,
                f"{row.error:.2e}",
                f"{row.limit:.2e}",
                row.decided_by,
                "equal" if row.ok else "DIFFERS" if row.decided_by != "not-a-proof" else "NO PROOF",
            ]
            for row in shown
        ],
    )
    if len(result.rows) > len(shown):
        click.echo(f"... and {len(result.rows) - len(shown)} results nearer to equal")
    settled = dict.fromkeys(("tolerance", "noise"), 0)
    for row in result.rows:
        if row.ok and row.decided_by in settled:
            settled[row.decided_by] += 1
    passed = sum(row.ok for row in result.rows)
    click.echo(
        f"check {'passed' if result.ok else 'FAILED'}: {passed} of {len(result.rows)} results on "
        f"{result.devices} devices equal the unsharded program's "
        f"({settled['tolerance']} within the tolerance of their type, {settled['noise']} within 8 "
        "times the program's own noise)"
    )
    if result.arguments:
        click.echo(_evidence(result))


def _evidence(result: CheckResult) -> str:
    """What the check is worth, in a line."""
    counts = Counter(row.proof for row in result.arguments)
    told = ""
    for proof, how in (
        ("counted", "would if it were lost, in whatever order"),
        ("together", "only tried with others"),
        ("none", "unproven"),
    ):
        if counts[proof]:
            told += f"; {counts[proof]} {how}"
    return (
        f"a shard in the wrong place would show for {counts['placed']} of "
        f"{len(result.arguments)} sharded arguments{told}"
    )


#: Rows shown of a check that passed; those that failed are shown all.
_MOST = 6


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"
