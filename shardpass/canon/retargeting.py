"""The same axes on a mesh of other sizes: what a sharding means by the names of its axes.

This is no equality of placement, which another number of devices cannot have. A dimension that was
cut along ``data`` is cut along ``data``, into as many pieces as that now has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shardpass.canon.axes import AxisRef, DimSharding, merged
from shardpass.canon.mesh import MeshShape
from shardpass.canon.tensor_sharding import TensorSharding
from shardpass.diagnostics import Diagnostic, ShardingError, did_you_mean


def axis_on(axis: AxisRef, old: MeshShape, new: MeshShape) -> AxisRef:
    """``axis`` of ``old`` on ``new``.

    A sub-axis keeps its numbers, and is written as the whole axis where it has become that. The
    last part of an axis stays the last part: the numbers must then end at the size again.

    Raises:
      ShardingError: ``unknown-axis`` for an axis of more than one device that ``new`` has not;
        ``bad-sub-axis`` for a part that its axis does not have any more.
    """
    full = dict(new.axes).get(axis.name)
    if full is None:
        raise ShardingError(
            "unknown-axis",
            f'axis "{axis.name}" is not in the mesh {new.describe()}',
            help=did_you_mean(axis.name, new.names)
            or f'give the mesh an axis "{axis.name}", of size 1 where nothing is to be cut',
        )
    if axis.is_full:
        return axis
    start, end = axis.bounds(old)
    before = old.axis_size(axis.name)
    if full % end or (end == before and end != full and start > 1):
        raise ShardingError(
            "bad-sub-axis",
            f'{axis} of "{axis.name}"={before} has no like in "{axis.name}"={full}',
            help=f"keep the size of {axis.name}, or name the parts as axes of their own first "
            "(sp-name-axes)",
        )
    return AxisRef(axis.name) if (start, end) == (1, full) else axis


def retargeted(
    sharding: TensorSharding, new: MeshShape, *, drop: bool = False
) -> tuple[TensorSharding, tuple[Diagnostic, ...]]:
    """``sharding`` on ``new``, by the names of its axes.

    Args:
      sharding: on a mesh with axes.
      new: with other sizes, in any order.
      drop: whether what ``new`` has no axis for is left uncut; otherwise that is an error. An axis
        of size 1 cuts nothing and may always go.

    Returns:
      The sharding, and what was dropped, as the errors that it would have been.

    Raises:
      ShardingError: ``unknown-axis`` and ``bad-sub-axis``, all that there are.
    """
    faults: dict[Diagnostic, None] = {}

    def carried(axes: Sequence[AxisRef]) -> tuple[AxisRef, ...]:
        kept: list[AxisRef] = []
        for axis in axes:
            try:
                found = axis_on(axis, sharding.mesh, new)
            except ShardingError as error:
                if axis.size_in(sharding.mesh) > 1:
                    faults.update(dict.fromkeys(error.diagnostics))
                continue
            # What stood between two parts of an axis may be gone.
            if kept and kept[-1].merges_with(found, new):
                found = merged(kept.pop(), found, new)
            kept.append(found)
        return tuple(kept)

    def carried_set(axes: Sequence[AxisRef]) -> tuple[AxisRef, ...]:
        found = carried(axes)
        return tuple(sorted(found, key=lambda a: (new.axis_index(a.name), a.bounds(new)[0])))

    dims = tuple(_with_axes(dim, carried(dim.axes)) for dim in sharding.dims)
    replicated, unreduced = carried_set(sharding.replicated), carried_set(sharding.unreduced)
    if faults and not drop:
        raise ShardingError.of(tuple(faults))
    reduction = sharding.reduction if unreduced else None
    return TensorSharding(new, dims, replicated, unreduced, reduction), tuple(faults)


def uncut(sharding: TensorSharding, dims: Sequence[int]) -> TensorSharding:
    """``sharding`` with the dimensions ``dims`` left whole, open where they were."""
    return replace(
        sharding,
        dims=tuple(
            _with_axes(dim, ()) if index in dims else dim for index, dim in enumerate(sharding.dims)
        ),
    )


def _with_axes(dim: DimSharding, axes: tuple[AxisRef, ...]) -> DimSharding:
    """``dim`` cut by ``axes``; a closed dimension that nothing cuts has no priority."""
    idle = not axes and not dim.open
    return replace(dim, axes=axes, priority=None if idle else dim.priority)
