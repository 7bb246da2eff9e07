"""``PmapSharding``: how ``jax.pmap`` used to lay out its arguments and results."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import numpy as np

from shardpass.canon import HloSharding, TensorSharding
from shardpass.canon.shapes import checked_shape
from shardpass.compat import lowering, output_shardings, sharding_hooks
from shardpass.compat.devices import Device
from shardpass.diagnostics import ShardingError
from shardpass.sharding.base import device_order, normal_form
from shardpass.sharding.conversion import over_axes
from shardpass.sharding.device_free import Arrangement, bound, from_numbered_state, numbered_state
from shardpass.sharding.gspmd import GSPMDSharding
from shardpass.sharding.persistence import persistent
from shardpass.sharding.pmap_spec import (
    Chunked,
    NoSharding,
    Replicated,
    ShardedAxis,
    ShardingSpec,
    check_mapped,
)
from shardpass.sharding.saved import Saved
from shardpass.sharding.standalone import StandaloneSharding, device_array

JaxSharding = jax.sharding.Sharding


@persistent
class PmapSharding(StandaloneSharding):
    """One element of each mapped dimension on each of ``devices``, as ``sharding_spec`` says.

    A mapped dimension has just as many elements as it is cut into. With
    :class:`~shardpass.sharding.Chunked` it stays, with one element on each device: that is a tile,
    and JAX takes the sharding everywhere. With :class:`~shardpass.sharding.Unstacked` the blocks
    lose it: the members answer with whole numbers for indices, and JAX, which can no longer hold
    such an array, is refused with an error that names the ``Chunked`` spec to use instead.

    Args:
      devices: an array or a list of devices; in row-major order, the mesh of ``sharding_spec``.
      sharding_spec: which dimensions are mapped.
      memory_kind: ``"device"``, ``"pinned_host"``, ...; the default of the devices if left out.

    Raises:
      ShardingError: ``device-count`` for another number of devices than the spec speaks of;
        ``not-enough-devices`` for none; ``abstract-type``, ``duplicate-device``,
        ``mixed-backends``; ``memory-kind``.
    """

    def __init__(
        self,
        devices: Sequence[Any] | np.ndarray,
        sharding_spec: ShardingSpec,
        *,
        memory_kind: str | None = None,
    ) -> None:
        array = device_array(devices, type(self).__name__)
        if not isinstance(sharding_spec, ShardingSpec):
            raise ShardingError(
                "abstract-type",
                f"a ShardingSpec is needed, not {type(sharding_spec).__name__} {sharding_spec!r}",
                help="write ShardingSpec([Chunked([8]), NoSharding()], [ShardedAxis(0)])",
            )
        wanted = math.prod(sharding_spec.mesh_shape)
        if array.size != wanted:
            raise ShardingError(
                "device-count",
                f"{sharding_spec!r} is for {wanted} devices, and got {array.size}",
            )
        super().__init__(tuple(array.flat), memory_kind)
        array.flags.writeable = False
        self._array = array
        self._spec = sharding_spec
        self._has_tiles = not sharding_spec.has_unstacked

    @classmethod
    def default(
        cls,
        shape: Sequence[int],
        sharded_dim: int | None = 0,
        devices: Sequence[Any] | np.ndarray | None = None,
    ) -> PmapSharding:
        """The placement that ``jax.pmap`` used for an array of ``shape``.

        Args:
          shape: of the array.
          sharded_dim: the dimension that is mapped, one element a device, from the front; ``None``
            for copies on each of ``devices``.
          devices: as many as there are elements; the first of ``jax.local_devices()`` if left out.

        Raises:
          ShardingError: ``unknown-dimension``; ``mapped-size``, for another number of devices than
            elements; ``not-enough-devices``; ``device-count``, if neither ``sharded_dim`` nor
            ``devices`` says how many; as the class itself.
        """
        shape = checked_shape(shape)
        given = None if devices is None else device_array(devices, cls.__name__)
        if sharded_dim is None:
            if given is None:
                raise ShardingError(
                    "device-count",
                    "neither sharded_dim nor devices says how many copies there are to be",
                    help="give devices=jax.local_devices()",
                )
            return cls(given, ShardingSpec([NoSharding()] * len(shape), [Replicated(given.size)]))
        if not isinstance(sharded_dim, int) or not 0 <= sharded_dim < len(shape):
            raise ShardingError(
                "unknown-dimension",
                f"sharded_dim is {sharded_dim!r}, and shape {shape} has {len(shape)} dimensions",
                help=f"dimensions are 0..{len(shape) - 1}"
                if shape
                else "a value without dimensions is copied: sharded_dim=None",
            )
        size = shape[sharded_dim]
        local = jax.local_devices() if given is None else []
        if given is None and len(local) < size:
            raise ShardingError(
                "not-enough-devices",
                f"dimension {sharded_dim} of shape {shape} has {size} elements, one a device, and "
                f"there are {len(local)} local devices",
            )
        if given is not None:
            check_mapped(sharded_dim, size, given.size, shape)
        sharding: list[Any] = [NoSharding()] * len(shape)
        sharding[sharded_dim] = Chunked([size])
        spec = ShardingSpec(sharding, [ShardedAxis(0)])
        return cls(local[:size] if given is None else given, spec)

    @classmethod
    def from_hlo(
        cls,
        hlo: HloSharding,
        devices: Sequence[Any] | np.ndarray,
        shape: Sequence[int],
        *,
        memory_kind: str | None = None,
    ) -> PmapSharding:
        """The mapping whose tiles are those of ``hlo`` for an array of ``shape``.

        Raises:
          ShardingError: as :meth:`ShardingSpec.from_hlo`, and as the class itself.
        """
        array = device_array(devices, cls.__name__).ravel()
        spec = ShardingSpec.from_hlo(hlo, shape, array.size)
        return cls(array.reshape(spec.mesh_shape), spec, memory_kind=memory_kind)

    @classmethod
    def from_jax(cls, sharding: JaxSharding, shape: Sequence[int]) -> PmapSharding:
        """Any sharding of devices as one of this class, for an array of ``shape``.

        Equivalent to it; one of this class is given back as it is. ``jax.pmap`` gives its results a
        ``NamedSharding`` today, which this turns back.

        Raises:
          ShardingError: ``device-free``; as :meth:`from_hlo`.
        """
        if type(sharding) is cls:
            return sharding
        devices = device_order(sharding)
        if devices is None:
            raise ShardingError("device-free", f"{sharding!r} has no devices to map over")
        hlo = normal_form(sharding, len(shape))
        return cls.from_hlo(hlo, devices, shape, memory_kind=sharding.memory_kind)

    def to_jax(self) -> jax.sharding.NamedSharding:
        """JAX's ``NamedSharding`` that is equivalent, as today's ``jax.pmap`` gives it.

        Raises:
          ShardingError: ``not-expressible``, where a dimension is ``Unstacked``.
        """
        return self._to_named(len(self._spec.sharding)).to_jax()

    @property
    def devices(self) -> np.ndarray:
        """The devices, in the shape in which they were given; not to be written to."""
        return self._array

    @property
    def sharding_spec(self) -> ShardingSpec:
        """Which dimensions are mapped, and over which devices."""
        return self._spec

    @property
    def is_fully_replicated(self) -> bool:
        """Whether no dimension is mapped, be it over one device."""
        return self._spec.is_replicated

    def with_memory_kind(self, kind: str) -> PmapSharding:
        """The same mapping in another kind of memory.

        Raises:
          ShardingError: ``memory-kind``.
        """
        return type(self)(self._array, self._spec, memory_kind=kind)

    # The layout -----------------------------------------------------------------------------------

    def refuse_jax(self) -> None:
        """Raise ``not-expressible`` if the blocks have fewer dimensions than the array."""
        if self._spec.has_unstacked:
            self._spec.to_hlo()

    def check_compatible_aval(self, aval_shape: tuple[int, ...]) -> None:
        """What JAX asks before it gives a value of this shape this sharding.

        Raises:
          ShardingError: ``not-expressible``, where a dimension is ``Unstacked``;
            ``rank-mismatch``; ``mapped-size``. JAX puts it into a ``ValueError`` that says which
            argument it is, except from ``ShapeDtypeStruct``.
        """
        self.refuse_jax()
        self.shard_shape(aval_shape)

    def rank_for_jax(self, ndim: int) -> int:
        """The number of dimensions of the spec, for a value that has more, under ``vmap``."""
        return min(ndim, len(self._spec.sharding))

    def canonical_hlo(self, ndim: int) -> HloSharding:
        """The tiles; ``{replicated}``, for any number of dimensions, where none is cut.

        Raises:
          ShardingError: ``rank-mismatch``; ``not-expressible``, where a dimension is ``Unstacked``,
            with the ``Chunked`` spec to use instead.
        """
        return self._spec.tiles_of(ndim)

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """The shape, in elements, of the block that each device holds.

        A ``Chunked`` dimension becomes 1. The first ``Unstacked`` one is left out, as JAX had it:
        it knew no second.

        Raises:
          ShardingError: ``rank-mismatch``; ``mapped-size``.
        """
        if self._has_tiles:
            return super().shard_shape(global_shape)
        return self._spec.shard_shape(global_shape)

    def check_shape(self, global_shape: tuple[int, ...]) -> None:
        """Raise ``mapped-size`` unless each mapped dimension has one element for each device."""
        self._spec.shard_shape(global_shape)

    def devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, Any]:
        """For each device, the block of the global array that it holds.

        One slice per dimension, ``slice(None)`` where it is not cut; a whole number where it is
        ``Unstacked``. The dict is the caller's own.

        Raises:
          ShardingError: as :meth:`shard_shape`.
        """
        if self._has_tiles:
            return super().devices_indices_map(global_shape)
        self.shard_shape(global_shape)
        blocks = self._spec.indices(tuple(global_shape)).flat
        return dict(zip(self._devices, blocks, strict=True))

    def addressable_devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, Any]:
        """The part of :meth:`devices_indices_map` for devices of this process.

        Raises:
          ShardingError: as :meth:`shard_shape`.
        """
        if self._has_tiles:
            return super().addressable_devices_indices_map(global_shape)
        whole = self.devices_indices_map(global_shape)
        return {device: whole[device] for device in whole if device in self.addressable_devices}

    def is_equivalent_to(self, other: JaxSharding, ndim: int) -> bool:
        """Whether both put the same blocks of a value of ``ndim`` dimensions in the same places.

        Where a dimension is ``Unstacked``, only an equal sharding does.

        Raises:
          ShardingError: ``abstract-type`` if ``other`` is no sharding; ``rank-mismatch``.
        """
        if self == other:
            return True
        if self._spec.has_unstacked and isinstance(other, JaxSharding):
            return False
        if isinstance(other, PmapSharding) and (
            other._spec.has_unstacked or len(other._spec.sharding) != len(self._spec.sharding)
        ):
            return False
        return super().is_equivalent_to(other, ndim)

    # Notation -------------------------------------------------------------------------------------

    def _content(self) -> Any:
        return self._spec, self._array.shape

    def _memory_text(self) -> str:
        default = sharding_hooks.default_memory_kind(self)
        return "" if self.memory_kind == default else f", memory_kind={self.memory_kind}"

    def __repr__(self) -> str:
        devices = np.array2string(self._array, threshold=1000, edgeitems=3)
        return f"PmapSharding(sharding_spec={self._spec}, devices={devices}{self._memory_text()})"

    def __str__(self) -> str:
        ids = [device.id for device in self._devices]
        return (
            f"PmapSharding(sharding_spec={self._spec}, device_ids={ids}, "
            f"device_platform={self._devices[0].platform.upper()}, "
            f"device_shape={self._array.shape}{self._memory_text()})"
        )

    def bind(self, devices: Sequence[Any] | np.ndarray | None = None) -> PmapSharding:
        """This layout on other devices.

        Args:
          devices: as many, in row-major order.
            ``None`` leaves it where it is (and puts what was loaded without on those it was on).

        Raises:
          ShardingError: ``device-count``; as the constructor.
        """
        return bound(self, self._arrangement(), devices)

    def _saved_state(self) -> dict[str, Any]:
        return numbered_state(self, self._arrangement())

    def _arrangement(self) -> _Mapping:
        return _Mapping(self._spec, self._array.shape)

    @classmethod
    def _from_saved(cls, saved: Saved) -> Any:
        return from_numbered_state(saved, _Mapping)


@dataclass(frozen=True, slots=True)
class _Mapping(Arrangement):
    """A spec over an array of devices of ``shape``, in row-major order."""

    name: ClassVar[str] = "PmapSharding"
    keys: ClassVar[tuple[str, ...]] = ("shape", "sharding", "mesh_mapping")

    spec: ShardingSpec
    shape: tuple[int, ...]

    def canonical(self, count: int, ndim: int) -> TensorSharding:
        return over_axes(self.canonical_hlo(count, ndim), count, ndim)

    def canonical_hlo(self, count: int, ndim: int) -> HloSharding:
        return self.spec.tiles_of(ndim)

    @property
    def has_tiles(self) -> bool:
        return not self.spec.has_unstacked

    def is_fully_replicated(self, count: int) -> bool:
        return self.spec.is_replicated

    def shard_shape(self, count: int, global_shape: tuple[int, ...]) -> tuple[int, ...]:
        return self.spec.shard_shape(global_shape)

    def on(self, devices: tuple[Device, ...], memory_kind: str | None) -> PmapSharding:
        array = np.array(devices, dtype=object).reshape(self.shape)
        return PmapSharding(array, self.spec, memory_kind=memory_kind)

    def state(self) -> dict[str, Any]:
        return {"shape": list(self.shape), **self.spec.state()}

    @classmethod
    def read(cls, fields: dict[str, Saved], count: int) -> _Mapping:
        shape = tuple(size.whole() for size in fields["shape"].items())
        if math.prod(shape) != count or min(shape, default=1) < 1:
            raise fields["shape"].error(f"{count} devices are no array of shape {shape}")
        spec = ShardingSpec.read(fields)
        wanted = math.prod(spec.mesh_shape)
        if wanted != count:
            raise fields["devices"].error(f"{count} devices, and {spec!r} is for {wanted}")
        return cls(spec, shape)

    def __str__(self) -> str:
        return str(self.spec)


def _in_jax_results(
    made_by_xla: Any, aval: Any, origin: PmapSharding
) -> PmapSharding | GSPMDSharding:
    """What XLA chose for a result of a program whose arguments are placed like ``origin``.

    XLA's own tiles where it is cut as no mapping can be: into pieces of more than one element.

    Args:
      made_by_xla: JAX's ``GSPMDSharding``.
      aval: the abstract value of the result, where JAX knows it.
      origin: the sharding of an argument, or of a constraint within.
    """
    if aval is None:
        return GSPMDSharding.from_jax(made_by_xla)
    devices = lowering.device_assignment(made_by_xla)
    hlo = HloSharding.parse(lowering.hlo_text(made_by_xla, aval.ndim))
    kind = made_by_xla.memory_kind
    try:
        found = PmapSharding.from_hlo(hlo, devices, aval.shape, memory_kind=kind)
    except ShardingError:
        return GSPMDSharding.from_jax(made_by_xla)
    same_rank = len(origin.sharding_spec.sharding) == aval.ndim
    if not (same_rank and origin.is_equivalent_to(found, aval.ndim)):
        return found
    # A dimension that is mapped over one device may have grown.
    with contextlib.suppress(ShardingError):
        origin.check_shape(aval.shape)
        return origin
    return found


output_shardings.enter(PmapSharding, _in_jax_results)
