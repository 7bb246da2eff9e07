"""From one array to its blocks on devices, and back.

XLA's executables speak of devices by their number in the run. Uneven shardings are padded at the
end, as XLA pads them: on 4 devices a dimension of 19 is four blocks of 5, the last of which holds 4
elements and one that nobody reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shardpass.canon import HloKind, HloSharding, SubgroupType, device_blocks
from shardpass.diagnostics import ShardingError


@dataclass(frozen=True)
class Layout:
    """Which block of an array each device of a run holds.

    Attributes:
      sharding: what the executable says.
      shape: the global shape in elements.
      devices: how many devices the run has.
    """

    sharding: HloSharding
    shape: tuple[int, ...]
    devices: int

    def __post_init__(self) -> None:
        whole = all(kind is SubgroupType.REPLICATED for kind in self.sharding.subgroup_types)
        if self.sharding.kind not in (HloKind.TILED, HloKind.REPLICATED) or not whole:
            raise ShardingError(
                "not-supported",
                f"a value of the entry function is laid out as {self.sharding}",
                help="arguments and results are run tiled or replicated",
            )

    @cached_property
    def shard_shape(self) -> tuple[int, ...]:
        """The shape of each block, padding included."""
        return self.sharding.padded_shard_shape(self.shape)

    @cached_property
    def padded_shape(self) -> tuple[int, ...]:
        """The global shape with the padding of uneven dimensions."""
        tiles = self.sharding.data_tiles or (1,) * len(self.shape)
        return tuple(size * tile for size, tile in zip(self.shard_shape, tiles, strict=True))

    @cached_property
    def blocks(self) -> np.ndarray:
        """Per device, start and stop in each dimension: :func:`shardpass.canon.device_blocks`."""
        return device_blocks(self.sharding, self.shape, self.devices)

    def block(self, device: int) -> tuple[slice, ...]:
        """The part of the global array that ``device`` holds, without padding."""
        return tuple(slice(start, stop) for start, stop in self.blocks[device].tolist())

    def cut(self, array: np.ndarray) -> list[np.ndarray]:
        """The block of each device, in order; equal blocks are one array."""
        blocks: dict[int, np.ndarray] = {}
        for device in self.owners:
            part = array[self.block(device)]
            missing = [(0, n - m) for n, m in zip(self.shard_shape, part.shape, strict=True)]
            padded = np.pad(part, missing) if any(n for _, n in missing) else part
            blocks[device] = np.ascontiguousarray(padded).reshape(self.shard_shape)
        for device, owner in self.copies:
            blocks[device] = blocks[owner]
        return [blocks[device] for device in range(self.devices)]

    def join(self, blocks: Sequence[np.ndarray]) -> np.ndarray:
        """The global array, each part from the first device that holds it."""
        if self.sharding.tile is None or not self.shape:
            return np.asarray(blocks[0])
        whole = np.empty(self.shape, blocks[0].dtype)
        for device in self.owners:
            whole[self.block(device)] = self.without_padding(device, blocks[device])
        return whole

    def without_padding(self, device: int, block: np.ndarray) -> np.ndarray:
        """What ``block`` holds of the global array, if it is that of ``device``."""
        return block[tuple(slice(0, part.stop - part.start) for part in self.block(device))]

    @cached_property
    def owners(self) -> tuple[int, ...]:
        """The first device of each distinct block."""
        return tuple(device for device, owner in enumerate(self._owner_of) if device == owner)

    @cached_property
    def copies(self) -> tuple[tuple[int, int], ...]:
        """Each further device of a block, with the first one of that block."""
        return tuple((d, owner) for d, owner in enumerate(self._owner_of) if d != owner)

    @cached_property
    def _owner_of(self) -> list[int]:
        first: dict[bytes, int] = {}
        return [first.setdefault(self.blocks[d].tobytes(), d) for d in range(self.devices)]
