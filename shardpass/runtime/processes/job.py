"""What the processes of a run are to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardpass.runtime.inputs import Inputs
    from shardpass.runtime.preflight import PartitionerChoice


@dataclass(frozen=True, kw_only=True)
class Job:
    """A module to run, or to check; the same for every process.

    Attributes:
      module: the path of the module, as each process finds it.
      name: what messages call it.
      devices: how many devices to run on, those of all processes together.
      check: whether to compare it with its unsharded self; see :func:`shardpass.runtime.check`.
      inputs: see :func:`shardpass.runtime.input_source`; a path is one that each process finds.
      seed: what made-up inputs are drawn from.
      tolerance: that of a check.
      partitioner: see :func:`shardpass.runtime.compile_module`.
      save: where process 0 writes the results of a run.
    """

    module: str
    name: str
    devices: int
    check: bool = False
    inputs: Inputs = None
    seed: int = 0
    tolerance: float | None = None
    partitioner: PartitionerChoice = "auto"
    save: str | None = None
