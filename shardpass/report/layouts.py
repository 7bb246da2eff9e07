"""Where a module's arguments and results are said to lie, and where they do lie.

An annotation is a wish, which XLA grants with three exceptions (jaxlib 0.10.2 and 0.12.0.1):

* under Shardy, a dimension of an argument or result that its axes do not divide loses axes until
  they do (``sdy-update-non-divisible-input-output-shardings``): 19 rows over ``model=4`` are whole;
* an open dimension may be cut further;
* a value without annotation lies as propagation leaves it: a result under both partitioners, an
  argument under Shardy alone (GSPMD hands it in whole).

The executable settles what became of it; :func:`layouts_not_applied` compares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jax.extend.mlir import ir

from shardpass.canon import (
    AxisRef,
    DimSharding,
    HloKind,
    HloSharding,
    MeshShape,
    TensorSharding,
    device_blocks,
    to_hlo,
)
from shardpass.canon.mlir_string import for_people
from shardpass.canon.shapes import sizes_that_fit
from shardpass.diagnostics import Diagnostic, Severity, ShardingError, human_bytes
from shardpass.mlir import (
    MHLO_SHARDING,
    SDY_SHARDING,
    EntryValue,
    Module,
    Shardings,
    argument_attributes,
    read_mhlo,
    result_attributes,
)
from shardpass.mlir.element_types import array_bytes

Annotation = TensorSharding | HloSharding


@dataclass(frozen=True)
class Annotated:
    """An argument or result of the entry function, and what the module says about it.

    ``annotation`` is ``None`` where the module says nothing, ``{unknown}`` included.
    """

    value: EntryValue
    attributes: ir.DictAttr
    annotation: Annotation | None


def annotated_values(
    module: Module, shardings: Shardings
) -> tuple[list[Annotated], list[Annotated]]:
    """The arguments and the results, in order.

    Raises:
      ShardingError: what the grammar has against an ``mhlo.sharding``, with the value's path.
    """
    function = module.main
    return (
        _annotated(module.arguments, argument_attributes(function), shardings),
        _annotated(module.results, result_attributes(function), shardings),
    )


def _annotated(
    values: Sequence[EntryValue], attributes: Sequence[ir.DictAttr], shardings: Shardings
) -> list[Annotated]:
    found: list[Annotated] = []
    for value, entries in zip(values, attributes, strict=True):
        try:
            found.append(Annotated(value, entries, _annotation(entries, shardings)))
        except ShardingError as error:
            raise error.about(str(value), path=value.path) from error
    return found


def _annotation(entries: ir.DictAttr, shardings: Shardings) -> Annotation | None:
    if SDY_SHARDING in entries:
        return shardings.read(entries[SDY_SHARDING])
    if MHLO_SHARDING in entries:
        found = read_mhlo(entries[MHLO_SHARDING])
        return None if found.kind is HloKind.UNKNOWN else found
    return None


def evenly_cut(sharding: TensorSharding, shape: Sequence[int]) -> TensorSharding:
    """What Shardy leaves of a sharding of an argument or result: the axes that divide it.

    Of each dimension the longest run of axes from the major side whose sizes divide it, and of the
    next one the largest part that does, as in ``sdy-update-non-divisible-input-output-shardings``.
    """
    mesh = sharding.mesh
    dims = tuple(
        _evenly_cut(dim, size, mesh) for dim, size in zip(sharding.dims, shape, strict=True)
    )
    return sharding if dims == sharding.dims else replace(sharding, dims=dims)


def _evenly_cut(dim: DimSharding, size: int, mesh: MeshShape) -> DimSharding:
    if size % dim.tiles(mesh) == 0:
        return dim
    kept: list[AxisRef] = []
    left = size
    for axis in dim.axes:
        pieces = axis.size_in(mesh)
        part = math.gcd(left, pieces)
        if part == 1:
            break  # At an axis of one device as well.
        if part < pieces:
            kept.append(AxisRef(axis.name, axis.bounds(mesh)[0], part))
            break
        kept.append(axis)
        left //= part
    priority = dim.priority if kept or dim.open else None
    return DimSharding(tuple(kept), dim.open, priority)


def is_applied(
    annotation: Annotation, actual: HloSharding, shape: Sequence[int], devices: int
) -> bool:
    """Whether every device holds what the annotation says.

    An open dimension may be cut further: there the device's part lies within the annotated one.
    """
    if 0 in shape or devices == 1:
        return True
    wanted, is_open = annotation, np.zeros(len(shape), bool)
    if isinstance(annotation, TensorSharding):
        wanted = to_hlo(annotation)
        is_open = np.array([dim.open for dim in annotation.dims], bool)
    asked = device_blocks(wanted, shape, devices)
    found = device_blocks(actual, shape, devices)
    if asked.shape != found.shape:
        return False
    within = (found[..., 0] >= asked[..., 0]) & (found[..., 1] <= asked[..., 1])
    same = (found == asked).all(axis=-1)
    return bool((same | within & is_open).all())


def closed(annotation: Annotation) -> Annotation:
    """The same placement with nothing left to XLA."""
    return annotation.closed() if isinstance(annotation, TensorSharding) else annotation


def layouts_not_applied(
    module: Module,
    arguments: Sequence[HloSharding],
    results: Sequence[HloSharding],
    devices: int,
    severity: Severity = Severity.WARNING,
) -> list[Diagnostic]:
    """A ``layout-not-applied`` for each annotation that XLA did not heed.

    Args:
      module: as it was annotated, before any finishing step.
      arguments: where the executable wants each argument.
      results: where it leaves each result.
      devices: how many devices it is for.
      severity: of the diagnostics.
    """
    annotated = [one for kind in annotated_values(module, Shardings(module.root)) for one in kind]
    return [
        not_applied(one.value, one.annotation, actual, severity)
        for one, actual in zip(annotated, [*arguments, *results], strict=True)
        if one.annotation is not None
        and not is_applied(one.annotation, actual, one.value.shape, devices)
    ]


def not_applied(
    value: EntryValue,
    annotation: Annotation,
    actual: Annotation,
    severity: Severity = Severity.WARNING,
) -> Diagnostic:
    """The diagnostic for a value that is not laid out as it is annotated."""
    shape = value.shape
    asked, found = annotation.padded_shard_shape(shape), actual.padded_shard_shape(shape)
    message = (
        f"{value} is annotated as {spec_text(annotation)}, {_share(value, asked)} on each device; "
        f"XLA makes it {spec_text(actual)}, {_share(value, found)}"
    )
    uneven: list[str] = []
    advice = "annotate it as XLA lays it out, or ask XLA why: its log speaks of it"
    if isinstance(annotation, TensorSharding):
        for dimension, (size, pieces) in enumerate(zip(shape, annotation.tiles(), strict=True)):
            if size % pieces:
                uneven.append(
                    f"dimension {dimension}: {size} elements into {pieces} pieces; of an argument "
                    "or result, Shardy drops the axes that do not divide it"
                )
                advice = f"{sizes_that_fit(size, pieces)}, or drop an axis"
    return Diagnostic(
        severity,
        "layout-not-applied",
        message,
        path=value.path,
        notes=tuple(uneven),
        help=advice,
    )


def _share(value: EntryValue, shape: tuple[int, ...]) -> str:
    size = human_bytes(array_bytes(shape, value.element_type))
    return f"{'x'.join(map(str, shape)) or 'scalar'} ({size})"


def spec_text(annotation: Annotation) -> str:
    """How a value is cut, for people: ``[{"data"}, {}]``, or XLA's text."""
    if isinstance(annotation, HloSharding):
        return str(annotation)
    if annotation.mesh.is_maximal:
        return annotation.mesh.describe()
    text = annotation.dims_text()
    for what, axes in (("replicated", annotation.replicated), ("unreduced", annotation.unreduced)):
        if axes:
            text += f", {what}={{{for_people(', '.join(map(str, axes)))}}}"
    return text
