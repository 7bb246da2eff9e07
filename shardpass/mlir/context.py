"""MLIR contexts in which everything that shardpass reads can be parsed."""

from __future__ import annotations

from jax.extend.mlir import ir
from jax.interpreters.mlir import make_ir_context


def make_context() -> ir.Context:
    """A context with every dialect that jaxlib ships, StableHLO, CHLO and Shardy among them.

    JAX's own maker is used: a bare ``ir.Context()`` does not even know ``func.func``.
    """
    return make_ir_context()
