"""The text that a module was read from, for messages that quote it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from shardpass.diagnostics import Diagnostic, Excerpt, SourceLocation
from shardpass.mlir.function_values import name_function_value
from shardpass.mlir.locations import PARSED_TEXT

_FUNCTION = re.compile(r"func\.func\s+(?:public\s+)?@(?P<name>[\w$.-]+)\s*\(")

#: What speaks of options and rules, which are no part of a module.
_ASKED_FOR: Final = frozenset(
    {"bad-option", "bad-regex", "bad-rules", "bad-spec", "unreadable", "unused-rule"}
)


@dataclass(frozen=True)
class SourceText:
    """A file name and, where the file was text, its content."""

    name: str
    text: str | None

    def place(self, diagnostic: Diagnostic) -> Diagnostic:
        """``diagnostic`` with its place spelt for people: file name, line, and the line's text.

        A location in the parsed text gets the file's name. A diagnostic that speaks of an argument
        or result and has no line (JAX's text gives names instead) is placed at the entry function.
        One that already has a place elsewhere, in Python or a rules file, keeps it; one that has
        none is about the file, unless it is about what was asked for.
        """
        diagnostic = name_function_value(diagnostic, self.text)
        found = diagnostic.location
        if found and found.file == PARSED_TEXT and (found.line or diagnostic.path is None):
            return replace(
                diagnostic,
                location=self._named(found),
                attached=tuple(
                    replace(note, location=self._named(note.location))
                    for note in diagnostic.attached
                ),
                excerpt=diagnostic.excerpt or self._excerpt(found.line, found.column),
            )
        if diagnostic.path is not None and (found is None or found.file == PARSED_TEXT):
            place = SourceLocation(self.name, *(self._entry or (0, 0)))
            excerpt = diagnostic.excerpt or self._excerpt(place.line, place.column)
            return replace(diagnostic, location=place, excerpt=excerpt)
        if found is None and diagnostic.excerpt is None and diagnostic.slug not in _ASKED_FOR:
            return replace(diagnostic, location=SourceLocation(self.name))
        return diagnostic

    def _named(self, place: SourceLocation | None) -> SourceLocation | None:
        """``place`` by the file's name, where it is one in the parsed text."""
        return replace(place, file=self.name) if place and place.file == PARSED_TEXT else place

    @cached_property
    def _lines(self) -> list[str]:
        # As MLIR counts them; what Windows puts before a line break would move the cursor.
        return [line.rstrip("\r") for line in self.text.split("\n")] if self.text else []

    @cached_property
    def _entry(self) -> tuple[int, int] | None:
        first = None
        for number, line in enumerate(self._lines, 1):
            if found := _FUNCTION.search(line):
                if found["name"] == "main":
                    return number, found.start() + 1
                first = first or (number, found.start() + 1)
        return first

    def _excerpt(self, line: int, column: int) -> Excerpt | None:
        if not 1 <= line <= len(self._lines):
            return None
        text = self._lines[line - 1]
        # MLIR counts the bytes of UTF-8.
        before = text.encode()[: max(column - 1, 0)].decode(errors="ignore")
        return Excerpt(text, len(before) + 1)
