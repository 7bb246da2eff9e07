"""``sp-import-mhlo``: from GSPMD's notation to Shardy's."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, sdy

from shardpass.canon import (
    HloKind,
    HloSharding,
    MeshShape,
    TensorSharding,
    common_mesh,
    from_hlo,
)
from shardpass.diagnostics import ShardingError, Sink
from shardpass.mlir import (
    MHLO_SHARDING,
    SDY_SHARDING,
    Shardings,
    argument_attributes,
    declare_mesh,
    free_mesh_name,
    locate,
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
from shardpass.passes.identities import (
    MANUAL_CALLS,
    call_target,
    is_sharding_call,
)
from shardpass.passes.manual_import import ManualImport
from shardpass.passes.survey import REFUSE_RECURSION
from shardpass.passes.verify import Verify
from shardpass.sharding import as_mesh_shape

_UNSPECIFIED = re.compile(r"unspecified_dims=\[([0-9,]*)\]")
#: How jaxlib 0.10 and JAX call the mesh of one device.
_MAXIMAL = "maximal_mesh_{}"


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

    Leaves alone: a module in which nothing is tiled needs no mesh, and loses its annotations but
    for those of single devices.
    An error: what ``sp-verify`` finds; tile assignments that no mesh has for axes at once, or that
    the mesh of the option has not; borders of manual regions that do not fit together.
    Order: first, in front of ``sp-propagate``.
    """

    name: ClassVar[str] = "sp-import-mhlo"

    mesh: Any = option(
        None,
        help="the mesh whose axes to use, as data=2,model=4; cut into sub-axes where need be",
        parse=parse_mesh,
    )

    def stages(self) -> Sequence[Stage]:
        """The import of what was found to be sound."""
        return (REFUSE_RECURSION, Look(Verify().run), self.run)

    def run(self, root: ir.Operation, sink: Sink) -> None:
        """Import ``root``."""
        found = [op for op in operations(root) if mhlo_shardings(op)]
        for op in found:
            _check_call(op, sink)
        if sink.has_errors:
            return
        values = [part for op in found for a in mhlo_shardings(op) for part in parts(read_mhlo(a))]
        wanted = None if self.mesh is None else as_mesh_shape(self.mesh)
        try:
            mesh = mesh_for(values, wanted, num_partitions(root))
        except ShardingError as error:
            place = locate(found[0]) if found else None
            raise error.about("no mesh for the module", location=place) from error
        importing = _Import(root, mesh)
        if mesh is not None:
            importing.manual_regions()
        for op in [op for op in operations(root) if mhlo_shardings(op)]:
            importing.op(op)
        if mesh is not None and mesh.axes and num_partitions(root) in (None, 1):
            set_num_partitions(root, mesh.size)


def mesh_for(
    values: Sequence[HloSharding], wanted: MeshShape | None, count: int | None
) -> MeshShape | None:
    """The mesh on which all of ``values`` are to be said; ``None`` where none is needed.

    Args:
      values: every sharding of a module, none a tuple.
      wanted: the user's mesh.
      count: the devices that the module states.

    Raises:
      ShardingError: ``not-expressible`` and ``device-count``, as :func:`shardpass.canon.from_hlo`
        for the user's mesh and :func:`shardpass.canon.common_mesh` without one.
    """
    distinct = list(dict.fromkeys(values))
    if wanted is not None:
        for sharding in distinct:
            from_hlo(sharding, sharding.rank or 0, wanted)
        return wanted
    # A named sharding says more than its tiles do. Where the first has axes for all, they are kept.
    for sharding in distinct:
        if sharding.named is not None and sharding.tile is not None:
            mesh = from_hlo(sharding, sharding.rank or 0).mesh
            with contextlib.suppress(ShardingError):
                return mesh_for(distinct, mesh, count)
    found = common_mesh(distinct)
    if found is not None:
        return found
    kinds = {sharding.kind for sharding in distinct}
    if count is not None and count > 1 and kinds & {HloKind.MANUAL, HloKind.UNREDUCED}:
        return MeshShape((("_axis_0", count),))
    # For the values beside those of single devices, which are said to be whole.
    return MeshShape() if HloKind.MAXIMAL in kinds else None


class _Import:
    """One module's shardings on their way in; each distinct attribute is converted once."""

    def __init__(self, root: ir.Operation, mesh: MeshShape | None) -> None:
        self._root = root
        self._mesh = mesh
        self._shardings = Shardings(root)
        self._names = {mesh: name for name, mesh in self._shardings.meshes.items()}
        if mesh is not None:
            self._declare(mesh, free_mesh_name(root))
        self._of_op: dict[tuple[ir.Attribute, tuple[int, ...]], ir.Attribute | None] = {}

    def manual_regions(self) -> None:
        assert self._mesh is not None
        ManualImport(self._mesh, self._of_call, self._per_operand).module(self._root)

    def _of_call(self, call: ir.OpView) -> TensorSharding:
        """What a call says of its result, with the dimensions that it leaves open."""
        assert self._mesh is not None
        whole = read_mhlo(call.attributes[MHLO_SHARDING])
        placed = _over(whole, rank_of(call.results[0].type), self._mesh)
        return _opened(placed, unspecified_dims(call))

    def _per_operand(self, shardings: Sequence[TensorSharding]) -> ir.Attribute:
        return self._shardings.write_per_value([(s, self._name(s)) for s in shardings])

    def op(self, op: ir.OpView) -> None:
        if isinstance(op, func.FuncOp):
            self._function(op)
        elif is_sharding_call(op):
            self._constraint(op)
        else:
            self._attribute(op)

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
            placed = [self._placed(whole, 0)] if whole.kind is HloKind.MAXIMAL else []
        else:
            shares = zip(_shares(whole, len(ranks)), ranks, strict=True)
            placed = [self._placed(sharding, rank) for sharding, rank in shares]
        known = [sharding for sharding in placed if sharding is not None]
        return self._per_operand(known) if known else None

    def _constraint(self, op: ir.OpView) -> None:
        whole = read_mhlo(op.attributes[MHLO_SHARDING])
        sharding = self._placed(whole, rank_of(op.results[0].type))
        # A member of a group of which nothing else is known is asked for nothing else.
        if whole.group is not None and whole.kind is HloKind.UNKNOWN:
            sharding = None
        attribute = self._one(_opened(sharding, unspecified_dims(op)) if sharding else None)
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
        return None if sharding is None else self._shardings.write(sharding, self._name(sharding))

    def _name(self, sharding: TensorSharding) -> str:
        mesh = sharding.mesh
        if mesh not in self._names:
            self._declare(mesh, free_mesh_name(self._root, _MAXIMAL.format(mesh.device_id)))
        return self._names[mesh]

    def _declare(self, mesh: MeshShape, name: str) -> None:
        if mesh not in self._names:
            declare_mesh(self._root, name, mesh)
            self._names[mesh] = name


def _join(value: ir.Value, sharding: HloSharding, place: ir.InsertionPoint, op: ir.OpView) -> None:
    """Make ``value`` a member of the group that its sharding names."""
    if sharding.group is not None:
        with op.context, op.location, place:
            sdy.ShardingGroupOp(value, sharding.group.id)


@lru_cache(4096)
def _over(sharding: HloSharding, rank: int, mesh: MeshShape) -> TensorSharding:
    return from_hlo(sharding, rank, mesh)


def parts(sharding: HloSharding) -> Sequence[HloSharding]:
    """The elements of a tuple, or the sharding itself."""
    return sharding.elements if sharding.is_tuple else (sharding,)


def _shares(whole: HloSharding, results: int) -> Sequence[HloSharding]:
    """What a sharding says of each result of an op: one that is no tuple, the same of all."""
    return whole.elements if whole.is_tuple and results > 1 else [whole] * results


def rank_of(kind: ir.Type) -> int:
    """The number of dimensions; 0 for what has none, like a token."""
    return kind.rank if isinstance(kind, ir.RankedTensorType) else 0


def unspecified_dims(call: ir.OpView) -> frozenset[int]:
    """The dimensions that a call leaves open to propagation.

    Raises:
      ShardingError: ``syntax`` for another text in ``backend_config``.
    """
    config = call.attributes.get("backend_config")
    text = ir.StringAttr(config).value if isinstance(config, ir.StringAttr) else ""
    if not text:
        return frozenset()
    found = _UNSPECIFIED.fullmatch(text)
    if found is None:
        raise ShardingError(
            "syntax",
            f'@{call_target(call)} with backend_config = "{text}", which is not understood',
            location=locate(call),
            help='XLA knows "unspecified_dims=[0,1]"',
        )
    return frozenset(int(number) for number in found[1].split(",") if number)


def _opened(sharding: TensorSharding, dims: frozenset[int]) -> TensorSharding:
    if not dims:
        return sharding
    return replace(
        sharding,
        dims=tuple(
            replace(dim, open=dim.open or index in dims) for index, dim in enumerate(sharding.dims)
        ),
    )


def _check_call(op: ir.OpView, sink: Sink) -> None:
    """Report open dimensions that are not understood, of calls that may have some."""
    if is_sharding_call(op) or call_target(op) in MANUAL_CALLS:
        try:
            unspecified_dims(op)
        except ShardingError as error:
            sink.report_error(error)
