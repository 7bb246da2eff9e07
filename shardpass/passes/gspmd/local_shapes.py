"""The shapes of values on both sides of the border of a manual region."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from jax.extend.mlir import ir

from shardpass.canon import TensorSharding
from shardpass.canon.shapes import sizes_that_fit
from shardpass.diagnostics import ShardingError
from shardpass.mlir import locate
from shardpass.mlir.element_types import static_shape
from shardpass.passes.identities import call_target
from shardpass.passes.uneven import uneven_dimensions


@dataclass(frozen=True)
class Crossing:
    """A value that goes into a manual region or comes out of it.

    Attributes:
      border: the call that it goes through.
      whole: its type outside.
      local: its type inside.
      sharding: how it lies outside.
    """

    border: ir.OpView
    whole: ir.Type
    local: ir.Type
    sharding: TensorSharding


def check_local_shapes(crossings: Iterable[Crossing], axes: Collection[str]) -> None:
    """Refuse values whose type inside is not what a device holds along the manual ``axes``.

    Raises:
      ShardingError: ``shape-mismatch``, for each such value; ``indivisible`` for one that is not in
        equal pieces along them, which GSPMD would pad.
    """
    faults = [fault for crossing in crossings if (fault := _fault(crossing, axes))]
    if faults:
        raise ShardingError.of([fault.diagnostic for fault in faults])


def _fault(crossing: Crossing, axes: Collection[str]) -> ShardingError | None:
    shape, sharding = static_shape(crossing.whole), crossing.sharding
    if shape is None or len(shape) != len(sharding.dims):
        return None  # Left to whoever looks at dynamic shapes and at ranks.
    border = crossing.border
    notes = [
        f"sharding is {sharding.dims_text()} on mesh {sharding.mesh.describe()}",
        "manual axes: "
        + (", ".join(axis for axis in sharding.mesh.names if axis in axes) or "none"),
    ]
    pieces = [
        math.prod(axis.size_in(sharding.mesh) for axis in dim.axes if axis.name in axes)
        for dim in sharding.dims
    ]
    for dimension, size, parts in uneven_dimensions(shape, pieces):
        return ShardingError(
            "indivisible",
            f"@{call_target(border)}, dimension {dimension}: {size} elements into {parts} pieces, "
            "and what goes into a manual computation or comes out is in equal ones",
            location=locate(border),
            notes=notes,
            help=f"{sizes_that_fit(size, parts)}, or drop an axis",
        )
    sizes = [size // parts for size, parts in zip(shape, pieces, strict=True)]
    element = ir.RankedTensorType(crossing.whole).element_type
    with border.location:
        wanted = ir.RankedTensorType.get(sizes, element)
    if crossing.local == wanted:
        return None
    return ShardingError(
        "shape-mismatch",
        f"@{call_target(border)}: {crossing.local} is inside of the manual region and "
        f"{crossing.whole} outside, of which a device holds {wanted}",
        location=locate(border),
        notes=notes,
        help=f"give the value inside the type {wanted}, or cut the one outside otherwise",
    )
