"""What a check found, as a value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from shardpass.diagnostics import Diagnostic, ShardingError
from shardpass.runtime.preflight import Partitioner

#: What settled a row: the element type's tolerance, the program's own noise, or that the comparison
#: proves nothing either way.
DecidedBy = Literal["tolerance", "noise", "not-a-proof"]

#: What is known of a sharded argument. ``"placed"``: with its shards in each other's places some
#: result leaves its limit. ``"counted"``: none does then, but one does with one shard in the place
#: of all; the program does not mind their order, as a sum does not, or minds it too little.
#: ``"none"``: no result leaves its limit either way, or its shards are all alike; a wrong layout of
#: this argument would have passed. ``"together"``: it was only tried together with others.
ArgumentProof = Literal["placed", "counted", "together", "none"]

#: How many times its own noise a result may differ.
NOISE_FACTOR = 8.0

#: The largest limit that noise may set. Eight units of bfloat16 (2**-7 of the value each) are 0.06,
#: and AdamW's first step in float32 needs 1e-3; a weight whose shards changed places moves what is
#: added to a residual stream by about 0.1, as far as noise beyond this would allow.
LARGEST_NOISE_LIMIT = 0.1


@dataclass(frozen=True)
class ResultRow:
    """One result of the program, sharded against unsharded.

    Attributes:
      index: its position among the results.
      path: its name, dotted.
      shape: its global shape in elements.
      dtype: its element type, as numpy calls it.
      error: relative L2 norm of the difference; for integers and booleans, the share of elements
        that differ.
      tolerance: the error that its element type allows.
      noise: the error of the unsharded program against itself with each float argument moved by one
        unit in the last place; ``None`` where the tolerance had settled it.
      decided_by: what settled it.
      ok: whether it passed.
      reason: why it did not; ``None`` where it did.
      help: what to do about it, where there is something to do.
    """

    index: int
    path: str
    shape: tuple[int, ...]
    dtype: str
    error: float
    tolerance: float
    noise: float | None
    decided_by: DecidedBy
    ok: bool
    reason: str | None = None
    help: str | None = None

    @property
    def limit(self) -> float:
        """The largest error that would have passed."""
        return max(self.tolerance, NOISE_FACTOR * (self.noise or 0.0))

    def to_json(self) -> dict[str, object]:
        """A JSON object; a figure that is not finite becomes a string."""
        record: dict[str, object] = {
            "index": self.index,
            "path": self.path,
            "shape": list(self.shape),
            "dtype": self.dtype,
            "error": _number(self.error),
            "tolerance": _number(self.tolerance),
            "noise": None if self.noise is None else _number(self.noise),
            "decided_by": self.decided_by,
            "ok": self.ok,
        }
        if self.reason:
            record["reason"] = self.reason
        if self.help:
            record["help"] = self.help
        return record


@dataclass(frozen=True)
class ArgumentRow:
    """One sharded argument, and whether the check would have noticed it in the wrong place.

    Attributes:
      index: its position among the arguments.
      path: its name, dotted.
      proof: what is known of it.
      shown_by: the path of a result that shows it; ``None`` where there is none.
    """

    index: int
    path: str
    proof: ArgumentProof
    shown_by: str | None

    def to_json(self) -> dict[str, object]:
        """A JSON object."""
        return {
            "index": self.index,
            "path": self.path,
            "proof": self.proof,
            "shown_by": self.shown_by,
        }


@dataclass(frozen=True)
class CheckResult:
    """Whether the sharded program computes what the unsharded one does.

    Attributes:
      devices: how many devices the sharded program ran on.
      partitioner: which partitioner cut it up; ``None`` on one device.
      rows: one for each result, in order.
      diagnostics: one error for each way in which the check failed; empty when it passed.
      seconds: wall time by step (``"compile unsharded"``, ``"run sharded"``, ...).
      arguments: one for each sharded argument, in order; empty where the check had failed before
        they were looked at.
      warnings: of the arguments about which a check that passed says nothing.
    """

    devices: int
    partitioner: Partitioner | None
    rows: tuple[ResultRow, ...]
    diagnostics: tuple[Diagnostic, ...]
    seconds: dict[str, float]
    arguments: tuple[ArgumentRow, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every result was proven equal, with layouts as they are annotated."""
        return not self.diagnostics

    @property
    def worst(self) -> ResultRow | None:
        """The row nearest to its limit, or furthest beyond it."""
        compared = [row for row in self.rows if row.decided_by != "not-a-proof"]
        return max(compared, key=_closeness, default=None)

    def raise_if_failed(self) -> None:
        """Raise :class:`ShardingError` with all diagnostics, unless :attr:`ok`."""
        if self.diagnostics:
            raise ShardingError.of(self.diagnostics)

    def to_json(self) -> dict[str, object]:
        """A JSON object."""
        return {
            "ok": self.ok,
            "devices": self.devices,
            "partitioner": self.partitioner,
            "rows": [row.to_json() for row in self.rows],
            "arguments": [row.to_json() for row in self.arguments],
            "diagnostics": [d.to_json() for d in self.diagnostics],
            "warnings": [d.to_json() for d in self.warnings],
            "seconds": {step: round(time, 3) for step, time in self.seconds.items()},
        }


def _closeness(row: ResultRow) -> float:
    return row.error / row.limit if row.limit else (math.inf if row.error else 0.0)


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
