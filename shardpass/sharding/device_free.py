# JAX declares as methods and attributes what has a value here without devices, or none at all.
# pyright: reportIncompatibleVariableOverride=false, reportIncompatibleMethodOverride=false
"""``DeviceFreeSharding``: what is left of a sharding of numbered devices where there are none.

``NamedSharding`` has a device-free form of its own, on a mesh without devices. The other classes
are made of devices: a list of them, and a rule by which number holds which block. Saved in one
process and loaded in another, the rule is still known, and so is which devices they were. The rule
is an :class:`Arrangement`, one class of them for each class of shardings; with the record of the
devices and the memory kind it makes a :class:`DeviceFreeSharding`, which answers what it can and
which :meth:`~DeviceFreeSharding.bind` makes live.

A class of shardings joins by three lines, besides its arrangement::

    @persistent
    class SingleDeviceSharding(...):
        def bind(self, devices=None):
            return bound(self, OneDevice(), devices)

        def _saved_state(self):
            return numbered_state(self, OneDevice())

        @classmethod
        def _from_saved(cls, saved):
            return from_numbered_state(saved, OneDevice)
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

import jax
import numpy as np

from shardpass import canon
from shardpass.canon import HloSharding, TensorSharding
from shardpass.canon.shapes import checked_shape
from shardpass.compat import sharding_hooks
from shardpass.compat.devices import Device
from shardpass.diagnostics import ShardingError
from shardpass.sharding import persistence
from shardpass.sharding.base import Sharding, alive
from shardpass.sharding.memory import check_memory_kind
from shardpass.sharding.persistence import kept_by_state
from shardpass.sharding.recorded_devices import RecordedDevices
from shardpass.sharding.saved import Saved

if TYPE_CHECKING:

    class _DeviceFreeSharding(  # pyright: ignore
        Sharding, sharding_hooks.HookedSharding, jax.sharding.Sharding
    ): ...

else:
    _DeviceFreeSharding = alive(sharding_hooks.HookedSharding)


class Arrangement(abc.ABC):
    """Which number holds which block: all that a sharding says but for devices and memory kind.

    Immutable, with equality and hash by content (a frozen dataclass), and checked when it is built.
    ``str()`` is what distinguishes it, for ``repr``: ``{devices=[2,4]<=[8]}``.

    Attributes:
      name: of the class of shardings, as it is saved.
      keys: of :meth:`state`; those in ``optional`` may be missing from it.
    """

    name: ClassVar[str]
    keys: ClassVar[tuple[str, ...]] = ()
    optional: ClassVar[tuple[str, ...]] = ()

    # What a class of shardings says ---------------------------------------------------------------

    @abc.abstractmethod
    def canonical(self, count: int, ndim: int) -> TensorSharding:
        """The layout of a value of ``ndim`` dimensions over ``count`` devices.

        Raises:
          ShardingError: ``rank-mismatch``.
        """

    @abc.abstractmethod
    def is_fully_replicated(self, count: int) -> bool:
        """Whether each of ``count`` devices holds the whole value."""

    @abc.abstractmethod
    def on(self, devices: tuple[Device, ...], memory_kind: str | None) -> Any:
        """The live sharding, checked by its own constructor."""

    def state(self) -> dict[str, Any]:
        """JSON values, under :attr:`keys` and :attr:`optional`."""
        return {}

    @classmethod
    @abc.abstractmethod
    def read(cls, fields: dict[str, Saved], count: int) -> Arrangement:
        """The inverse of :meth:`state`, for so many devices.

        Raises:
          ShardingError: ``bad-state``, with the place.
        """

    # What follows from it, unless the class knows better ------------------------------------------

    @property
    def has_tiles(self) -> bool:
        """Whether the blocks have all dimensions of the value, which XLA's tiles have."""
        return True

    def canonical_hlo(self, count: int, ndim: int) -> HloSharding:
        """The same as XLA's tile assignment."""
        return canon.to_hlo(self.canonical(count, ndim), self.manual_axes(count))

    def manual_axes(self, count: int) -> tuple[str, ...]:
        """The axes of the canonical form that are manual, in mesh order."""
        return ()

    def shard_shape(self, count: int, global_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape, in elements, of the block that each of ``count`` devices holds.

        Raises:
          ShardingError: ``rank-mismatch``, ``indivisible``.
        """
        layout = self.canonical(count, len(global_shape))
        # A single device has no axes, and so its canonical form may have no dimensions.
        return layout.shard_shape(global_shape) if layout.dims else global_shape


@kept_by_state
class DeviceFreeSharding(_DeviceFreeSharding):
    """A sharding of one of the classes of numbered devices, loaded where the devices are not.

    It is what :func:`shardpass.sharding.from_json` and ``pickle.loads`` give for such a class, and
    is not made by hand. Layouts, notations and shapes are those of the sharding that was saved.
    What needs devices raises ``device-free``; so does JAX when it is handed one. It is saved, and
    loaded again, as the class that it stands for.

    Two are equal if all they hold is, the recorded devices included. For equivalence those do not
    count, as they do not for meshes: two are equivalent that give the same blocks to the same
    numbers.

    Args:
      arrangement: which number holds which block.
      recorded: the devices that it was saved on, in the order of their numbers.
      memory_kind: as saved.
    """

    def __init__(
        self, arrangement: Arrangement, recorded: RecordedDevices, memory_kind: str | None = None
    ) -> None:
        if memory_kind is not None:
            check_memory_kind(memory_kind, None)
        super().__init__()
        self._arrangement = arrangement
        self._recorded = recorded
        self._memory_kind = memory_kind

    is_device_free: Final = True

    @property
    def arrangement(self) -> Arrangement:
        """Which number holds which block."""
        return self._arrangement

    @property
    def recorded_devices(self) -> RecordedDevices:
        """The devices that it was saved on, in the order of their numbers."""
        return self._recorded

    def bind(self, devices: Sequence[Device] | np.ndarray | None = None) -> Any:
        """The live sharding, of the class that was saved.

        Args:
          devices: as many as it had, in the order of their numbers; ``None`` for those that it was
            saved on, which starts JAX's backends if none is running.

        Raises:
          ShardingError: ``missing-devices``, with those that are not here; ``device-count``;
            ``memory-kind``; what else the class of the sharding refuses.
        """
        if devices is None:
            found = self._recorded.find(f"the {self._arrangement.name}")
            return self._arrangement.on(found, self._memory_kind)
        return bound(self, self._arrangement, devices)

    # What needs no devices ------------------------------------------------------------------------

    def canonical(self, ndim: int) -> TensorSharding:
        """The layout of a value of ``ndim`` dimensions over the devices to come.

        Raises:
          ShardingError: ``rank-mismatch``.
        """
        return self._arrangement.canonical(self.num_devices, ndim)

    def canonical_hlo(self, ndim: int) -> HloSharding:
        """The layout of a value of ``ndim`` dimensions as XLA's tile assignment.

        Raises:
          ShardingError: ``rank-mismatch``.
        """
        return self._arrangement.canonical_hlo(self.num_devices, ndim)

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """The shape, in elements, of the block that each device will hold.

        Raises:
          ShardingError: ``rank-mismatch``, ``indivisible``.
        """
        return self._arrangement.shard_shape(self.num_devices, checked_shape(global_shape))

    @property
    def manual_axes(self) -> tuple[str, ...]:
        """The axes of the canonical form that are manual, in mesh order."""
        return self._arrangement.manual_axes(self.num_devices)

    @property
    def num_devices(self) -> int:
        """The number of devices that it had."""
        return len(self._recorded)

    @property
    def memory_kind(self) -> str | None:
        """The kind of memory that it was in."""
        return self._memory_kind

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every device will hold the whole value."""
        return self._arrangement.is_fully_replicated(self.num_devices)

    def with_memory_kind(self, kind: str) -> DeviceFreeSharding:
        """The same layout in another kind of memory.

        Raises:
          ShardingError: ``memory-kind``, for one that no device has.
        """
        return DeviceFreeSharding(self._arrangement, self._recorded, kind)

    def is_equivalent_to(self, other: jax.sharding.Sharding, ndim: int) -> bool:
        """Whether both give the same blocks of a value of ``ndim`` dimensions to the same numbers.

        Never to a sharding with devices.

        Raises:
          ShardingError: ``abstract-type`` if ``other`` is no sharding; ``rank-mismatch``.
        """
        if self == other:
            return True
        theirs = getattr(other, "arrangement", self._arrangement)
        if not (self._arrangement.has_tiles and theirs.has_tiles):
            return False
        return super().is_equivalent_to(other, ndim)

    def check_compatible_aval(self, aval_shape: Sequence[int]) -> None:
        """Raise ``rank-mismatch`` or ``indivisible`` for a shape that it does not divide."""
        self.shard_shape(aval_shape)

    # What does ------------------------------------------------------------------------------------

    @property
    def device_order(self) -> tuple[Device, ...]:
        """None yet: raises ``device-free``, as everything below."""
        self._refuse("device_order")

    @property
    def device_set(self) -> set[Device]:
        """None yet."""
        self._refuse("device_set")

    @property
    def addressable_devices(self) -> set[Device]:
        """None yet."""
        self._refuse("addressable_devices")

    @property
    def is_fully_addressable(self) -> bool:
        """Not known yet."""
        self._refuse("is_fully_addressable")

    @property
    def has_addressable_devices(self) -> bool:
        """Not known yet."""
        self._refuse("has_addressable_devices")

    def devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, Any]:
        """Not known yet."""
        self._refuse("devices_indices_map")

    def addressable_devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, Any]:
        """Not known yet."""
        self._refuse("addressable_devices_indices_map")

    def refuse_jax(self) -> None:
        """What JAX is told that asks for the devices."""
        self._refuse("place in JAX")

    def axes_for_shardy(self, ndim: int) -> TensorSharding:
        """What JAX is told that lowers it."""
        self._refuse("place in JAX")

    def __getattr__(self, name: str) -> NoReturn:
        what = self._arrangement.name if "_arrangement" in self.__dict__ else ""
        message = f"a DeviceFreeSharding has no attribute {name!r}"
        if what and hasattr(persistence.class_named(what), name):
            message += f": {what} has, and bind() gives one"
        raise AttributeError(message, name=name, obj=self)

    def _refuse(self, member: str) -> NoReturn:
        raise ShardingError(
            "device-free",
            f"the {self._arrangement.name} has no devices here, and so no {member}; it was saved "
            f"on {self._recorded.describe()}",
            help="bind() puts it back on them, bind(devices) on others",
        )

    # Showing and keeping --------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if type(other) is not DeviceFreeSharding:
            return NotImplemented
        return self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def _content(self) -> tuple[Any, ...]:
        return self._arrangement, self._recorded, self._memory_kind

    def __repr__(self) -> str:
        said = str(self._arrangement)
        memory = "" if self._memory_kind is None else f", memory_kind={self._memory_kind!r}"
        return (
            f"DeviceFreeSharding({self._arrangement.name}{said and f' {said}'}, "
            f"saved on {self._recorded.describe()}{memory})"
        )

    @property
    def _saved_as(self) -> str:
        return self._arrangement.name

    def _saved_state(self) -> dict[str, Any]:
        return _state(self._recorded, self._memory_kind, self._arrangement)


def bound(
    sharding: Any, arrangement: Arrangement, devices: Sequence[Device] | np.ndarray | None
) -> Any:
    """The ``bind`` of ``sharding``, which has ``arrangement``: on as many other devices.

    Args:
      sharding: with devices, or without.
      arrangement: its own.
      devices: in the order of their numbers; ``None`` leaves it where it is.

    Raises:
      ShardingError: ``device-count``; what else the class of the sharding refuses.
    """
    if devices is None:
        return sharding
    found = tuple(np.asarray(devices, dtype=object).flat)
    if len(found) != sharding.num_devices:
        raise ShardingError(
            "device-count",
            f"{len(found)} devices for a {arrangement.name} of {sharding.num_devices}",
            help=f"pass {sharding.num_devices}, in the order of their numbers",
        )
    return arrangement.on(found, sharding.memory_kind)


def numbered_state(sharding: Any, arrangement: Arrangement) -> dict[str, Any]:
    """The ``_saved_state`` of a live sharding that numbers its devices as ``device_order`` does."""
    return _state(RecordedDevices.of(sharding.device_order), sharding.memory_kind, arrangement)


def from_numbered_state(saved: Saved, arrangement: type[Arrangement]) -> Any:
    """The ``_from_saved`` of its class: live where all the devices are here, else device-free.

    Raises:
      ShardingError: ``bad-state``, or what the class refuses, with the place.
    """
    keys = ("devices", *arrangement.keys)
    fields = saved.fields(keys, (*arrangement.optional, "memory_kind"))
    recorded = RecordedDevices.read(fields["devices"])
    kind = fields["memory_kind"].text() if "memory_kind" in fields else None
    if not len(recorded):
        raise fields["devices"].error("no devices, and at least one is needed")
    arranged = arrangement.read(fields, len(recorded))
    devices = recorded.here()
    with saved.building():
        if devices is None:
            return DeviceFreeSharding(arranged, recorded, kind)
        return arranged.on(devices, kind)


def _state(
    recorded: RecordedDevices, memory_kind: str | None, arrangement: Arrangement
) -> dict[str, Any]:
    state = {"devices": recorded.state(), **arrangement.state()}
    if memory_kind is not None:
        state["memory_kind"] = memory_kind
    return state
