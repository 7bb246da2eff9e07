"""Whether the arguments of a run could have shown a wrong layout at all.

A layout says which shard of an argument lies on which device. Where every shard is the same, as
those of an array of ones are, any mistake in that puts the same numbers on the same devices. Where
no result depends on a sharded argument, no result would be wrong either.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from shardpass.mlir import EntryValue, Module
from shardpass.runtime.dataflow import influenced_results
from shardpass.runtime.placement import Layout
from shardpass.runtime.preflight import unevenly_annotated

#: How many arguments a message names.
_MOST_NAMED = 3


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
