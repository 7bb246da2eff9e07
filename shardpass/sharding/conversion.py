"""From meshes and specs, ours or JAX's, to the algebra and back.

How a spec reads as a ``TensorSharding``, as JAX's own lowering to Shardy has it (for ``Auto`` axes,
``jax/_src/named_sharding.py``): an entry's axes cut its dimension, which is closed;
``UNCONSTRAINED`` is an open dimension, ``{?}``; dimensions beyond the last entry are closed and
not cut; unreduced axes come in mesh order. Axes of size 1 stay: it is XLA's tile assignment that
has no place for them. ``reduced`` axes say how to differentiate and are no part of a layout.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias, cast

import jax

from shardpass import canon
from shardpass.canon import (
    AxisRef,
    DimSharding,
    HloKind,
    HloSharding,
    MeshShape,
    TensorSharding,
)
from shardpass.diagnostics import ShardingError
from shardpass.sharding.mesh import JaxAbstractMesh, JaxMesh, Mesh
from shardpass.sharding.partition_spec import (
    UNCONSTRAINED,
    Entry,
    JaxPartitionSpec,
    PartitionSpec,
    axes_of,
    is_ours,
)

MeshLike: TypeAlias = Mesh | JaxMesh | JaxAbstractMesh | MeshShape | Mapping[str, int]
SpecLike: TypeAlias = PartitionSpec | JaxPartitionSpec | tuple[Entry, ...] | list[Entry] | None


class PartitionEntries(tuple[Entry, ...]):
    """The entries of a spec, a plain tuple in use, with what a spec says besides them.

    Attributes:
      unreduced: the axes over which the value is still to be reduced.
      reduced: the axes over which the cotangent is.
      unreduced_kind: ``"sum"``, ``"max"``, ``"min"``; ``None`` where the spec names none.
    """

    unreduced: frozenset[str]
    reduced: frozenset[str]
    unreduced_kind: str | None

    def __new__(
        cls,
        entries: Iterable[Entry],
        unreduced: frozenset[str] = frozenset(),
        reduced: frozenset[str] = frozenset(),
        unreduced_kind: str | None = None,
    ) -> PartitionEntries:
        """Keep the entries as they are."""
        self = super().__new__(cls, entries)
        self.unreduced = unreduced
        self.reduced = reduced
        self.unreduced_kind = unreduced_kind
        return self


def as_mesh_shape(mesh: MeshLike) -> MeshShape:
    """The named axes of any mesh: ours, JAX's (with devices or not), a mapping name -> size.

    The devices themselves are no part of it, nor is their order: a module numbers them 0, 1, 2 in
    mesh order, whatever their ids, and the executable's device assignment says which they are.

    Raises:
      ShardingError: ``bad-mesh``; ``abstract-type`` for anything else.
    """
    if isinstance(mesh, MeshShape):
        return mesh
    if isinstance(mesh, (JaxMesh, JaxAbstractMesh)):
        return Mesh.from_jax(mesh).mesh_shape
    if isinstance(mesh, Mapping):
        return Mesh.of(mesh).mesh_shape
    raise ShardingError(
        "abstract-type",
        f"a mesh is needed, not {type(mesh).__name__} {mesh!r}",
        help='write Mesh(devices, names), or {"data": 2, "model": 4} for the axes alone',
    )


def as_spec(spec: SpecLike) -> PartitionSpec:
    """Any spec as ours: JAX's, a tuple or list of entries, ``None`` for no cut at all.

    Raises:
      ShardingError: ``bad-spec``; ``abstract-type`` for anything else.
    """
    if spec is None:
        return PartitionSpec()
    if isinstance(spec, (tuple, list)) and not is_ours(spec):
        return PartitionSpec(*spec)
    return PartitionSpec.from_jax(cast(JaxPartitionSpec, spec))


def as_partition_entries(spec: SpecLike) -> PartitionEntries:
    """The entries of any spec (as :func:`as_spec` takes it), to iterate over and index.

    An entry is ``None``, an axis name, a tuple of two names or more, or ``UNCONSTRAINED``.

    Raises:
      ShardingError: ``bad-spec``, ``abstract-type``.
    """
    ours = as_spec(spec)
    kind = ours.unreduced_kind
    return PartitionEntries(
        ours.partitions, ours.unreduced, ours.reduced, None if kind is None else kind.name
    )


def spec_to_tensor_sharding(mesh: MeshLike, spec: SpecLike, rank: int) -> TensorSharding:
    """What ``spec`` means for a value of ``rank`` dimensions on ``mesh``.

    Raises:
      ShardingError: ``rank-mismatch`` for more entries than dimensions; ``unknown-axis``,
        ``duplicate-axis``; as :func:`as_mesh_shape` and :func:`as_spec`.
    """
    return tensor_sharding(as_mesh_shape(mesh), as_spec(spec), rank)


def check_rank(spec: PartitionSpec, rank: int) -> None:
    """Raise ``rank-mismatch`` if ``spec`` has more entries than a value has dimensions."""
    if len(spec) <= rank:
        return
    raise ShardingError(
        "rank-mismatch",
        f"{spec} speaks of {len(spec)} dimensions, the value has {rank}",
        help=(
            "a scalar takes PartitionSpec()"
            if rank == 0
            else f"drop {len(spec) - rank} of its entries"
        ),
    )


@functools.lru_cache(maxsize=4096)
def tensor_sharding(mesh: MeshShape, spec: PartitionSpec, rank: int) -> TensorSharding:
    """:func:`spec_to_tensor_sharding`, for what is known to be a mesh shape and a spec of ours."""
    check_rank(spec, rank)
    dims = [
        DimSharding(tuple(AxisRef(axis) for axis in axes_of(entry)), open=entry is UNCONSTRAINED)
        for entry in spec.partitions
    ]
    dims += [DimSharding()] * (rank - len(dims))
    kind = spec.unreduced_kind
    return TensorSharding(
        mesh,
        tuple(dims),
        unreduced=tuple(AxisRef(axis) for axis in sorted(spec.unreduced, key=mesh.axis_index)),
        reduction=None if kind is None else kind.name,
    )


def over_axes(tiles: HloSharding, count: int, ndim: int) -> TensorSharding:
    """``tiles`` over ``count`` devices as the layout of a value of ``ndim`` dimensions.

    Raises:
      ShardingError: ``rank-mismatch``.
    """
    if tiles.tile is not None or tiles.named is not None:
        return canon.from_hlo(tiles, ndim)
    # What tiles nothing names no devices; here they are known.
    mesh = MeshShape((("_axis_0", count),) if count > 1 else ())
    if tiles.kind is HloKind.UNREDUCED and not mesh.axes:
        return TensorSharding.replicated_on(mesh, ndim)
    return canon.from_hlo(tiles, ndim, mesh)


@functools.lru_cache(maxsize=4096)
def as_users_axes(layout: TensorSharding) -> TensorSharding:
    """The same over axes ``axis_0``, ``axis_1``, ..., for a module that may have other meshes.

    XLA takes a mesh whose axes are called ``_axis_0``, ... for one that it made itself, and folds
    it into the first mesh of the module. Where that needs sub-axes, it drops the cut of a result
    without a word.
    """
    new = {name: name.removeprefix("_") for name in layout.mesh.names if name.startswith("_axis_")}
    names = [new.get(name, name) for name in layout.mesh.names]
    if not new or len(set(names)) < len(names):
        return layout

    def renamed(axes: tuple[AxisRef, ...]) -> tuple[AxisRef, ...]:
        return tuple(replace(axis, name=new.get(axis.name, axis.name)) for axis in axes)

    return TensorSharding(
        MeshShape(tuple(zip(names, layout.mesh.sizes, strict=True)), layout.mesh.device_ids),
        tuple(replace(dim, axes=renamed(dim.axes)) for dim in layout.dims),
        renamed(layout.replicated),
        renamed(layout.unreduced),
        layout.reduction,
    )


@functools.lru_cache(maxsize=4096)
def parsed_tiles(text: str) -> HloSharding:
    """XLA's text as tiles.

    Raises:
      ShardingError: as ``HloSharding.parse``.
    """
    return HloSharding.parse(text)


def spec_of(sharding: TensorSharding) -> PartitionSpec:
    """The spec that says what ``sharding`` does, with one entry per dimension.

    The inverse of :func:`spec_to_tensor_sharding`. Axes that a sharding of closed dimensions
    replicates explicitly need no saying.

    Raises:
      ShardingError: ``not-expressible`` for sub-axes, priorities, dimensions that are cut and open
        at once, replicated axes beside open dimensions, and a single device; ``bad-spec`` for a
        reduction that the installed JAX has no name for.
    """
    if sharding.mesh.is_maximal:
        raise _inexpressible(sharding, f"it is the single {sharding.mesh.describe()}")
    for index, dim in enumerate(sharding.dims):
        for axis in dim.axes:
            if axis.size is not None:
                raise _inexpressible(sharding, f"dimension {index} is cut by the sub-axis {axis}")
        if dim.priority is not None:
            raise _inexpressible(sharding, f"dimension {index} has priority {dim.priority}")
        if dim.open and dim.axes:
            raise _inexpressible(sharding, f"dimension {index} is cut and open at once")
        if dim.open and sharding.replicated:
            raise _inexpressible(
                sharding, f"dimension {index} is open but for {sharding.replicated[0]}"
            )
    for axis in sharding.unreduced:
        if axis.size is not None:
            raise _inexpressible(sharding, f"it is unreduced over the sub-axis {axis}")
    entries = [
        UNCONSTRAINED if dim.open else tuple(axis.name for axis in dim.axes)
        for dim in sharding.dims
    ]
    unreduced = frozenset(axis.name for axis in sharding.unreduced)
    return PartitionSpec(
        *entries, unreduced=unreduced, unreduced_kind=_unreduced_kind(sharding.reduction)
    )


def _unreduced_kind(reduction: str | None) -> Any:
    if reduction is None:
        return None
    kinds = getattr(jax.sharding, "UnreducedKind", None)
    return kinds[reduction] if kinds else reduction


def _inexpressible(sharding: TensorSharding, why: str) -> ShardingError:
    return ShardingError(
        "not-expressible",
        f"no PartitionSpec says {sharding.dims_text()}: {why}",
        help="a spec cuts closed dimensions by whole mesh axes",
    )
