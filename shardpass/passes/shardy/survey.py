"""What is looked for in a whole module before Shardy sees it, in one walk.

A walk from Python over ten thousand ops takes a hundredth of the time that propagation takes, so
that there is one for all questions.
"""

from __future__ import annotations

from typing import Final

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func

from shardpass.diagnostics import Sink, SourceLocation
from shardpass.mlir import (
    ADVANCE,
    CALLS,
    MHLO_SHARDING,
    CallGraph,
    argument_attributes,
    locate,
    result_attributes,
    visit,
)
from shardpass.passes.base import Look
from shardpass.passes.gspmd.frontend_attributes import refuse_round_trip
from shardpass.passes.identities import MANUAL_CALLS, SHARDING_CALL
from shardpass.passes.shardy.chlo_rules import CHLO, ChloRules

_FUNCTION: Final = func.FuncOp.OPERATION_NAME
_CUSTOM_CALL: Final = "stablehlo.custom_call"

#: What looks ask of a module; see :attr:`Look.asks`.
NO_RECURSION: Final = "no recursion"
NO_GSPMD: Final = "no GSPMD"


def _survey(root: ir.Operation, sink: Sink) -> None:
    calls, gspmd, chlo = CallGraph(), _Gspmd(), ChloRules()
    # Names of ops of which only the notation matters: nearly all, so that they come first.
    plain: set[str] = set()

    def look(op: ir.Operation) -> ir.WalkResult:
        name = op.name
        if name in plain:
            if MHLO_SHARDING in op.attributes:
                gspmd.look(op, name)
            return ADVANCE
        if name.startswith(CHLO):
            chlo.add(op, name)
        elif name in CALLS:
            calls.add(op, name)
        elif name == _FUNCTION:
            calls.enter(op)
        else:
            plain.add(name)
        gspmd.look(op, name)
        return ADVANCE

    visit(root, look)
    calls.check()
    gspmd.report(sink)
    refuse_round_trip(root, sink)


def _refuse_gspmd(root: ir.Operation, sink: Sink) -> None:
    gspmd = _Gspmd()

    def look(op: ir.Operation) -> ir.WalkResult:
        gspmd.look(op, op.name)
        return ADVANCE

    visit(root, look)
    gspmd.report(sink)
    refuse_round_trip(root, sink)


def _refuse_recursion(root: ir.Operation, sink: Sink) -> None:
    CallGraph.of(root).check()


#: An error, if functions call themselves.
REFUSE_RECURSION: Final = Look(
    _refuse_recursion, before_verifier=True, asks=frozenset({NO_RECURSION})
)
#: An error, if anything in the module is annotated in GSPMD's notation, or in strings.
REFUSE_GSPMD: Final = Look(_refuse_gspmd, before_verifier=True, asks=frozenset({NO_GSPMD}))
#: Both; and CHLO's ops are given their sharding rules. Those are well-formed by construction, so
#: that they cost no run of the verifier.
SURVEY: Final = Look(_survey, before_verifier=True, asks=frozenset({NO_RECURSION, NO_GSPMD}))


class _Gspmd:
    """Where GSPMD's notation is met: XLA's two partitioners each read one notation alone."""

    def __init__(self) -> None:
        self._first: tuple[str, SourceLocation | None] | None = None
        self._count = 0
        self._manual = False

    def look(self, op: ir.Operation, name: str) -> None:
        attributes = op.attributes
        if MHLO_SHARDING in attributes:
            self._note(self._spelt(op, name), op)
        elif name == _CUSTOM_CALL:
            target = _target(op)
            if target == SHARDING_CALL or target in MANUAL_CALLS:
                self._note(self._spelt(op, name), op)
        elif name == _FUNCTION:
            self._function(op.opview)

    def _function(self, function: ir.OpView) -> None:
        assert isinstance(function, func.FuncOp)
        for kind, dictionaries in (
            ("argument", argument_attributes(function)),
            ("result", result_attributes(function)),
        ):
            for index, entries in enumerate(dictionaries):
                if MHLO_SHARDING in entries:
                    self._note(f"{kind} {index} of @{function.name.value}", function)

    def _spelt(self, op: ir.Operation, name: str) -> str:
        if name != _CUSTOM_CALL:
            return name
        target = _target(op)
        self._manual = self._manual or target in MANUAL_CALLS
        return f"the custom call @{target}"

    def _note(self, what: str, op: ir.Operation | ir.OpView) -> None:
        self._count += 1
        if self._first is None:
            self._first = what, locate(op)

    def report(self, sink: Sink) -> None:
        if self._first is None:
            return
        what, place = self._first
        more = f", with {self._count - 1} more" if self._count > 1 else ""
        sink.error(
            "already-annotated",
            f"the module is annotated in GSPMD's notation already ({what}{more}), and Shardy's "
            "cannot stand beside it",
            location=place,
            help="import the old annotations (sp-import-mhlo,sp-propagate), "
            f"{'' if self._manual else 'or remove them (sp-strip,sp-annotate,sp-propagate), '}"
            "or run it as it is, since GSPMD reads it",
        )


def _target(op: ir.Operation) -> str:
    return ir.StringAttr(op.attributes["call_target_name"]).value
