"""The same arguments, some with their shards in the wrong place: what a fault would look like.

Whether a comparison could have failed is measured on the unsharded program. An argument whose
shards are rolled, each to where the one before it belongs, is what a wrong layout makes of it; if
no result leaves its limit then, the comparison says nothing about that argument's layout. Some
programs do not mind the order of shards, as a sum does not; those should mind the loss of one, so
that every shard is replaced by the first.

Rolled arguments hold the same numbers as before, so that indices stay in range and what has to be
positive is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from shardpass.runtime.inputs import InputSource
from shardpass.runtime.placement import Layout

#: What happens to shards: each moves to the place of the one before it, or all become the first.
Fault = Literal["rolled", "replaced"]


@dataclass(frozen=True)
class RolledInputs:
    """``source`` with faults in the places of some arguments' shards.

    Attributes:
      source: the arguments.
      layouts: where each argument goes in the sharded program.
      steps: argument -> by how many shards it is rolled; others stay as they are.
      fault: what happens to them; ``"replaced"`` takes no notice of how many.
    """

    source: InputSource
    layouts: Sequence[Layout]
    steps: Mapping[int, int]
    fault: Fault = "rolled"

    def array(self, index: int) -> np.ndarray:
        """Argument ``index``, faulty if it is one of those."""
        array = self.source.array(index)
        return self.misplaced(index, array) if index in self.steps else array

    def misplaced(self, index: int, array: np.ndarray) -> np.ndarray:
        """What becomes of ``array``, if it is argument ``index``."""
        if self.fault == "replaced":
            return replaced(self.layouts[index], array)
        return rolled(self.layouts[index], array, self.steps[index])


def rolled(layout: Layout, array: np.ndarray, step: int = 1) -> np.ndarray:
    """``array`` with each of its distinct shards ``step`` places before its own, round in a ring.

    Where shards are uneven, their elements are rolled by a whole shard along each cut dimension.
    """
    owners = layout.owners
    if any(array[layout.block(device)].shape != layout.shard_shape for device in owners):
        cut = [axis for axis, size in enumerate(array.shape) if layout.shard_shape[axis] < size]
        return np.roll(array, [-step * layout.shard_shape[axis] for axis in cut], cut)
    whole = np.empty_like(array)
    for place, device in enumerate(owners):
        whole[layout.block(device)] = array[layout.block(owners[(place + step) % len(owners)])]
    return whole


def replaced(layout: Layout, array: np.ndarray) -> np.ndarray:
    """``array`` with the first shard in the place of every other, cut off where that is smaller."""
    first = array[layout.block(layout.owners[0])]
    whole = np.empty_like(array)
    for device in layout.owners:
        part = whole[layout.block(device)]
        part[...] = first[tuple(slice(0, size) for size in part.shape)]
    return whole
