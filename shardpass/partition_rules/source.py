"""Where a rule is written, so that what is said about it can point there.

``tomllib`` gives no positions of keys, so they are looked up in the text: a table by its header, a
key by the first line of the table that assigns it. A text inside a multi-line string that looks
like a key could mislead the caret by some lines; nothing else depends on it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from shardpass.diagnostics import Diagnostic, Excerpt, SourceLocation

_HEADER = re.compile(r"\s*\[\[?\s*(?P<name>[\w.-]+)\s*\]\]?\s*(?:#.*)?")


@dataclass(frozen=True, slots=True)
class Origin:
    """The lines of one table of a rules file.

    Attributes:
      file: the name for messages.
      first_line: the number of ``lines[0]``, from 1; the table's header if it has one.
      lines: up to the next header.
    """

    file: str
    first_line: int
    lines: tuple[str, ...]

    def place(self, diagnostic: Diagnostic, key: str | None = None) -> Diagnostic:
        """``diagnostic`` at the line of ``key``, with the caret under what it spoke of.

        What it spoke of is the underlined part of the excerpt that it carries already, where the
        file holds the same text.
        """
        index = self._line_of(key)
        start = index if key else 0
        for number, line in enumerate(self.lines[start:], start):
            column, length = _find(diagnostic.excerpt, line)
            if column:
                return self._at(diagnostic, number, column, length)
            if key and number > start and "=" in line:
                break
        line = self.lines[index]
        if key and key in line:
            return self._at(diagnostic, index, line.find(key) + 1, len(key))
        return self._at(diagnostic, index, len(line) - len(line.lstrip()) + 1, 1)

    def _line_of(self, key: str | None) -> int:
        if key is None:
            return 0
        quoted = re.escape(key)
        assigns = re.compile(rf"""\s*(?:{quoted}|"{quoted}"|'{quoted}')\s*[.=]""")
        return next((i for i, line in enumerate(self.lines) if assigns.match(line)), 0)

    def _at(self, diagnostic: Diagnostic, index: int, column: int, length: int) -> Diagnostic:
        return replace(
            diagnostic,
            location=SourceLocation(self.file, self.first_line + index, column),
            excerpt=Excerpt(self.lines[index], column, length),
        )


@dataclass(frozen=True, slots=True)
class SourceText:
    """A whole rules file."""

    file: str
    text: str

    def table(self, name: str, index: int = 0) -> Origin:
        """The lines of ``[name]``, or of the ``index``-th ``[[name]]`` from 0.

        The beginning of the file, up to its first header but one, for the empty name or where no
        header fits (tables may also be written inline).
        """
        lines = self.text.split("\n")
        headers = [
            (i, found["name"]) for i, t in enumerate(lines) if (found := _HEADER.fullmatch(t))
        ]
        starts = [i for i, header in headers if header == name]
        start = starts[index] if name and index < len(starts) else 0
        end = next((i for i, _ in headers if i > start), len(lines))
        return Origin(self.file, start + 1, tuple(lines[start:end]))


def _find(excerpt: Excerpt | None, line: str) -> tuple[int, int]:
    """Column (from 1, 0 if absent) and length in ``line`` of what ``excerpt`` underlines."""
    if not excerpt:
        return 0, 0
    whole = line.find(excerpt.text)
    if whole >= 0:
        return whole + excerpt.column, excerpt.length
    part = excerpt.text[excerpt.column - 1 : excerpt.column - 1 + excerpt.length].strip()
    column = line.find(part) + 1 if part else 0
    return column, len(part)
