"""Modules that are written for somebody else than XLA's compiler, and what makes them into one."""

from __future__ import annotations

from collections import Counter
from typing import Final

from jax.extend.mlir import ir

from shardpass.diagnostics import Sink
from shardpass.mlir import locate, operations
from shardpass.passes.gspmd.frontend_attributes import refuse_round_trip
from shardpass.passes.identities import COLLECTIVES, call_target

#: How XLA carries ops of Shardy's through HLO.
_ROUND_TRIP: Final = "xla.sdy."
#: What XLA's own optimizer leaves in a program.
_OPTIMIZED: Final = ("mhlo.fusion", "mhlo.bitcast")


def refuse_foreign_forms(root: ir.Operation, sink: Sink) -> None:
    """Report what XLA would stop at with words about its insides, or die of."""
    first: dict[str, tuple[ir.OpView, str]] = {}
    counts: Counter[str] = Counter()
    for op in operations(root):
        name = op.operation.name
        if isinstance(op, COLLECTIVES):
            kind = "collectives"
        elif name in _OPTIMIZED:
            kind = "optimized"
        elif (call_target(op) or "").startswith(_ROUND_TRIP):
            kind, name = "strings", f"the custom call @{call_target(op)}"
        else:
            continue
        counts[kind] += 1
        first.setdefault(kind, (op, name))
    if "strings" not in first:
        refuse_round_trip(root, sink)
    for kind, (op, name) in first.items():
        more = f", with {counts[kind] - 1} more" if counts[kind] > 1 else ""
        slug, what, help = _REPORTS[kind]
        sink.error(slug, f"{what} ({name}{more})", location=locate(op), help=help)


#: What is said of each kind: the slug, what it is, and what to do.
_REPORTS: Final = {
    "collectives": (
        "not-supported",
        "Shardy's collectives are for reading, and XLA takes none",
        "write the program of one device (sp-partition{wrap}), or constraints in their place "
        "(sp-export-mhlo)",
    ),
    "optimized": (
        "not-supported",
        "this is what XLA has made of a program, and not what it takes",
        "take the HLO of before its optimizations: a dump called before_optimizations, or "
        "jax.jit(f).lower(...).as_text(dialect='hlo')",
    ),
    "strings": (
        "already-annotated",
        "the module has Shardy's notation in the form that XLA carries through HLO",
        "import it first: sp-import-mhlo",
    ),
}
