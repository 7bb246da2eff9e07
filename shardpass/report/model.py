"""The report as a value: what every rendering shows, and the JSON that programs read.

Sizes are in bytes and shapes in elements. "Per device" is the largest share that any one device
holds; a dimension that does not divide counts rounded up, as XLA pads it.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from shardpass.canon import HloSharding
from shardpass.diagnostics import Diagnostic
from shardpass.report.collectives import Collectives

JSON_VERSION = 1
"""Raised when a key of :meth:`Report.to_json` changes its meaning or goes away."""

Decider = Literal["module", "open", "xla", "unknown"]
"""What a row's layout is known from.

``"module"``: its annotation, or its lack of one where that means whole. ``"open"``: an annotation
that XLA may cut further, so that the figures are the most that a device holds. ``"xla"``: the
executable, or what Shardy is known to make of an uneven annotation. ``"unknown"``: XLA decides, and
only a compiled program tells.
"""


#: Wide enough for paths and shapes, whatever the terminal.
_COLUMNS: Final = 140


@dataclass(frozen=True, slots=True)
class MeshRow:
    """One mesh that the module declares; ``devices`` counts them."""

    name: str
    axes: tuple[tuple[str, int], ...]
    devices: int
    device_ids: tuple[int, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "name": self.name,
            "axes": dict(self.axes),
            "devices": self.devices,
            "device_ids": None if self.device_ids is None else list(self.device_ids),
        }


@dataclass(frozen=True, slots=True)
class ValueRow:
    """One argument or result.

    Attributes:
      index: its position, from 0.
      path: its dotted path (``st.h.0.fc.kernel``).
      dtype: element type as MLIR writes it.
      shape: global shape.
      spec: how it is cut: ``[{"data"}, {}]``, or XLA's text in GSPMD's notation; ``None`` where
        nobody says.
      mesh: the mesh the spec is about, by name.
      shard_shape: what one device holds; ``None`` where that is not known.
      bytes: of the whole array.
      bytes_per_device: of one device's share; ``None`` where that is not known.
      donated: for an argument, whether its buffer is given away.
      alias_of: for a result, the index of the argument whose buffer it takes.
      decided_by: what the layout is known from.
    """

    index: int
    path: str
    dtype: str
    shape: tuple[int, ...]
    spec: str | None
    mesh: str | None
    shard_shape: tuple[int, ...] | None
    bytes: int
    bytes_per_device: int | None
    donated: bool = False
    alias_of: int | None = None
    decided_by: Decider = "module"

    @property
    def is_sharded(self) -> bool:
        """Whether a device is known to hold less than the whole."""
        return self.shard_shape is not None and self.shard_shape != self.shape

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "index": self.index,
            "path": self.path,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "spec": self.spec,
            "mesh": self.mesh,
            "shard_shape": None if self.shard_shape is None else list(self.shard_shape),
            "bytes": self.bytes,
            "bytes_per_device": self.bytes_per_device,
            "donated": self.donated,
            "alias_of": self.alias_of,
            "decided_by": self.decided_by,
        }


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over values: of the whole arrays, and of one device's shares.

    Attributes:
      bytes: of the whole arrays.
      bytes_per_device: of one device's shares; ``None`` where some are not known.
      unknown: how many are not known.
      at_most: whether XLA may cut further, so that ``bytes_per_device`` is the most it can be.
    """

    bytes: int
    bytes_per_device: int | None
    unknown: int = 0
    at_most: bool = False

    @property
    def ratio(self) -> float | None:
        """Per device over whole; 1.0 where nothing is cut, also for no bytes at all."""
        if self.bytes_per_device is None:
            return None
        return self.bytes_per_device / self.bytes if self.bytes else 1.0

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "bytes": self.bytes,
            "bytes_per_device": self.bytes_per_device,
            "ratio": self.ratio,
            "unknown": self.unknown,
            "at_most": self.at_most,
        }


@dataclass(frozen=True, slots=True)
class MemoryFigures:
    """What the compiler says that one device needs, in bytes.

    Attributes:
      argument: buffers of arguments.
      output: buffers of results, those that take over an argument's included.
      temp: scratch.
      alias: the part of ``output`` that lives in an argument's buffer.
      generated_code: the program itself.
    """

    argument: int
    output: int
    temp: int
    alias: int
    generated_code: int

    @property
    def peak(self) -> int:
        """The most that is needed at once: all of it, since XLA allocates its scratch in one piece.

        XLA's own ``peak_memory_in_bytes`` leaves the scratch out on CPU (jaxlib 0.12.0.1: 363 MiB
        for a step with 363 MiB of arguments and 405 MiB of scratch).
        """
        return self.argument + self.output - self.alias + self.temp

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "argument": self.argument,
            "output": self.output,
            "temp": self.temp,
            "alias": self.alias,
            "generated_code": self.generated_code,
            "peak": self.peak,
        }


@dataclass(frozen=True, slots=True)
class CompiledFigures:
    """What only the compiled program tells.

    Attributes:
      collectives: what it sends.
      memory: what one device needs.
      argument_shardings: where it wants each argument, if that was asked of it.
      result_shardings: where it leaves each result.
    """

    collectives: Collectives
    memory: MemoryFigures | None = None
    argument_shardings: tuple[HloSharding, ...] | None = None
    result_shardings: tuple[HloSharding, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "collectives": [
                {
                    "kind": row.kind,
                    "count": row.count,
                    "bytes": row.bytes,
                    "instructions": row.instructions,
                    "at_least": row.at_least,
                }
                for row in self.collectives.rows
            ],
            "unknown_loops": list(self.collectives.unknown_loops),
            "memory": self.memory.to_json() if self.memory else None,
        }


Notation = Literal["none", "sdy", "mhlo", "both"]


@dataclass(frozen=True, slots=True)
class Report:
    """How a module's arguments and results lie on its devices, and what running it moves.

    Attributes:
      module: what messages call the module.
      notation: which attributes its arguments and results carry.
      devices: how many devices it is for.
      meshes: those it declares.
      arguments: in order.
      results: in order.
      compiled: figures of the compiled program, if it was compiled.
      diagnostics: a warning for each value that does not lie as it is annotated.
    """

    module: str
    notation: Notation
    devices: int
    meshes: tuple[MeshRow, ...]
    arguments: tuple[ValueRow, ...]
    results: tuple[ValueRow, ...]
    compiled: CompiledFigures | None = field(default=None)
    diagnostics: tuple[Diagnostic, ...] = ()

    def __str__(self) -> str:
        """Its tables, as :func:`shardpass.report.render_terminal` shows them, without colors."""
        from rich.console import Console

        from shardpass.report.terminal import render_terminal

        with io.StringIO() as text:
            render_terminal(self, Console(file=text, width=_COLUMNS, color_system=None))
            return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    @property
    def argument_totals(self) -> Totals:
        """Sums over the arguments."""
        return _totals(self.arguments)

    @property
    def result_totals(self) -> Totals:
        """Sums over the results."""
        return _totals(self.results)

    def to_json(self) -> dict[str, Any]:
        """A JSON object with a ``version``; keys are only ever added within one version."""
        return {
            "version": JSON_VERSION,
            "module": self.module,
            "notation": self.notation,
            "devices": self.devices,
            "meshes": [mesh.to_json() for mesh in self.meshes],
            "arguments": [row.to_json() for row in self.arguments],
            "results": [row.to_json() for row in self.results],
            "totals": {
                "arguments": self.argument_totals.to_json(),
                "results": self.result_totals.to_json(),
            },
            "compiled": self.compiled.to_json() if self.compiled else None,
            "diagnostics": [found.to_json() for found in self.diagnostics],
        }


def _totals(rows: tuple[ValueRow, ...]) -> Totals:
    known = [row.bytes_per_device for row in rows if row.bytes_per_device is not None]
    unknown = len(rows) - len(known)
    return Totals(
        sum(row.bytes for row in rows),
        None if unknown else sum(known),
        unknown,
        any(row.decided_by == "open" for row in rows),
    )
