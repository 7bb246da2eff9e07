"""Diagnostics as text for people.

The form is that of clang and rustc::

    model.mlir:6:1: error[indivisible]: argument 0 ("wq"), dimension 1: 6 elements into 4 pieces
    func.func @main(%arg0: tensor<8x6xf32> {sdy.sharding = ...}) {
    ^
      note: sharding is [{"x"}, {"y"}] on mesh x=2, y=4
      help: pad to 8, or drop an axis
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from shardpass.diagnostics.diagnostic import Diagnostic, Excerpt, Severity

# A line of a module can be a megabyte long (inline constants); show what is around the caret.
_MOST_COLUMNS = 160


def render(diagnostic: Diagnostic) -> str:
    """``diagnostic`` as one block of lines, without a final newline."""
    where = f"{diagnostic.location}: " if diagnostic.location else ""
    lines = [f"{where}{diagnostic.severity.value}[{diagnostic.slug}]: {diagnostic.message}"]
    if diagnostic.excerpt:
        lines += underline(diagnostic.excerpt)
    lines += [f"  note: {note}" for note in diagnostic.notes]
    if diagnostic.help:
        lines.append(f"  help: {diagnostic.help}")
    return "\n".join(lines)


def summary(diagnostics: Iterable[Diagnostic]) -> str:
    """``2 errors, 1 warning``; empty for neither."""
    count = Counter(d.severity for d in diagnostics)
    parts = [
        f"{count[severity]} {severity.value}{'s' if count[severity] > 1 else ''}"
        for severity in (Severity.ERROR, Severity.WARNING)
        if count[severity]
    ]
    return ", ".join(parts)


def underline(excerpt: Excerpt) -> list[str]:
    """The line of ``excerpt``, or what of a long one is around the caret, and the caret's line.

    Nothing for a blank line: there is nothing to see in it.
    """
    if not excerpt.text.strip():
        return []
    # Tabs keep the caret in place when they are copied into its own line.
    text, column = excerpt.text, excerpt.column
    if len(text) > _MOST_COLUMNS:
        start = max(0, min(column - _MOST_COLUMNS // 2, len(text) - _MOST_COLUMNS))
        text, column = text[start : start + _MOST_COLUMNS], column - start
        if start:
            text = "..." + text[3:] if column > 3 else text
        if start + _MOST_COLUMNS < len(excerpt.text):
            text = text[:-3] + "..." if column <= _MOST_COLUMNS - 3 else text
    pad = "".join("\t" if c == "\t" else " " for c in text[: column - 1]).ljust(column - 1)
    return [text, pad + "^" * max(1, min(excerpt.length, len(text) - column + 1))]
