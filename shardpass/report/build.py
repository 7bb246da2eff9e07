"""From a module, and what its compiled program said, to a :class:`Report`."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jax.extend.mlir import ir

from shardpass.canon import HloSharding, MeshShape, TensorSharding, from_hlo
from shardpass.diagnostics import Diagnostic, ShardingError
from shardpass.mlir import (
    MHLO_SHARDING,
    SDY_SHARDING,
    Module,
    Shardings,
    aliases_of,
    num_partitions,
)
from shardpass.mlir.element_types import array_bytes
from shardpass.report.collectives import read_collectives
from shardpass.report.layouts import (
    Annotated,
    Annotation,
    annotated_values,
    closed,
    evenly_cut,
    is_applied,
    not_applied,
    spec_text,
)
from shardpass.report.model import (
    CompiledFigures,
    Decider,
    MemoryFigures,
    MeshRow,
    Notation,
    Report,
    ValueRow,
)

_DONATED = ("tf.aliasing_output", "jax.buffer_donor")


def build_report(module: Module, compiled: CompiledFigures | None = None) -> Report:
    """Read a module's arguments, results and meshes; nothing is compiled or run.

    What a device holds is what the module says, as far as XLA is known to heed it
    (:mod:`shardpass.report.layouts`), and not known where XLA decides; with the shardings of the
    compiled program it is what they say. A value that lies otherwise than it is annotated is
    warned of (``layout-not-applied``).

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
    shardings = Shardings(module.root)
    arguments, results = annotated_values(module, shardings)
    meshes = [_mesh_row(name, mesh) for name, mesh in shardings.meshes.items()]
    notation = _notation([one.attributes for one in [*arguments, *results]])
    devices = num_partitions(module.root) or max((mesh.devices for mesh in meshes), default=1)
    rows = _Rows(shardings, notation, devices, aliases_of(module.main))
    told = (compiled.argument_shardings, compiled.result_shardings) if compiled else (None, None)
    return Report(
        module.name,
        notation,
        devices,
        tuple(meshes),
        rows.of(arguments, told[0]),
        rows.of(results, told[1]),
        compiled,
        tuple(rows.diagnostics),
    )


def compiled_figures(
    hlo_text: str,
    memory_stats: Any = None,
    argument_shardings: Sequence[HloSharding] | None = None,
    result_shardings: Sequence[HloSharding] | None = None,
) -> CompiledFigures:
    """What a compiled program tells about itself.

    Args:
      hlo_text: its optimized HLO (``compiled.as_text()``).
      memory_stats: what ``compiled.memory_analysis()`` gave, or a mapping with the same names.
      argument_shardings: where it wants its arguments.
      result_shardings: where it leaves its results.
    """
    return CompiledFigures(
        read_collectives(hlo_text),
        None if memory_stats is None else memory_figures(memory_stats),
        None if argument_shardings is None else tuple(argument_shardings),
        None if result_shardings is None else tuple(result_shardings),
    )


def memory_figures(stats: Any) -> MemoryFigures:
    """XLA's figures for one device; see :func:`compiled_figures`."""

    def read(name: str) -> int:
        found = stats.get(name) if isinstance(stats, Mapping) else getattr(stats, name, None)
        return int(found or 0)

    argument, output = read("argument_size_in_bytes"), read("output_size_in_bytes")
    temp, alias = read("temp_size_in_bytes"), read("alias_size_in_bytes")
    return MemoryFigures(argument, output, temp, alias, read("generated_code_size_in_bytes"))


@dataclass
class _Rows:
    """Makes the rows of one module."""

    shardings: Shardings
    notation: Notation
    devices: int
    aliases: Mapping[int, int]
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def of(
        self, values: Sequence[Annotated], actual: Sequence[HloSharding] | None
    ) -> tuple[ValueRow, ...]:
        """A row for each value, and a warning for each that does not lie as it is annotated."""
        found = actual or [None] * len(values)
        return tuple(self._row(one, told) for one, told in zip(values, found, strict=True))

    def _row(self, one: Annotated, actual: HloSharding | None) -> ValueRow:
        value, shape = one.value, one.value.shape
        try:
            layout, decided_by = self._layout(one, actual)
            shard = shape if layout is None else layout.padded_shard_shape(shape)
        except ShardingError as error:
            raise error.about(str(value), path=value.path) from error
        named = isinstance(layout, TensorSharding)
        known = decided_by != "unknown"
        return ValueRow(
            value.index,
            value.path,
            value.element_type or str(value.type),
            shape,
            None if layout is None else spec_text(layout),
            self.shardings.name_of(layout.mesh) if named else None,
            shard if known else None,
            array_bytes(shape, value.element_type),
            array_bytes(shard, value.element_type) if known else None,
            donated=not value.is_result and any(name in one.attributes for name in _DONATED),
            alias_of=self.aliases.get(value.index) if value.is_result else None,
            decided_by=decided_by,
        )

    def _layout(
        self, one: Annotated, actual: HloSharding | None
    ) -> tuple[Annotation | None, Decider]:
        said, shape = one.annotation, one.value.shape
        if actual is not None:
            return self._settled(one, actual)
        if said is None:
            # GSPMD hands in whole what nobody annotated; nothing cuts a scalar.
            whole = self.devices == 1 or not shape
            whole = whole or (self.notation == "mhlo" and not one.value.is_result)
            return None, "module" if whole else "unknown"
        if isinstance(said, HloSharding) or said.mesh.is_maximal:
            return said, "module"
        said.padded_shard_shape(shape)  # Complains of another rank.
        left = evenly_cut(said, shape)
        is_open = any(dim.open for dim in said.dims)
        if left != said:
            self.diagnostics.append(not_applied(one.value, said, left))
            return left, "open" if is_open else "xla"
        return said, "open" if is_open and self.devices > 1 else "module"

    def _settled(self, one: Annotated, actual: HloSharding) -> tuple[Annotation | None, Decider]:
        """The layout of a compiled program, in the words of the module where it has any."""
        said, shape = one.annotation, one.value.shape
        if said is None and (not shape or actual.is_replicated):
            return None, "module" if self.devices == 1 or not shape else "xla"
        if said is not None and is_applied(closed(said), actual, shape, self.devices):
            return closed(said), "module"
        found = self._named(said, actual, len(shape))
        if said is not None and not is_applied(said, actual, shape, self.devices):
            self.diagnostics.append(not_applied(one.value, said, found))
        return found, "xla"

    def _named(self, said: Annotation | None, actual: HloSharding, rank: int) -> Annotation:
        """``actual`` with the axes of the mesh that the value, or else the module, speaks of."""
        if isinstance(said, HloSharding):
            return actual
        meshes = [said.mesh] if said is not None else self.shardings.meshes.values()
        for mesh in meshes:
            if mesh.size == self.devices:
                with contextlib.suppress(ShardingError):
                    return from_hlo(actual, rank, mesh)
        return actual


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
