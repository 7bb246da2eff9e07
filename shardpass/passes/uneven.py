"""Dimensions of arguments and results that the pieces of a sharding do not divide.

XLA pads what is uneven inside a program, whichever partitioner it is given. Arguments and results
it pads under GSPMD alone; Shardy's have as many elements on each device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, sdy

from shardpass.canon import TensorSharding
from shardpass.canon.retargeting import uncut
from shardpass.canon.shapes import sizes_that_fit
from shardpass.diagnostics import Sink, SourceLocation
from shardpass.mlir import (
    SDY_SHARDING,
    EntryValue,
    Shardings,
    argument_attributes,
    arguments_of,
    collect,
    result_attributes,
    results_of,
    set_argument_attributes,
    set_result_attributes,
    where_written,
    with_entry,
)
from shardpass.mlir.element_types import static_shape
from shardpass.passes.aliases import check_aliases


def uneven_dimensions(shape: Sequence[int], tiles: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """The dimensions that do not divide, each with its size in elements and its pieces."""
    for dimension, (size, pieces) in enumerate(zip(shape, tiles, strict=False)):
        if size % pieces:
            yield dimension, size, pieces


def report_uneven(
    value: EntryValue,
    tiles: Sequence[int],
    said: str,
    place: SourceLocation | None,
    sink: Sink,
    *,
    otherwise: str = "",
) -> None:
    """Report each dimension of an argument or a result that does not divide.

    Args:
      value: of a static shape.
      tiles: into how many pieces each dimension is cut.
      said: the sharding, as it is written.
      place: where to.
      sink: where to report to.
      otherwise: what there is to do but to pad and to drop an axis.
    """
    for dimension, size, pieces in uneven_dimensions(value.shape, tiles):
        fits = sizes_that_fit(size, pieces)
        sink.error(
            "indivisible",
            f"{value}, dimension {dimension}: {size} elements into {pieces} pieces",
            location=place,
            path=value.path,
            notes=[f"sharding is {said}"],
            help=f"{fits}, drop an axis, {otherwise}" if otherwise else f"{fits}, or drop an axis",
        )


def refuse_uneven(root: ir.Operation, sink: Sink, *, otherwise: str = "") -> None:
    """Report every argument and result, in Shardy's notation, that does not divide."""
    shardings = Shardings(root)
    for function in collect(root, func.FuncOp):
        for value, attribute in _uneven_entries(function, shardings):
            sharding = shardings.read(attribute)
            place = where_written(function, value)
            report_uneven(
                value, sharding.tiles(), _describe(sharding), place, sink, otherwise=otherwise
            )


def leave_whole(
    root: ir.Operation, write: Callable[[TensorSharding], ir.Attribute], sink: Sink
) -> None:
    """Leave dimensions of arguments and results whole that do not divide, a warning each.

    A constraint right inside the function has the layout as it was, so that the program goes on to
    work on such pieces. Donated arguments are held against their results behind that.

    Args:
      root: the module, in Shardy's notation.
      write: a sharding as ``#sdy.sharding``, on a mesh that the module declares.
      sink: where to report to.
    """
    shardings = Shardings(root)

    def sharding_of(_: EntryValue, entries: ir.DictAttr) -> TensorSharding | None:
        return shardings.read(entries[SDY_SHARDING]) if SDY_SHARDING in entries else None

    for function in collect(root, func.FuncOp):
        uneven = list(_uneven_entries(function, shardings))
        anew: dict[tuple[bool, int], ir.Attribute] = {}
        first = None if function.is_external else function.body.blocks[0].operations[0]
        for value, attribute in uneven:
            sharding = shardings.read(attribute)
            dimensions = list(uneven_dimensions(value.shape, sharding.tiles()))
            _tell_whole(value, sharding, dimensions, where_written(function, value), sink)
            if first is not None:
                _constrain(function, value, attribute, first)
            anew[value.is_result, value.index] = write(uncut(sharding, [d[0] for d in dimensions]))
        for is_result, (read, set_all) in enumerate(_ENTRIES if anew else ()):
            set_all(
                function,
                [
                    with_entry(held, SDY_SHARDING, anew[key]) if key in anew else held
                    for index, held in enumerate(read(function))
                    for key in [(bool(is_result), index)]
                ],
            )
        check_aliases(function, sharding_of, sink)


_ENTRIES: Final = (
    (argument_attributes, set_argument_attributes),
    (result_attributes, set_result_attributes),
)


def _uneven_entries(
    function: func.FuncOp, shardings: Shardings
) -> Iterator[tuple[EntryValue, ir.Attribute]]:
    """The arguments and results that do not divide, each with its ``sdy.sharding``."""
    for entries, kinds, values in (
        (argument_attributes(function), function.type.inputs, arguments_of),
        (result_attributes(function), function.type.results, results_of),
    ):
        found: list[tuple[int, ir.Attribute]] = []
        for index, (held, kind) in enumerate(zip(entries, kinds, strict=True)):
            shape = static_shape(kind)
            if SDY_SHARDING in held and shape is not None:
                attribute = held[SDY_SHARDING]
                tiles = shardings.read(attribute).tiles()
                if any(uneven_dimensions(shape, tiles)):
                    found.append((index, attribute))
        # Names are asked for last: there may be thousands of values, and few are uneven.
        named = values(function) if found else ()
        yield from ((named[index], attribute) for index, attribute in found)


def _tell_whole(
    value: EntryValue,
    sharding: TensorSharding,
    dimensions: Sequence[tuple[int, int, int]],
    place: SourceLocation | None,
    sink: Sink,
) -> None:
    for dimension, size, pieces in dimensions:
        sink.warning(
            "replicated",
            f"{value}, dimension {dimension}: {size} elements into {pieces} pieces; left whole",
            location=place,
            path=value.path,
            notes=[f"sharding is {_describe(sharding)}"],
            help=sizes_that_fit(size, pieces),
        )


def _describe(sharding: TensorSharding) -> str:
    return f"{sharding.dims_text()} on mesh {sharding.mesh.describe()}"


def _constrain(
    function: func.FuncOp, value: EntryValue, attribute: ir.Attribute, first: ir.OpView
) -> None:
    """Constrain an argument in front of the ``first`` op, a result in front of the return.

    None is needed where the value has, or all that uses it is, just this constraint.
    """
    block = function.body.blocks[0]
    end = block.operations[len(block.operations) - 1]
    if value.is_result:
        place, before = ir.InsertionPoint(end), end.operands[value.index]
        uses = [(end.operation, value.index)]
    else:
        place, before = ir.InsertionPoint(first.operation), block.arguments[value.index]
        uses = [(use.owner, use.operand_number) for use in before.uses]
    beside = [before.owner] if value.is_result else [user for user, _ in uses]
    if beside and all(_is_constraint(op, attribute) for op in beside):
        return
    with function.context, (end if value.is_result else function).location, place:
        constrained = sdy.ShardingConstraintOp(before, attribute).results[0]
    for user, operand in uses:
        user.operands[operand] = constrained


def _is_constraint(op: ir.Operation | ir.OpView | ir.Block, attribute: ir.Attribute) -> bool:
    return (
        not isinstance(op, ir.Block)
        and isinstance(op.operation.opview, sdy.ShardingConstraintOp)
        and op.attributes["sharding"] == attribute
    )
