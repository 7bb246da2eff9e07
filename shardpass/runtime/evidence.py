"""Whether the arguments of a run could have shown a wrong layout at all.

A layout says which shard of an argument lies on which device. Where every shard is the same, as
those of an array of ones are, any mistake in that puts the same numbers on the same devices. Where
no result depends on a sharded argument, no result would be wrong either. Both are seen before
anything is compared; whether a result depends on an argument by more than the check allows is
measured (:mod:`shardpass.runtime.probing`), and told here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from shardpass.diagnostics import Diagnostic, Severity
from shardpass.mlir import EntryValue, Module
from shardpass.runtime.dataflow import influenced_results
from shardpass.runtime.placement import Layout
from shardpass.runtime.preflight import unevenly_annotated
from shardpass.runtime.result import ArgumentRow

#: How many arguments a message names.
_MOST_NAMED = 3
_HIDDEN = "unproven, since no result leaves its limit with the shards of one elsewhere"
_STRONGER = (
    "let the program return what depends on them more strongly (a loss, gradients), or set a "
    "smaller tolerance"
)
_VARIED = "give inputs that differ from shard to shard, or none: made-up ones differ"


@dataclass
class Evidence:
    """Which arguments are sharded, and which of those have shards that differ.

    Attributes:
      module: the sharded program.
      layouts: where each argument goes, as the executable says.
      telling: the sharded arguments whose shards differ, as far as :meth:`look_at` saw them.
    """

    module: Module
    layouts: Sequence[Layout]
    telling: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._arguments: tuple[EntryValue, ...] = tuple(self.module.arguments)
        # XLA takes such arguments whole and cuts them itself.
        uneven = unevenly_annotated(self.module)
        self.sharded: set[int] = uneven | {
            index for index, layout in enumerate(self.layouts) if not layout.sharding.is_replicated
        }
        #: For each result, whether an element of a sharded argument influences it.
        self.reached: list[bool] = influenced_results(
            self.module.root, {index for index in self.sharded if self._arguments[index].size}
        )

    def look_at(self, index: int, array: np.ndarray) -> None:
        """Note whether ``array``, which is about to be placed, shows where its shards went."""
        if index in self.sharded and shards_differ(self.layouts[index], array):
            self.telling.add(index)

    @property
    def fault_of_plan(self) -> str | None:
        """Why no result could have shown a wrong layout, whatever the arguments hold."""
        if not self.sharded:
            if not self.layouts:
                return "the program has no arguments: nothing could be sharded"
            count = self.layouts[0].devices
            return f"every argument is replicated on all {count} devices: nothing was sharded"
        if not any(self.reached):
            return (
                "no result depends on an element of a sharded argument; sharded is only "
                f"{self._named(self.sharded)}"
            )
        return None

    def faults_of_arguments(self) -> list[str | None]:
        """For each result, why these arguments could not have shown a wrong layout in it.

        ``None`` where they could have, and where no sharded argument influences the result.
        """
        told = influenced_results(self.module.root, self.telling)
        alike = self._named(self.sharded - self.telling)
        reason = f"each sharded argument that it depends on has shards that are all alike: {alike}"
        return [
            reason if reached and not shown else None
            for reached, shown in zip(self.reached, told, strict=True)
        ]

    def fault_of_probes(self, rows: Sequence[ArgumentRow], moved: bool) -> str | None:
        """Why the results could not have shown a wrong layout, as far as that was measured.

        Args:
          rows: of the sharded arguments.
          moved: whether a result left its limit when all of them were rolled at once.
        """
        if moved or any(row.proof in ("placed", "counted") for row in rows):
            return None
        return (
            "no result leaves its limit when shards change places or are lost; sharded is only "
            f"{self._named([row.index for row in rows])}"
        )

    def warnings(self, rows: Sequence[ArgumentRow]) -> list[Diagnostic]:
        """What a check that passed does not say, about which arguments."""
        alike = [row for row in rows if row.proof == "none" and row.index not in self.telling]
        hidden = [row for row in rows if row.proof == "none" and row.index in self.telling]
        together = [row for row in rows if row.proof == "together"]
        found: list[Diagnostic] = []
        for unproven, severity, reason, advice in (
            (alike, Severity.WARNING, "unproven, since the shards of each are all alike", _VARIED),
            (hidden, Severity.WARNING, _HIDDEN, _STRONGER),
            (together, Severity.REMARK, "tried together with others alone", None),
        ):
            if unproven:
                count = f"{len(unproven)} of {len(rows)} sharded arguments"
                names = self._named([row.index for row in unproven])
                message = f"{count}: {reason}: {names}"
                path = unproven[0].path if len(unproven) == 1 else None
                found.append(Diagnostic(severity, "not-a-proof", message, path=path, help=advice))
        return found

    def _named(self, indices: Collection[int]) -> str:
        names = [str(self._arguments[index]) for index in sorted(indices)]
        more = len(names) - _MOST_NAMED
        return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def shards_differ(layout: Layout, array: np.ndarray) -> bool:
    """Whether some two devices that should hold different parts would hold different numbers.

    A layout that is whole on every device, since XLA cuts the array itself, counts as cut
    everywhere: then the elements have to differ.
    """
    if array.size == 0:
        return False
    if len(layout.owners) < 2:
        return not _alike(array, array.reshape(-1)[:1])
    first = array[layout.block(layout.owners[0])]
    for device in layout.owners[1:]:
        block = array[layout.block(device)]
        if block.shape != first.shape:
            # Uneven shards, the last of them padded: only elements that differ tell them apart.
            return not _alike(array, array.reshape(-1)[:1])
        if not _alike(block, first):
            return True
    return False


def _alike(one: np.ndarray, other: np.ndarray) -> bool:
    return bool(((one == other) | ((one != one) & (other != other))).all())
