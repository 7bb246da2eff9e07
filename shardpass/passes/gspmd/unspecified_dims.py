"""Dimensions that a ``@Sharding`` call leaves open to propagation."""

from __future__ import annotations

import re
from dataclasses import replace

from jax.extend.mlir import ir

from shardpass.canon import TensorSharding
from shardpass.diagnostics import ShardingError
from shardpass.mlir import locate
from shardpass.passes.identities import call_target

_UNSPECIFIED = re.compile(r"unspecified_dims=\[([0-9,]*)\]")


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


def opened(sharding: TensorSharding, dims: frozenset[int]) -> TensorSharding:
    """``sharding`` with ``dims`` open."""
    if not dims:
        return sharding
    return replace(
        sharding,
        dims=tuple(
            replace(dim, open=dim.open or index in dims) for index, dim in enumerate(sharding.dims)
        ),
    )
