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
      ShardingError: ``syntax`` for another text in ``backend_config``; ``rank-mismatch`` for a
        dimension that the value does not have.
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
    dims = frozenset(int(number) for number in found[1].split(",") if number)
    kind = call.results[0].type
    rank = kind.rank if isinstance(kind, ir.RankedTensorType) else 0
    beyond = sorted(dim for dim in dims if dim >= rank)
    if beyond:
        which = ", ".join(map(str, beyond))
        raise ShardingError(
            "rank-mismatch",
            f"@{call_target(call)} leaves dimension{'s' * (len(beyond) > 1)} {which} open, and "
            f"{kind} has {rank}",
            location=locate(call),
            help=f"dimensions count from 0: name some of 0 to {rank - 1}"
            if rank
            else "leave out the backend_config",
        )
    return dims


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
