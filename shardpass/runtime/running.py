"""Run a sharded module once, and say what came out."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardpass.diagnostics import Diagnostic
from shardpass.mlir import load
from shardpass.report.layouts import layouts_not_applied
from shardpass.runtime.compile import Executable, compile_module
from shardpass.runtime.devices import Device
from shardpass.runtime.element_types import is_complex, is_float
from shardpass.runtime.inputs import Inputs, InputSource, input_source
from shardpass.runtime.npz import NpzWriter
from shardpass.runtime.preflight import Partitioner, PartitionerChoice


@dataclass(frozen=True)
class RunRow:
    """One result of a run.

    Attributes:
      index: its position among the results.
      path: its name, dotted.
      shape: its global shape in elements.
      dtype: its element type, as numpy calls it.
      sharding: where it lay, as XLA writes it.
      shard_shape: the shape of the block on each device, in elements.
      norm: its L2 norm; for integers the sum, for booleans the number of true elements.
      finite: whether every element is a number.
    """

    index: int
    path: str
    shape: tuple[int, ...]
    dtype: str
    sharding: str
    shard_shape: tuple[int, ...]
    norm: float
    finite: bool


@dataclass(frozen=True)
class RunResult:
    """What a run gave.

    Attributes:
      devices: how many devices it ran on.
      partitioner: which partitioner cut the program up; ``None`` on one device.
      rows: one for each result, in order.
      arrays: the results in full where they were asked for, else empty.
      seconds: wall time by step (``"compile"``, ``"place inputs"``, ``"run"``).
      diagnostics: a warning for each argument and result that does not lie as it is annotated.
    """

    devices: int
    partitioner: Partitioner | None
    rows: tuple[RunRow, ...]
    arrays: tuple[np.ndarray, ...]
    seconds: dict[str, float]
    diagnostics: tuple[Diagnostic, ...] = ()

    def to_json(self) -> dict[str, object]:
        """A JSON object, without the arrays."""
        rows: list[dict[str, object]] = [
            {
                "index": row.index,
                "path": row.path,
                "shape": list(row.shape),
                "dtype": row.dtype,
                "sharding": row.sharding,
                "shard_shape": list(row.shard_shape),
                "norm": row.norm if np.isfinite(row.norm) else str(row.norm),
                "finite": row.finite,
            }
            for row in self.rows
        ]
        return {
            "devices": self.devices,
            "partitioner": self.partitioner,
            "rows": rows,
            "seconds": {step: round(spent, 3) for step, spent in self.seconds.items()},
            "diagnostics": [found.to_json() for found in self.diagnostics],
        }


def run(
    module: Any,
    *,
    devices: int | Sequence[Device] | None = None,
    inputs: Inputs = None,
    seed: int = 0,
    partitioner: PartitionerChoice = "auto",
    keep: bool = True,
    save: str | os.PathLike[str] | None = None,
) -> RunResult:
    """Compile a module, run it once on its devices, and gather the results.

    Args:
      module: whatever :func:`shardpass.load` takes.
      devices: the devices, or how many; by default as many as the module is sharded for.
      inputs: see :func:`shardpass.runtime.input_source`.
      seed: what made-up inputs are drawn from.
      partitioner: see :func:`shardpass.runtime.compile_module`.
      keep: whether to give the results in full.
      save: an ``.npz`` to write the results to, by their dotted paths. What it holds can be given
        back as ``inputs``; see :class:`~shardpass.runtime.npz.NpzWriter` for bfloat16 and its like.

    Raises:
      ShardingError: as :func:`compile_module` and :func:`input_source`; ``run-failed``;
        ``unwritable``.
    """
    loaded = load(module)
    source = input_source(loaded, inputs, seed=seed)
    seconds: dict[str, float] = {}
    start = time.monotonic()
    executable = compile_module(loaded, devices=devices, partitioner=partitioner)
    seconds["compile"] = time.monotonic() - start
    rows: list[RunRow] = []
    arrays: list[np.ndarray] = []
    names = _distinct([value.path for value in executable.results])
    with NpzWriter(save) as writer:
        for index, whole in enumerate(results_of_run(executable, source, seconds)):
            rows.append(_row(executable, index, whole))
            writer.write(names[index], whole)
            if keep:
                arrays.append(whole)
    told = layouts_not_applied(
        loaded,
        [layout.sharding for layout in executable.argument_layouts],
        [layout.sharding for layout in executable.result_layouts],
        len(executable.devices),
    )
    return RunResult(
        len(executable.devices),
        executable.partitioner,
        tuple(rows),
        tuple(arrays),
        seconds,
        tuple(told),
    )


def results_of_run(
    executable: Executable,
    source: InputSource,
    seconds: dict[str, float] | None = None,
    *,
    copies: bool = False,
) -> Iterator[np.ndarray]:
    """Run once and give each result in full, one at a time; its shards are freed behind it.

    ``seconds`` gets the wall time of ``"place inputs"`` and ``"run"``. For ``copies`` see
    :meth:`Executable.blocks`; all processes ask for the same.
    """
    spent = {} if seconds is None else seconds
    start = time.monotonic()
    count = len(executable.arguments)
    placed = [executable.place(index, source.array(index)) for index in range(count)]
    spent["place inputs"] = time.monotonic() - start
    start = time.monotonic()
    outcome = executable.execute(placed)
    placed.clear()
    spent["run"] = time.monotonic() - start
    for index, layout in enumerate(executable.result_layouts):
        # A copy, since the block of a single device is a view of memory that is about to go.
        whole = np.array(layout.join(executable.blocks(index, outcome[index], copies=copies)))
        outcome[index].clear()
        yield whole


def _row(executable: Executable, index: int, whole: np.ndarray) -> RunRow:
    value, layout = executable.results[index], executable.result_layouts[index]
    measured = whole
    if is_float(whole.dtype) or is_complex(whole.dtype):
        wide = np.complex128 if is_complex(whole.dtype) else np.float64
        measured = whole.astype(wide)
        norm = float(np.linalg.norm(measured.reshape(-1)))
    else:
        norm = float(np.sum(whole.astype(np.int64)))
    return RunRow(
        index,
        value.path,
        value.shape,
        whole.dtype.name,
        str(layout.sharding),
        layout.shard_shape,
        norm,
        bool(np.isfinite(norm)) or bool(np.isfinite(measured).all()),
    )


def _distinct(paths: Sequence[str]) -> list[str]:
    """``paths`` with the position behind those that stand twice."""
    return [
        f"{path}.{index}" if paths.count(path) > 1 else path for index, path in enumerate(paths)
    ]
