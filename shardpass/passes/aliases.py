"""Donated arguments and the results that take over their buffers."""

from __future__ import annotations

import math
from collections.abc import Callable

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func

from shardpass.canon import HloSharding, TensorSharding, is_equivalent
from shardpass.diagnostics import Sink
from shardpass.mlir import (
    MHLO_SHARDING,
    SDY_SHARDING,
    EntryValue,
    aliases_of,
    argument_attributes,
    arguments_of,
    result_attributes,
    results_of,
    where_written,
)

Sharding = TensorSharding | HloSharding


def check_aliases(
    function: func.FuncOp,
    sharding_of: Callable[[EntryValue, ir.DictAttr], Sharding | None],
    sink: Sink,
) -> None:
    """Report results that lie otherwise than the donated argument whose buffer they take.

    XLA fails with an INTERNAL error where the shards have another size. Where only the layout
    differs it compiles, and moves the whole array in every step.
    """
    given, returned = argument_attributes(function), result_attributes(function)
    # Nearly all pairs carry the same attribute, and need no reading.
    differing = {
        result: argument
        for result, argument in aliases_of(function).items()
        if result < len(returned)
        and _annotations(given[argument]) != _annotations(returned[result])
    }
    if not differing:
        return
    arguments, results = arguments_of(function), results_of(function)
    for result_index, argument_index in differing.items():
        argument, result = arguments[argument_index], results[result_index]
        before = sharding_of(argument, given[argument_index])
        after = sharding_of(result, returned[result_index])
        if (
            before is None
            or after is None
            or not argument.is_tensor
            or -1 in argument.sizes  # Reported as a dynamic shape already.
            or argument.type != result.type
        ):
            continue
        shape = argument.shape
        if is_equivalent(before, after, len(shape)):
            continue
        fields = {
            "location": where_written(function, result),
            "path": result.path,
            "notes": [f"the argument is {before}", f"the result is {after}"],
            "help": "give both one sharding, or do not donate the argument",
        }
        held, taken = before.padded_shard_shape(shape), after.padded_shard_shape(shape)
        if math.prod(held) != math.prod(taken):
            sink.error(
                "alias-layout",
                f"{result} takes over the buffer of {argument}, and their shards differ in size: "
                f"{_by(held)} and {_by(taken)}",
                **fields,
            )
        else:
            sink.warning(
                "alias-layout",
                f"{result} takes over the buffer of {argument} under another layout: the array is "
                "moved in every step",
                **fields,
            )


def _annotations(entries: ir.DictAttr) -> list[ir.Attribute]:
    return [entries[name] for name in (SDY_SHARDING, MHLO_SHARDING) if name in entries]


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a scalar"
