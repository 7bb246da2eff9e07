"""``sp-import-mhlo``: from GSPMD's notation to Shardy's."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, sdy

from shardpass.canon import (
    HloKind,
    HloSharding,
    MeshShape,
    NamedHlo,
    TensorSharding,
    from_hlo,
    manual_axes,
)
from shardpass.diagnostics import ShardingError, Sink
from shardpass.mlir import (
    MHLO_SHARDING,
    SDY_SHARDING,
    argument_attributes,
    locate,
    meshes_of,
    mhlo_shardings,
    num_partitions,
    operations,
    read_mhlo,
    result_attributes,
    set_argument_attributes,
    set_num_partitions,
    set_result_attributes,
    with_entry,
)
from shardpass.partition_rules.mesh_text import parse_mesh
from shardpass.passes.base import Look, Pass, Stage, option
from shardpass.passes.gspmd.flatten_tuples import flatten
from shardpass.passes.gspmd.manual_import import ManualImport
from shardpass.passes.gspmd.module_mesh import mesh_of
from shardpass.passes.gspmd.round_trip import RoundTrip
from shardpass.passes.gspmd.round_trip_reader import RoundTripReader
from shardpass.passes.gspmd.round_trip_regions import RoundTripRegions
from shardpass.passes.gspmd.told_losses import ToldLosses
from shardpass.passes.gspmd.unspecified_dims import opened, unspecified_dims
from shardpass.passes.gspmd.written_shardings import WrittenShardings
from shardpass.passes.identities import (
    MANUAL_CALLS,
    call_target,
    is_sharding_call,
)
from shardpass.passes.meshes.mesh_plan import where_declared
from shardpass.passes.option_text import one_of
from shardpass.passes.shardy.survey import REFUSE_RECURSION
from shardpass.passes.uneven import leave_whole, refuse_uneven
from shardpass.passes.verify import check_annotations, check_unstated_count
from shardpass.sharding import as_mesh_shape

_OR_REPLICATE: Final = "or leave it whole on the border: sp-import-mhlo{indivisible=replicate}"


@dataclass(frozen=True, kw_only=True)
class ImportMhlo(Pass):
    """Write every ``mhlo.sharding`` as ``sdy.sharding``, on one mesh for the whole module.

    The mesh is the coarsest of whose axes all tile assignments of the module are made, its axes
    called ``_axis_0``, ``_axis_1``, ... as XLA's importer calls them; with ids of its own where the
    devices stand in an order that no formula has. Named (V3) shardings bring theirs. ``@Sharding``
    custom calls become constraints, with open dimensions for ``unspecified_dims``; what lies
    between ``@SPMDFullToShardShape`` and ``@SPMDShardToFullShape`` becomes a manual computation,
    and what ``shard_as`` or ``shard_like`` ties together a sharding group. Placement is kept
    exactly.
    A mesh that the module has already is taken if it has axes, or parts of axes, for everything;
    one that has not is named in a remark, since propagation stops between the two.

    What stands in XLA's round-trip form (``xla.sdy.*`` frontend attributes and custom calls, as old
    JAX exported it and HLO carries it) is read back with the names and the openness that it had,
    and ``mhlo.sharding`` beside it that only repeats it goes.

    Leaves alone: a module in which nothing is tiled needs no mesh, and loses its annotations but
    for those of single devices.
    GSPMD pads arguments and results that their tiles do not divide, Shardy does not: they are
    refused, or (``indivisible=replicate``) such a dimension stays whole on the border, and a
    constraint right inside has the layout; a warning each. So is there for what is dropped: manual
    outside of a manual region, partial sums where nothing says for how many devices.
    An error: what ``sp-verify`` finds; tile assignments that no mesh has for axes at once, or that
    the mesh of the option has not; borders of manual regions that do not fit together; entries in
    the round-trip form that cannot be read.
    Order: first, in front of ``sp-propagate``.
    """

    name: ClassVar[str] = "sp-import-mhlo"
    is_for_gradients: ClassVar[bool] = True

    mesh: Any = option(
        None,
        help="the mesh whose axes to use, as data=2,model=4; cut into sub-axes where need be",
        parse=parse_mesh,
    )

    indivisible: str = option(
        "error",
        help="error: refuse an argument or a result that does not divide; replicate: leave the "
        "dimension whole, and cut it inside",
        parse=one_of("error", "replicate"),
    )

    def stages(self) -> Sequence[Stage]:
        """The import of what was found to be sound."""
        return (REFUSE_RECURSION, Look(self._check), self.run)

    def _check(self, root: ir.Operation, sink: Sink) -> None:
        mended = self.indivisible == "replicate"
        check_annotations(root, sink, uneven_entries=mended, otherwise=_OR_REPLICATE)

    def run(self, root: ir.Operation, sink: Sink) -> None:
        """Import ``root``."""
        written, reader = WrittenShardings(root), RoundTripReader(root)
        before = written.meshes
        RoundTrip(root, written, reader, sink).read()
        if written.meshes != before:
            check_unstated_count(root, sink)
        declared = [mesh for mesh in written.meshes if mesh.axes]
        found = [op for op in operations(root) if mhlo_shardings(op)]
        for op in found:
            _check_call(op, sink)
        if sink.has_errors:
            return
        values = [part for op in found for a in mhlo_shardings(op) for part in parts(read_mhlo(a))]
        wanted = None if self.mesh is None else as_mesh_shape(self.mesh)
        mesh = mesh_of(root, values, wanted, declared, sink)
        if sink.has_errors:
            return
        if mesh is not None:
            _tell_of_others(root, mesh, sink)
        importing = _Import(mesh, written)
        importing.round_trip_regions(reader, root, sink)
        if sink.has_errors:
            return
        importing.manual_regions(root)
        losses = ToldLosses(mesh)
        for op in [op for op in operations(root) if mhlo_shardings(op)]:
            losses.look(op)
            try:
                importing.op(op)
            except ShardingError as error:
                sink.report_error(error.about(op.operation.name, location=locate(op)))
        losses.report(sink)
        self._even(root, written, sink)
        devices = max((m.size for m in (*declared, mesh) if m is not None), default=1)
        if devices > 1 and num_partitions(root) in (None, 1):
            set_num_partitions(root, devices)

    def _even(self, root: ir.Operation, written: WrittenShardings, sink: Sink) -> None:
        """See to it that arguments and results divide, what stood in round-trip form included."""
        if self.indivisible == "replicate":
            leave_whole(root, written.one, sink)
        else:
            refuse_uneven(root, sink, otherwise=_OR_REPLICATE)


class _Import:
    """One module's shardings on their way in; each distinct attribute is converted once."""

    def __init__(self, mesh: MeshShape | None, written: WrittenShardings) -> None:
        self._mesh = mesh
        self._written = written
        if mesh is not None:
            written.declare(mesh)
        self._of_op: dict[tuple[ir.Attribute, tuple[int, ...]], ir.Attribute | None] = {}

    def round_trip_regions(self, reader: RoundTripReader, root: ir.Operation, sink: Sink) -> None:
        """The manual computations in XLA's round-trip form."""
        RoundTripRegions(reader, self._written.per_value, self._on_mesh, self._manual).module(
            root, sink
        )

    def manual_regions(self, root: ir.Operation) -> None:
        """The manual computations in GSPMD's."""
        if self._mesh is not None:
            ManualImport(self._mesh, self._of_call, self._written.per_value).module(root)

    def _on_mesh(self, sharding: HloSharding, rank: int) -> TensorSharding:
        # With a border there is a manual sharding, and so a mesh.
        return _over(sharding, rank, self._mesh or MeshShape())

    def _manual(self, sharding: HloSharding) -> tuple[str, ...]:
        return tuple(axis.name for axis in manual_axes(sharding, self._mesh or MeshShape()))

    def _of_call(self, call: ir.OpView) -> TensorSharding:
        """What a call says of its result, with the dimensions that it leaves open."""
        whole = read_mhlo(call.attributes[MHLO_SHARDING])
        placed = self._on_mesh(whole, rank_of(call.results[0].type))
        return opened(placed, unspecified_dims(call))

    def op(self, op: ir.OpView) -> None:
        if isinstance(op, func.FuncOp):
            self._function(op)
        elif is_sharding_call(op):
            self._constraint(op)
        else:
            self._attribute(flatten(op) if call_target(op) else op)

    def _function(self, function: func.FuncOp) -> None:
        for types, read_all, write in (
            (function.type.inputs, argument_attributes, set_argument_attributes),
            (function.type.results, result_attributes, set_result_attributes),
        ):
            before = read_all(function)
            after = [self._entries(e, kind) for e, kind in zip(before, types, strict=True)]
            if after != before:
                self._groups_of_entries(function, before, is_result=read_all is result_attributes)
                write(function, after)

    def _groups_of_entries(
        self, function: func.FuncOp, entries: Sequence[ir.DictAttr], *, is_result: bool
    ) -> None:
        if function.is_external:
            return
        block = function.body.blocks[0]
        end = block.operations[len(block.operations) - 1]
        place = end if is_result else block.operations[0]
        for value, held in zip(
            end.operands if is_result else block.arguments, entries, strict=True
        ):
            if MHLO_SHARDING in held:
                (sharding,) = parts(read_mhlo(held[MHLO_SHARDING]))
                _join(value, sharding, ir.InsertionPoint(place), function)

    def _entries(self, entries: ir.DictAttr, kind: ir.Type) -> ir.DictAttr:
        if MHLO_SHARDING not in entries:
            return entries
        (sharding,) = parts(read_mhlo(entries[MHLO_SHARDING]))
        return with_entry(
            with_entry(entries, MHLO_SHARDING, None),
            SDY_SHARDING,
            self._one(self._placed(sharding, rank_of(kind))),
        )

    def _attribute(self, op: ir.OpView) -> None:
        attribute = op.attributes[MHLO_SHARDING]
        del op.attributes[MHLO_SHARDING]
        ranks = tuple(rank_of(result.type) for result in op.results)
        key = (attribute, ranks)
        if key not in self._of_op:
            self._of_op[key] = self._per_value(read_mhlo(attribute), ranks)
        found = self._of_op[key]
        if found is not None:
            op.attributes[SDY_SHARDING] = found
        whole = read_mhlo(attribute)
        if any(sharding.group for sharding in parts(whole)):
            for result, sharding in zip(op.results, _shares(whole, len(ranks)), strict=True):
                _join(result, sharding, ir.InsertionPoint.after(op.operation), op)

    def _per_value(self, whole: HloSharding, ranks: tuple[int, ...]) -> ir.Attribute | None:
        if not ranks:
            # An op without results is on a device, or says nothing.
            maximal = (part for part in parts(whole) if part.kind is HloKind.MAXIMAL)
            placed = [self._placed(part, 0) for part in itertools.islice(maximal, 1)]
        else:
            shares = zip(_shares(whole, len(ranks)), ranks, strict=True)
            placed = [self._placed(sharding, rank) for sharding, rank in shares]
        known = [sharding for sharding in placed if sharding is not None]
        return self._written.per_value(known) if known else None

    def _constraint(self, op: ir.OpView) -> None:
        whole = read_mhlo(op.attributes[MHLO_SHARDING])
        sharding = self._placed(whole, rank_of(op.results[0].type))
        # A member of a group of which nothing else is known is asked for nothing else.
        if whole.group is not None and whole.kind is HloKind.UNKNOWN:
            sharding = None
        attribute = self._one(opened(sharding, unspecified_dims(op)) if sharding else None)
        value = op.operands[0]
        if attribute is not None:
            with op.context, op.location, ir.InsertionPoint(op.operation):
                value = sdy.ShardingConstraintOp(value, attribute).results[0]
        _join(value, whole, ir.InsertionPoint(op.operation), op)
        op.results[0].replace_all_uses_with(value)
        op.operation.erase()

    def _placed(self, sharding: HloSharding, rank: int) -> TensorSharding | None:
        """``sharding`` by named axes; ``None`` where it says nothing: no mesh, or all is manual."""
        if self._mesh is None or sharding.kind is HloKind.MANUAL:
            return None
        return _over(sharding, rank, self._mesh)

    def _one(self, sharding: TensorSharding | None) -> ir.Attribute | None:
        return None if sharding is None else self._written.one(sharding)


def _join(value: ir.Value, sharding: HloSharding, place: ir.InsertionPoint, op: ir.OpView) -> None:
    """Make ``value`` a member of the group that its sharding names."""
    if sharding.group is not None:
        with op.context, op.location, place:
            sdy.ShardingGroupOp(value, sharding.group.id)


def _over(sharding: HloSharding, rank: int, mesh: MeshShape) -> TensorSharding:
    return _remembered(sharding, sharding.named, rank, mesh)


@lru_cache(4096)
def _remembered(
    sharding: HloSharding, named: NamedHlo | None, rank: int, mesh: MeshShape
) -> TensorSharding:
    """``named`` is the sharding's, and tells apart what is equal by its tiles."""
    return from_hlo(sharding, rank, mesh)


def parts(sharding: HloSharding) -> Sequence[HloSharding]:
    """The elements of a tuple, or the sharding itself."""
    return sharding.elements if sharding.is_tuple else (sharding,)


def _shares(whole: HloSharding, results: int) -> Sequence[HloSharding]:
    """What a sharding says of each result of an op: one that is no tuple, the same of all."""
    return whole.elements if whole.is_tuple else [whole] * results


def rank_of(kind: ir.Type) -> int:
    """The number of dimensions; 0 for what has none, like a token."""
    return kind.rank if isinstance(kind, ir.RankedTensorType) else 0


def _tell_of_others(root: ir.Operation, mesh: MeshShape, sink: Sink) -> None:
    """Remark on meshes of the module beside the one that the import is on."""
    declared = meshes_of(root)
    for name, other in declared.items():
        if other.axes and other.size > 1 and other != mesh:
            sink.remark(
                "mesh-mismatch",
                f"the module has the mesh @{name} ({other.describe()}) already, and what is "
                f"imported is on another ({mesh.describe()}): propagation stops between the two",
                location=where_declared(root, declared, other),
                help="make one of them: sp-merge-meshes",
            )


def _check_call(op: ir.OpView, sink: Sink) -> None:
    """Report open dimensions that are not understood, of calls that may have some."""
    if is_sharding_call(op) or call_target(op) in MANUAL_CALLS:
        try:
            unspecified_dims(op)
        except ShardingError as error:
            sink.report_error(error)
