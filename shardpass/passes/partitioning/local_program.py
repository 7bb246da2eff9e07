"""A per-device program put into a manual computation, so that it can be compiled and run."""

from __future__ import annotations

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, sdy

from shardpass.canon import MeshShape, TensorSharding
from shardpass.canon.mlir_string import quote
from shardpass.diagnostics import Sink
from shardpass.mlir import (
    NUM_PARTITIONS,
    SDY_SHARDING,
    Shardings,
    argument_attributes,
    declare_mesh,
    entry_function,
    free_mesh_name,
    locate,
    meshes_of,
    num_partitions,
    result_attributes,
    set_argument_attributes,
    set_num_partitions,
    set_result_attributes,
    with_entry,
)
from shardpass.passes.partitioning.placements import Placements


class Signature:
    """What a module says of its entry function and its mesh while shapes are still global."""

    def __init__(self) -> None:
        self._type: ir.FunctionType | None = None
        self._name = ""
        self._mesh = MeshShape(())
        self._arguments: list[ir.DictAttr] = []
        self._results: list[ir.DictAttr] = []
        self._in: list[TensorSharding] = []
        self._out: list[TensorSharding] = []

    def remember(self, root: ir.Operation, sink: Sink) -> None:
        """Take note of the propagated module ``root``."""
        function = entry_function(root)
        self._name, self._type = function.name.value, function.type
        self._arguments, self._results = argument_attributes(function), result_attributes(function)
        shardings = Shardings(root)
        self._mesh = _mesh_in_use(root)
        stated = num_partitions(root)
        if self._mesh.names and stated not in (None, 1, self._mesh.size):
            sink.error(
                "device-count",
                f"the mesh {self._mesh.describe()} has {self._mesh.size} devices, and the module "
                f"is for {stated} ({NUM_PARTITIONS})",
                location=locate(function),
                help="make both the same",
            )
        self._in = self._placed(shardings, self._arguments, function.type.inputs)
        self._out = self._placed(shardings, self._results, function.type.results)

    def state_devices(self, root: ir.Operation, sink: Sink) -> None:
        """State how many devices the program is for, each of which runs it."""
        if self._mesh.size > 1:
            set_num_partitions(root, self._mesh.size)

    def wrap(self, root: ir.Operation, sink: Sink) -> None:
        """Make the entry function one of whole arrays, with the local program inside."""
        if not self._mesh.names:
            return
        assert self._type is not None
        local = entry_function(root)
        name = free_mesh_name(root)
        declare_mesh(root, name, self._mesh)
        shardings = Shardings(root)
        with root.context, local.location:
            whole = func.FuncOp(local.name.value, self._type, ip=ir.InsertionPoint(local))
            for key in local.attributes:
                if key not in ("function_type", "arg_attrs", "res_attrs", "sym_name"):
                    whole.attributes[key] = local.attributes[key]
            set_argument_attributes(whole, self._with_mesh(self._arguments, self._in, name))
            set_result_attributes(whole, self._with_mesh(self._results, self._out, name))
            outer = whole.add_entry_block([a.location for a in local.arguments])
            axes = ", ".join(map(quote, self._mesh.names))
            region = ir.Operation.create(
                sdy.ManualComputationOp.OPERATION_NAME,
                results=list(self._type.results),
                operands=list(outer.arguments),
                attributes={
                    "in_shardings": shardings.write_per_value((s, name) for s in self._in),
                    "out_shardings": shardings.write_per_value((s, name) for s in self._out),
                    "manual_axes": ir.Attribute.parse(f"#sdy<manual_axes{{{axes}}}>"),
                },
                regions=1,
                ip=ir.InsertionPoint(outer),
            )
            inner = region.regions[0].blocks.append(
                *[a.type for a in local.arguments],
                arg_locs=[a.location for a in local.arguments],
            )
            for old, new in zip(local.arguments, inner.arguments, strict=True):
                old.replace_all_uses_with(new)
            *ops, end = list(local.entry_block.operations)
            for op in ops:
                inner.append(op)
            sdy.ReturnOp(list(end.operands), loc=end.location, ip=ir.InsertionPoint(inner))
            func.ReturnOp(list(region.results), ip=ir.InsertionPoint(outer))
        local.operation.erase()

    def _placed(
        self, shardings: Shardings, attributes: list[ir.DictAttr], types: list[ir.Type]
    ) -> list[TensorSharding]:
        return [
            shardings.read(entries[SDY_SHARDING])
            if SDY_SHARDING in entries
            else TensorSharding.replicated_on(
                self._mesh, kind.rank if isinstance(kind, ir.RankedTensorType) else 0
            )
            for entries, kind in zip(attributes, types, strict=True)
        ]

    def _with_mesh(
        self, attributes: list[ir.DictAttr], placed: list[TensorSharding], mesh: str
    ) -> list[ir.DictAttr]:
        """``attributes`` with the shardings said of the mesh that is called ``mesh`` now."""
        return [
            with_entry(
                entries,
                SDY_SHARDING,
                ir.Attribute.parse(sharding.to_sdy(mesh), entries.context),
            )
            if SDY_SHARDING in entries
            else entries
            for entries, sharding in zip(attributes, placed, strict=True)
        ]


def _mesh_in_use(root: ir.Operation) -> MeshShape:
    """The mesh that values are cut over, or the first with axes where nothing is cut."""
    cut = (
        placement.sharding.mesh
        for placement in Placements(root)
        if not placement.sharding.is_fully_replicated and not placement.sharding.mesh.is_maximal
    )
    declared = (mesh for mesh in meshes_of(root).values() if mesh.names)
    return next(cut, None) or next(declared, MeshShape(()))
