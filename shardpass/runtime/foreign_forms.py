"""Modules that are written for somebody else than XLA's compiler, and what makes them into one."""

from __future__ import annotations

from collections import Counter
from typing import Final

from jax.extend.mlir import ir

from shardpass.diagnostics import Sink
from shardpass.mlir import locate
from shardpass.passes.gspmd.frontend_attributes import refuse_round_trip
from shardpass.passes.identities import COLLECTIVES, call_target

#: How XLA carries ops of Shardy's through HLO.
_ROUND_TRIP: Final = "xla.sdy."
#: What XLA's own optimizer leaves in a program.
_OPTIMIZED: Final = ("mhlo.fusion", "mhlo.bitcast")


class ForeignForms:
    """Finds what XLA would stop at with words about its insides, or die of, op by op."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[ir.OpView, str]] = {}
        self._counts: Counter[str] = Counter()

    def look(self, op: ir.OpView) -> None:
        """Note what ``op`` is."""
        name = op.operation.name
        if isinstance(op, COLLECTIVES):
            kind = "collectives"
        elif name in _OPTIMIZED:
            kind = "optimized"
        elif (call_target(op) or "").startswith(_ROUND_TRIP):
            kind, name = "strings", f"the custom call @{call_target(op)}"
        else:
            return
        self._counts[kind] += 1
        self._first.setdefault(kind, (op, name))

    def report(self, root: ir.Operation, sink: Sink) -> None:
        """Report each kind that was found in ``root``, at its first place."""
        if "strings" not in self._first:
            refuse_round_trip(root, sink)
        for kind, (op, name) in self._first.items():
            count = self._counts[kind]
            more = f", with {count - 1} more" if count > 1 else ""
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
