"""``SingleDeviceSharding``: everything on one device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import numpy as np

from shardpass.canon import MeshShape, TensorSharding
from shardpass.compat import output_shardings
from shardpass.compat.devices import Device
from shardpass.diagnostics import ShardingError
from shardpass.sharding.base import Sharding, alive
from shardpass.sharding.device_free import Arrangement, bound, from_numbered_state, numbered_state
from shardpass.sharding.layout import Index
from shardpass.sharding.memory import check_memory_kind
from shardpass.sharding.persistence import persistent
from shardpass.sharding.saved import Saved

if TYPE_CHECKING:

    class _SingleDeviceSharding(Sharding, jax.sharding.SingleDeviceSharding): ...  # pyright: ignore

else:
    _SingleDeviceSharding = alive(jax.sharding.SingleDeviceSharding)


@persistent
class SingleDeviceSharding(_SingleDeviceSharding):
    """The whole array on ``device``; a subclass of ``jax.sharding.SingleDeviceSharding``.

    It lowers to ``{replicated}``, and to a mesh without axes: which device it is stands in the
    executable's device assignment, as for every sharding, and not in the module. (XLA's
    ``{maximal device=3}`` numbers a device *within* that assignment.)

    Args:
      device: a JAX device.
      memory_kind: ``"device"``, ``"pinned_host"``, ...; the default of the device if left out.

    Raises:
      ShardingError: ``abstract-type`` if ``device`` is none; ``memory-kind``.
    """

    def __init__(self, device: Device, *, memory_kind: str | None = None) -> None:
        if not isinstance(device, Device):
            raise ShardingError(
                "abstract-type",
                f"a device is needed, not {type(device).__name__} {device!r}",
                help="pass one of jax.devices()",
            )
        if memory_kind is not None:
            check_memory_kind(memory_kind, device)
        super().__init__(device, memory_kind=memory_kind)
        self._our_device = device

    @classmethod
    def from_jax(cls, sharding: jax.sharding.SingleDeviceSharding) -> SingleDeviceSharding:
        """JAX's sharding as one of ours; one of ours is given back as it is."""
        if type(sharding) is cls:
            return sharding
        (device,) = sharding.device_set
        return cls(device, memory_kind=sharding.memory_kind)

    def to_jax(self) -> jax.sharding.SingleDeviceSharding:
        """JAX's own class with the same content; equal to this one."""
        return jax.sharding.SingleDeviceSharding(self._our_device, memory_kind=self.memory_kind)

    def canonical(self, ndim: int) -> TensorSharding:
        """The whole value, on the mesh without axes."""
        return TensorSharding.replicated_on(MeshShape(()), ndim)

    @property
    def device_order(self) -> tuple[Device, ...]:
        """The one device."""
        return (self._our_device,)

    def devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, Index]:
        """The one device, with the whole of the array."""
        return {self._our_device: (slice(None),) * len(global_shape)}

    def __hash__(self) -> int:
        # A jitted call asks for it each time, and JAX's looks up whether it knows.
        try:
            return self._our_hash
        except AttributeError:
            self._our_hash: int = super().__hash__()
            return self._our_hash

    def with_memory_kind(self, kind: str) -> SingleDeviceSharding:
        """The same device, another kind of its memory.

        Raises:
          ShardingError: ``memory-kind``.
        """
        return SingleDeviceSharding(self._our_device, memory_kind=kind)

    def __repr__(self) -> str:
        memory = "" if self.memory_kind is None else f", memory_kind={self.memory_kind!r}"
        return f"SingleDeviceSharding({self._our_device}{memory})"

    def bind(self, devices: Sequence[Any] | np.ndarray | None = None) -> SingleDeviceSharding:
        """This layout on another device.

        Args:
          devices: a list of the one.
            ``None`` leaves it where it is (and puts what was loaded without on those it was on).

        Raises:
          ShardingError: ``device-count``; as the constructor.
        """
        return bound(self, _OneDevice(), devices)

    def _saved_state(self) -> dict[str, Any]:
        return numbered_state(self, _OneDevice())

    @classmethod
    def _from_saved(cls, saved: Saved) -> Any:
        return from_numbered_state(saved, _OneDevice)


@dataclass(frozen=True, slots=True)
class _OneDevice(Arrangement):
    """Everything on the one there is."""

    name: ClassVar[str] = "SingleDeviceSharding"

    def canonical(self, count: int, ndim: int) -> TensorSharding:
        return TensorSharding.replicated_on(MeshShape(()), ndim)

    def is_fully_replicated(self, count: int) -> bool:
        return True

    def on(self, devices: tuple[Device, ...], memory_kind: str | None) -> SingleDeviceSharding:
        (device,) = devices
        return SingleDeviceSharding(device, memory_kind=memory_kind)

    @classmethod
    def read(cls, fields: dict[str, Saved], count: int) -> _OneDevice:
        if count != 1:
            raise fields["devices"].error(f"{count} devices where 1 is needed")
        return cls()

    def __str__(self) -> str:
        return ""


def _in_jax_results(
    made_by_xla: Any, aval: Any, origin: SingleDeviceSharding
) -> SingleDeviceSharding:
    recover = output_shardings.handlers()[jax.sharding.SingleDeviceSharding]
    return SingleDeviceSharding.from_jax(recover(made_by_xla, aval, origin))  # pyright: ignore[reportArgumentType]


output_shardings.enter(SingleDeviceSharding, _in_jax_results)
