"""The sharding of a value as XLA writes it: tiles over numbered devices."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from shardpass.canon.metadata import REDUCTION_OP, Metadata, metadata_text
from shardpass.canon.shapes import check_rank, divide, divide_up
from shardpass.canon.tile_assignment import TileAssignment
from shardpass.diagnostics import ShardingError

if TYPE_CHECKING:
    from shardpass.canon.named_hlo import NamedHlo


class HloKind(enum.Enum):
    """What sort of sharding it is; the value is XLA's word for it."""

    REPLICATED = "replicated"
    MAXIMAL = "maximal"
    MANUAL = "manual"
    UNKNOWN = "unknown"
    UNREDUCED = "unreduced"
    TILED = "tiled"
    TUPLE = "tuple"


class SubgroupType(enum.Enum):
    """What the devices along a trailing tile dimension do with their common tile.

    The order of the members is that in which XLA sorts subgroups.
    """

    MANUAL = "manual"
    UNREDUCED = "unreduced"
    REPLICATED = "replicated"


@dataclass(frozen=True, slots=True)
class ShardGroup:
    """``shard_as 3`` or ``shard_like 3``: values of a group get one sharding, or alike ones."""

    id: int
    exact: bool

    def __str__(self) -> str:
        return f"shard_{'as' if self.exact else 'like'} {self.id}"


@dataclass(frozen=True, slots=True)
class HloSharding:
    """One ``OpSharding``: what stands in ``mhlo.sharding`` and in HLO's ``sharding=``.

    Made by the constructors named after the kinds, or read by :meth:`parse`; all give XLA's
    canonical form. ``str()`` is the text XLA prints: what was read as a V1 list or a named V3
    sharding is printed as one. Equality and hash go by meaning: a list equals the iota that says
    the same, and metadata does not count, both as in XLA; names do not count either.

    Attributes:
      kind: which of the following count.
      tile: for ``TILED``, the assignment, data dimensions first, then the subgroups.
      subgroup_types: one for each trailing dimension of ``tile`` that is not data, sorted manual,
        unreduced, replicated, each at most once.
      device: for ``MAXIMAL``, the id.
      elements: for ``TUPLE``, the flattened leaves.
      group: the shard group that the value is in.
      reduction: how unreduced values are to be combined; ``None`` for the sum.
      metadata: what XLA was told about the origin.
      named: the V3 form that was read, which ``str()`` prints.
    """

    kind: HloKind
    tile: TileAssignment | None = None
    subgroup_types: tuple[SubgroupType, ...] = ()
    device: int | None = None
    elements: tuple[HloSharding, ...] = ()
    group: ShardGroup | None = None
    reduction: str | None = None
    metadata: tuple[Metadata, ...] = field(default=(), compare=False)
    named: NamedHlo | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if (self.kind is HloKind.TILED) != (self.tile is not None):
            raise ShardingError("bad-tile-assignment", f"{self.kind.value} and tile {self.tile}")
        if (self.kind is HloKind.MAXIMAL) != (self.device is not None):
            raise ShardingError("bad-tile-assignment", f"{self.kind.value}, device {self.device}")

    @classmethod
    def replicated(cls) -> HloSharding:
        """``{replicated}``: the whole on every device."""
        return cls(HloKind.REPLICATED)

    @classmethod
    def manual(cls) -> HloSharding:
        """``{manual}``: inside a manual region, left alone by the partitioner."""
        return cls(HloKind.MANUAL)

    @classmethod
    def unknown(cls) -> HloSharding:
        """``{unknown}``: nothing said; in Shardy, all dimensions open."""
        return cls(HloKind.UNKNOWN)

    @classmethod
    def unreduced(cls, reduction: str | None = None) -> HloSharding:
        """``{unreduced}``: a partial result of full shape on every device."""
        return cls(HloKind.UNREDUCED, reduction=None if reduction == "sum" else reduction)

    @classmethod
    def maximal(cls, device: int) -> HloSharding:
        """``{maximal device=3}``: the whole on one device.

        Raises:
          ShardingError: ``bad-tile-assignment`` for a negative id.
        """
        if device < 0:
            raise ShardingError("bad-tile-assignment", f"device id {device} is negative")
        return cls(HloKind.MAXIMAL, device=device)

    @classmethod
    def tuple_of(cls, elements: Sequence[HloSharding]) -> HloSharding:
        """``{{...}, {...}}``: one for each leaf of a tuple, which may have none.

        Raises:
          ShardingError: ``not-expressible`` for a tuple in a tuple.
        """
        for index, element in enumerate(elements):
            if element.is_tuple:
                raise ShardingError(
                    "not-expressible",
                    f"element {index} of a tuple sharding is a tuple",
                    help="list the leaves of the tuple, as XLA does",
                )
        return cls(HloKind.TUPLE, elements=tuple(elements))

    @classmethod
    def tiled(
        cls,
        tile: TileAssignment,
        subgroup_types: Sequence[SubgroupType] = (),
        reduction: str | None = None,
    ) -> HloSharding:
        """``{devices=...}`` in XLA's canonical form, which may turn out to be another kind.

        Subgroups of one type are merged and sorted by type, those of size 1 dropped; replicas are
        listed in ascending order; without data tiles and with one type only, what is left is
        ``{replicated}``, ``{manual}`` or ``{unreduced}``. Source: ``HloSharding::Subgroup`` and
        ``PartialTile`` in xla/hlo/ir/hlo_sharding.cc.

        Args:
          tile: data dimensions first, then one dimension for each of ``subgroup_types``.
          subgroup_types: in any order, repeated if need be.
          reduction: kept where an unreduced subgroup is.

        Raises:
          ShardingError: ``bad-tile-assignment`` for more subgroups than dimensions, or one device.
        """
        return _canonical(tile, tuple(subgroup_types), reduction)

    @classmethod
    def parse(cls, text: str) -> HloSharding:
        """Read XLA's text: V1 device lists, V2 iotas, named V3 shardings, tuples.

        Raises:
          ShardingError: with the place in ``text``: ``syntax``, ``trailing-text``,
            ``bad-tile-assignment``, ``duplicate-device``; for V3 also ``bad-mesh`` and what
            :class:`shardpass.canon.TensorSharding` refuses.
        """
        from shardpass.canon.hlo_parser import parse_hlo_sharding

        return parse_hlo_sharding(text)

    @property
    def is_replicated(self) -> bool:
        """Whether this is ``{replicated}``."""
        return self.kind is HloKind.REPLICATED

    @property
    def is_tuple(self) -> bool:
        """Whether this is a tuple of shardings."""
        return self.kind is HloKind.TUPLE

    @property
    def is_partial(self) -> bool:
        """Whether devices hold partial results that are still to be combined."""
        return self.kind is HloKind.UNREDUCED or SubgroupType.UNREDUCED in self.subgroup_types

    @property
    def tile_dims(self) -> tuple[int, ...]:
        """Dimensions of the tile assignment, subgroups included; empty unless tiled."""
        return self.tile.dims if self.tile else ()

    @property
    def data_tiles(self) -> tuple[int, ...]:
        """Into how many pieces each tensor dimension is cut; empty unless tiled."""
        return self.tile_dims[: len(self.tile_dims) - len(self.subgroup_types)]

    @property
    def rank(self) -> int | None:
        """The number of dimensions that the value must have; ``None`` where any will do."""
        return len(self.data_tiles) if self.tile else None

    @property
    def num_devices(self) -> int | None:
        """The number of devices spoken of; 1 for maximal, ``None`` where any will do."""
        if self.kind is HloKind.MAXIMAL:
            return 1
        return self.tile.size if self.tile else None

    def shard_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape, in elements, of the block that each device holds.

        Raises:
          ShardingError: ``rank-mismatch``; ``indivisible``; ``not-expressible`` for a tuple.
        """
        self._refuse_tuple()
        return divide(shape, self.data_tiles, self.describe()) if self.tile else tuple(shape)

    def padded_shard_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """As :meth:`shard_shape`, uneven dimensions rounded up, as XLA pads them."""
        self._refuse_tuple()
        return divide_up(shape, self.data_tiles, self.describe()) if self.tile else tuple(shape)

    def validate(self, rank: int, num_devices: int) -> None:
        """Raise unless this can be the sharding of such a value among so many devices.

        Raises:
          ShardingError: ``rank-mismatch``; ``device-count`` for a tile assignment over another
            number of devices or with ids beyond them; ``not-expressible`` for a tuple.
        """
        self._refuse_tuple()
        if self.device is not None and self.device >= num_devices:
            raise ShardingError(
                "device-count", f"{self} names a device beyond the {num_devices} that there are"
            )
        if self.tile is None:
            return
        check_rank(rank, len(self.data_tiles), self.describe())
        if self.tile.size != num_devices:
            raise ShardingError(
                "device-count",
                f"{self.describe()} is for {self.tile.size} devices, there are {num_devices}",
            )
        if self.tile.devices is not None and self.tile.devices.max() >= num_devices:
            raise ShardingError(
                "device-count",
                f"{self.describe()} names device {self.tile.devices.max()} of {num_devices}",
            )

    def to_v2(self) -> HloSharding:
        """The same sharding with names dropped, and lists turned into iotas where one exists."""
        elements = tuple(element.to_v2() for element in self.elements)
        tile = self.tile and (self.tile.as_iota() or self.tile)
        return replace(self, tile=tile, elements=elements, named=None)

    def without_names(self) -> HloSharding:
        """The same sharding with names dropped; a mesh with ``device_ids`` leaves a list.

        This is XLA's ``HloSharding::V3ToV2Sharding``.
        """
        elements = tuple(element.without_names() for element in self.elements)
        return replace(self, elements=elements, named=None)

    def without_metadata(self) -> HloSharding:
        """The same sharding without metadata."""
        elements = tuple(element.without_metadata() for element in self.elements)
        return replace(self, metadata=(), elements=elements)

    def to_text(self, *, metadata: bool = False) -> str:
        """XLA's text, with its metadata on demand.

        With metadata, unreduced shardings say how they are to be combined, as jaxlib 0.12 does:
        ``metadata={op_type="sdy::reduction_op" op_name="SUM"}``.
        """
        if self.is_tuple:
            inner = ", ".join(element.to_text(metadata=metadata) for element in self.elements)
            return f"{{{inner}}}"
        if self.named is not None:
            return self.named.to_text(self.metadata if metadata else ())
        notes = self._all_metadata() if metadata else ()
        parts = [self._body()]
        if self.group:
            parts.append(str(self.group))
        if notes:
            parts.append(metadata_text(notes))
        return f"{{{' '.join(parts)}}}"

    def describe(self) -> str:
        """The text, or as much of it as a message can hold."""
        text = str(self)
        return text if len(text) <= 160 else f"{text[:160]}..."

    def __str__(self) -> str:
        return self.to_text()

    def _body(self) -> str:
        if self.kind is HloKind.MAXIMAL:
            return f"maximal device={self.device}"
        if self.kind is not HloKind.TILED:
            return self.kind.value
        if not self.subgroup_types:
            return str(self.tile)
        if self.subgroup_types == (SubgroupType.REPLICATED,):
            return f"{self.tile} last_tile_dim_replicate"
        types = ", ".join(subgroup.value for subgroup in self.subgroup_types)
        return f"{self.tile} last_tile_dims={{{types}}}"

    def _all_metadata(self) -> tuple[Metadata, ...]:
        if not self.is_partial or any(entry.is_reduction for entry in self.metadata):
            return self.metadata
        name = (self.reduction or "sum").upper()
        return (*self.metadata, Metadata((("op_type", REDUCTION_OP), ("op_name", name))))

    def _refuse_tuple(self) -> None:
        if self.is_tuple:
            raise ShardingError(
                "not-expressible",
                f"a tuple of {len(self.elements)} shardings is not the sharding of one value",
                help="take its elements",
            )


def _canonical(
    tile: TileAssignment, types: tuple[SubgroupType, ...], reduction: str | None
) -> HloSharding:
    data = len(tile.dims) - len(types)
    if data < 0:
        raise ShardingError(
            "bad-tile-assignment",
            f"{len(types)} subgroup types for {len(tile.dims)} tile dimensions",
        )
    if tile.size == 1:
        raise ShardingError(
            "bad-tile-assignment",
            "a tile assignment of one device says nothing",
            help="write {replicated}, or {maximal device=...}",
        )
    tile, types = _merge_subgroups(tile, types, data)
    if len(types) == 1 and tile.dims[-1] == tile.size:
        return _everywhere(types[0], reduction)
    if SubgroupType.REPLICATED in types:
        tile = tile.with_sorted_last()
    said = reduction if SubgroupType.UNREDUCED in types and reduction != "sum" else None
    return HloSharding(HloKind.TILED, tile, types, reduction=said)


def _merge_subgroups(
    tile: TileAssignment, types: tuple[SubgroupType, ...], data: int
) -> tuple[TileAssignment, tuple[SubgroupType, ...]]:
    """One dimension for each type that has devices, in XLA's order, behind ``data`` others."""
    of_type = {
        subgroup: [
            data + index
            for index, found in enumerate(types)
            if found is subgroup and tile.dims[data + index] > 1
        ]
        for subgroup in SubgroupType
    }
    merged = tuple(subgroup for subgroup in SubgroupType if of_type[subgroup])
    if merged == types:
        return tile, types
    moved = [dimension for subgroup in merged for dimension in of_type[subgroup]]
    dropped = [d for d in range(data, len(tile.dims)) if d not in moved]
    sizes = [math.prod(tile.dims[d] for d in of_type[subgroup]) for subgroup in merged]
    tile = tile.transposed([*range(data), *moved, *dropped])
    return tile.reshaped((*tile.dims[:data], *sizes)), merged


def _everywhere(subgroup: SubgroupType, reduction: str | None) -> HloSharding:
    match subgroup:
        case SubgroupType.REPLICATED:
            return HloSharding.replicated()
        case SubgroupType.MANUAL:
            return HloSharding.manual()
        case SubgroupType.UNREDUCED:
            return HloSharding.unreduced(reduction)
