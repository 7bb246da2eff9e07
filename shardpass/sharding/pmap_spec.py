"""What ``jax.pmap`` said about an array: which dimensions are mapped, and over which devices.

Two lists. ``sharding`` says for each dimension of the array whether it is cut: not at all
(:class:`NoSharding`), into pieces that keep the dimension (:class:`Chunked`), or into elements that
lose it (:class:`Unstacked`). Each piece count is a *sharded axis*, numbered from 0 in the order of
the dimensions. ``mesh_mapping`` says what the dimensions of the array of devices are for, major to
minor: each is a sharded axis (:class:`ShardedAxis`) or copies (:class:`Replicated`).
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from shardpass.canon import HloSharding, SubgroupType, TileAssignment
from shardpass.canon.shapes import checked_shape
from shardpass.diagnostics import ShardingError
from shardpass.sharding.saved import Saved

Index: TypeAlias = tuple[slice | int, ...]


@dataclass(frozen=True, slots=True)
class NoSharding:
    """A dimension that is not cut."""


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Chunked:
    """A dimension cut into pieces, which keep it.

    Args:
      chunks: the number of pieces, major to minor; their product is the number in all.

    Raises:
      ShardingError: ``bad-spec``, for no number at all or one below 1.
    """

    _chunks: tuple[int, ...]

    def __init__(self, chunks: Sequence[int]) -> None:
        if isinstance(chunks, str) or not isinstance(chunks, Iterable):
            raise ShardingError(
                "bad-spec",
                f"Chunked takes a list of numbers, not {type(chunks).__name__} {chunks!r}",
                help=f"write Chunked([{chunks!r}])",
            )
        found = tuple(_count(size, "Chunked") for size in chunks)
        if not found:
            raise ShardingError("bad-spec", "Chunked([]) says no number of pieces")
        object.__setattr__(self, "_chunks", found)

    @property
    def chunks(self) -> list[int]:
        """The numbers of pieces, major to minor."""
        return list(self._chunks)

    @property
    def pieces(self) -> int:
        """The number of pieces in all."""
        return math.prod(self._chunks)

    def __repr__(self) -> str:
        return f"Chunked({','.join(map(str, self._chunks))})"


@dataclass(frozen=True, slots=True, repr=False)
class Unstacked:
    """A dimension of ``size`` elements, one on each device, where it is gone.

    Raises:
      ShardingError: ``bad-spec``, for a size below 1.
    """

    size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", _count(self.size, "Unstacked"))

    def __repr__(self) -> str:
        return f"Unstacked({self.size})"


@dataclass(frozen=True, slots=True)
class ShardedAxis:
    """A dimension of the devices along which sharded axis number ``axis`` goes."""

    axis: int


@dataclass(frozen=True, slots=True)
class Replicated:
    """A dimension of the devices along which there are ``replicas`` copies.

    Raises:
      ShardingError: ``bad-spec``, for a number below 1.
    """

    replicas: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "replicas", _count(self.replicas, "Replicated"))


DimSpec: TypeAlias = NoSharding | Chunked | Unstacked
MeshDim: TypeAlias = ShardedAxis | Replicated


@dataclass(frozen=True, slots=True, init=False, repr=False)
class ShardingSpec:
    """Which dimensions are mapped, and over which dimensions of the devices.

    Args:
      sharding: one entry for each dimension of the array.
      mesh_mapping: one entry for each dimension of the array of devices.

    Raises:
      ShardingError: ``bad-spec``, for other entries, and unless each sharded axis is mapped once.
    """

    sharding: tuple[DimSpec, ...]
    mesh_mapping: tuple[MeshDim, ...]

    def __init__(self, sharding: Iterable[DimSpec], mesh_mapping: Iterable[MeshDim]) -> None:
        object.__setattr__(self, "sharding", tuple(sharding))
        object.__setattr__(self, "mesh_mapping", tuple(mesh_mapping))
        for name, entries, kinds in (
            ("sharding", self.sharding, (NoSharding, Chunked, Unstacked)),
            ("mesh_mapping", self.mesh_mapping, (ShardedAxis, Replicated)),
        ):
            for place, entry in enumerate(entries):
                if not isinstance(entry, kinds):
                    raise ShardingError(
                        "bad-spec",
                        f"entry {place} of {name} is {type(entry).__name__} {entry!r}, not one of "
                        f"{', '.join(kind.__name__ for kind in kinds)}",
                    )
        axes = [entry.axis for entry in self.mesh_mapping if isinstance(entry, ShardedAxis)]
        count = len(self.axis_sizes)
        if sorted(axes) != list(range(count)):
            raise ShardingError(
                "bad-spec",
                f"{self.sharding} has {count} sharded axes, and the mesh mapping names {axes}",
                help=f"name each of {', '.join(map(str, range(count)))} once"
                if count
                else "name none, or cut a dimension",
            )

    @property
    def axis_sizes(self) -> tuple[int, ...]:
        """How many pieces each sharded axis has."""
        sizes: list[int] = []
        for entry in self.sharding:
            if isinstance(entry, Unstacked):
                sizes.append(entry.size)
            elif isinstance(entry, Chunked):
                sizes += entry.chunks
        return tuple(sizes)

    @property
    def mesh_shape(self) -> tuple[int, ...]:
        """The shape of the devices that the mesh mapping speaks of."""
        sizes = self.axis_sizes
        return tuple(
            entry.replicas if isinstance(entry, Replicated) else sizes[entry.axis]
            for entry in self.mesh_mapping
        )

    @property
    def has_unstacked(self) -> bool:
        """Whether the blocks have fewer dimensions than the array."""
        return any(isinstance(entry, Unstacked) for entry in self.sharding)

    @property
    def is_replicated(self) -> bool:
        """Whether no dimension is mapped, even over one device."""
        return all(isinstance(entry, NoSharding) for entry in self.sharding)

    def chunked(self) -> ShardingSpec:
        """The same with every :class:`Unstacked` dimension kept, one element a device."""
        return ShardingSpec(
            [Chunked([e.size]) if isinstance(e, Unstacked) else e for e in self.sharding],
            self.mesh_mapping,
        )

    def indices(self, shape: Sequence[int]) -> np.ndarray:
        """The block of an array of ``shape`` that each device holds.

        Returns:
          An array of objects, shaped :attr:`mesh_shape`: tuples with an entry for each dimension,
          a whole number where it is :class:`Unstacked`.

        Raises:
          ShardingError: ``rank-mismatch``; ``indivisible``; ``mapped-size``, where an
            :class:`Unstacked` dimension has another size.
        """
        self.check_rank(len(shape))
        columns = [
            _blocks(dim, size, entry, tuple(shape))
            for dim, (size, entry) in enumerate(zip(shape, self.sharding, strict=True))
        ]
        blocks = np.empty(math.prod(self.axis_sizes), dtype=object)
        for place, block in enumerate(itertools.product(*columns)):
            blocks[place] = block
        # Which axis of the blocks, or of the copies before them, each dimension of the mesh is.
        copies = [e.replicas for e in self.mesh_mapping if isinstance(e, Replicated)]
        of_copies = itertools.count()
        order = [
            next(of_copies) if isinstance(entry, Replicated) else len(copies) + entry.axis
            for entry in self.mesh_mapping
        ]
        shaped = blocks.reshape(self.axis_sizes)
        return np.broadcast_to(shaped, (*copies, *shaped.shape)).transpose(order)

    def check_rank(self, rank: int) -> None:
        """Raise ``rank-mismatch`` unless this is for values of ``rank`` dimensions."""
        if rank != len(self.sharding):
            raise ShardingError(
                "rank-mismatch",
                f"{self!r} has {len(self.sharding)} dimensions, the value has {rank}",
            )

    def shard_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the block of an array of ``shape`` that each device holds.

        A :class:`Chunked` dimension becomes 1. The first :class:`Unstacked` one is left out, as JAX
        had it: it knew no second, though its index maps did. Where none is mapped, the array has
        any number of dimensions, as JAX had it too, and as ``vmap`` needs it.

        Raises:
          ShardingError: ``rank-mismatch``; ``mapped-size``.
        """
        shape = checked_shape(shape)
        if all(isinstance(entry, NoSharding) for entry in self.sharding):
            return shape
        self.check_rank(len(shape))
        found = list(shape)
        lost = None
        for dim, entry in enumerate(self.sharding):
            if isinstance(entry, Chunked):
                check_mapped(dim, shape[dim], entry.pieces, shape)
                found[dim] = 1
            elif isinstance(entry, Unstacked):
                check_mapped(dim, shape[dim], entry.size, shape)
                lost = dim if lost is None else lost
        if lost is not None:
            del found[lost]
        return tuple(found)

    def tiles_of(self, ndim: int) -> HloSharding:
        """:meth:`to_hlo` for values of ``ndim`` dimensions: of any number, where none is cut.

        Raises:
          ShardingError: ``rank-mismatch``; ``not-expressible``.
        """
        tiles = self.to_hlo()
        if not tiles.is_replicated:  # As which vmap leaves it, for values of one dimension more.
            self.check_rank(ndim)
        return tiles

    def to_hlo(self) -> HloSharding:
        """The tiles, over devices numbered in row-major order of :attr:`mesh_shape`.

        Raises:
          ShardingError: ``not-expressible``, where a dimension is :class:`Unstacked`.
        """
        if self.has_unstacked:
            raise ShardingError(
                "not-expressible",
                f"{self!r} gives each device a block of fewer dimensions than the array has, "
                "which no sharding of today's JAX can say",
                help=f"use {self.chunked()!r}, which is sharding_spec.chunked(): its blocks keep "
                "the mapped dimension, with 1 element",
            )
        pieces = [entry.pieces if isinstance(entry, Chunked) else 1 for entry in self.sharding]
        if math.prod(pieces) == 1:
            return HloSharding.replicated()
        first = sorted(
            range(len(self.mesh_mapping)),
            key=lambda dim: (
                entry.axis
                if isinstance(entry := self.mesh_mapping[dim], ShardedAxis)
                else len(pieces) + len(self.axis_sizes)
            ),
        )
        replicas = math.prod(self.mesh_shape) // math.prod(pieces)
        tile = TileAssignment.iota((*pieces, replicas), self.mesh_shape, first)
        return HloSharding.tiled(tile, (SubgroupType.REPLICATED,))

    @classmethod
    def from_hlo(cls, hlo: HloSharding, shape: Sequence[int], num_devices: int) -> ShardingSpec:
        """The spec with the tiles of ``hlo``, each cut dimension mapped.

        Args:
          hlo: over devices in the order in which they are to be given.
          shape: of the value.
          num_devices: how many there are.

        Raises:
          ShardingError: ``not-expressible`` for what has no tiles, has manual or unreduced devices,
            or numbers the devices in no order that dimensions have; ``mapped-size`` for pieces of
            more than one element; ``rank-mismatch``; ``device-count``.
        """
        if hlo.is_replicated:
            return cls([NoSharding()] * len(shape), [Replicated(num_devices)])
        groups = hlo.tile and hlo.tile.groups()
        if groups is None or hlo.subgroup_types not in ((), (SubgroupType.REPLICATED,)):
            raise ShardingError(
                "not-expressible",
                f"{hlo.describe()} is no mapping of dimensions over those of an array of devices",
            )
        hlo.validate(len(shape), num_devices)
        sharding: list[DimSpec] = []
        found: list[tuple[int, MeshDim]] = []  # with strides: the larger, the more major
        for dim, (size, modes) in enumerate(zip(shape, groups, strict=False)):
            counts = [count for count, _ in modes if count > 1]
            if not counts:
                sharding.append(NoSharding())
                continue
            check_mapped(dim, size, math.prod(counts), tuple(shape))
            sharding.append(Chunked(counts))
            found += [
                (stride, ShardedAxis(len(found) + k))
                for k, (_, stride) in enumerate(mode for mode in modes if mode[0] > 1)
            ]
        if hlo.subgroup_types:
            found += [(stride, Replicated(count)) for count, stride in groups[-1]]
        found.sort(key=lambda entry: -entry[0])
        return cls(sharding, [entry for _, entry in found])

    def state(self) -> dict[str, Any]:
        """JSON values, from which :meth:`read` makes it again."""
        return {
            "sharding": [_dim_state(entry) for entry in self.sharding],
            "mesh_mapping": [
                {"replicated": entry.replicas}
                if isinstance(entry, Replicated)
                else {"sharded_axis": entry.axis}
                for entry in self.mesh_mapping
            ],
        }

    @classmethod
    def read(cls, fields: Mapping[str, Saved]) -> ShardingSpec:
        """The inverse of :meth:`state`.

        Raises:
          ShardingError: ``bad-state``, ``bad-spec``, with the place.
        """
        sharding = [_dim_from(entry) for entry in fields["sharding"].items()]
        mapping = [_mesh_dim_from(entry) for entry in fields["mesh_mapping"].items()]
        with fields["mesh_mapping"].building():
            return cls(sharding, mapping)

    def __repr__(self) -> str:
        return f"ShardingSpec({self.sharding}, {self.mesh_mapping})"


def _dim_state(entry: DimSpec) -> dict[str, Any] | None:
    if isinstance(entry, Chunked):
        return {"chunked": entry.chunks}
    return {"unstacked": entry.size} if isinstance(entry, Unstacked) else None


def _dim_from(saved: Saved) -> DimSpec:
    if saved.value is None:
        return NoSharding()
    fields = saved.fields((), ("chunked", "unstacked"))
    with saved.building():
        match fields:
            case {"chunked": chunks} if len(fields) == 1:
                return Chunked([size.whole() for size in chunks.items()])
            case {"unstacked": size} if len(fields) == 1:
                return Unstacked(size.whole())
    raise saved.error('null, {"chunked": [4]} or {"unstacked": 4} is needed')


def _mesh_dim_from(saved: Saved) -> MeshDim:
    fields = saved.fields((), ("sharded_axis", "replicated"))
    with saved.building():
        match fields:
            case {"sharded_axis": axis} if len(fields) == 1:
                return ShardedAxis(axis.whole())
            case {"replicated": replicas} if len(fields) == 1:
                return Replicated(replicas.whole())
    raise saved.error('{"sharded_axis": 0} or {"replicated": 2} is needed')


def check_mapped(dim: int, size: int, count: int, shape: tuple[int, ...]) -> None:
    """Raise ``mapped-size`` unless a mapped dimension has one element for each piece."""
    if size == count:
        return
    helps = f"make it {count}"
    if size and size % count == 0:
        split = (*shape[:dim], count, size // count, *shape[dim + 1 :])
        helps = f"reshape the array to {split}, or place it by a NamedSharding"
    raise ShardingError(
        "mapped-size",
        f"dimension {dim} of shape {shape} has {size} elements and is mapped over {count} devices, "
        "one element each",
        help=helps,
    )


def _blocks(dim: int, size: int, entry: DimSpec, shape: tuple[int, ...]) -> Sequence[Any]:
    """The indices of the pieces of one dimension, in order."""
    if isinstance(entry, NoSharding):
        return (slice(None),)
    if isinstance(entry, Unstacked):
        check_mapped(dim, size, entry.size, shape)
        return range(size)
    width, rest = divmod(size, entry.pieces)
    if rest:
        below, above = size - rest, size - rest + entry.pieces
        raise ShardingError(
            "indivisible",
            f"dimension {dim} of shape {shape}: {size} elements into {entry.pieces} pieces",
            help=f"make it {f'{below} or ' if below else ''}{above}",
        )
    return [slice(k * width, (k + 1) * width) for k in range(entry.pieces)]


def _count(value: Any, owner: str) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        count = operator.index(value)
    except TypeError:
        raise ShardingError(
            "bad-spec", f"{owner} takes whole numbers, not {type(value).__name__} {value!r}"
        ) from None
    if count < 1:
        raise ShardingError("bad-spec", f"{owner}({count}) has no piece; the least is 1")
    return count
