"""What a program demands of its arguments, so that made-up inputs make it compute something.

A token id beyond the vocabulary is clamped, a negative variance becomes NaN, and deep sums of unit
normals overflow: a comparison of such results proves nothing. :func:`demands_of` therefore starts
at the ops that care (a gather's indices, a divisor, a matrix product) and follows each operand back
to the arguments that it came from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardpass.runtime.dataflow import Dataflow, defining_op


@dataclass(frozen=True, slots=True)
class Below:
    """Integers from 0 up to, and without, a limit.

    ``limits`` has one entry, or one for each position along dimension ``dim`` of the value, as a
    gather's indices into several dimensions do.
    """

    limits: tuple[int, ...]
    dim: int | None = None


@dataclass(frozen=True, slots=True)
class Positive:
    """Numbers above 0, and below 1 where ``unit`` (``log(1 - x)``)."""

    unit: bool = False


@dataclass(frozen=True, slots=True)
class Contracted:
    """Numbers that are summed up ``terms`` at a time; ``order`` counts the ops before."""

    terms: int
    order: int


@dataclass(frozen=True, slots=True)
class Decayed:
    """Numbers that are multiplied by a constant and then added to: an optimizer's moments."""


Demand = Below | Positive | Contracted | Decayed


@dataclass(frozen=True, slots=True)
class ArgumentDemands:
    """All that is asked of one argument.

    Attributes:
      below: the least limit on its integers, or ``None``.
      positive: whether it must be above 0.
      unit: whether it must be below 1 as well.
      terms: how many of its elements the first product that it reaches sums up, 0 for none.
      decayed: whether it is decayed and added to, and enters in no other way than element by
        element.
    """

    below: int | None = None
    positive: bool = False
    unit: bool = False
    terms: int = 0
    decayed: bool = False


def demands_of(root: ir.Operation) -> list[ArgumentDemands]:
    """For each argument of the entry function, what the program demands of it."""
    flow = Dataflow(root)
    waiting: list[tuple[ir.Value, Demand]] = []
    for order, op in enumerate(flow.in_execution_order()):
        waiting.extend(_asked_by(op, order))
    seen: set[tuple[ir.Value, Demand]] = set()
    found: dict[int, list[Demand]] = {}
    while waiting:
        item = waiting.pop()
        if item in seen:
            continue
        seen.add(item)
        value, demand = item
        number = flow.argument_number(value)
        if number is not None:
            found.setdefault(number, []).append(demand)
        waiting.extend(_back(flow, value, demand))
    arguments = flow.entry.regions[0].blocks[0].arguments
    return [
        _summary(flow, argument, found.get(index, [])) for index, argument in enumerate(arguments)
    ]


def _summary(flow: Dataflow, argument: ir.Value, demands: Sequence[Demand]) -> ArgumentDemands:
    below = [limit for d in demands if isinstance(d, Below) for limit in d.limits]
    positive = [d for d in demands if isinstance(d, Positive)]
    contracted = [d for d in demands if isinstance(d, Contracted)]
    return ArgumentDemands(
        max(1, min(below)) if below else None,
        bool(positive),
        any(d.unit for d in positive),
        min(contracted, key=lambda d: d.order).terms if contracted else 0,
        Decayed() in demands and not contracted and flow.is_elementwise(argument),
    )


# What ops ask for.

_OF_POSITIVES: Final = frozenset(
    {
        "chlo.lgamma",
        "stablehlo.log",
        "stablehlo.log_plus_one",
        "stablehlo.rsqrt",
        "stablehlo.sqrt",
    }
)
#: Ops whose result has the sign of their first operand.
_OF_ONE_SIGN: Final = frozenset(
    {
        "stablehlo.cbrt",
        "stablehlo.power",
        "stablehlo.reduce",
        "stablehlo.reduce_window",
        "stablehlo.sqrt",
    }
)


def _asked_by(op: ir.OpView, order: int) -> Iterator[tuple[ir.Value, Demand]]:
    name = op.operation.name
    if name in _OF_POSITIVES:
        yield op.operands[0], Positive()
    elif name == "stablehlo.divide" and _is_float(op.operands[1]):
        yield op.operands[1], Positive()
    elif name == "stablehlo.power" and _is_float(op.operands[0]):
        yield op.operands[0], Positive()
    elif name in ("stablehlo.gather", "stablehlo.dynamic_gather"):
        yield from _asked_by_gather(op)
    elif name == "stablehlo.scatter":
        yield from _asked_by_scatter(op)
    elif name == "stablehlo.torch_index_select":
        dim = ir.IntegerAttr(op.attributes["dim"]).value
        yield op.operands[1], Below((_shape(op.operands[0])[dim],))
    elif name == "stablehlo.dynamic_slice":
        sizes = list(ir.DenseI64ArrayAttr(op.attributes["slice_sizes"]))
        yield from _starts(op, 1, _shape(op.operands[0]), sizes)
    elif name == "stablehlo.dynamic_update_slice":
        yield from _starts(op, 2, _shape(op.operands[0]), _shape(op.operands[1]))
    elif name == "stablehlo.compare":
        yield from _asked_by_compare(op)
    elif name == "stablehlo.add":
        yield from _asked_by_add(op)
    elif name == "stablehlo.dot_general":
        numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
        shape = _shape(op.operands[0])
        terms = math.prod(shape[d] for d in numbers.lhs_contracting_dimensions)
        for operand in op.operands:
            yield operand, Contracted(terms, order)
    elif name == "stablehlo.convolution":
        result, kernel = _shape(op.results[0]), _shape(op.operands[1])
        numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
        outputs = kernel[numbers.kernel_output_feature_dimension]
        terms = math.prod(kernel) // max(outputs, 1) if result else 0
        for operand in op.operands[:2]:
            yield operand, Contracted(terms, order)


def _starts(
    op: ir.OpView, first: int, shape: Sequence[int], sizes: Sequence[int]
) -> Iterator[tuple[ir.Value, Demand]]:
    for number, (whole, part) in enumerate(zip(shape, sizes, strict=True)):
        yield op.operands[first + number], Below((whole - part + 1,))


def _asked_by_gather(op: ir.OpView) -> Iterator[tuple[ir.Value, Demand]]:
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    shape = _shape(op.operands[0])
    if "slice_sizes" in op.attributes:
        sizes = list(ir.DenseI64ArrayAttr(op.attributes["slice_sizes"]))
    else:
        sizes = [1] * len(shape)
    limits = tuple(shape[d] - sizes[d] + 1 for d in numbers.start_index_map)
    yield op.operands[1], _along(limits, op.operands[1], numbers.index_vector_dim)


def _asked_by_scatter(op: ir.OpView) -> Iterator[tuple[ir.Value, Demand]]:
    numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    inputs = (len(op.operands) - 1) // 2
    shape, updates = _shape(op.operands[0]), _shape(op.operands[inputs + 1])
    dropped = {*numbers.inserted_window_dims, *numbers.input_batching_dims}
    kept = [d for d in range(len(shape)) if d not in dropped]
    windows = dict(zip(kept, (updates[d] for d in numbers.update_window_dims), strict=True))
    limits = tuple(shape[d] - windows.get(d, 1) + 1 for d in numbers.scattered_dims_to_operand_dims)
    yield op.operands[inputs], _along(limits, op.operands[inputs], numbers.index_vector_dim)


def _along(limits: tuple[int, ...], indices: ir.Value, dim: int) -> Below:
    if len(set(limits)) == 1 or dim >= len(_shape(indices)):
        return Below(limits[:1] or (1,))
    return Below(limits, dim)


def _asked_by_compare(op: ir.OpView) -> Iterator[tuple[ir.Value, Demand]]:
    """A value compared with 0, 1, 2, … is a class number or a length."""
    for value, other in ((op.operands[0], op.operands[1]), (op.operands[1], op.operands[0])):
        if not _is_float(value):
            length = _counts_up_to(other)
            if length and not _counts_up_to(value):
                yield value, Below((length,))


def _asked_by_add(op: ir.OpView) -> Iterator[tuple[ir.Value, Demand]]:
    """``0.9 * m + 0.1 * g``: what the moments of every optimizer look like."""
    for value, other in ((op.operands[0], op.operands[1]), (op.operands[1], op.operands[0])):
        product = defining_op(value)
        if product is None or _is_constant(other):
            continue
        if product.operation.name == "stablehlo.multiply":
            left, right = product.operands
            for factor, scaled in ((left, right), (right, left)):
                if _is_constant(factor):
                    yield scaled, Decayed()


def _counts_up_to(value: ir.Value) -> int:
    """The length of the iota that ``value`` is spread from, 0 where it is something else."""
    op = _spread_from(value)
    if op is None:
        return 0
    if op.operation.name == "stablehlo.iota":
        dim = ir.IntegerAttr(op.attributes["iota_dimension"]).value
        return _shape(op.results[0])[dim]
    return _length_of_range(op.attributes["value"]) if op.operation.name in _CONSTANTS else 0


def _is_constant(value: ir.Value) -> bool:
    """Whether ``value`` is a constant, or spread from one."""
    op = _spread_from(value)
    return op is not None and op.operation.name in _CONSTANTS


def _spread_from(value: ir.Value) -> ir.OpView | None:
    """The op whose result ``value`` repeats, reshapes or converts; ``None`` for an argument."""
    op = defining_op(value)
    while op is not None and op.operation.name in _SPREADS:
        op = defining_op(op.operands[0])
    return op


_CONSTANTS: Final = frozenset({"stablehlo.constant", "sdy.constant"})
_SPREADS: Final = frozenset(
    {
        "stablehlo.broadcast_in_dim",
        "stablehlo.reshape",
        "stablehlo.convert",
        "stablehlo.transpose",
        "sdy.sharding_constraint",
        "sdy.reshard",
    }
)


def _length_of_range(attribute: ir.Attribute) -> int:
    """n, for a constant that counts 0, 1, …, n-1 along one of its dimensions."""
    if not isinstance(attribute, ir.DenseIntElementsAttr) or attribute.is_splat:
        return 0
    if not 1 < len(attribute) <= 1 << 20:
        return 0
    values = np.asarray(attribute)
    for dim, size in enumerate(values.shape):
        counted = np.arange(size).reshape([-1 if d == dim else 1 for d in range(values.ndim)])
        if size > 1 and np.array_equal(values, np.broadcast_to(counted, values.shape)):
            return size
    return 0


# How a demand goes back through an op.


def _back(flow: Dataflow, value: ir.Value, demand: Demand) -> Iterator[tuple[ir.Value, Demand]]:
    op = defining_op(value)
    name = "" if op is None else op.operation.name
    if op is not None and isinstance(demand, Positive):
        yield from _back_positive(op, name, demand)
        if name in ("stablehlo.maximum", "stablehlo.clamp"):
            return  # `max(x, 1e-6)` has seen to it.
    if op is not None and isinstance(demand, Below) and demand.dim is not None:
        yield from _back_by_column(flow, op, name, demand, value)
        return
    for origin in flow.origins(value):
        yield origin, demand


def _back_positive(op: ir.OpView, name: str, demand: Positive) -> Iterator[tuple[ir.Value, Demand]]:
    operands = list(op.operands)
    if name in ("stablehlo.add", "stablehlo.multiply"):
        if operands[0] == operands[1]:
            return  # A square is never negative.
        for operand in operands:
            yield operand, Positive()
    elif name == "stablehlo.divide":
        yield operands[0], Positive()
    elif name == "stablehlo.subtract" and _is_constant(operands[0]):
        yield operands[1], Positive(unit=True)
    elif name in _OF_ONE_SIGN:
        yield operands[0], demand


def _back_by_column(
    flow: Dataflow, op: ir.OpView, name: str, demand: Below, value: ir.Value
) -> Iterator[tuple[ir.Value, Demand]]:
    """A limit for each column goes to the columns' own values where they are put together."""
    dim = demand.dim
    assert dim is not None
    if name == "stablehlo.concatenate" and ir.IntegerAttr(op.attributes["dimension"]).value == dim:
        start = 0
        for operand in op.operands:
            width = _shape(operand)[dim]
            part = demand.limits[start : start + width]
            start += width
            yield operand, Below(part[:1]) if len(set(part)) == 1 else Below(part, dim)
        return
    origins = flow.origins(value)
    same_shape = all(_shape(origin) == _shape(value) for origin in origins)
    for origin in origins:
        # Where the columns have moved, the least limit holds for all.
        yield origin, demand if same_shape else Below((min(demand.limits),))


def _shape(value: ir.Value) -> tuple[int, ...]:
    return tuple(ir.RankedTensorType(value.type).shape)


def _is_float(value: ir.Value) -> bool:
    return isinstance(ir.RankedTensorType(value.type).element_type, ir.FloatType)
