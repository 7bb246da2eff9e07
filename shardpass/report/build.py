"""From a module, and what its compiled program said, to a :class:`Report`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from jax.extend.mlir import ir

from shardpass.canon import HloSharding, MeshShape, TensorSharding
from shardpass.diagnostics import ShardingError
from shardpass.mlir import (
    MHLO_SHARDING,
    SDY_SHARDING,
    EntryValue,
    Module,
    Shardings,
    aliases_of,
    argument_attributes,
    num_partitions,
    read_mhlo,
    result_attributes,
)
from shardpass.mlir.element_types import array_bytes
from shardpass.report.collectives import read_collectives
from shardpass.report.model import (
    CompiledFigures,
    MemoryFigures,
    MeshRow,
    Notation,
    Report,
    ValueRow,
)

_DONATED = ("tf.aliasing_output", "jax.buffer_donor")


def build_report(module: Module, compiled: CompiledFigures | None = None) -> Report:
    """Read a module's arguments, results and meshes; nothing is compiled or run.

    Args:
      module: annotated in either notation, or not at all.
      compiled: what :func:`compiled_figures` made of its compiled program.

    Raises:
      ShardingError: ``no-entry-function``; ``dynamic-shape``; what the grammar has against an
        ``mhlo.sharding`` or its rank, with the value's path.
    """
    try:
        return _read(module, compiled)
    except ShardingError as error:
        raise ShardingError.of([module.place(d) for d in error.diagnostics]) from error


def _read(module: Module, compiled: CompiledFigures | None) -> Report:
    function = module.main
    shardings = Shardings(module.root)
    aliases = aliases_of(function)
    arguments = [
        _row(value, attributes, shardings)
        for value, attributes in zip(module.arguments, argument_attributes(function), strict=True)
    ]
    results = [
        _row(value, attributes, shardings, aliases.get(value.index))
        for value, attributes in zip(module.results, result_attributes(function), strict=True)
    ]
    meshes = [_mesh_row(name, mesh) for name, mesh in shardings.meshes.items()]
    attributes = [*argument_attributes(function), *result_attributes(function)]
    devices = num_partitions(module.root) or max((mesh.devices for mesh in meshes), default=1)
    return Report(
        module.name,
        _notation(attributes),
        devices,
        tuple(meshes),
        tuple(arguments),
        tuple(results),
        compiled,
    )


def compiled_figures(hlo_text: str, memory_stats: Any = None) -> CompiledFigures:
    """What a compiled program tells about itself.

    Args:
      hlo_text: its optimized HLO (``compiled.as_text()``).
      memory_stats: what ``compiled.memory_analysis()`` gave, or a mapping with the same names.
    """
    memory = None if memory_stats is None else memory_figures(memory_stats)
    return CompiledFigures(read_collectives(hlo_text), memory)


def memory_figures(stats: Any) -> MemoryFigures:
    """XLA's figures for one device; see :func:`compiled_figures`."""

    def read(name: str) -> int:
        found = stats.get(name) if isinstance(stats, Mapping) else getattr(stats, name, None)
        return int(found or 0)

    argument, output = read("argument_size_in_bytes"), read("output_size_in_bytes")
    temp, alias = read("temp_size_in_bytes"), read("alias_size_in_bytes")
    return MemoryFigures(argument, output, temp, alias, read("generated_code_size_in_bytes"))


def _row(
    value: EntryValue, attributes: ir.DictAttr, shardings: Shardings, alias_of: int | None = None
) -> ValueRow:
    shape = value.shape
    try:
        spec, mesh, shard_shape = _layout(value, attributes, shardings)
    except ShardingError as error:
        raise error.about(str(value), path=value.path) from error
    return ValueRow(
        value.index,
        value.path,
        value.element_type or str(value.type),
        shape,
        spec,
        mesh,
        shard_shape,
        array_bytes(shape, value.element_type),
        array_bytes(shard_shape, value.element_type),
        donated=not value.is_result and any(name in attributes for name in _DONATED),
        alias_of=alias_of,
    )


def _layout(
    value: EntryValue, attributes: ir.DictAttr, shardings: Shardings
) -> tuple[str | None, str | None, tuple[int, ...]]:
    """Spec, mesh name and shard shape."""
    shape = value.shape
    if SDY_SHARDING in attributes:
        sharding = shardings.read(attributes[SDY_SHARDING])
        spec = sharding.mesh.describe() if sharding.mesh.is_maximal else _spec_text(sharding)
        return spec, shardings.name_of(sharding.mesh), sharding.padded_shard_shape(shape)
    if MHLO_SHARDING in attributes:
        found: HloSharding = read_mhlo(attributes[MHLO_SHARDING])
        return str(found), None, found.padded_shard_shape(shape)
    return None, None, shape


def _spec_text(sharding: TensorSharding) -> str:
    """The dimensions, and what else the sharding says about axes."""
    text = sharding.dims_text()
    for what, axes in (("replicated", sharding.replicated), ("unreduced", sharding.unreduced)):
        if axes:
            text += f", {what}={{{', '.join(map(str, axes))}}}"
    return text


def _mesh_row(name: str, mesh: MeshShape) -> MeshRow:
    return MeshRow(name, mesh.axes, math.prod(mesh.sizes), mesh.device_ids)


def _notation(attributes: Sequence[ir.DictAttr]) -> Notation:
    has_sdy = any(SDY_SHARDING in a for a in attributes)
    has_mhlo = any(MHLO_SHARDING in a for a in attributes)
    if has_sdy and has_mhlo:
        return "both"
    if has_sdy:
        return "sdy"
    return "mhlo" if has_mhlo else "none"
