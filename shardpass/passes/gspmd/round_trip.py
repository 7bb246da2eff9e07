"""Shardy's notation in XLA's round-trip form, read back.

XLA carries Shardy's meshes, shardings and rules through HLO as strings in frontend attributes
(:mod:`shardpass.passes.gspmd.frontend_attributes`), and Shardy's ops as custom calls.
``jax.export`` of 2024 and 2025 wrote files so, and every dump of HLO has them. Beside them stands
the same in ``mhlo.sharding``, for a partitioner that does not know better.

jaxlib 0.12 carries shardings as named (V3) ``mhlo.sharding`` instead; rules, groups and barriers
stay as they were.

Source: ``xla/service/spmd/shardy/sdy_round_trip/`` and its tests; what jax 0.4.38 exports and
jaxlib 0.10 and 0.12 make of a module on the way to HLO.
"""

from __future__ import annotations

from typing import Final, TypeGuard

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, sdy

from shardpass.canon import TensorSharding
from shardpass.diagnostics import ShardingError, Sink
from shardpass.mlir import (
    MHLO_SHARDING,
    SDY_SHARDING,
    argument_attributes,
    entry_function,
    locate,
    operations,
    result_attributes,
    set_argument_attributes,
    set_result_attributes,
    with_entry,
)
from shardpass.passes.gspmd.flatten_tuples import flatten
from shardpass.passes.gspmd.frontend_attributes import (
    ARGUMENT_SHARDINGS,
    DIRECTION,
    FRONTEND_ATTRIBUTES,
    GROUP_ID,
    IN_SHARDINGS,
    MANUAL_AXES,
    MESHES,
    OUT_SHARDINGS,
    RESULT_SHARDINGS,
    SHARDING,
    SHARDING_RULE,
    sdy_entries,
    without_sdy_attributes,
    without_sdy_entries,
)
from shardpass.passes.gspmd.round_trip_reader import RoundTripReader, fits
from shardpass.passes.gspmd.unspecified_dims import opened, unspecified_dims
from shardpass.passes.gspmd.written_shardings import WrittenShardings
from shardpass.passes.identities import MANUAL_CALLS, SHARDING_CALL, call_target

RESULT_CALL: Final = "xla.sdy.FuncResultSharding"
GROUP_CALL: Final = "xla.sdy.ShardingGroup"
BARRIER_CALL: Final = "xla.sdy.PropagationBarrier"
GLOBAL_TO_LOCAL: Final = "xla.sdy.GlobalToLocalShape"
LOCAL_TO_GLOBAL: Final = "xla.sdy.LocalToGlobalShape"
#: In the name of a function that is the body of a manual computation.
BODY: Final = "xla.sdy.manual_computation_body"

_BORDERS: Final = (GLOBAL_TO_LOCAL, LOCAL_TO_GLOBAL)
#: Entries that show shardings to be in this form, so that ``mhlo.sharding`` only repeats them.
_TELLING: Final = frozenset(
    {
        ARGUMENT_SHARDINGS,
        IN_SHARDINGS,
        MANUAL_AXES,
        MESHES,
        OUT_SHARDINGS,
        RESULT_SHARDINGS,
        SHARDING,
    }
)
_RULE: Final = "sdy.sharding_rule"
#: Joins the halves of a 64-bit value that a TPU works on as two of 32.
_COMBINE: Final = "X64Combine"
#: Ops whose ``mhlo.sharding`` says what nothing else does.
_KEEPS_MHLO: Final = frozenset({"stablehlo.infeed", "stablehlo.outfeed"})


class RoundTrip:
    """The round-trip form of one module on its way back."""

    def __init__(
        self, root: ir.Operation, written: WrittenShardings, reader: RoundTripReader, sink: Sink
    ) -> None:
        self._root = root
        self._written = written
        self._reader = reader
        self._sink = sink
        self._results: dict[ir.Operation, dict[int, ir.Attribute]] = {}

    def read(self) -> bool:
        """Read everything but the manual computations; whether shardings were in this form."""
        noted = [op for op in operations(self._root) if _is_noted(op)]
        of_module = sdy_entries(self._root.attributes)
        if not noted and not of_module:
            return False
        for call in [op for op in noted if call_target(op)]:
            flatten(call)
        # HLO hands the strings of a call on to what takes its tuple apart, which is gone now.
        noted = [op for op in operations(self._root) if _is_noted(op)]
        is_telling = bool(_TELLING & of_module.keys()) or any(map(_tells, noted))
        for name, mesh in self._reader.declare(of_module):
            self._written.declare(mesh, name)
        functions = [op for op in noted if isinstance(op, func.FuncOp)]
        for function in functions:
            self._function(function)
        self._main(of_module)
        without_sdy_attributes(self._root)
        results: list[ir.OpView] = []
        for op in noted:
            if isinstance(op, func.FuncOp):
                continue
            with _Reporting(self._sink):
                self._op(op, results)
        for op in results:
            with _Reporting(self._sink):
                self._result(op)
        self._write_results()
        if is_telling:
            self._drop_repeated()
        return is_telling

    def _main(self, of_module: dict[str, ir.Attribute]) -> None:
        """Shardings of the entry's arguments and results that stand on the module."""
        for name, read, write in (
            (ARGUMENT_SHARDINGS, argument_attributes, set_argument_attributes),
            (RESULT_SHARDINGS, result_attributes, set_result_attributes),
        ):
            if name not in of_module:
                continue
            with _Reporting(self._sink):
                function = entry_function(self._root)
                shardings = self._reader.per_value(name, of_module[name], function)
                before = read(function)
                if len(shardings) != len(before):
                    raise ShardingError(
                        "rank-mismatch",
                        f"xla.sdy.{name} has {len(shardings)} shardings for {len(before)} values "
                        "of @main",
                        location=locate(function),
                    )
                pairs = zip(before, shardings, strict=True)
                write(function, [_placed(e, self._written.one(s)) for e, s in pairs])

    def _function(self, function: func.FuncOp) -> None:
        for kind, types, read, write in (
            ("argument", function.type.inputs, argument_attributes, set_argument_attributes),
            ("result", function.type.results, result_attributes, set_result_attributes),
        ):
            before = read(function)
            after: list[ir.DictAttr] = []
            for index, (entries, type_) in enumerate(zip(before, types, strict=True)):
                after.append(entries)
                noted = sdy_entries(entries)
                if not noted:
                    continue
                with _Reporting(self._sink):
                    what = f"{kind} {index} of @{function.name.value}"
                    after[-1] = self._noted_value(entries, noted, type_, function, what)
            if after != before:
                write(function, after)
        without_sdy_attributes(function)

    def _noted_value(
        self,
        entries: ir.DictAttr,
        noted: dict[str, ir.Attribute],
        type_: ir.Type,
        function: func.FuncOp,
        what: str,
    ) -> ir.DictAttr:
        kept = without_sdy_entries(entries)
        if SHARDING not in noted:
            return kept
        sharding = self._reader.one(SHARDING, noted[SHARDING], function)
        if not fits(sharding, type_):
            raise ShardingError(
                "rank-mismatch",
                f"{what} is {type_}, and {sharding.dims_text()} is for {sharding.rank} dimensions",
                location=locate(function),
            )
        return _placed(kept, self._written.one(sharding))

    def _op(self, op: ir.OpView, results: list[ir.OpView]) -> None:
        noted = sdy_entries(op.attributes)
        target = call_target(op)
        if target in _BORDERS or is_body_call(op):
            return  # For :mod:`shardpass.passes.gspmd.round_trip_regions`.
        if target == RESULT_CALL:
            results.append(op)
        elif target == GROUP_CALL:
            self._group(op, noted)
        elif target == BARRIER_CALL:
            self._barrier(op, noted)
        elif target == SHARDING_CALL and SHARDING in noted:
            self._constraint(op, noted)
        else:
            self._attributes(op, noted)

    def _attributes(self, op: ir.OpView, noted: dict[str, ir.Attribute]) -> None:
        if SHARDING_RULE in noted:
            op.attributes[_RULE] = self._reader.entry(SHARDING_RULE, noted[SHARDING_RULE], op)
        if SHARDING in noted:
            shardings = self._reader.per_value(SHARDING, noted[SHARDING], op)
            if MHLO_SHARDING in op.attributes:
                del op.attributes[MHLO_SHARDING]
            # XLA hands the strings on to what it makes of an op, whatever the shape of that is.
            types = [result.type for result in op.results]
            if not types or (len(types) == len(shardings) and all(map(fits, shardings, types))):
                op.attributes[SDY_SHARDING] = self._written.per_value(shardings)
        without_sdy_attributes(op)

    def _constraint(self, op: ir.OpView, noted: dict[str, ir.Attribute]) -> None:
        sharding = self._only(op, noted)
        self._constrain(op, opened(sharding, unspecified_dims(op)))

    def _constrain(self, op: ir.OpView, sharding: TensorSharding) -> None:
        with op.context, op.location, ir.InsertionPoint(op.operation):
            made = sdy.ShardingConstraintOp(op.operands[0], self._written.one(sharding))
        op.results[0].replace_all_uses_with(made.results[0])
        op.operation.erase()

    def _only(self, op: ir.OpView, noted: dict[str, ir.Attribute]) -> TensorSharding:
        """The sharding of the one value of a call."""
        if SHARDING not in noted:
            raise ShardingError(
                "missing-sharding",
                f"the custom call @{call_target(op)} carries no xla.sdy.sharding",
                location=locate(op),
            )
        first, *_ = self._reader.per_value(SHARDING, noted[SHARDING], op)
        if not fits(first, op.operands[0].type):
            raise ShardingError(
                "rank-mismatch",
                f"@{call_target(op)} is on {op.operands[0].type}, and {first.dims_text()} is for "
                f"{first.rank} dimensions",
                location=locate(op),
            )
        return first

    def _group(self, op: ir.OpView, noted: dict[str, ir.Attribute]) -> None:
        if any(True for result in op.results for _ in result.uses) or len(op.operands) != 1:
            raise ShardingError(
                "not-supported",
                f"@{GROUP_CALL} has one operand and no result that is used",
                location=locate(op),
            )
        number = self._reader.number(GROUP_ID, noted, op)
        with op.context, op.location, ir.InsertionPoint(op.operation):
            sdy.ShardingGroupOp(op.operands[0], number)
        op.operation.erase()

    def _barrier(self, op: ir.OpView, noted: dict[str, ir.Attribute]) -> None:
        number = self._reader.number(DIRECTION, noted, op)
        try:
            direction = sdy.PropagationDirection(number)
        except ValueError:
            raise ShardingError(
                "not-supported",
                f"@{BARRIER_CALL} with xla.sdy.{DIRECTION} = {number}, which is no direction",
                location=locate(op),
            ) from None
        with op.context, op.location, ir.InsertionPoint(op.operation):
            made = sdy.PropagationBarrierOp(op.operands[0], direction)
        op.results[0].replace_all_uses_with(made.results[0])
        op.operation.erase()

    def _result(self, op: ir.OpView) -> None:
        """The sharding of a result of the function; a constraint where the value is used beside.

        The latter is what is left of a function that was inlined.
        """
        sharding = self._only(op, sdy_entries(op.attributes))
        holders = list(op.results)
        combined = _combine_of(op)
        if combined is not None:
            combined.attributes[SDY_SHARDING] = self._written.per_value([sharding])
            holders = list(combined.results)
        elif not _is_used(op) and not isinstance(op.operands[0].owner, ir.Block):
            # A value without elements: XLA put a constant in its place.
            holders = [op.operands[0]]
        others = False
        for value in holders:
            for use in value.uses:
                if isinstance(use.owner.opview, func.ReturnOp):
                    self._set_result(_function_of(op), use.operand_number, sharding)
                else:
                    others = others or not (use.owner == op.operation or _is_left_over(use.owner))
        if others and combined is None and len(op.results) == 1:
            self._constrain(op, sharding.opened())
            return
        for result, operand in zip(op.results, op.operands, strict=True):
            result.replace_all_uses_with(operand)
        op.operation.erase()

    def _set_result(self, function: func.FuncOp, index: int, sharding: TensorSharding) -> None:
        kind = function.type.results[index]
        if not fits(sharding, kind):
            raise ShardingError(
                "rank-mismatch",
                f"result {index} of @{function.name.value} is {kind}, and "
                f"{sharding.dims_text()} is for {sharding.rank} dimensions",
                location=locate(function),
            )
        of_function = self._results.setdefault(function.operation, {})
        of_function[index] = self._written.one(sharding)

    def _write_results(self) -> None:
        for function, placed in self._results.items():
            opview = function.opview
            assert isinstance(opview, func.FuncOp)
            entries = result_attributes(opview)
            for index, text in placed.items():
                entries[index] = _placed(entries[index], text)
            set_result_attributes(opview, entries)

    def _drop_repeated(self) -> None:
        """Drop ``mhlo.sharding`` where it decides nothing beside what was read.

        XLA writes it on what it makes of the ops, and gives the results of a function that of the
        op that makes them, or ``{replicated}``. What a call or an argument says of its own stays.
        """
        for op in operations(self._root):
            if isinstance(op, func.FuncOp):
                before = result_attributes(op)
                if any(MHLO_SHARDING in entries for entries in before):
                    set_result_attributes(op, [with_entry(e, MHLO_SHARDING, None) for e in before])
            elif MHLO_SHARDING in op.attributes and op.operation.name not in _KEEPS_MHLO:
                target = call_target(op)
                if target != SHARDING_CALL and target not in MANUAL_CALLS:
                    del op.attributes[MHLO_SHARDING]


class _Reporting:
    """Hands what is raised within to the sink, so that one run shows every fault."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, ShardingError):
            return False
        self._sink.report_error(error)
        return True


def is_body_call(op: ir.OpView) -> TypeGuard[func.CallOp]:
    """Whether ``op`` calls the body of a manual computation."""
    return isinstance(op, func.CallOp) and BODY in op.callee.value


def _is_noted(op: ir.OpView) -> bool:
    if isinstance(op, func.FuncOp):
        held = (*argument_attributes(op), *result_attributes(op), op.attributes)
        return any(FRONTEND_ATTRIBUTES in entries and sdy_entries(entries) for entries in held)
    if FRONTEND_ATTRIBUTES in op.attributes and sdy_entries(op.attributes):
        return True
    target = call_target(op)
    return target is not None and target.startswith("xla.sdy.")


def _tells(op: ir.OpView) -> bool:
    held = [op.attributes]
    if isinstance(op, func.FuncOp):
        held = [*argument_attributes(op), *result_attributes(op)]
    return any(_TELLING & sdy_entries(entries).keys() for entries in held)


def _placed(entries: ir.DictAttr, sharding: ir.Attribute) -> ir.DictAttr:
    """``entries`` with ``sharding``, and without what says the same to GSPMD."""
    return with_entry(with_entry(entries, MHLO_SHARDING, None), SDY_SHARDING, sharding)


def _function_of(op: ir.OpView) -> func.FuncOp:
    parent = op.operation.parent
    while parent is not None:
        opview = parent.operation.opview
        if isinstance(opview, func.FuncOp):
            return opview
        parent = parent.operation.parent
    raise ShardingError(
        "not-supported", f"@{call_target(op)} stands in no function", location=locate(op)
    )


def _is_used(op: ir.Operation | ir.OpView) -> bool:
    return any(True for result in op.results for _ in result.uses)


def _is_left_over(op: ir.Operation | ir.OpView) -> bool:
    """Whether ``op`` is a reshape that nobody uses: HLO puts one behind each result."""
    return op.operation.name == "stablehlo.reshape" and not _is_used(op)


def _combine_of(op: ir.OpView) -> ir.OpView | None:
    """The call that joins the two results of ``op``, if there is one."""
    users = {use.owner for result in op.results for use in result.uses}
    if len(op.results) != 2 or len(users) != 1:
        return None
    user = next(iter(users)).opview
    return user if call_target(user) == _COMBINE else None
