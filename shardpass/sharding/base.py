"""What every sharding of ours can do, derived once from its canonical form.

A class says what is its own: :meth:`Sharding.canonical`, and :attr:`Sharding.device_order`. From
those two come the notations, the shapes, the index maps and equivalence.

The classes have to be subclasses of JAX's (see :mod:`shardpass.sharding`), and those are nanobind
classes, which up to jaxlib 0.10 refuse a second base class. So :class:`Sharding` is no base in the
MRO: :func:`alive` makes a subclass of the JAX class at hand that carries its members, and registers
it, so that ``isinstance(s, shardpass.sharding.Sharding)`` holds. For a type checker there are two
bases.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Sequence
from typing import Any, cast

import jax

from shardpass import canon
from shardpass.canon import HloSharding, TensorSharding
from shardpass.compat import lowering
from shardpass.compat.devices import Device
from shardpass.diagnostics import ShardingError
from shardpass.sharding.conversion import parsed_tiles
from shardpass.sharding.layout import Index, indices_map, layout_of, local_indices_map, shard_shape
from shardpass.sharding.op_sharding import from_proto_bytes

JaxSharding = jax.sharding.Sharding


class Sharding(abc.ABC):
    """How an array is laid out over devices: the members that all classes share.

    ``isinstance`` answers for the classes of :mod:`shardpass.sharding`. Every one of them is a
    ``jax.sharding.Sharding`` as well, and JAX's members that are not listed here are there too.
    """

    # Each class's own -----------------------------------------------------------------------------

    @abc.abstractmethod
    def canonical(self, ndim: int) -> TensorSharding:
        """The layout of a value of ``ndim`` dimensions over named axes.

        Raises:
          ShardingError: ``rank-mismatch``, if the sharding speaks of more dimensions.
        """

    @property
    @abc.abstractmethod
    def device_order(self) -> tuple[Device, ...]:
        """The devices in the order in which the canonical form numbers them.

        Raises:
          ShardingError: ``device-free``.
        """

    @property
    def manual_axes(self) -> tuple[str, ...]:
        """The axes that the program handles by itself (inside ``shard_map``), in mesh order."""
        return ()

    def check_shape(self, global_shape: tuple[int, ...]) -> None:  # noqa: B027
        """Raise for a shape that a class refuses though its tiles divide it: none, as a rule."""

    # Notations ------------------------------------------------------------------------------------

    def canonical_hlo(self, ndim: int) -> HloSharding:
        """The layout of a value of ``ndim`` dimensions as XLA's tile assignment.

        Raises:
          ShardingError: as :meth:`canonical`.
        """
        return canon.to_hlo(layout_of(self, ndim).canonical, self.manual_axes)

    def to_mhlo(self, ndim: int) -> str:
        """The ``mhlo.sharding`` of a value of ``ndim`` dimensions: ``{devices=[2,4]<=[8]}``.

        Raises:
          ShardingError: as :meth:`canonical`.
        """
        return layout_of(self, ndim).mhlo

    def to_sdy(self, ndim: int) -> str:
        """The ``sdy.sharding`` of a value of ``ndim`` dimensions, the mesh inlined.

        Raises:
          ShardingError: as :meth:`canonical`.
        """
        return self.canonical(ndim).to_sdy()

    # Shapes and blocks ----------------------------------------------------------------------------

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """The shape, in elements, of the block that each device holds.

        Raises:
          ShardingError: ``rank-mismatch``; ``indivisible``, with the dimension, its size, the
            pieces, and a size that works.
        """
        shape = tuple(global_shape)
        return shard_shape(layout_of(self, len(shape)), shape)

    def devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, Index]:
        """For each device, the block of the global array that it holds.

        One slice per dimension: ``slice(None)`` where the dimension is not cut. The dict is the
        caller's own. An unreduced value's devices hold partial results of the same block.

        Raises:
          ShardingError: as :meth:`shard_shape`; ``device-free``.
        """
        shape = tuple(global_shape)
        return indices_map(layout_of(self, len(shape)), shape).copy()

    def addressable_devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, Index]:
        """The part of :meth:`devices_indices_map` for devices of this process.

        Raises:
          ShardingError: as :meth:`devices_indices_map`.
        """
        shape = tuple(global_shape)
        return local_indices_map(layout_of(self, len(shape)), shape).copy()

    def is_equivalent_to(self, other: JaxSharding, ndim: int) -> bool:
        """Whether both put the same blocks of a value of ``ndim`` dimensions in the same places.

        Names of axes, openness and priorities do not count; the order of devices and the memory
        kind do. A sharding without devices is equivalent only to others without.

        Args:
          other: any JAX sharding, of our classes or not.
          ndim: the number of dimensions of the value.

        Raises:
          ShardingError: ``abstract-type`` if ``other`` is no sharding; ``rank-mismatch``.
        """
        if self is other:
            return True
        if not isinstance(other, JaxSharding):
            raise ShardingError(
                "abstract-type", f"a sharding is needed, not {type(other).__name__} {other!r}"
            )
        return _is_equivalent(cast(JaxSharding, self), other, ndim)


# What a class made by ``alive`` takes over from the template above.
_MEMBERS = (
    "addressable_devices_indices_map",
    "canonical_hlo",
    "check_shape",
    "devices_indices_map",
    "is_equivalent_to",
    "manual_axes",
    "shard_shape",
    "to_mhlo",
    "to_sdy",
)


def alive(jax_class: type[JaxSharding]) -> Any:
    """A subclass of ``jax_class`` with the members of :class:`Sharding`, to be subclassed."""
    members = {name: vars(Sharding)[name] for name in _MEMBERS}
    metaclass: Any = type(jax_class)
    made = metaclass(jax_class.__name__, (jax_class,), {"__module__": __name__, **members})
    Sharding.register(made)
    return made


def device_order(sharding: JaxSharding) -> tuple[Device, ...] | None:
    """The devices of any sharding, in the order of its layout; ``None`` where it has none."""
    if _is_device_free(sharding):
        return None
    if isinstance(sharding, Sharding):  # Also where it has no place in JAX.
        return sharding.device_order
    return lowering.device_assignment(sharding)


def normal_form(sharding: JaxSharding, ndim: int) -> HloSharding:
    """The tile assignment of any sharding, ours or not, for a value of ``ndim`` dimensions."""
    if isinstance(sharding, Sharding):
        return layout_of(sharding, ndim).hlo
    found = parsed_tiles(lowering.hlo_text(sharding, ndim))
    if found.is_partial:  # The text does not say how the results are to be combined.
        return from_proto_bytes(lowering.hlo_proto(sharding, ndim))
    return found


def _same_devices(one: JaxSharding, other: JaxSharding) -> bool:
    free = _is_device_free(one), _is_device_free(other)
    if any(free):
        return all(free)
    return lowering.device_list(one) == lowering.device_list(other)


def _is_device_free(sharding: JaxSharding) -> bool:
    if getattr(sharding, "is_device_free", False):  # Ours that stands for numbered devices.
        return True
    return isinstance(getattr(sharding, "mesh", None), jax.sharding.AbstractMesh)


@functools.lru_cache(maxsize=4096)
def _is_equivalent(one: JaxSharding, other: JaxSharding, ndim: int) -> bool:
    if one.memory_kind != other.memory_kind or not _same_devices(one, other):
        return False
    mine, theirs = normal_form(one, ndim), normal_form(other, ndim)
    return mine == theirs or canon.is_equivalent(mine, theirs, ndim)
