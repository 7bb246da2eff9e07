"""A module on the devices of several processes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardpass.mlir import load
from shardpass.runtime.inputs import Inputs, input_source
from shardpass.runtime.preflight import (
    PartitionerChoice,
    check_before_compiling,
    choose_partitioner,
    device_count,
)
from shardpass.runtime.processes.group import Group
from shardpass.runtime.processes.job import Job
from shardpass.runtime.processes.supervisor import supervise
from shardpass.runtime.processes.work import work

if TYPE_CHECKING:
    from shardpass.runtime.result import CheckResult
    from shardpass.runtime.running import RunResult


def run_on_processes(
    module: Any,
    group: Group,
    *,
    devices: int | None = None,
    check: bool = False,
    inputs: Inputs = None,
    seed: int = 0,
    tolerance: float | None = None,
    partitioner: PartitionerChoice = "auto",
    save: str | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> RunResult | CheckResult | None:
    """Run a module, or check it, in processes that are started for it.

    Args:
      module: whatever :func:`shardpass.load` takes.
      group: the processes; see :class:`~shardpass.runtime.processes.group.Group`.
      devices: how many devices, those of all processes together; by default as many as the module
        is sharded for.
      check: compare it with its unsharded self, which process 0 runs on one of its devices.
      inputs: see :func:`shardpass.runtime.input_source`; a path is one that each process finds.
      seed: what made-up inputs are drawn from.
      tolerance: see :func:`shardpass.runtime.check`.
      partitioner: see :func:`shardpass.runtime.compile_module`.
      save: where process 0 writes the results of a run.
      progress: is told each step as it begins, of the first process here.

    Returns:
      What :func:`shardpass.runtime.run` or :func:`shardpass.runtime.check` gives, without arrays;
      ``None`` where process 0 is another machine's.

    Raises:
      ShardingError: what these raise; ``process-lost``, with its number, for a process that dies,
        hangs or raises anything else; ``processes-differ``; ``usage``.
    """
    loaded = load(module)
    count = device_count(loaded) if devices is None else devices
    group.share(count)
    # What every process would find to be wrong is said once, and at once.
    choose_partitioner(loaded, partitioner)
    check_before_compiling(loaded, count)
    input_source(loaded, inputs, seed=seed)
    with tempfile.TemporaryDirectory(prefix="shardpass-") as folder:
        path = Path(folder) / "module.mlirbc"
        path.write_bytes(loaded.bytecode())
        job = Job(
            module=str(path),
            name=loaded.name,
            devices=count,
            check=check,
            inputs=inputs,
            seed=seed,
            tolerance=tolerance,
            partitioner=partitioner,
            save=save,
        )
        return supervise(work, (job,), group, progress)[0]
