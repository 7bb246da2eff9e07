# pyright: reportIncompatibleVariableOverride=false, reportIncompatibleMethodOverride=false
"""``GSPMDSharding``: a list of devices, and XLA's own word for which holds what."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import jax
import numpy as np
from jax.extend import sharding as jax_extend

from shardpass import canon
from shardpass.canon import AxisRef, HloKind, HloSharding, MeshShape, SubgroupType, TensorSharding
from shardpass.canon.shapes import check_rank
from shardpass.compat import hlo_sharding as in_jaxlib
from shardpass.compat import lowering, output_shardings, sharding_hooks
from shardpass.compat.devices import Device
from shardpass.diagnostics import ShardingError
from shardpass.sharding.base import Sharding, alive
from shardpass.sharding.conversion import as_users_axes, over_axes, parsed_tiles
from shardpass.sharding.device_free import Arrangement, bound, from_numbered_state, numbered_state
from shardpass.sharding.device_lists import checked_devices, is_local
from shardpass.sharding.memory import check_memory_kind
from shardpass.sharding.op_sharding import from_proto_bytes
from shardpass.sharding.persistence import persistent
from shardpass.sharding.saved import Saved

AxisType = jax.sharding.AxisType
JaxGSPMDSharding = jax_extend.GSPMDSharding
# The last two as jaxlib has them, whose classes a type checker does not know.
TilesLike: TypeAlias = str | bytes | HloSharding | Any

if TYPE_CHECKING:

    class _GSPMDSharding(Sharding, JaxGSPMDSharding): ...  # pyright: ignore

else:
    _GSPMDSharding = alive(JaxGSPMDSharding)


@persistent
class GSPMDSharding(_GSPMDSharding):
    """An array cut into tiles over ``devices`` as ``op_sharding`` says, in XLA's notation.

    A subclass of JAX's class, which lives in ``jax.extend.sharding`` today and in which JAX keeps
    what XLA chose for a result: JAX takes ours everywhere, compares and hashes it as its own, and
    gives it back from ``jit``. The ids in the tiles count along ``devices``.

    Under Shardy, JAX's own lowers iotas alone; ours also lists of devices, to a mesh with
    ``device_ids``. Partial results and manual subgroups have their notations and blocks, but are
    refused (``not-supported``) where JAX would use them: some versions misread them, and XLA's
    propagation aborts the process.

    Args:
      devices: the devices, in the order in which the tiles number them.
      op_sharding: XLA's text (``"{devices=[2,4]<=[8]}"``, V1 lists and named V3 shardings too), a
        :class:`shardpass.canon.HloSharding`, jaxlib's ``HloSharding`` or ``OpSharding``, or the
        bytes of a serialized ``OpSharding``.
      memory_kind: ``"device"``, ``"pinned_host"``, ...; the default of the devices if left out.

    Raises:
      ShardingError: ``syntax`` and what else the text can get wrong, with the place;
        ``device-count`` for another number of devices than the tiles are for, and
        ``not-enough-devices`` for none; ``duplicate-device``, ``mixed-backends``,
        ``memory-kind``, ``abstract-type``;
        ``not-expressible`` for a tuple, for ``{unknown}``, and for ``{maximal device=...}`` among
        several devices.
    """

    def __init__(
        self, devices: Any, op_sharding: TilesLike, *, memory_kind: str | None = None
    ) -> None:
        found = checked_devices(devices, "a GSPMDSharding")
        if isinstance(op_sharding, str):
            tiles, theirs = _of_text(op_sharding, len(found))
        elif isinstance(op_sharding, HloSharding):
            tiles = placed_tiles(op_sharding, len(found))
            theirs = _as_jaxlib(tiles)
        else:
            tiles, theirs = _of_proto(_proto_of(op_sharding), len(found))
        if memory_kind is not None:
            check_memory_kind(memory_kind, next(filter(is_local, found), None))
        super().__init__(found, theirs, memory_kind=memory_kind)
        self._our_devices = found
        self._our_tiles = tiles

    @classmethod
    def get_replicated(cls, devices: Any, *, memory_kind: str | None = None) -> GSPMDSharding:
        """The whole array on each of ``devices``.

        Raises:
          ShardingError: as the constructor.
        """
        return cls(devices, HloSharding.replicated(), memory_kind=memory_kind)

    @classmethod
    def from_jax(cls, sharding: JaxGSPMDSharding) -> GSPMDSharding:
        """JAX's sharding as one of ours; one of ours is given back as it is.

        Raises:
          ShardingError: ``not-expressible``, as the constructor.
        """
        if type(sharding) is cls:
            return sharding
        return cls(
            lowering.device_assignment(sharding),
            in_jaxlib.of_sharding(sharding),
            memory_kind=sharding.memory_kind,
        )

    def to_jax(self) -> JaxGSPMDSharding:
        """JAX's own class with the same content; equal to this one."""
        tiles = _as_jaxlib(self._our_tiles)
        return JaxGSPMDSharding(self._our_devices, tiles, memory_kind=self.memory_kind)

    @property
    def hlo_sharding(self) -> HloSharding:
        """The tiles, in the notation in which they were given."""
        return self._our_tiles

    # What is its own ------------------------------------------------------------------------------

    def canonical(self, ndim: int) -> TensorSharding:
        """The layout of a value of ``ndim`` dimensions over axes ``_axis_0``, ``_axis_1``, ...

        A named (V3) sharding keeps its own axes.

        Raises:
          ShardingError: ``rank-mismatch``, if the tiles are for another number of dimensions.
        """
        return over_axes(self._our_tiles, len(self._our_devices), ndim)

    def canonical_hlo(self, ndim: int) -> HloSharding:
        """The tiles themselves, names dropped.

        Raises:
          ShardingError: ``rank-mismatch``, if they are for another number of dimensions.
        """
        self._check_rank(ndim)
        return self._our_tiles.without_names()

    @property
    def device_order(self) -> tuple[Device, ...]:
        """The devices, in the order in which the tiles number them."""
        return self._our_devices

    @functools.cached_property
    def manual_axes(self) -> tuple[str, ...]:
        """The axes of the canonical form that are manual, in mesh order."""
        return _Tiles(self._our_tiles).manual_axes(len(self._our_devices))

    # What JAX asks --------------------------------------------------------------------------------

    def check_compatible_aval(self, aval_shape: tuple[int, ...]) -> None:
        """What JAX asks before it gives a value of this shape this sharding.

        Raises:
          ShardingError: ``rank-mismatch``; ``not-supported`` for partial results and manual
            subgroups.
        """
        self._check_rank(len(aval_shape))
        self._check_usable()

    def _check_rank(self, ndim: int) -> None:
        if self._our_tiles.rank is not None:
            check_rank(ndim, self._our_tiles.rank, self._our_tiles.describe())

    def _check_usable(self) -> None:
        tiles = self._our_tiles
        if tiles.is_partial:
            raise ShardingError(
                "not-supported",
                f"JAX cannot use {tiles.describe()}: it knows partial results by named axes only",
                help="to_named(sharding, mesh) on a mesh whose unreduced axes are Explicit",
            )
        if tiles.kind is HloKind.MANUAL or SubgroupType.MANUAL in tiles.subgroup_types:
            raise ShardingError(
                "not-supported",
                f"JAX cannot use {tiles.describe()}: which axes are manual is said by the region "
                "that a value is in",
                help="use jax.shard_map",
            )

    def _to_xla_hlo_sharding(self, num_dimensions: int) -> Any:
        if not lowering.uses_shardy():
            self._check_usable()  # XLA's own propagation aborts the process.
        return super()._to_xla_hlo_sharding(num_dimensions)

    def _to_sdy_sharding(self, num_dimensions: int, modify_wrt_axis_types: bool = False) -> object:
        tiles = self._our_tiles.without_names()
        if tiles.is_replicated:
            return super()._to_sdy_sharding(num_dimensions)
        self._check_usable()
        layout = over_axes(tiles, len(self._our_devices), num_dimensions)
        return sharding_hooks.sdy_array(as_users_axes(layout))

    def with_memory_kind(self, kind: str) -> GSPMDSharding:
        """The same tiles in another kind of memory.

        Raises:
          ShardingError: ``memory-kind``.
        """
        return GSPMDSharding(self._our_devices, self._our_tiles, memory_kind=kind)

    def __eq__(self, other: object) -> bool:
        """As in JAX; and partial results are combined alike, which JAX does not compare."""
        if not super().__eq__(other):
            return False
        if not self._our_tiles.is_partial or not isinstance(other, JaxGSPMDSharding):
            return True
        theirs = GSPMDSharding.from_jax(other)._our_tiles
        return self._our_tiles.reduction == theirs.reduction

    def __hash__(self) -> int:
        return super().__hash__()

    def __repr__(self) -> str:
        memory = "" if self.memory_kind is None else f", memory_kind={self.memory_kind!r}"
        return f"GSPMDSharding({self._our_tiles}{memory})"

    def bind(self, devices: Sequence[Any] | np.ndarray | None = None) -> GSPMDSharding:
        """This layout on other devices.

        Args:
          devices: as many, in the order of the tiles' numbers.
            ``None`` leaves it where it is (and puts what was loaded without on those it was on).

        Raises:
          ShardingError: ``device-count``; as the constructor.
        """
        return bound(self, _Tiles(self._our_tiles), devices)

    def _saved_state(self) -> dict[str, Any]:
        return numbered_state(self, _Tiles(self._our_tiles))

    @classmethod
    def _from_saved(cls, saved: Saved) -> Any:
        return from_numbered_state(saved, _Tiles)


@dataclass(frozen=True, slots=True)
class _Tiles(Arrangement):
    """Tiles, in the notation in which they were given."""

    name: ClassVar[str] = "GSPMDSharding"
    keys: ClassVar[tuple[str, ...]] = ("op_sharding",)

    tiles: HloSharding

    def canonical(self, count: int, ndim: int) -> TensorSharding:
        return over_axes(self.tiles, count, ndim)

    def canonical_hlo(self, count: int, ndim: int) -> HloSharding:
        if self.tiles.rank is not None:
            check_rank(ndim, self.tiles.rank, self.tiles.describe())
        return self.tiles.without_names()

    def manual_axes(self, count: int) -> tuple[str, ...]:
        mesh = over_axes(self.tiles, count, self.tiles.rank or 0).mesh
        return tuple(axis.name for axis in _manual_axes(self.tiles, mesh))

    def is_fully_replicated(self, count: int) -> bool:
        return self.tiles.is_replicated or count == 1

    def on(self, devices: tuple[Device, ...], memory_kind: str | None) -> GSPMDSharding:
        return GSPMDSharding(devices, self.tiles, memory_kind=memory_kind)

    def state(self) -> dict[str, Any]:
        # The metadata says how unreduced values combine, which the text itself does not.
        return {"op_sharding": self.tiles.to_text(metadata=self.tiles.reduction is not None)}

    @classmethod
    def read(cls, fields: dict[str, Saved], count: int) -> _Tiles:
        place = fields["op_sharding"]
        text = place.text()
        with place.building():
            return cls(placed_tiles(parsed_tiles(text), count))

    def __str__(self) -> str:
        return self.tiles.describe()


def placed_tiles(tiles: HloSharding, count: int) -> HloSharding:
    """``tiles`` as the placement of a value over ``count`` devices.

    Raises:
      ShardingError: ``device-count``; ``not-expressible`` where not every device gets a block.
    """
    if tiles.kind is HloKind.UNKNOWN:
        raise ShardingError(
            "not-expressible",
            "{unknown} does not say which block a device holds",
            help="leave the sharding out, or write {replicated}",
        )
    tiles.validate(tiles.rank or 0, count)
    if tiles.named is not None and tiles.named.sharding.mesh.size != count:
        mesh = tiles.named.sharding.mesh
        raise ShardingError(
            "device-count",
            f"{tiles.describe()} is for {mesh.size} devices, there are {count}",
        )
    if tiles.kind is not HloKind.MAXIMAL:
        return tiles
    if count == 1:
        return HloSharding.replicated()
    raise ShardingError(
        "not-expressible",
        f"{tiles} leaves {count - 1} of {count} devices without a block; JAX would take it for "
        "{replicated}",
        help=f"SingleDeviceSharding(devices[{tiles.device}]) is that layout",
    )


def _proto_of(given: Any) -> bytes:
    """The bytes of what is neither text nor ours."""
    if isinstance(given, bytes):
        return given
    if isinstance(given, (in_jaxlib.HloSharding, in_jaxlib.OpSharding)):
        return in_jaxlib.proto_bytes(given)
    raise ShardingError(
        "abstract-type",
        f"tiles are needed, not {type(given).__name__} {given!r}",
        help='write XLA\'s text, "{devices=[2,4]<=[8]}", or pass an HloSharding, an OpSharding, '
        "or its bytes",
    )


def _manual_axes(tiles: HloSharding, mesh: MeshShape) -> tuple[AxisRef, ...]:
    if tiles.named is not None:
        return tiles.named.manual
    return canon.manual_axes(tiles, mesh)


@functools.lru_cache(maxsize=1024)
def _of_text(text: str, count: int) -> tuple[HloSharding, Any]:
    tiles = placed_tiles(parsed_tiles(text), count)
    return tiles, _as_jaxlib(tiles)


@functools.lru_cache(maxsize=1024)
def _of_proto(data: bytes, count: int) -> tuple[HloSharding, Any]:
    tiles = placed_tiles(from_proto_bytes(data), count)
    return tiles, _as_jaxlib(tiles)


def _as_jaxlib(tiles: HloSharding) -> Any:
    # By text, since a list and the iota that says the same are equal, and differ for JAX.
    return in_jaxlib.from_text(tiles.without_names().to_text(metadata=tiles.reduction is not None))


def _in_jax_results(made_by_xla: Any, aval: Any, origin: GSPMDSharding) -> GSPMDSharding:
    return GSPMDSharding.from_jax(made_by_xla)


output_shardings.enter(GSPMDSharding, _in_jax_results)
