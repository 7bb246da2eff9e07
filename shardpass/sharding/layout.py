"""What one sharding says about values of one rank, found out once.

Shapes come and go, and the layout stays: which tile each device holds depends on the sharding and
the number of dimensions alone. So that much is worked out once, as the two C-level steps that are
left for each new shape: the blocks of all tiles, as a product of slices, and the selection of a
block for each device.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from shardpass import canon
from shardpass.canon import HloSharding, TensorSharding
from shardpass.compat.devices import Device

if TYPE_CHECKING:
    from shardpass.sharding.base import Sharding

Index: TypeAlias = tuple[slice, ...]

#: Index maps that are kept, each with an entry for every device.
_MOST_MAPS = 256


class Layout:
    """The layout of values of ``ndim`` dimensions under ``sharding``.

    Attributes:
      canonical: over named axes.

    Raises:
      ShardingError: ``rank-mismatch``, as ``sharding.canonical`` does.
    """

    def __init__(self, sharding: Sharding, ndim: int) -> None:
        self._sharding = sharding
        self._ndim = ndim
        self.canonical: TensorSharding = sharding.canonical(ndim)

    @functools.cached_property
    def tiles(self) -> tuple[int, ...]:
        """Into how many pieces each dimension is cut."""
        # A single device has no axes, and so its canonical form no dimensions.
        return self.canonical.tiles() or (1,) * self._ndim

    @functools.cached_property
    def hlo(self) -> HloSharding:
        """As XLA's tile assignment."""
        return self._sharding.canonical_hlo(self._ndim)

    @functools.cached_property
    def mhlo(self) -> str:
        """XLA's text."""
        return str(self.hlo)

    def shard_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the block that each device holds.

        Raises:
          ShardingError: ``indivisible``.
        """
        return _shard_shape(self, shape)

    def indices_map(self, shape: tuple[int, ...]) -> dict[Device, Index]:
        """Device -> block, in the order of the devices; not to be changed.

        Raises:
          ShardingError: ``indivisible``, ``device-free``.
        """
        return _indices_map(self, shape)

    def local_indices_map(self, shape: tuple[int, ...]) -> dict[Device, Index]:
        """As :meth:`indices_map`, for the devices of this process."""
        return _local_indices_map(self, shape)

    @functools.cached_property
    def _places(self) -> tuple[tuple[Device, ...], Callable[[Sequence[Index]], Sequence[Index]]]:
        """The devices, and what picks their blocks from those of all tiles in row-major order."""
        devices = self._sharding.device_order
        # One element for each tile: where a device's block starts is which tile it holds.
        starts = canon.device_blocks(self.canonical, self.tiles)[:, :, 0]
        weights = np.cumprod((1, *self.tiles[:0:-1]), dtype=np.int64)[::-1]
        held = (starts @ weights[: starts.shape[1]]).tolist()
        ids = canon.device_ids(self.canonical).tolist()
        if ids != list(range(len(ids))):
            devices = tuple(devices[device] for device in ids)
        if len(held) == 1:
            return devices, lambda blocks: blocks
        return devices, operator.itemgetter(*held)


@functools.lru_cache(maxsize=4096)
def _shard_shape(layout: Layout, shape: tuple[int, ...]) -> tuple[int, ...]:
    found = []
    for size, pieces in zip(shape, layout.tiles, strict=False):
        block, rest = divmod(size, pieces)
        if rest:
            break
        found.append(block)
    else:
        return tuple(found)
    return layout.canonical.shard_shape(shape)  # which says what is wrong


@functools.lru_cache(maxsize=_MOST_MAPS)
def _indices_map(layout: Layout, shape: tuple[int, ...]) -> dict[Device, Index]:
    widths = layout.shard_shape(shape)
    devices, blocks_of_devices = layout._places
    slices = map(_slices, widths, layout.tiles)
    return dict(zip(devices, blocks_of_devices(tuple(itertools.product(*slices))), strict=True))


def _slices(width: int, pieces: int) -> Iterable[slice]:
    if pieces == 1:
        return (slice(None),)
    starts = range(0, pieces * width, width) if width else (0,) * pieces
    return map(slice, starts, itertools.islice(itertools.chain(starts, (pieces * width,)), 1, None))


@functools.lru_cache(maxsize=_MOST_MAPS)
def _local_indices_map(layout: Layout, shape: tuple[int, ...]) -> dict[Device, Index]:
    whole = layout.indices_map(shape)
    local = {d: block for d, block in whole.items() if d.process_index == d.client.process_index()}
    return whole if len(local) == len(whole) else local


def layout_of(sharding: Any, ndim: int) -> Layout:
    """The layout of values of ``ndim`` dimensions under ``sharding``, one of ours.

    Raises:
      ShardingError: ``rank-mismatch``.
    """
    known: dict[int, Layout] | None = getattr(sharding, "_our_layouts", None)
    if known is None:
        known = sharding._our_layouts = {}
    found = known.get(ndim)
    if found is None:
        found = known[ndim] = Layout(sharding, ndim)
    return found
