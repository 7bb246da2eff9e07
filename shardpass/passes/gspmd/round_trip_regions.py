"""Manual computations in XLA's round-trip form, read back.

XLA makes a function of the body of a manual computation and calls it between two custom calls,
which go from whole values to shards and back. What they say stands in their frontend attributes;
in those of the call of the function, as jax 0.4 wrote it; or in their ``mhlo.sharding``, as jaxlib
0.12 writes it, with constraints in front for what goes in.

Source: ``xla/service/spmd/shardy/sdy_round_trip/shard_map_import.cc`` and the tests of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, sdy

from shardpass.canon import HloSharding, TensorSharding
from shardpass.diagnostics import ShardingError, Sink
from shardpass.mlir import MHLO_SHARDING, locate, operations, read_mhlo
from shardpass.passes.gspmd.frontend_attributes import (
    IN_SHARDINGS,
    MANUAL_AXES,
    OUT_SHARDINGS,
    sdy_entries,
)
from shardpass.passes.gspmd.local_shapes import Crossing, check_local_shapes
from shardpass.passes.gspmd.round_trip import GLOBAL_TO_LOCAL, LOCAL_TO_GLOBAL, is_body_call
from shardpass.passes.gspmd.round_trip_reader import RoundTripReader
from shardpass.passes.identities import call_target, is_sharding_call
from shardpass.passes.inlining import Inliner, callees_of, functions_of, move_body

#: Shardings as the attribute of a manual computation.
Written = Callable[[Sequence[TensorSharding]], ir.Attribute]
#: A sharding by named axes, of a value of so many dimensions.
Placed = Callable[[HloSharding, int], TensorSharding]
#: The names of the axes that a sharding holds manual.
Manual = Callable[[HloSharding], tuple[str, ...]]


@dataclass(frozen=True)
class _Call:
    """One call of a body.

    Attributes:
      call: of the function.
      function: the body.
      enter: the custom call in front, if values go in.
      leave: the custom call behind, if values come out.
    """

    call: func.CallOp
    function: func.FuncOp
    enter: ir.OpView | None
    leave: ir.OpView | None


class RoundTripRegions:
    """Makes the manual computations of one module.

    Args:
      reader: of the module's frontend attributes.
      written: writes shardings.
      placed: reads the shardings that stand in ``mhlo.sharding``.
      manual: reads the manual axes that stand there.
    """

    def __init__(
        self, reader: RoundTripReader, written: Written, placed: Placed, manual: Manual
    ) -> None:
        self._reader = reader
        self._written = written
        self._placed = placed
        self._manual = manual

    def module(self, root: ir.Operation, sink: Sink) -> None:
        """Rewrite every call of a body in ``root``; faults are reported with their place."""
        functions = functions_of(root)
        calls = {
            name: [op for op in operations(function) if is_body_call(op)]
            for name, function in functions.items()
        }
        left = dict.fromkeys(functions, 0)
        for callee in (c.callee.value for of_one in calls.values() for c in of_one):
            left[callee] = left.get(callee, 0) + 1
        if not any(calls.values()):
            self._strays(root, sink)
            return
        inliner = Inliner(functions)
        for name in _callees_first(functions):
            for call in calls[name]:
                try:
                    self._rewrite(call, functions, left, inliner)
                except ShardingError as error:
                    sink.report_error(error)
        inliner.erase_uncalled()
        self._strays(root, sink)

    def _rewrite(
        self,
        call: func.CallOp,
        functions: dict[str, func.FuncOp],
        left: dict[str, int],
        inliner: Inliner,
    ) -> None:
        name = call.callee.value
        if name not in functions:
            raise _refused(call, "its body is not in the module")
        left[name] -= 1
        found = self._found(call, functions[name])
        body = found.function.operation
        if left[name]:
            body = body.clone()
        else:
            del functions[name]
            inliner.forget(name)
        if call.results and not any(map(_has_uses, call.results)):
            # Every result is without elements, and XLA put constants in their place.
            call.operation.erase()
            body.erase()
            return
        inliner.into(self._make(found, body))

    def _found(self, call: func.CallOp, function: func.FuncOp) -> _Call:
        enter = _first_call([value.owner for value in call.operands], GLOBAL_TO_LOCAL)
        users = [use.owner for result in call.results for use in result.uses]
        leave = _first_call(users, LOCAL_TO_GLOBAL)
        if call.operands and enter is None:
            raise _refused(call, f"nothing goes into it by @{GLOBAL_TO_LOCAL}")
        if leave is None and any(map(_has_uses, call.results)):
            raise _refused(call, f"its results are not made whole by @{LOCAL_TO_GLOBAL}")
        for inner, outer in (
            (call.operands, enter.results if enter else ()),
            (leave.operands if leave else (), call.results if leave else ()),
        ):
            pairs = list(zip(inner, outer, strict=False))
            if len(inner) != len(outer) or any(a != b and not _is_empty(a) for a, b in pairs):
                raise _refused(call, "the values at its borders are not those of the call")
        return _Call(call, function, enter, leave)

    def _make(self, found: _Call, body: ir.Operation) -> ir.Block:
        call, enter, leave = found.call, found.enter, found.leave
        ins, outs, axes = self._said(found)
        operands = [] if enter is None else self._entered(enter)
        for border, count, given in (
            (enter, len(operands), ins),
            (leave, len(call.results) if leave else 0, outs),
        ):
            if len(given) != count:
                place = border or call
                raise _refused(place, f"{len(given)} shardings for {count} values")
        _check_shapes(found, operands, ins, outs, axes)
        types = [result.type for result in leave.results] if leave else []
        with call.context, call.location:
            manual = sdy.ManualAxesAttr.get([ir.StringAttr.get(axis) for axis in axes])
            with ir.InsertionPoint(call.operation):
                made = sdy.ManualComputationOp(
                    types, operands, self._written(ins), self._written(outs), manual
                )
            kinds = [argument.type for argument in body.regions[0].blocks[0].arguments]
            block = made.regions[0].blocks.append(*kinds)

            def give(values: list[ir.Value]) -> None:
                with ir.InsertionPoint(block):
                    sdy.ReturnOp(values)

            move_body(body, list(block.arguments), lambda op: block.append(op.operation), give)
        if leave is not None:
            for result, value in zip(leave.results, made.results, strict=True):
                result.replace_all_uses_with(value)
            leave.operation.erase()
        call.operation.erase()
        if enter is not None:
            _erase_border(enter)
        return block

    def _said(
        self, found: _Call
    ) -> tuple[Sequence[TensorSharding], Sequence[TensorSharding], tuple[str, ...]]:
        """What the borders say of values that go in, of those that come out, and of axes."""
        call, enter, leave = found.call, found.enter, found.leave
        of_enter = sdy_entries(enter.attributes) if enter else {}
        of_leave = sdy_entries(leave.attributes) if leave else {}
        noted = {**sdy_entries(call.attributes), **of_leave, **of_enter}
        if MANUAL_AXES in noted:
            axes = self._reader.axes(MANUAL_AXES, noted[MANUAL_AXES], call)
            ins, outs = (
                self._reader.per_value(name, noted[name], call) if name in noted else ()
                for name in (IN_SHARDINGS, OUT_SHARDINGS)
            )
            return ins, outs, _in_mesh_order(axes, (*ins, *outs))
        if enter is None and leave is None:
            return (), (), ()
        return self._said_in_mhlo(found)

    def _said_in_mhlo(
        self, found: _Call
    ) -> tuple[Sequence[TensorSharding], Sequence[TensorSharding], tuple[str, ...]]:
        enter, leave = found.enter, found.leave
        held = enter if enter is not None else found.call
        axes = self._manual(_parts(held)[0])
        ins: list[TensorSharding] = []
        for value in enter.operands if enter else ():
            owner = value.owner
            if isinstance(owner, ir.Block) or not is_sharding_call(owner.opview):
                raise ShardingError(
                    "missing-sharding",
                    f"what goes into a manual computation by @{GLOBAL_TO_LOCAL} carries no "
                    "mhlo.sharding",
                    location=locate(held),
                    help="put a @Sharding call in front",
                )
            ins.append(self._placed(_parts(owner.opview)[0], _rank(value)))
        outs: list[TensorSharding] = []
        if leave is not None:
            parts = _parts(leave)
            if len(parts) != len(leave.results):
                raise _refused(leave, f"{len(parts)} shardings for {len(leave.results)} values")
            outs = [
                self._placed(part, _rank(result))
                for part, result in zip(parts, leave.results, strict=True)
            ]
        return ins, outs, axes

    def _entered(self, enter: ir.OpView) -> list[ir.Value]:
        """The values that go in, without the constraints that only say how."""
        if sdy_entries(enter.attributes) or MHLO_SHARDING not in enter.attributes:
            return list(enter.operands)
        owners = (value.owner for value in enter.operands)
        return [owner.operands[0] for owner in owners if not isinstance(owner, ir.Block)]

    def _strays(self, root: ir.Operation, sink: Sink) -> None:
        """Erase borders that nobody uses; others are half of something."""
        for op in list(operations(root)):
            target = call_target(op)
            if target not in (GLOBAL_TO_LOCAL, LOCAL_TO_GLOBAL):
                continue
            if not any(map(_has_uses, op.results)):
                op.operation.erase()
            elif not sink.has_errors:
                sink.error(
                    "unpaired-manual",
                    f"@{target} stands at no call of a function that is the body of a manual "
                    "computation",
                    location=locate(op),
                )


def _check_shapes(
    found: _Call,
    operands: Sequence[ir.Value],
    ins: Sequence[TensorSharding],
    outs: Sequence[TensorSharding],
    axes: Sequence[str],
) -> None:
    entered, left = (), ()
    if found.enter is not None:
        values = zip(operands, found.enter.results, ins, strict=True)
        entered = [Crossing(found.enter, v.type, local.type, s) for v, local, s in values]
    if found.leave is not None:
        values = zip(found.leave.operands, found.leave.results, outs, strict=True)
        left = [Crossing(found.leave, v.type, local.type, s) for local, v, s in values]
    check_local_shapes((*entered, *left), axes)


def _callees_first(functions: dict[str, func.FuncOp]) -> list[str]:
    """The names of ``functions``, each behind those that it calls."""
    done: dict[str, None] = {}
    callees = {name: iter(callees_of(function)) for name, function in functions.items()}
    for start in functions:
        path = [start]
        while path:
            name = path[-1]
            following = next((c for c in callees[name] if c in functions and c not in done), None)
            if following is not None:
                path.append(following)
                continue
            done[name] = None
            path.pop()
    return list(done)


def _in_mesh_order(axes: tuple[str, ...], shardings: Sequence[TensorSharding]) -> tuple[str, ...]:
    names = shardings[0].mesh.names if shardings else axes
    return tuple(sorted(axes, key=lambda axis: names.index(axis) if axis in names else len(names)))


def _parts(op: ir.OpView) -> Sequence[HloSharding]:
    if MHLO_SHARDING not in op.attributes:
        raise ShardingError(
            "missing-sharding",
            f"{op.operation.name} at a manual computation carries neither frontend attributes of "
            "Shardy's nor an mhlo.sharding",
            location=locate(op),
        )
    whole = read_mhlo(op.attributes[MHLO_SHARDING])
    return whole.elements if whole.is_tuple else (whole,)


def _rank(value: ir.Value) -> int:
    return value.type.rank if isinstance(value.type, ir.RankedTensorType) else 0


def _is_empty(value: ir.Value) -> bool:
    """Whether ``value`` has no elements, so that XLA may have put a constant in its place."""
    return isinstance(value.type, ir.RankedTensorType) and 0 in value.type.shape


def _has_uses(value: ir.Value) -> bool:
    return any(True for _ in value.uses)


def _first_call(
    owners: Sequence[ir.Operation | ir.OpView | ir.Block], target: str
) -> ir.OpView | None:
    """The first of ``owners`` that is a custom call of ``target``."""
    ops = (owner.operation.opview for owner in owners if not isinstance(owner, ir.Block))
    return next((op for op in ops if call_target(op) == target), None)


def _erase_border(enter: ir.OpView) -> None:
    sources = [value.owner for value in enter.operands]
    enter.operation.erase()
    for source in dict.fromkeys(sources):
        if (
            not isinstance(source, ir.Block)
            and is_sharding_call(source.opview)
            and not any(map(_has_uses, source.results))
        ):
            source.erase()


def _refused(op: ir.OpView, why: str) -> ShardingError:
    name = op.callee.value if isinstance(op, func.CallOp) else call_target(op)
    what = f"@{name} at the body of a manual computation: {why}"
    return ShardingError("unpaired-manual", what, location=locate(op))
