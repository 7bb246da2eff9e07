"""Which device holds which tile: XLA's tile assignment, a formula wherever one exists."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from shardpass.canon import layout
from shardpass.canon.mesh import MOST_LISTED
from shardpass.canon.shapes import bounded_product
from shardpass.diagnostics import ShardingError


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TileAssignment:
    """An array of device ids, one for each tile, kept as an iota where it was given as one.

    Made by :meth:`iota` (``devices=[4,2]<=[2,4]T(1,0)``, XLA's V2) or :meth:`listed`
    (``devices=[4,2]0,4,1,5,2,6,3,7``, V1). ``str()`` is XLA's text and keeps the form; equality and
    hash compare the array itself, so the two above are equal.

    Attributes:
      dims: number of tiles along each dimension, the last varying fastest.
      reshape_dims: the shape that ``0 .. size - 1`` is laid out in, in canonical form; empty for a
        list.
      transpose_perm: how that is then transposed: dimension ``i`` of the result is
        ``reshape_dims[transpose_perm[i]]``; empty for a list.
      devices: the ids of a list in row-major order, read-only int64; ``None`` for an iota.
    """

    dims: tuple[int, ...]
    reshape_dims: tuple[int, ...] = ()
    transpose_perm: tuple[int, ...] = ()
    devices: np.ndarray | None = None
    _meaning: object = field(default=None, init=False)

    @classmethod
    def iota(
        cls,
        dims: Sequence[int],
        reshape_dims: Sequence[int] = (),
        transpose_perm: Sequence[int] = (),
    ) -> TileAssignment:
        """``0 .. size - 1``, reshaped, transposed, and cut into ``dims``; in order by default.

        Raises:
          ShardingError: ``bad-tile-assignment`` for a size below one, sizes that do not multiply
            to the same number, more than ``2**63 - 1`` devices, or a permutation that is none.
        """
        size = _check_sizes(dims, "tiles")
        reshape_dims = tuple(reshape_dims) or (size,)
        transpose_perm = tuple(transpose_perm) or tuple(range(len(reshape_dims)))
        devices = _check_sizes(reshape_dims, "reshape sizes")
        if sorted(transpose_perm) != list(range(len(reshape_dims))):
            raise ShardingError(
                "bad-tile-assignment",
                f"T({_some(transpose_perm)}) is not a permutation of "
                f"{len(reshape_dims)} dimensions",
            )
        if devices != size:
            raise ShardingError(
                "bad-tile-assignment",
                f"[{_some(dims)}] is {size} tiles, <=[{_some(reshape_dims)}] is {devices} devices",
            )
        return cls.of_modes(dims, layout.of_iota(reshape_dims, transpose_perm))

    @classmethod
    def of_modes(cls, dims: Sequence[int], modes: layout.Modes) -> TileAssignment:
        """From a device order of :mod:`shardpass.canon.layout`, not checked again."""
        return cls(tuple(dims), *layout.to_iota(modes))

    @classmethod
    def listed(cls, dims: Sequence[int], devices: Sequence[int] | np.ndarray) -> TileAssignment:
        """The ids one by one, in row-major order; any ids, so long as none stands twice.

        Raises:
          ShardingError: ``bad-tile-assignment``, ``duplicate-device``.
        """
        size = _check_sizes(dims, "tiles")
        ids = np.array(devices, dtype=np.int64).ravel()
        if ids.size != size:
            raise ShardingError(
                "bad-tile-assignment", f"[{_some(dims)}] has {size} tiles, the list {ids.size} ids"
            )
        if ids.size and ids.min() < 0:
            raise ShardingError("bad-tile-assignment", f"device id {ids.min()} is negative")
        repeated = first_repeated(ids)
        if repeated is not None:
            raise ShardingError(
                "duplicate-device", f"device {ids[repeated]} stands twice in [{_some(dims)}]"
            )
        ids.flags.writeable = False
        return cls(tuple(dims), devices=ids)

    @classmethod
    def of_array(cls, ids: np.ndarray) -> TileAssignment:
        """As :meth:`listed`, for an array shaped ``dims`` that is known to be right."""
        flat = np.array(ids, dtype=np.int64).reshape(-1)
        flat.flags.writeable = False
        return cls(ids.shape, devices=flat)

    @property
    def is_iota(self) -> bool:
        """Whether this is a formula rather than a list."""
        return self.devices is None

    @property
    def size(self) -> int:
        """Number of tiles, which is the number of devices."""
        return math.prod(self.dims)

    @property
    def modes(self) -> layout.Modes | None:
        """The device order as strides; ``None`` for a list, even one that has a formula."""
        if self.devices is not None:
            return None
        return layout.of_iota(self.reshape_dims, self.transpose_perm)

    def device_array(self) -> np.ndarray:
        """The ids as int64, shaped ``dims``; this is what makes a list of a formula.

        Raises:
          ShardingError: ``device-count``, beyond ``2**24`` devices.
        """
        return self.flat_devices().reshape(self.dims)

    def flat_devices(self) -> np.ndarray:
        """As :meth:`device_array`, flat."""
        if self.devices is not None:
            return self.devices
        if self.size > MOST_LISTED:
            raise ShardingError(
                "device-count",
                f"a list of {self.size} devices is beyond the {MOST_LISTED} that are written out",
            )
        return layout.expand(layout.of_iota(self.reshape_dims, self.transpose_perm))

    def coordinates(self) -> np.ndarray:
        """Where each device stands, in ascending order of ids: int64 ``[devices, dimensions]``.

        Raises:
          ShardingError: as :meth:`device_array`.
        """
        by_id = np.argsort(self.flat_devices(), kind="stable")
        return np.stack(np.unravel_index(by_id, self.dims), axis=-1)

    def as_iota(self) -> TileAssignment | None:
        """The same assignment as a formula, if it has one."""
        if self.devices is None:
            return self
        modes = layout.of_list(self.devices)
        return None if modes is None else TileAssignment.of_modes(self.dims, modes)

    def groups(self) -> list[layout.Modes] | None:
        """The canonical modes of each dimension; ``None`` where it has no such, or no formula."""
        formula = self.as_iota()
        groups = layout.split(formula.modes or (), self.dims) if formula else None
        return None if groups is None else [layout.coalesce(group) for group in groups]

    def renumbered(self, order: np.ndarray) -> TileAssignment:
        """The list with the place in ``order``, which has each id once, for every id."""
        where = np.empty_like(order)
        where[order] = np.arange(order.size)
        return TileAssignment.of_array(where[self.flat_devices()].reshape(self.dims))

    def reshaped(self, dims: Sequence[int]) -> TileAssignment:
        """The same devices in the same order under other ``dims`` of the same size."""
        return TileAssignment(tuple(dims), self.reshape_dims, self.transpose_perm, self.devices)

    def transposed(self, order: Sequence[int]) -> TileAssignment:
        """Dimension ``i`` of the result is dimension ``order[i]``; a list where no iota says it."""
        dims = tuple(self.dims[d] for d in order)
        moved = [d for d in order if self.dims[d] > 1]
        if moved == sorted(moved):
            return self.reshaped(dims)
        modes = self.modes
        groups = None if modes is None else layout.split(modes, self.dims)
        if groups is not None:
            return TileAssignment.of_modes(dims, tuple(m for d in order for m in groups[d]))
        return TileAssignment.of_array(self.device_array().transpose(order))

    def with_sorted_last(self) -> TileAssignment:
        """The ids within each group along the last dimension in ascending order.

        Groups of replicas are sets; XLA writes them sorted. A list where no iota says that.
        """
        modes = self.modes
        groups = None if modes is None else layout.split(modes, self._leading_and_last())
        if groups is not None:
            return TileAssignment.of_modes(self.dims, groups[0] + layout.ascending(groups[1]))
        return TileAssignment.of_array(np.sort(self.device_array(), axis=-1))

    def _leading_and_last(self) -> tuple[int, int]:
        return math.prod(self.dims[:-1]), self.dims[-1]

    def _key(self) -> object:
        """What equality compares: the formula, or the list where there is none; found once."""
        if self._meaning is None:
            formula = self.as_iota()
            if formula is None:
                meaning: object = (self.dims, self.flat_devices().tobytes())
            else:
                meaning = (formula.dims, formula.reshape_dims, formula.transpose_perm)
            object.__setattr__(self, "_meaning", meaning)
        return self._meaning

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TileAssignment):
            return NotImplemented
        return self.dims == other.dims and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        if self.devices is not None:
            return f"devices=[{_join(self.dims)}]{_join(self.devices.tolist())}"
        return f"devices=[{_join(self.dims)}]<={self.order_text()}"

    def order_text(self) -> str:
        """``[2,4]T(1,0)``: how the devices of an iota are ordered."""
        perm = f"T({_join(self.transpose_perm)})" if len(self.transpose_perm) > 1 else ""
        return f"[{_join(self.reshape_dims)}]{perm}"

    def __repr__(self) -> str:
        return f"TileAssignment({self})"


def first_repeated(ids: np.ndarray) -> int | None:
    """The index of the first id that stood before, or ``None``."""
    in_order = np.sort(ids)
    if not (in_order[1:] == in_order[:-1]).any():
        return None
    order = np.argsort(ids, kind="stable")
    return int(order[1:][in_order[1:] == in_order[:-1]].min())


def _check_sizes(sizes: Sequence[int], what: str) -> int:
    if not sizes or min(sizes) < 1:
        raise ShardingError(
            "bad-tile-assignment", f"{what} [{_some(sizes)}] must all be at least 1"
        )
    size = bounded_product(sizes)
    if size is None:
        raise ShardingError(
            "bad-tile-assignment", f"{what} [{_some(sizes)}] are more than 2**63 - 1 in all"
        )
    return size


def _join(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _some(numbers: Sequence[int]) -> str:
    """For messages: a list can be as long as the text that it was read from."""
    return _join(numbers) if len(numbers) <= 16 else f"{_join(numbers[:16])},..."
