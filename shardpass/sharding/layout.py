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
from shardpass.canon.shapes import checked_shape
from shardpass.compat.devices import Device
from shardpass.sharding.device_lists import is_local

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
        self.check_shape = sharding.check_shape
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

    @functools.cached_property
    def places(self) -> tuple[dict[Device, Index], Callable[[Sequence[Index]], Sequence[Index]]]:
        """The devices, as keys, and what picks their blocks from those of all tiles in order."""
        devices = self._sharding.device_order
        # One element for each tile: where a device's block starts is which tile it holds.
        starts = canon.device_blocks(self.canonical, self.tiles)[:, :, 0]
        weights = np.cumprod((1, *self.tiles[:0:-1]), dtype=np.int64)[::-1]
        held = (starts @ weights[: starts.shape[1]]).tolist()
        if self.canonical.mesh.device_ids is not None:
            # JAX pairs the blocks of an index map with the devices by their order alone.
            held = [held[place] for place in np.argsort(self.canonical.mesh.device_ids)]
        in_order = held == list(range(len(held)))
        return (
            dict.fromkeys(devices, ()),
            _all if in_order else operator.itemgetter(*held),
        )


def _all(blocks: Sequence[Index]) -> Sequence[Index]:
    return blocks


@functools.lru_cache(maxsize=4096)
def shard_shape(layout: Layout, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the block that each device holds.

    Raises:
      ShardingError: ``indivisible``, and what the sharding itself has against the shape;
        ``abstract-type`` for a size that is no whole number.
    """
    shape = checked_shape(shape)
    layout.check_shape(shape)
    found = []
    for size, pieces in zip(shape, layout.tiles, strict=True):
        block, rest = divmod(size, pieces)
        if rest:
            return layout.canonical.shard_shape(shape)  # which says what is wrong
        found.append(block)
    return tuple(found)


@functools.lru_cache(maxsize=_MOST_MAPS)
def indices_map(layout: Layout, shape: tuple[int, ...]) -> dict[Device, Index]:
    """Device -> block, in the order of the devices; not to be changed.

    Raises:
      ShardingError: ``indivisible``, ``device-free``.
    """
    slices = map(_slices, shard_shape(layout, shape), layout.tiles)
    devices, blocks_of_devices = layout.places
    # A copy has its final size, so that nothing is moved while it is filled.
    found = devices.copy()
    found.update(zip(devices, blocks_of_devices(tuple(itertools.product(*slices))), strict=True))
    return found


@functools.lru_cache(maxsize=_MOST_MAPS)
def local_indices_map(layout: Layout, shape: tuple[int, ...]) -> dict[Device, Index]:
    """As :func:`indices_map`, for the devices of this process."""
    whole = indices_map(layout, shape)
    local = {d: block for d, block in whole.items() if is_local(d)}
    return whole if len(local) == len(whole) else local


def _slices(width: int, pieces: int) -> Iterable[slice]:
    if pieces == 1:
        return (slice(None),)
    starts = range(0, pieces * width, width) if width else (0,) * pieces
    return map(slice, starts, itertools.islice(itertools.chain(starts, (pieces * width,)), 1, None))


def layout_of(sharding: Any, ndim: int) -> Layout:
    """The layout of values of ``ndim`` dimensions under ``sharding``, one of ours.

    Raises:
      ShardingError: ``rank-mismatch``.
    """
    try:
        return sharding._our_layouts[ndim]
    except KeyError:
        known = sharding._our_layouts
    except AttributeError:  # Shared with others of its kind where its class sets it.
        known = sharding._our_layouts = {}
    found = known[ndim] = Layout(sharding, ndim)
    return found
