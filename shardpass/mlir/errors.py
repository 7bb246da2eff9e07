"""MLIR's own diagnostics as ours."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import cast

from jax.extend.mlir import ir

from shardpass.diagnostics import Diagnostic, Note, Severity, ShardingError, SourceLocation
from shardpass.mlir.locations import at_place, file_positions
from shardpass.mlir.remedies import remedy_for

_SEVERITIES = {
    ir.DiagnosticSeverity.ERROR: Severity.ERROR,
    ir.DiagnosticSeverity.WARNING: Severity.WARNING,
    ir.DiagnosticSeverity.REMARK: Severity.REMARK,
    ir.DiagnosticSeverity.NOTE: Severity.REMARK,
}

#: How MLIR begins the note that prints the op, a whole function at times.
_REPRINT = "see current operation"
#: An op as it is printed, which is all of that note where Shardy writes it.
_OP = re.compile(r'(%[\w:, #%]+ = )?("[a-z_]+\.\w[\w.]*"\(|[a-z_]+\.[a-z_]\w*[ (])')


def from_mlir(found: ir.DiagnosticInfo | ir.Diagnostic) -> Diagnostic:
    """One MLIR diagnostic under the slug ``mlir``, its notes kept."""
    location = _place(found)
    if location and not location.line:
        location = None  # The bytecode reader says 0:0 where it knows no place.
    return Diagnostic(
        _SEVERITIES[found.severity],
        "mlir",
        message := _message(found),
        location,
        notes=tuple(_notes(found, location)),
        help=remedy_for(message),
        attached=tuple(_attached(found)),
    )


def from_mlir_error(error: ir.MLIRError) -> ShardingError:
    """Everything that MLIR said before it gave up, as one error."""
    found = [from_mlir(d) for d in error.error_diagnostics]
    errors = [d for d in found if d.severity is Severity.ERROR]
    if not errors:
        return ShardingError("mlir", _one_line(str(error)) or "MLIR gave up without saying why")
    return ShardingError.of(found)


def _message(found: ir.DiagnosticInfo | ir.Diagnostic) -> str:
    try:
        return _one_line(found.message)
    except (RuntimeError, UnicodeDecodeError):
        # Names in damaged bytecode are any bytes, and jaxlib gives text or nothing.
        return "MLIR said something that is not UTF-8"


def _place(found: ir.DiagnosticInfo | ir.Diagnostic) -> SourceLocation | None:
    """The innermost position in a file that a diagnostic speaks of."""
    # Diagnostics carry an untyped location; `Location.from_attr` gives back the typed one.
    location = ir.Location.from_attr(found.location.attr, found.location.context)
    try:
        return next(file_positions(location), None)
    except (RuntimeError, UnicodeDecodeError):  # The same of names of files.
        return None


def _notes(found: ir.DiagnosticInfo | ir.Diagnostic, beside: SourceLocation | None) -> list[str]:
    """The notes, without the one that prints the whole op again where its place is known."""
    notes = [(_message(note), _place(note)) for note in found.notes]
    return [
        _note(text, place, beside) for text, place in notes if not (beside and _is_reprint(text))
    ]


def _attached(found: ir.DiagnosticInfo | ir.Diagnostic) -> Iterator[Note]:
    """The notes without the reprint of the op, which mlir-opt leaves out where it verifies."""
    for note in found.notes:
        text = _message(note)
        if not _is_reprint(text):
            yield Note(text, _place(note))


def _note(text: str, place: SourceLocation | None, beside: SourceLocation | None) -> str:
    if _is_reprint(text):
        text = text[:200] + ("..." if len(text) > 200 else "")
    return text if place == beside else at_place(text, place)


def _is_reprint(text: str) -> bool:
    return text.startswith(_REPRINT) or _OP.match(text) is not None


def _one_line(text: str) -> str:
    return " ".join(text.split())


@contextlib.contextmanager
def hearing(context: ir.Context, hear: Callable[[Diagnostic], None]) -> Iterator[None]:
    """Inside, ``hear`` is told all that MLIR reports on ``context``, errors too.

    Nothing is printed meanwhile, and the ``MLIRError`` that a failing call raises comes empty:
    what it would have said was heard.
    """

    def handle(found: ir.Diagnostic) -> bool:
        hear(from_mlir(found))
        return True

    before = context.emit_error_diagnostics
    context.emit_error_diagnostics = True
    # jaxlib's stubs call it an object.
    handler = cast(ir.DiagnosticHandler, context.attach_diagnostic_handler(handle))
    try:
        yield
    finally:
        handler.detach()
        context.emit_error_diagnostics = before
