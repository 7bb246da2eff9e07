# JAX and the template declare properties, which are kept here once found.
# pyright: reportIncompatibleMethodOverride=false
"""What the classes share that JAX no longer has, and that so stand on their own.

They subclass ``jax.sharding.Sharding`` itself, with its private hooks answered in
:mod:`shardpass.compat.sharding_hooks`. Beyond the template of :class:`shardpass.sharding.Sharding`
they share what JAX's classes have from JAX: the devices, the kind of memory, equality.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from shardpass.canon import AxisRef, DimSharding, MeshShape, TensorSharding
from shardpass.compat import sharding_hooks
from shardpass.compat.devices import Device
from shardpass.sharding.base import Sharding, alive
from shardpass.sharding.conversion import as_users_axes, over_axes, spec_of
from shardpass.sharding.device_lists import checked_devices, is_local
from shardpass.sharding.memory import check_memory_kind
from shardpass.sharding.mesh import Mesh
from shardpass.sharding.named import NamedSharding

if TYPE_CHECKING:

    class _Standalone(  # pyright: ignore
        Sharding, sharding_hooks.HookedSharding, jax.sharding.Sharding
    ): ...

else:
    _Standalone = alive(sharding_hooks.HookedSharding)


class StandaloneSharding(_Standalone):
    """A sharding over a list of devices, all of them distinct and of one backend.

    A class says its :meth:`canonical_hlo`, ``is_fully_replicated``, and what makes two of its
    objects equal besides devices and memory kind (:meth:`_content`).
    """

    def __init__(
        self, devices: tuple[Device, ...], memory_kind: str | None, device_list: Any = None
    ) -> None:
        """Keep what is known to be right; ``device_list`` is another's over the same devices."""
        super().__init__()
        self._devices = devices
        if device_list is not None:
            self.device_list = device_list
        if memory_kind is None:
            memory_kind = sharding_hooks.default_memory_kind(self)
        else:
            check_memory_kind(memory_kind, next(filter(is_local, devices), None))
        self._memory_kind = memory_kind

    def _content(self) -> Any:
        """What else equal objects have in common; hashable."""
        raise NotImplementedError

    # The layout -----------------------------------------------------------------------------------

    def canonical(self, ndim: int) -> TensorSharding:
        """The layout of a value of ``ndim`` dimensions, over axes ``_axis_0``, ``_axis_1``, ...

        Where the devices are in no order that a mesh of their number has, its mesh lists them.

        Raises:
          ShardingError: ``rank-mismatch``, if the sharding is for other values;
            ``not-expressible``.
        """
        return over_axes(self.canonical_hlo(ndim), len(self._devices), ndim)

    def axes_for_shardy(self, ndim: int) -> TensorSharding:
        """:meth:`canonical` with an axis for each prime factor.

        So shardings over the same devices share one mesh (where their number is a power of two,
        all of them do), and Shardy can join their cuts in one result. Between meshes it takes one
        operand's, and gathers the other.

        Raises:
          ShardingError: as :meth:`canonical`.
        """
        return as_users_axes(with_prime_axes(self.canonical(ndim)))

    # Devices --------------------------------------------------------------------------------------

    @property
    def device_order(self) -> tuple[Device, ...]:
        """The devices in the order in which they were given."""
        return self._devices

    @functools.cached_property
    def device_set(self) -> set[Device]:
        """The devices, those of other processes included."""
        return set(self._devices)

    @property
    def num_devices(self) -> int:
        """The number of devices, those of other processes included."""
        return len(self._devices)

    @functools.cached_property
    def addressable_devices(self) -> set[Device]:
        """The devices of this process."""
        return set(filter(is_local, self._devices))

    @functools.cached_property
    def is_fully_addressable(self) -> bool:
        """Whether all devices belong to this process."""
        return all(map(is_local, self._devices))

    @property
    def memory_kind(self) -> str | None:
        """The kind of memory; the devices' default where none was asked for."""
        return self._memory_kind

    # JAX's classes --------------------------------------------------------------------------------

    def _to_named(self, ndim: int) -> NamedSharding:
        """The named sharding over the axes of :meth:`canonical`, equivalent to this one."""
        layout = as_users_axes(self.canonical(ndim))
        devices = np.array(self._devices, dtype=object)
        mesh = Mesh(devices.reshape(layout.mesh.sizes), layout.mesh.names)
        return NamedSharding(
            mesh,
            spec_of(layout),
            memory_kind=self._memory_kind,
            _logical_device_ids=layout.mesh.device_ids,
        )

    # Equality -------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        """Equal to one of the same class with the same content, devices in the same order."""
        if self is other:
            return True
        if type(self) is not type(other) or not isinstance(other, StandaloneSharding):
            return False
        return (
            self._memory_kind == other._memory_kind
            and self._content() == other._content()
            and self.device_list == other.device_list
        )

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        return hash((type(self), self._devices, self._memory_kind, self._content()))


def device_array(devices: Sequence[Any] | np.ndarray, owner: str) -> np.ndarray:
    """``devices``, nested or not, as an array of objects.

    Raises:
      ShardingError: as :func:`shardpass.sharding.device_lists.checked_devices`.
    """
    if isinstance(devices, np.ndarray):
        found = devices.astype(object)
    else:
        try:
            found = np.array(devices, dtype=object)
        except ValueError:  # Rows of different lengths, which NumPy puts less well.
            found = np.empty(len(devices), dtype=object)
            found[:] = devices
    checked_devices(found, owner)
    return found


@functools.lru_cache(maxsize=1024)
def with_prime_axes(sharding: TensorSharding) -> TensorSharding:
    """The same layout over axes of prime sizes, named as XLA names axes."""
    pieces: dict[str, tuple[AxisRef, ...]] = {}
    axes: list[tuple[str, int]] = []
    for name, size in sharding.mesh.axes:
        added = [(f"_axis_{len(axes) + k}", prime) for k, prime in enumerate(_primes(size))]
        pieces[name] = tuple(AxisRef(new) for new, _ in added)
        axes += added
    dims = tuple(
        DimSharding(tuple(new for axis in dim.axes for new in pieces[axis.name]), dim.open)
        for dim in sharding.dims
    )
    return TensorSharding(MeshShape(tuple(axes), sharding.mesh.device_ids), dims)


def _primes(size: int) -> list[int]:
    found = []
    factor = 2
    while factor <= math.isqrt(size):
        if size % factor:
            factor += 1
        else:
            found.append(factor)
            size //= factor
    return [*found, size] if size > 1 else found
