"""``PositionalSharding``: an array of devices, shaped and turned as the data is to be cut."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import numpy as np

from shardpass.canon import HloSharding, SubgroupType, TensorSharding, TileAssignment
from shardpass.compat import lowering, output_shardings
from shardpass.diagnostics import ShardingError
from shardpass.sharding.base import device_order, normal_form
from shardpass.sharding.conversion import over_axes
from shardpass.sharding.device_free import Arrangement, bound, from_numbered_state, numbered_state
from shardpass.sharding.persistence import persistent
from shardpass.sharding.recorded_devices import ids_text, read_ids
from shardpass.sharding.saved import Saved
from shardpass.sharding.standalone import StandaloneSharding, device_array

JaxSharding = jax.sharding.Sharding


@persistent
class PositionalSharding(StandaloneSharding):
    """Dimension ``i`` of the data is cut into ``shape[i]`` pieces, and place decides who holds one.

    It begins as the array of ``devices`` itself, one for each tile. ``reshape`` and ``transpose``
    move the devices as they would move the elements of an array; ``replicate`` puts the devices
    along a dimension into one place, where each holds the same block. In ``repr``, a place is a
    set of devices: ``{CPU 0, 4}``.

    It is for values of just ``ndim`` dimensions, but for leading dimensions that it does not cut,
    which the values may lack; fully replicated, it is for values of any number of dimensions.

    Args:
      devices: an array, or a list, nested or not, which gives the shape.
      memory_kind: ``"device"``, ``"pinned_host"``, ...; the default of the devices if left out.

    Raises:
      ShardingError: ``not-enough-devices`` for an empty list; ``abstract-type``,
        ``duplicate-device``, ``mixed-backends``; ``memory-kind``.
    """

    def __init__(
        self, devices: Sequence[Any] | np.ndarray, *, memory_kind: str | None = None
    ) -> None:
        array = device_array(devices, type(self).__name__)
        super().__init__(tuple(array.flat), memory_kind)
        # The places in the list of devices that hold a tile, ascending, along the last dimension.
        self._held = np.arange(array.size, dtype=np.int64).reshape(*array.shape, 1)

    def _remade(self, held: np.ndarray, **other: str | None) -> PositionalSharding:
        """This with other places, in the same kind of memory if no ``memory_kind`` is given."""
        made = type(self).__new__(type(self))
        kind = other.get("memory_kind", self._memory_kind)
        StandaloneSharding.__init__(made, self._devices, kind, self.device_list)
        made._held = held
        return made

    @classmethod
    def from_hlo(
        cls,
        hlo: HloSharding,
        devices: Sequence[Any] | np.ndarray,
        *,
        memory_kind: str | None = None,
    ) -> PositionalSharding:
        """The sharding whose tiles are those of ``hlo``, over ``devices`` as it numbers them.

        ``{replicated}`` gives shape ``(1,)``, which is for values of any number of dimensions.
        Manual devices each hold a block of their own, so that a manual subgroup is one more
        dimension of tiles, as JAX had it.

        Raises:
          ShardingError: ``not-expressible`` for what has no tiles, partial results, or both manual
            devices and replicas; ``device-count``; as the class itself.
        """
        whole = cls(np.array(devices, dtype=object).ravel(), memory_kind=memory_kind)
        if hlo.is_replicated or (hlo.device == 0 and whole.num_devices == 1):
            return whole.replicate()
        if hlo.tile is None or hlo.subgroup_types not in (
            (),
            (SubgroupType.REPLICATED,),
            (SubgroupType.MANUAL,),
        ):
            raise ShardingError(
                "not-expressible",
                f"{hlo.describe()} is no array of tiles with replicas, which is all that a "
                "PositionalSharding can say",
            )
        replicas = SubgroupType.REPLICATED in hlo.subgroup_types
        hlo.validate(hlo.rank or 0, whole.num_devices)
        ids = hlo.tile.device_array()
        return whole._remade(np.sort(ids, axis=-1) if replicas else ids[..., np.newaxis])

    @classmethod
    def from_jax(cls, sharding: JaxSharding, ndim: int) -> PositionalSharding:
        """Any sharding of devices as one of this class, for values of ``ndim`` dimensions.

        Equivalent to it; one of this class is given back as it is.

        Raises:
          ShardingError: ``device-free``; ``not-expressible``, as :meth:`from_hlo`;
            ``rank-mismatch``.
        """
        if type(sharding) is cls:
            return sharding
        devices = device_order(sharding)
        if devices is None:
            raise ShardingError("device-free", f"{sharding!r} has no devices to be put in places")
        made = cls.from_hlo(normal_form(sharding, ndim), devices, memory_kind=sharding.memory_kind)
        return made.reshape((1,) * ndim) if made.is_fully_replicated else made

    def to_jax(self, ndim: int | None = None) -> jax.sharding.NamedSharding:
        """JAX's ``NamedSharding`` that is equivalent: JAX has no class of this name any more.

        Args:
          ndim: dimensions of the value, :attr:`ndim` if left out.

        Raises:
          ShardingError: ``rank-mismatch``.
        """
        return self._to_named(self.ndim if ndim is None else ndim).to_jax()

    # The array of places --------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Into how many pieces each dimension is cut."""
        return self._held.shape[:-1]

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._held.ndim - 1

    def reshape(self, *shape: Any) -> PositionalSharding:
        """The same places in the same order, under another shape.

        Args:
          shape: sizes, as arguments or as one sequence; one of them may be -1, for what is left.

        Raises:
          ShardingError: ``bad-reshape``, for another number of places; ``abstract-type``.
        """
        wanted = _integers(_unpacked(shape), "a size of reshape")
        sizes = _without_unknown(wanted, math.prod(self.shape))
        if math.prod(sizes) != math.prod(self.shape) or min(sizes, default=1) < 0:
            raise ShardingError(
                "bad-reshape",
                f"{_tiles(self.shape)} cannot be reshaped into {_tuple(wanted)}"
                + ("" if -1 in wanted else f", which has {math.prod(wanted)}"),
                help="reshape to sizes whose product is the number of tiles; one of them may be -1",
            )
        return self._remade(self._held.reshape(*sizes, self._held.shape[-1]))

    def transpose(self, *axes: Any) -> PositionalSharding:
        """The same places with their dimensions in another order, reversed if none is given.

        Args:
          axes: for each dimension of the result, which one of this it is: as arguments or as one
            sequence; negative ones count from the end.

        Raises:
          ShardingError: ``bad-reshape``, if this is no order of all dimensions;
            ``unknown-dimension``; ``abstract-type``.
        """
        if axes in ((), (None,)):
            order = tuple(range(self.ndim))[::-1]
        else:
            order = self._dimensions(_unpacked(axes), "transpose")
        if len(order) != self.ndim or len(set(order)) != self.ndim:
            raise ShardingError(
                "bad-reshape",
                f"{_tuple(order)} is no order of the {self.ndim} dimensions of "
                f"{_tiles(self.shape)}",
                help=f"name each of 0..{self.ndim - 1} once" if self.ndim else None,
            )
        return self._remade(self._held.transpose(*order, self.ndim))

    T = property(transpose, doc="The same places with their dimensions reversed.")

    def replicate(
        self, axis: int | Iterable[int] | None = None, keepdims: bool = True
    ) -> PositionalSharding:
        """Join the places along ``axis``, so that all devices there hold the same block.

        Args:
          axis: a dimension, several, or all if left out; negative ones count from the end.
          keepdims: whether what is joined stays as a dimension of size 1.

        Raises:
          ShardingError: ``unknown-dimension``, for one that is not there; ``bad-reshape``, for one
            named twice; ``abstract-type``.
        """
        if axis is None:
            joined = tuple(range(self.ndim))
        else:
            given = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
            joined = self._dimensions(given, "replicate")
        if len(set(joined)) < len(joined):
            raise ShardingError(
                "bad-reshape", f"replicate({_tuple(joined)}) names a dimension more than once"
            )
        kept = [dim for dim in range(self.ndim) if dim not in joined]
        held = self._held.transpose(*kept, *joined, self.ndim)
        held = np.sort(held.reshape(*(self.shape[dim] for dim in kept), -1), axis=-1)
        if keepdims:
            sizes = [1 if dim in joined else size for dim, size in enumerate(self.shape)]
            held = held.reshape(*sizes, held.shape[-1])
        return self._remade(held)

    def with_memory_kind(self, kind: str) -> PositionalSharding:
        """The same places in another kind of memory.

        Raises:
          ShardingError: ``memory-kind``.
        """
        return self._remade(self._held, memory_kind=kind)

    def _dimensions(self, given: Sequence[Any], what: str) -> tuple[int, ...]:
        """``given`` counted from the front."""
        for dim in _integers(given, f"a dimension of {what}"):
            if not -self.ndim <= dim < self.ndim:
                raise ShardingError(
                    "unknown-dimension",
                    f"{what} names dimension {dim}, and {_tiles(self.shape)} have {self.ndim}",
                    help=f"dimensions are 0..{self.ndim - 1}" if self.ndim else None,
                )
        return tuple(int(dim) % self.ndim for dim in given)

    # What is its own ------------------------------------------------------------------------------

    @property
    def is_fully_replicated(self) -> bool:
        """Whether there is one place, so that each device has the whole."""
        return math.prod(self.shape) == 1

    def check_compatible_aval(self, aval_shape: tuple[int, ...]) -> None:
        """What JAX asks before it gives a value of this shape this sharding.

        Raises:
          ShardingError: ``rank-mismatch``.
        """
        if len(aval_shape) != self.ndim and not self.is_fully_replicated:
            raise _wrong_rank(self.shape, len(aval_shape))

    def rank_for_jax(self, ndim: int) -> int:
        """:attr:`ndim`, for a value that has more: JAX adds to it under ``vmap``."""
        return min(ndim, self.ndim)

    def canonical_hlo(self, ndim: int) -> HloSharding:
        """The tiles, as a formula where one exists, replicas last.

        Raises:
          ShardingError: ``rank-mismatch``; a value may only lack leading dimensions of size 1.
        """
        return _tiles_of(self._held, ndim)

    def _content(self) -> Any:
        return self._places

    @functools.cached_property
    def _places(self) -> tuple[tuple[int, ...], bytes]:
        return self._held.shape, self._held.tobytes()

    def __repr__(self) -> str:
        name = type(self).__name__
        platform = self._devices[0].platform.upper()
        text = np.empty(self.shape, dtype=object)
        for place in np.ndindex(self.shape):
            ids = sorted(self._devices[position].id for position in self._held[place])
            text[place] = _Place(f"{{{platform} {', '.join(map(str, ids))}}}")
        body = np.array2string(
            text, prefix=f"{name}(", suffix=")", max_line_width=100, threshold=1000, edgeitems=3
        )
        memory = "" if self._memory_kind is None else f", memory_kind={self._memory_kind}"
        return f"{name}({body}{memory}, shape={self.shape})"

    def bind(self, devices: Sequence[Any] | np.ndarray | None = None) -> PositionalSharding:
        """This layout on other devices.

        Args:
          devices: as many, in the order of :attr:`device_order`.
            ``None`` leaves it where it is (and puts what was loaded without on those it was on).

        Raises:
          ShardingError: ``device-count``; as the constructor.
        """
        return bound(self, self._arrangement(), devices)

    def _saved_state(self) -> dict[str, Any]:
        return numbered_state(self, self._arrangement())

    def _arrangement(self) -> _Places:
        return _Places(self.shape, tuple(self._held.ravel().tolist()))

    @classmethod
    def _from_saved(cls, saved: Saved) -> Any:
        return from_numbered_state(saved, _Places)


@dataclass(frozen=True, slots=True)
class _Places(Arrangement):
    """Places in an array of ``shape``, each with as many devices.

    Attributes:
      shape: of the places.
      held: which devices are in them, ascending in each, place after place in row-major order.
    """

    name: ClassVar[str] = "PositionalSharding"
    keys: ClassVar[tuple[str, ...]] = ("shape", "held")

    shape: tuple[int, ...]
    held: tuple[int, ...]

    def _array(self) -> np.ndarray:
        return np.array(self.held, dtype=np.int64).reshape(*self.shape, -1)

    def canonical(self, count: int, ndim: int) -> TensorSharding:
        return over_axes(self.canonical_hlo(count, ndim), count, ndim)

    def canonical_hlo(self, count: int, ndim: int) -> HloSharding:
        return _tiles_of(self._array(), ndim)

    def is_fully_replicated(self, count: int) -> bool:
        return math.prod(self.shape) == 1

    def on(self, devices: tuple[Any, ...], memory_kind: str | None) -> PositionalSharding:
        return PositionalSharding(devices, memory_kind=memory_kind)._remade(self._array())

    def state(self) -> dict[str, Any]:
        return {"shape": list(self.shape), "held": ids_text(self.held)}

    @classmethod
    def read(cls, fields: dict[str, Saved], count: int) -> _Places:
        shape = tuple(size.whole() for size in fields["shape"].items())
        places = math.prod(shape)
        if min(shape, default=1) < 1 or count % places:
            raise fields["shape"].error(f"{count} devices cannot be in places of shape {shape}")
        held = np.array(read_ids(fields["held"], count), dtype=np.int64)
        if np.any(np.sort(held) != np.arange(count)):
            raise fields["held"].error(f"each of 0..{count - 1} is needed once")
        ascending = np.sort(held.reshape(places, -1), axis=-1)
        return cls(shape, tuple(ascending.ravel().tolist()))

    def __str__(self) -> str:
        return f"of shape {_tuple(self.shape)}"


def _tiles_of(held: np.ndarray, ndim: int) -> HloSharding:
    """What ``held`` is for values of ``ndim`` dimensions."""
    *shape, replicas = held.shape
    if math.prod(shape) == 1:
        return HloSharding.replicated()
    missing = len(shape) - ndim
    if missing < 0 or math.prod(shape[:missing]) != 1:
        raise _wrong_rank(shape, ndim)
    sizes = shape[missing:]
    tile = TileAssignment.of_array(held.reshape(*sizes, replicas))
    if replicas == 1:
        return HloSharding.tiled((tile.as_iota() or tile).reshaped(sizes))
    return HloSharding.tiled(tile.as_iota() or tile, (SubgroupType.REPLICATED,))


def _wrong_rank(shape: Sequence[int], ndim: int) -> ShardingError:
    return ShardingError(
        "rank-mismatch",
        f"the sharding has {len(shape)} dimensions ({_tiles(shape)}), the value has {ndim}",
        help=f"reshape the sharding to {ndim} dimensions first, such as "
        f"reshape{_tuple((-1, *(1,) * (ndim - 1)))}"
        if ndim
        else "replicate the sharding: a value without dimensions cannot be cut",
    )


class _Place:
    """Text that NumPy prints as it is."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _in_jax_results(
    made_by_xla: JaxSharding, aval: Any, origin: PositionalSharding
) -> PositionalSharding:
    """What XLA chose for a result of a program whose arguments are placed like ``origin``.

    Args:
      made_by_xla: JAX's ``GSPMDSharding``.
      aval: the abstract value of the result, where JAX knows it.
      origin: the sharding of an argument, or of a constraint within.
    """
    devices = lowering.device_assignment(made_by_xla)
    hlo = HloSharding.parse(lowering.hlo_text(made_by_xla, 0 if aval is None else aval.ndim))
    if hlo.is_replicated and origin.is_fully_replicated and devices == origin.device_order:
        # Of one shape throughout, so that a program called in turn on its own results is traced
        # once.
        return _with_kind(origin, made_by_xla.memory_kind)
    made = PositionalSharding.from_hlo(hlo, devices, memory_kind=made_by_xla.memory_kind)
    if made.is_fully_replicated and aval is not None:
        return made.reshape((1,) * aval.ndim)
    return made


output_shardings.enter(PositionalSharding, _in_jax_results)


def _with_kind(sharding: PositionalSharding, kind: str | None) -> PositionalSharding:
    return sharding if kind in (None, sharding.memory_kind) else sharding.with_memory_kind(kind)


def _unpacked(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """``(2, 4)`` of ``f(2, 4)`` as of ``f((2, 4))`` and ``f([2, 4])``."""
    if len(arguments) == 1 and isinstance(arguments[0], (tuple, list, np.ndarray)):
        return tuple(arguments[0])
    return arguments


def _integers(values: Sequence[Any], what: str) -> tuple[int, ...]:
    found = []
    for value in values:
        try:
            if isinstance(value, bool):
                raise TypeError
            found.append(operator.index(value))
        except TypeError:
            raise ShardingError(
                "abstract-type", f"{what} is a whole number, not {type(value).__name__} {value!r}"
            ) from None
    return tuple(found)


def _without_unknown(sizes: tuple[int, ...], total: int) -> tuple[int, ...]:
    """``sizes`` with a single -1 replaced by what is left of ``total``, if that is whole."""
    if sizes.count(-1) != 1:
        return sizes
    known = -math.prod(sizes)
    if known <= 0 or total % known:
        return sizes
    return tuple(total // known if size == -1 else size for size in sizes)


def _tiles(shape: Sequence[int]) -> str:
    return f"{math.prod(shape)} tiles of shape {_tuple(shape)}"


def _tuple(sizes: Sequence[int]) -> str:
    return repr(tuple(map(int, sizes)))
