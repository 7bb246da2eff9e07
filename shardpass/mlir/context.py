"""MLIR contexts in which everything that shardpass reads can be parsed."""

from __future__ import annotations

import re

from jax.extend.mlir import ir, passmanager
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters.mlir import make_ir_context

#: How MLIR's note begins that lists dialects; ``(*)`` there marks those that came with others.
_AVAILABLE = "Available dialects: "


def make_context() -> ir.Context:
    """A context with every dialect that jaxlib ships, StableHLO, CHLO and Shardy among them.

    JAX's own maker is used: a bare ``ir.Context()`` does not even know ``func.func``.
    """
    return make_ir_context()


def dialects_of(context: ir.Context) -> list[str]:
    """The names of the dialects that ``context`` reads, sorted.

    No binding lists them. MLIR does, where it explains why it does not know an op.
    """
    with context:
        try:
            ir.Module.parse("shardpass_unknown.op")
        except ir.MLIRError as error:
            said = [note.message for fault in error.error_diagnostics for note in fault.notes]
        else:
            said = []
    listed = next((text for text in said if text.startswith(_AVAILABLE)), "")
    names = re.sub(r" \([^()]*\)", "", listed.removeprefix(_AVAILABLE).partition(";")[0])
    return sorted(name.strip() for name in names.split(",") if name.strip())


def load_quantized_types(context: ir.Context) -> None:
    """Let ``context`` read StableHLO's quantized types, ``!quant.uniform<i8:f32, 2.0:15>``.

    JAX's maker leaves their dialect out, and no binding loads it. A pass of StableHLO that depends
    on it does, wherever it runs: here on nothing, which takes a millisecond.
    """
    stablehlo.register_stablehlo_passes()
    with context, ir.Location.unknown():
        manager = passmanager.PassManager.parse("builtin.module(vhlo-legalize-to-stablehlo)")
        manager.run(ir.Module.create().operation)
