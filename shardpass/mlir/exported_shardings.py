"""What the entry function of an exported program says of its values, said as its caller reads it.

A call of a ``jax.export.Exported`` heeds the named shardings that lie beside the program, and the
constraints inside it; see :mod:`shardpass.mlir.exported`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, sdy
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from shardpass.canon import (
    HloKind,
    HloSharding,
    MeshShape,
    SubgroupType,
    TensorSharding,
    common_mesh,
    from_hlo,
)
from shardpass.diagnostics import ShardingError
from shardpass.mlir.attributes import MHLO_SHARDING, SDY_SHARDING, Shardings, read_mhlo
from shardpass.mlir.entry import argument_attributes, result_attributes

_SHARDING_CALL: Final = "Sharding"
#: What says nothing about where the pieces of a value are, in GSPMD's notation.
_SILENT: Final = (HloKind.MAXIMAL, HloKind.MANUAL, HloKind.UNKNOWN)

Named = NamedSharding | None


@dataclass(frozen=True)
class Boundary:
    """The named shardings of an entry function, ``None`` where there is none.

    Attributes:
      arguments: one for each argument.
      results: one for each result.
      devices: how many devices the annotations speak of; 1 where there are none.
    """

    arguments: tuple[Named, ...]
    results: tuple[Named, ...]
    devices: int


def bind(root: ir.Operation, function: func.FuncOp, known: Iterable[AbstractMesh]) -> Boundary:
    """The named shardings of ``function``; those that cannot be said become constraints in it.

    Args:
      root: its module.
      function: the entry function, of which annotations are read in either notation.
      known: meshes whose axis types are to be kept, by the names of axes. Other axes are ``Auto``.

    Raises:
      ShardingError: what the grammar has against an annotation.
    """
    given = tuple(known)
    reader = _Reader(root, function, [MeshShape(tuple(m.shape.items())) for m in given])
    meshes = {(m.axis_names, m.axis_sizes): m for m in given}
    arguments: list[Named] = []
    results: list[Named] = []
    block = function.body.blocks[0]
    for argument, entries in zip(block.arguments, argument_attributes(function), strict=True):
        layout = reader.layout(entries, argument.type)
        named = _named(layout, meshes)
        arguments.append(named)
        if named is None and reader.says_more(entries, layout):
            _constrain_argument(argument, entries, block)
    end = block.operations[len(block.operations) - 1]
    for number, entries in enumerate(result_attributes(function)):
        layout = reader.layout(entries, end.operands[number].type)
        named = _named(layout, meshes)
        results.append(named)
        if named is None and reader.says_more(entries, layout):
            _constrain_result(end, number, entries)
    return Boundary(tuple(arguments), tuple(results), reader.devices)


class _Reader:
    """The annotations of one entry function over named axes, whatever their notation."""

    def __init__(
        self, root: ir.Operation, function: func.FuncOp, known: Sequence[MeshShape]
    ) -> None:
        self._shardings = Shardings(root)
        found = dict.fromkeys(_tiled_of(function))
        self._mesh = _mesh_for(list(found), known)
        sizes = [mesh.size for mesh in self._shardings.meshes.values() if mesh.axes]
        self.devices = max([1, *sizes, *(sharding.num_devices or 1 for sharding in found)])

    def layout(self, entries: ir.DictAttr, kind: ir.Type) -> TensorSharding | None:
        """What a value's attributes say, where named axes can say it."""
        if SDY_SHARDING in entries:
            return self._shardings.read(entries[SDY_SHARDING])
        if MHLO_SHARDING not in entries or self._mesh is None:
            return None
        sharding = read_mhlo(entries[MHLO_SHARDING])
        if sharding.is_tuple or sharding.kind in _SILENT:
            return None
        rank = kind.rank if isinstance(kind, ir.RankedTensorType) else 0
        try:
            return from_hlo(sharding, rank, self._mesh)
        except ShardingError:
            return None

    @staticmethod
    def says_more(entries: ir.DictAttr, layout: TensorSharding | None) -> bool:
        """Whether a value without a named sharding is to lie in some way after all."""
        if SDY_SHARDING in entries:
            return layout is not None and (
                any(dim.axes or not dim.open for dim in layout.dims)
                or bool(layout.replicated or layout.unreduced)
            )
        return MHLO_SHARDING in entries and _is_tiled(read_mhlo(entries[MHLO_SHARDING]))


def _tiled_of(function: func.FuncOp) -> Iterator[HloSharding]:
    for entries in (*argument_attributes(function), *result_attributes(function)):
        if MHLO_SHARDING in entries:
            sharding = read_mhlo(entries[MHLO_SHARDING])
            if _is_tiled(sharding):
                yield sharding


def _is_tiled(sharding: HloSharding) -> bool:
    return sharding.tile is not None and SubgroupType.MANUAL not in sharding.subgroup_types


def _mesh_for(shardings: Sequence[HloSharding], known: Sequence[MeshShape]) -> MeshShape | None:
    """The first known mesh with axes for all, or the coarsest that there is; ``None`` for none."""
    named = [from_hlo(s, s.rank or 0).mesh for s in shardings if s.named is not None]
    for mesh in (*known, *named):
        if all(_over_whole_axes(sharding, mesh) for sharding in shardings):
            return mesh
    try:
        return common_mesh(shardings)
    except ShardingError:
        return None


def _over_whole_axes(sharding: HloSharding, mesh: MeshShape) -> bool:
    try:
        layout = from_hlo(sharding, len(sharding.data_tiles), mesh)
    except ShardingError:
        return False
    return all(axis.is_full for dim in layout.dims for axis in dim.axes)


def _named(layout: TensorSharding | None, meshes: dict[Any, AbstractMesh]) -> Named:
    """``layout`` as what a file of ``jax.export`` can hold; ``None`` where it says more."""
    if layout is None or layout.mesh.device_ids is not None or not layout.mesh.axes:
        return None
    if layout.unreduced or any(dim.open for dim in layout.dims):
        return None
    if not all(axis.is_full for dim in layout.dims for axis in dim.axes):
        return None
    entries = [tuple(axis.name for axis in dim.axes) for dim in layout.dims]
    spec = PartitionSpec(*(entry or None for entry in entries))
    key = (layout.mesh.names, layout.mesh.sizes)
    if key not in meshes:
        of_names = {
            n: t for m in meshes.values() for n, t in zip(m.axis_names, m.axis_types, strict=True)
        }
        types = tuple(of_names.get(name, AxisType.Auto) for name in layout.mesh.names)
        meshes[key] = AbstractMesh(layout.mesh.sizes, layout.mesh.names, axis_types=types)
    return jax.sharding.NamedSharding(meshes[key], spec)


def _constrain_argument(argument: ir.BlockArgument, entries: ir.DictAttr, block: ir.Block) -> None:
    uses = [use.owner for use in argument.uses]
    if all(_is_constraint(op, entries) for op in uses):
        return
    constraint = _constraint(argument, entries, ir.InsertionPoint.at_block_begin(block))
    argument.replace_all_uses_with(constraint.results[0])
    constraint.operands[0] = argument


def _constrain_result(end: ir.OpView, number: int, entries: ir.DictAttr) -> None:
    value = end.operands[number]
    if isinstance(value.owner, ir.Block) or not _is_constraint(value.owner, entries):
        constraint = _constraint(value, entries, ir.InsertionPoint(end))
        end.operation.operands[number] = constraint.results[0]


def _constraint(value: ir.Value, entries: ir.DictAttr, place: ir.InsertionPoint) -> ir.Operation:
    with value.context, value.location, place:
        if SDY_SHARDING in entries:
            return sdy.ShardingConstraintOp(value, entries[SDY_SHARDING]).operation
        return ir.Operation.create(
            "stablehlo.custom_call",
            results=[value.type],
            operands=[value],
            attributes={
                "call_target_name": ir.StringAttr.get(_SHARDING_CALL),
                MHLO_SHARDING: entries[MHLO_SHARDING],
            },
        )


def _is_constraint(op: ir.Operation | ir.OpView, entries: ir.DictAttr) -> bool:
    """Whether ``op`` constrains a value to what ``entries`` say."""
    attributes = op.attributes
    if op.operation.name == "sdy.sharding_constraint":
        return SDY_SHARDING in entries and attributes["sharding"] == entries[SDY_SHARDING]
    if op.operation.name != "stablehlo.custom_call" or MHLO_SHARDING not in attributes:
        return False
    target = ir.StringAttr(attributes["call_target_name"]).value
    return (
        target == _SHARDING_CALL
        and MHLO_SHARDING in entries
        and attributes[MHLO_SHARDING] == entries[MHLO_SHARDING]
    )
