"""From any class of shardings to any other, where the layout allows.

Every function takes a sharding of any class, ours or JAX's, and gives one of ours with the same
blocks on the same devices, in the same kind of memory: ``is_equivalent_to`` holds between the two.
Openness of dimensions is kept only where nothing changes, since only names can say it.

One exception is as JAX has it. Equivalence counts the *order* of the devices, and a mesh brings its
own. :func:`to_named` onto a mesh with the same devices in another order moves no block and no
device, so that index maps are equal; yet one program cannot use both, and they are not equivalent.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from shardpass import canon
from shardpass.canon import (
    AxisRef,
    HloKind,
    HloSharding,
    MeshShape,
    SubgroupType,
    TensorSharding,
)
from shardpass.compat.devices import Device
from shardpass.diagnostics import ShardingError
from shardpass.sharding.base import JaxSharding, device_order, normal_form
from shardpass.sharding.conversion import as_users_axes, over_axes, spec_of
from shardpass.sharding.gspmd import GSPMDSharding, JaxGSPMDSharding
from shardpass.sharding.mesh import JaxAbstractMesh, JaxMesh, Mesh
from shardpass.sharding.named import NamedSharding
from shardpass.sharding.partition_spec import PartitionSpec
from shardpass.sharding.pmap import PmapSharding
from shardpass.sharding.positional import PositionalSharding
from shardpass.sharding.single_device import SingleDeviceSharding

AxisType = jax.sharding.AxisType


def as_ours(sharding: JaxSharding) -> Any:
    """JAX's sharding as our class of the same name; others are given back as they are.

    Raises:
      ShardingError: ``abstract-type`` for what is no sharding; what the class refuses.
    """
    if isinstance(sharding, jax.sharding.NamedSharding):
        return NamedSharding.from_jax(sharding)
    if isinstance(sharding, jax.sharding.SingleDeviceSharding):
        return SingleDeviceSharding.from_jax(sharding)
    if isinstance(sharding, JaxGSPMDSharding):
        return GSPMDSharding.from_jax(sharding)
    if isinstance(sharding, JaxSharding):
        return sharding
    raise ShardingError(
        "abstract-type",
        f"a sharding is needed, not {type(sharding).__name__} {sharding!r}",
        help="NamedSharding(mesh, spec) makes one of a spec",
    )


def to_named(
    sharding: JaxSharding,
    mesh: Mesh | JaxMesh | JaxAbstractMesh | None = None,
    *,
    ndim: int | None = None,
) -> NamedSharding:
    """``sharding`` over the axes of ``mesh``, found again from its tiles.

    The spec ends with the last dimension that is cut, as the one that JAX finds for a result.

    Args:
      sharding: of any class, ours or JAX's.
      mesh: ours or JAX's, over the same devices in any order, or without devices, which then stand
        for those of ``sharding`` in their order. Without a mesh, a named sharding stays what it is,
        and others get one of axes ``axis_0``, ``axis_1``, ...
      ndim: dimensions of the value; may be left out where the sharding is for one number alone, or
        cuts nothing.

    Raises:
      ShardingError: ``not-expressible`` where no axes of the mesh, or parts of them only, cut like
        this, with the sub-axes that do; ``mesh-mismatch`` for other devices; ``rank-mismatch``;
        ``bad-spec`` for partial results over axes that are not ``Explicit``.
    """
    given = as_ours(sharding)
    onto = None if mesh is None else Mesh.from_jax(mesh)
    if isinstance(given, NamedSharding) and onto in (None, given.mesh):
        return given
    rank = rank_of(given) if ndim is None else ndim
    tiles, order = normal_form(given, rank), device_order(given)
    if onto is None:
        return _over_new_axes(given, tiles, order, rank)
    layout = _on_mesh(given, tiles, order, onto, rank)
    return NamedSharding(onto, _short(spec_of(layout)), memory_kind=given.memory_kind)


def to_gspmd(sharding: JaxSharding, ndim: int | None = None) -> GSPMDSharding:
    """``sharding`` as tiles over its devices.

    Args:
      sharding: of any class, ours or JAX's.
      ndim: dimensions of the value; may be left out where the sharding is for one number alone, or
        cuts nothing.

    Raises:
      ShardingError: ``device-free``; ``rank-mismatch``; ``not-expressible``.
    """
    given = as_ours(sharding)
    if isinstance(given, GSPMDSharding):
        if ndim is not None:
            given.canonical_hlo(ndim)
        return given
    tiles = normal_form(given, rank_of(given) if ndim is None else ndim)
    return GSPMDSharding(_devices_of(given), tiles, memory_kind=given.memory_kind)


def to_positional(sharding: JaxSharding, ndim: int | None = None) -> PositionalSharding:
    """``sharding`` as an array of devices, of the shape in which the value is cut.

    Args:
      sharding: of any class, ours or JAX's.
      ndim: dimensions of the value; may be left out where the sharding is for one number alone, or
        cuts nothing.

    Raises:
      ShardingError: ``not-expressible`` for partial results and manual axes; ``device-free``;
        ``rank-mismatch``.
    """
    given = as_ours(sharding)
    rank = rank_of(given) if ndim is None else ndim
    if isinstance(given, PositionalSharding):
        if ndim is not None:
            given.canonical_hlo(ndim)
        return given
    _refuse_manual(normal_form(given, rank), "PositionalSharding")
    return PositionalSharding.from_jax(given, rank)


def to_pmap(sharding: JaxSharding, value: int | Sequence[int] | None = None) -> PmapSharding:
    """``sharding`` as a mapping of dimensions, each with one element for each piece.

    Args:
      sharding: of any class, ours or JAX's; also the ``NamedSharding`` of what ``jax.pmap`` returns
        today.
      value: shape of the value, which is then held against the mapping, or its number of
        dimensions; may be left out where the sharding is for one number alone, or cuts nothing.

    Raises:
      ShardingError: ``mapped-size`` for a dimension that has not one element for each piece;
        ``not-expressible`` for partial results, manual axes, and devices in no order that the
        dimensions of an array have; ``device-free``; ``rank-mismatch``.
    """
    given = as_ours(sharding)
    shape = None if value is None or isinstance(value, int) else tuple(value)
    rank = value if isinstance(value, int) else rank_of(given) if shape is None else len(shape)
    if isinstance(given, PmapSharding):
        if shape is not None:
            given.shard_shape(shape)
        elif value is not None:
            given.sharding_spec.check_rank(rank)
        return given
    tiles = normal_form(given, rank)
    _refuse_manual(tiles, "PmapSharding")
    return PmapSharding.from_jax(given, shape or tiles.data_tiles or (1,) * rank)


def _refuse_manual(tiles: HloSharding, owner: str) -> None:
    if tiles.kind is HloKind.MANUAL or SubgroupType.MANUAL in tiles.subgroup_types:
        raise ShardingError(
            "not-expressible", f"no {owner} says {tiles.describe()}: it has no manual axes"
        )


def rank_of(sharding: Any) -> int:
    """The number of dimensions that ``sharding`` is for, as far as it says; else 0."""
    if isinstance(sharding, NamedSharding):
        return len(sharding.spec)
    if isinstance(sharding, GSPMDSharding):
        return sharding.hlo_sharding.rank or 0
    if isinstance(sharding, PositionalSharding):
        return sharding.ndim
    if isinstance(sharding, PmapSharding):
        return len(sharding.sharding_spec.sharding)
    if sharding.is_fully_replicated:
        return 0
    raise ShardingError(
        "rank-mismatch",
        f"{sharding!r} does not say how many dimensions it is for",
        help="pass ndim=",
    )


def _devices_of(sharding: Any) -> tuple[Device, ...]:
    order = device_order(sharding)
    if order is None:
        raise ShardingError(
            "device-free", f"{sharding!r} has no devices", help="bind it to devices first"
        )
    return order


def _over_new_axes(
    given: Any, tiles: HloSharding, order: tuple[Device, ...] | None, ndim: int
) -> NamedSharding:
    count = given.num_devices if order is None else len(order)
    layout = over_axes(tiles.without_names(), count, ndim)
    if isinstance(given, GSPMDSharding) and given.hlo_sharding.named is not None:
        named = given.canonical(ndim)
        with contextlib.suppress(ShardingError):  # Names that no spec can say.
            spec_of(named)
            if all(axis.is_full for axis in _manual_axes(tiles, named.mesh)):
                layout = named
    layout = as_users_axes(layout)
    manual = {axis.name for axis in _manual_axes(tiles, layout.mesh)}
    unreduced = {axis.name for axis in layout.unreduced}
    axes = layout.mesh.axes or (("axis_0", 1),)
    names, sizes = zip(*axes, strict=True)
    types = tuple(
        AxisType.Manual
        if name in manual
        else AxisType.Explicit
        if name in unreduced
        else AxisType.Auto
        for name in names
    )
    if order is None:
        mesh = Mesh(axis_sizes=sizes, axis_names=names, axis_types=types)
    else:
        mesh = Mesh(np.array(order, dtype=object).reshape(sizes), names, types)
    return NamedSharding(
        mesh,
        _short(spec_of(layout)),
        memory_kind=given.memory_kind,
        # A mesh whose devices are in another order would be another sharding to JAX.
        _logical_device_ids=layout.mesh.device_ids,
    )


def _on_mesh(
    given: Any, tiles: HloSharding, order: tuple[Device, ...] | None, mesh: Mesh, ndim: int
) -> TensorSharding:
    """The layout over the axes of ``mesh``, which are used whole."""
    shape = mesh.mesh_shape
    places = _places(given, order, mesh)
    numbered = shape if places is None or not shape.axes else MeshShape(shape.axes, places)
    layout = (
        TensorSharding.replicated_on(numbered, ndim)
        if tiles.kind is HloKind.MANUAL or tiles.is_replicated
        else canon.from_hlo(tiles.without_names(), ndim, numbered)
    )
    manual = {axis.name for axis in _manual_axes(tiles, numbered)}
    expected = _manual_of(mesh)
    if manual != expected:
        raise ShardingError(
            "not-expressible",
            f"{tiles.describe()} is manual over {_listed(manual)}, "
            f"the mesh {shape.describe()} over {_listed(expected)}",
            help="give a mesh whose axes have the type AxisType.Manual just there",
        )
    if not _has_full_axes(layout):
        raise _only_in_parts(tiles, layout, shape)
    return layout


def _places(given: Any, order: tuple[Device, ...] | None, mesh: Mesh) -> tuple[int, ...] | None:
    """For each place of the mesh, the number that its device has in ``order``."""
    if order is None or mesh.is_device_free:
        count = given.num_devices if order is None else len(order)
        if mesh.mesh_shape.size != count:
            raise ShardingError(
                "mesh-mismatch",
                f"{given!r} is over {count} devices, the mesh {mesh.mesh_shape.describe()} has "
                f"{mesh.mesh_shape.size}",
            )
        return None
    numbers = {device: number for number, device in enumerate(order)}
    found = tuple(mesh.devices.flat)
    in_mesh = set(found)
    missing = [device for device in order if device not in in_mesh]
    unknown = [device for device in found if device not in numbers]
    if missing or unknown:
        what = (
            f"{_some(missing)} not in the mesh" if missing else f"{_some(unknown)} only in the mesh"
        )
        raise ShardingError(
            "mesh-mismatch",
            f"the sharding is over {len(order)} devices, the mesh "
            f"{mesh.mesh_shape.describe()} over {len(found)}: {what}",
            help="give a mesh of the same devices; their order may be another",
        )
    return tuple(numbers[device] for device in found)


def _manual_axes(tiles: HloSharding, mesh: MeshShape) -> tuple[AxisRef, ...]:
    return canon.manual_axes(tiles.without_names(), mesh)


def _manual_of(mesh: Mesh) -> set[str]:
    types = zip(mesh.axis_names, mesh.axis_types, strict=True)
    return {name for name, kind in types if kind is AxisType.Manual}


def _has_full_axes(layout: TensorSharding) -> bool:
    lists: list[Sequence[AxisRef]] = [dim.axes for dim in layout.dims]
    return all(axis.is_full for axes in (*lists, layout.unreduced) for axis in axes)


def _only_in_parts(tiles: HloSharding, layout: TensorSharding, mesh: MeshShape) -> ShardingError:
    said = TensorSharding(mesh, layout.dims, (), layout.unreduced, layout.reduction)
    parts = [axis for dim in layout.dims for axis in dim.axes if not axis.is_full]
    parts += [axis for axis in layout.unreduced if not axis.is_full]
    split = MeshShape(tuple(_split(mesh, parts)))
    return ShardingError(
        "not-expressible",
        f"no PartitionSpec on the mesh {mesh.describe()} says {tiles.describe()}: it cuts by "
        f"{', '.join(map(str, parts))}, and a spec by whole axes",
        notes=(f"in sub-axes it is {said.to_sdy()}",),
        help=f"give a mesh that has the parts for axes: {split.describe()}",
    )


def _split(mesh: MeshShape, parts: Sequence[AxisRef]) -> list[tuple[str, int]]:
    """The axes of ``mesh``, those that ``parts`` are of cut into just these and what is between."""
    axes: list[tuple[str, int]] = []
    for name, size in mesh.axes:
        edges = {1, size}
        for part in parts:
            if part.name == name:
                edges.update(part.bounds(mesh))
        ends = sorted(edges)
        if len(ends) <= 2:
            axes.append((name, size))
            continue
        for index, (start, end) in enumerate(itertools.pairwise(ends)):
            axes.append((f"{name}{index}", end // start))
    return axes


def _short(spec: PartitionSpec) -> PartitionSpec:
    """``spec`` without the dimensions at its end that are not cut."""
    entries = list(spec.partitions)
    while entries and entries[-1] is None:
        entries.pop()
    return spec.update(partitions=tuple(entries))


def _listed(names: set[str]) -> str:
    return ", ".join(f'"{name}"' for name in sorted(names)) or "no axis"


def _some(devices: Sequence[Device]) -> str:
    shown = ", ".join(map(str, devices[:4]))
    more = f" and {len(devices) - 4} more" if len(devices) > 4 else ""
    return f"{shown}{more} {'is' if len(devices) == 1 else 'are'}"
