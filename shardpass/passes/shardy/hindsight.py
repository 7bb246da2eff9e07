"""What propagation did that Shardy says nothing about: a look before, and a look back.

A module has thousands of ops and few of them are worth a word, so nothing is read here before it is
known to matter: sizes once for each type, shardings once for each attribute, names only for what is
reported.
"""

from __future__ import annotations

import sys

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func

from shardpass.canon import MeshShape, TensorSharding
from shardpass.canon.shapes import sizes_that_fit
from shardpass.diagnostics import Sink, SourceLocation, human_bytes
from shardpass.mlir import (
    ADVANCE,
    MAIN,
    SDY_SHARDING,
    EntryValue,
    Shardings,
    argument_attributes,
    arguments_of,
    is_public,
    locate,
    meshes_of,
    operations,
    result_attributes,
    results_of,
    visit,
    where_written,
)
from shardpass.mlir.element_types import tensor_bytes

_MOST_INNER_VALUES = 5

#: Index -> ``#sdy.sharding``, of the arguments or results of one function.
_Placed = dict[int, ir.Attribute]


class Hindsight:
    """The shardings that the user asked for, to be held against what became of them.

    Attributes:
      least_bytes: values of this size and more are reported if they stay whole; 0 for none.
    """

    def __init__(self, least_bytes: int) -> None:
        self.least_bytes = least_bytes
        self._asked: dict[str, tuple[_Placed, _Placed]] = {}
        self._meshes_before: dict[str, MeshShape] = {}

    def remember(self, root: ir.Operation, sink: Sink) -> None:
        """Look at the module that propagation will be given."""
        self._meshes_before = meshes_of(root)
        for function in _entry(root):
            self._asked[function.name.value] = (
                _placed(argument_attributes(function)),
                _placed(result_attributes(function)),
            )

    def look_back(self, root: ir.Operation, sink: Sink) -> None:
        """Report what propagation made of it."""
        before, after = Shardings(root, self._meshes_before), Shardings(root)
        several = any(mesh.size > 1 for mesh in after.meshes.values())
        whole = _WholeValues(after, self.least_bytes if several else 0, sink)
        for function in _entry(root):
            asked, wanted = self._asked.get(function.name.value, ({}, {}))
            for old, values, attributes, kinds in (
                (asked, arguments_of, argument_attributes(function), function.type.inputs),
                (wanted, results_of, result_attributes(function), function.type.results),
            ):
                new = _placed(attributes)
                moved = [i for i in old if i in new and new[i] != old[i]]
                large = [i for i, kind in enumerate(kinds) if whole.reports(kind, new.get(i))]
                named = values(function) if moved or large else []
                for i in moved:
                    place = where_written(function, named[i])
                    _warn_of_uneven(named[i], place, before.read(old[i]), after.read(new[i]), sink)
                for i in large:
                    whole.warn_of(named[i], where_written(function, named[i]))
            whole.warn_of_inner(function)
        if len(after.meshes) > 1:
            _warn_of_meshes(root, after, sink)


class _WholeValues:
    """Large values that every device holds whole."""

    def __init__(self, shardings: Shardings, least_bytes: int, sink: Sink) -> None:
        self._least = least_bytes or sys.maxsize
        self._sink = sink
        self._shardings = shardings
        self._bytes = _BytesOfTypes()
        self._whole_results = _WholeResults(shardings)

    def reports(self, kind: ir.Type, placed: ir.Attribute | None) -> bool:
        return self._bytes[kind] >= self._least and (
            placed is None or _is_whole(self._shardings.read(placed))
        )

    def warn_of(self, value: EntryValue, place: SourceLocation | None) -> None:
        self._sink.warning(
            "replicated",
            f"{value}, {human_bytes(self._bytes[value.type])}, stays whole on every device",
            location=place,
            path=value.path,
            help="give it a rule, or raise warn-replicated-bytes",
        )

    def warn_of_inner(self, function: func.FuncOp) -> None:
        if self._least == sys.maxsize:
            return
        found: list[tuple[int, ir.Operation]] = []
        whole_results, bytes_of, least = self._whole_results, self._bytes, self._least

        def look(op: ir.Operation) -> ir.WalkResult:
            attribute = op.attributes.get(SDY_SHARDING)
            # Ops inside a reduction's body carry none; they are scalars, and so come out as small.
            indices = whole_results[attribute] if attribute is not None else None
            if indices == ():
                return ADVANCE
            results = op.results
            if len(results) == 1:  # Nearly always; going over the list takes twice as long.
                size = bytes_of[results[0].type]
            else:
                kept = range(len(results)) if indices is None else indices
                size = max((bytes_of[results[i].type] for i in kept), default=0)
            if size >= least:
                found.append((size, op))
            return ADVANCE

        visit(function, look)
        found.sort(key=lambda entry: -entry[0])
        left_out = len(found) - _MOST_INNER_VALUES
        for place, (size, op) in enumerate(found[:_MOST_INNER_VALUES], 1):
            self._sink.warning(
                "replicated",
                f"the result of {op.name}, {human_bytes(size)}, stays whole on every device",
                location=locate(op),
                notes=(
                    [f"{left_out} more values of this size are left out"]
                    if left_out > 0 and place == _MOST_INNER_VALUES
                    else []
                ),
                help="constrain it with an op or loc rule",
            )


class _BytesOfTypes(dict[ir.Type, int]):
    def __missing__(self, kind: ir.Type) -> int:
        size = self[kind] = tensor_bytes(kind)
        return size


class _WholeResults(dict[ir.Attribute, tuple[int, ...]]):
    """``#sdy.sharding_per_value`` -> the indices of the results that it leaves whole."""

    def __init__(self, shardings: Shardings) -> None:
        super().__init__()
        self._shardings = shardings

    def __missing__(self, attribute: ir.Attribute) -> tuple[int, ...]:
        placed = self._shardings.read_per_value(attribute)
        whole = self[attribute] = tuple(i for i, s in enumerate(placed) if _is_whole(s))
        return whole


def _entry(root: ir.Operation) -> list[func.FuncOp]:
    """The public functions, and ``@main`` whoever may call it: what a user annotates."""
    return [
        op
        for op in root.regions[0].blocks[0].operations
        if isinstance(op, func.FuncOp)
        and not op.is_external
        and (is_public(op) or op.name.value == MAIN)
    ]


def _placed(attributes: list[ir.DictAttr]) -> _Placed:
    return {
        index: entries[SDY_SHARDING]
        for index, entries in enumerate(attributes)
        if SDY_SHARDING in entries
    }


def _is_whole(sharding: TensorSharding) -> bool:
    return sharding.is_fully_replicated and not sharding.mesh.is_maximal


def _warn_of_uneven(
    value: EntryValue,
    place: SourceLocation | None,
    old: TensorSharding,
    new: TensorSharding,
    sink: Sink,
) -> None:
    if not value.is_tensor:
        return
    for dimension, (size, pieces) in enumerate(zip(value.shape, old.tiles(), strict=True)):
        if size % pieces and new.dims[dimension].axes != old.dims[dimension].axes:
            sink.warning(
                "uneven-rewritten",
                f"{value}, dimension {dimension}: {size} elements into {pieces} pieces is "
                f"uneven, and Shardy makes {new.dims_text()} of {old.dims_text()}",
                location=place,
                path=value.path,
                help=f"{sizes_that_fit(size, pieces)}, or drop an axis",
            )


def _warn_of_meshes(root: ir.Operation, shardings: Shardings, sink: Sink) -> None:
    placed = _Operands(shardings)
    for op in operations(root):
        if isinstance(op, func.FuncOp) or len(op.operands) < 2:
            continue
        meshes = {
            sharding.mesh: operand
            for operand in op.operands
            if (sharding := placed.sharding_of(operand)) and not sharding.is_fully_replicated
        }
        if len(meshes) > 1:
            sink.warning(
                "propagation-stopped",
                f"propagation stops at {op.operation.name}: its operands lie on different meshes, "
                + " and ".join(f"({mesh.describe()})" for mesh in meshes),
                location=locate(op),
                help="put both on one mesh",
            )


class _Operands:
    """The shardings of values by what they come from."""

    def __init__(self, shardings: Shardings) -> None:
        self._shardings = shardings
        # A list of attributes is made anew by each asking, and a function has many uses of its
        # arguments.
        self._arguments: dict[str, _Placed] = {}

    def sharding_of(self, value: ir.Value) -> TensorSharding | None:
        owner = value.owner
        if isinstance(owner, ir.Block):
            function = owner.owner
            if not isinstance(function, func.FuncOp):
                return None
            name = function.name.value
            if name not in self._arguments:
                self._arguments[name] = _placed(argument_attributes(function))
            placed = self._arguments[name].get(ir.BlockArgument(value).arg_number)
            return self._shardings.read(placed) if placed is not None else None
        if SDY_SHARDING not in owner.attributes:
            return None
        placed = self._shardings.read_per_value(owner.attributes[SDY_SHARDING])
        return placed[ir.OpResult(value).result_number]
