"""MLIR contexts in which everything that shardpass reads can be parsed."""

from __future__ import annotations

from jax.extend.mlir import ir, passmanager
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters.mlir import make_ir_context


def make_context() -> ir.Context:
    """A context with every dialect that jaxlib ships, StableHLO, CHLO and Shardy among them.

    JAX's own maker is used: a bare ``ir.Context()`` does not even know ``func.func``.
    """
    return make_ir_context()


def load_quantized_types(context: ir.Context) -> None:
    """Let ``context`` read StableHLO's quantized types, ``!quant.uniform<i8:f32, 2.0:15>``.

    JAX's maker leaves their dialect out, and no binding loads it. A pass of StableHLO that depends
    on it does, wherever it runs: here on nothing, which takes a millisecond.
    """
    stablehlo.register_stablehlo_passes()
    with context, ir.Location.unknown():
        manager = passmanager.PassManager.parse("builtin.module(vhlo-legalize-to-stablehlo)")
        manager.run(ir.Module.create().operation)
