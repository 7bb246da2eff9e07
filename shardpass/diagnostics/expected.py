"""Comparison of what was reported with the ``expected-…`` comments of a test file.

The comments are those of MLIR's ``-verify-diagnostics``::

    // expected-error {{6 elements into 4 pieces}}        on the line of the comment
    // expected-warning @+1 {{left replicated}}           one line further down
    // expected-error @below {{...}} / @above {{...}}     the next / previous line without a comment
    // expected-note @-3 {{previously defined here}}      a note that another diagnostic carries
    // expected-error @unknown {{...}}                    without a place in this file
    // expected-remark-re @-2 {{cut into {{[0-9]+}} pieces}}   a regex within double braces

The text must occur in the message, or in the rendered headline (``error[slug]: message``), so that
a test can hold on to the slug as well. One comment may be met several times; of equal comments each
must be met. Notes without a place of their own, as passes in Python write them, and remarks are
compared only in a file that expects some. The help line of a diagnostic, which MLIR has not, counts
as a note of it that may be expected and need not be (``expected-note {{help: did you mean}}``).
Source: MLIR's ``SourceMgrDiagnosticVerifierHandler``.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from shardpass.diagnostics.diagnostic import (
    Diagnostic,
    Excerpt,
    Severity,
    SourceLocation,
)

#: ``all``: what no comment expects is a fault, too. ``only-expected``: it is not.
Level = Literal["all", "only-expected"]

_DIRECTIVE = re.compile(
    r"expected-(?P<kind>error|warning|remark|note)(?P<regex>-re)?"
    r"(?:\s*@(?P<where>[+-][0-9]+|above|below|unknown))?\s*\{\{(?P<text>.*)\}\}\s*$"
)
_LOOKS_LIKE_ONE = re.compile(r"//.*\bexpected-\w+")
_NOTE: Final = "note"


@dataclass(frozen=True, slots=True)
class Expectation:
    """One ``expected-…`` comment: what must be reported, and on which line (0 for none)."""

    kind: str
    pattern: re.Pattern[str]
    line: int
    written_at: int
    text: str


@dataclass(frozen=True, slots=True)
class _Said:
    """A diagnostic, a note or the help of one, as comments see it; ``line`` 0 is no place."""

    kind: str
    message: str
    line: int
    diagnostic: Diagnostic
    is_help: bool = False

    @property
    def headline(self) -> str:
        return f"{self._label}: {self.message}"

    @property
    def _label(self) -> str:
        if self.is_help:
            return "help"
        return self.kind if self.kind == _NOTE else f"{self.kind}[{self.diagnostic.slug}]"

    def is_what(self, comment: Expectation) -> bool:
        """Whether it says what ``comment`` waits for, where it does, whatever its severity."""
        return self.line == comment.line and any(
            comment.pattern.search(text) for text in (self.message, self.headline)
        )


def read_expectations(text: str, first_line: int = 1) -> tuple[list[Expectation], list[Diagnostic]]:
    """The comments in ``text``, whose first line counts as ``first_line``.

    Returns:
      The expectations, and an error for each comment that looks like one but cannot be read: a
      misspelt expectation must not pass in silence.
    """
    expectations: list[Expectation] = []
    faults: list[Diagnostic] = []
    # Line feeds alone, as MLIR counts lines.
    lines = text.split("\n")
    has_comment = [bool(_LOOKS_LIKE_ONE.search(line)) for line in lines]
    for index, line in enumerate(lines):
        if not has_comment[index]:
            continue
        number = first_line + index
        found = _DIRECTIVE.search(line)
        if not found:
            faults.append(
                _unreadable("not a comment of the form expected-error @+1 {{text}}", number, line)
            )
            continue
        if found["regex"] and (missing := _missing_regex(found["text"])):
            faults.append(_unreadable(missing, number, line))
            continue
        try:
            pattern = _pattern(found["text"], is_regex=bool(found["regex"]))
        except re.error as error:
            faults.append(_unreadable(f"the regex does not compile: {error}", number, line))
            continue
        expectations.append(
            Expectation(
                found["kind"],
                pattern,
                _line(found["where"], index, has_comment, first_line),
                number,
                found["text"],
            )
        )
    return expectations, faults


def verify(
    text: str,
    reported: Sequence[Diagnostic],
    *,
    file: str = "-",
    first_line: int = 1,
    level: Level = "all",
) -> list[Diagnostic]:
    """Everything in which ``reported`` and the comments of ``text`` differ; empty if nothing.

    A diagnostic whose location is in another file than ``file`` counts as one without a place.
    """
    expectations, faults = read_expectations(text, first_line)
    faults = [replace(f, location=replace(f.location, file=file)) for f in faults if f.location]
    helps = [said for diagnostic in reported for said in _help(diagnostic, file)]
    # Who expects help alone has said nothing of notes.
    kinds = {e.kind for e in expectations if not any(said.is_what(e) for said in helps)}
    met: set[int] = set()
    for said in _all_said(reported, file, kinds):
        alike = [i for i, e in enumerate(expectations) if said.is_what(e)]
        places = [i for i in alike if expectations[i].kind == said.kind]
        if places:
            # Of equal comments one that is not met yet.
            met.add(next((i for i in places if i not in met), places[0]))
        elif said.is_help:
            continue
        elif alike or level == "all":
            near = [f"expected here is: {expectations[i].kind}" for i in alike[:1]]
            faults.append(_unexpected(said, file, near))
    faults += [
        Diagnostic(
            Severity.ERROR,
            "unmet-expectation",
            f"expected {e.kind} was not reported: {e.text}",
            SourceLocation(file, e.written_at, 1),
        )
        for i, e in enumerate(expectations)
        if i not in met
    ]
    return faults


def _all_said(reported: Sequence[Diagnostic], file: str, kinds: set[str]) -> Iterator[_Said]:
    """What is to be compared: diagnostics in order, each in front of its notes and its help."""
    for diagnostic in reported:
        kind = diagnostic.severity.value
        if diagnostic.severity is not Severity.REMARK or kind in kinds:
            yield _Said(kind, diagnostic.message, _line_in(file, diagnostic.location), diagnostic)
        for note in diagnostic.attached:
            yield _Said(_NOTE, note.message, _line_in(file, note.location), diagnostic)
        if not diagnostic.attached and _NOTE in kinds:
            for text in diagnostic.notes:
                yield _Said(_NOTE, text, _line_in(file, diagnostic.location), diagnostic)
        yield from _help(diagnostic, file)


def _help(diagnostic: Diagnostic, file: str) -> Iterator[_Said]:
    if diagnostic.help:
        place = _line_in(file, diagnostic.location)
        yield _Said(_NOTE, diagnostic.help, place, diagnostic, is_help=True)


def _line_in(file: str, place: SourceLocation | None) -> int:
    return place.line if place and place.file == file else 0


def _unexpected(said: _Said, file: str, near: Sequence[str]) -> Diagnostic:
    about = said.diagnostic
    message = f"unexpected {said.headline}"
    place = about.location or SourceLocation(file)
    if said.kind == _NOTE:
        place = SourceLocation(file, said.line) if said.line else place
        return Diagnostic(Severity.ERROR, "unmet-expectation", message, place, notes=tuple(near))
    notes = (*near, *about.notes)
    return Diagnostic(
        Severity.ERROR, "unmet-expectation", message, place, about.excerpt, notes=notes
    )


def _unreadable(message: str, number: int, line: str) -> Diagnostic:
    return Diagnostic(
        Severity.ERROR, "syntax", message, SourceLocation("-", number, 1), Excerpt(line)
    )


def _line(where: str | None, index: int, has_comment: Sequence[bool], first_line: int) -> int:
    """The line that a comment on line ``index`` (from 0) speaks of, 0 for none."""
    match where:
        case "unknown":
            return 0
        case "above" | "below":
            # Lines with comments of their own are passed over, so that several can share a line.
            step = -1 if where == "above" else 1
            index += step
            while 0 <= index < len(has_comment) and has_comment[index]:
                index += step
            return first_line + index
        case _:
            return first_line + index + int(where or 0)


def _missing_regex(text: str) -> str | None:
    """What is wrong with the inner braces of ``text``, outside of which nothing is a regex."""
    if "{{" not in text:
        return "a regex stands in double braces of its own: expected-error-re {{cut into {{.*}}}}"
    if text.count("{{") != len(re.findall(r"\{\{.*?\}\}", text)):
        return "the double braces around the regex are not closed"
    return None


#: POSIX classes, which MLIR's regexes have and Python's have not.
_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": r" \t",
    "digit": "0-9",
    "lower": "a-z",
    "punct": re.escape(string.punctuation),
    "space": r"\s",
    "upper": "A-Z",
    "word": r"\w",
    "xdigit": "0-9A-Fa-f",
}
_CLASS = re.compile(rf"\[:({'|'.join(_CLASSES)}):\]")


def _pattern(text: str, *, is_regex: bool) -> re.Pattern[str]:
    if not is_regex:
        return re.compile(re.escape(text))
    pieces = re.split(r"\{\{(.*?)\}\}", text)
    for index in range(1, len(pieces), 2):
        pieces[index] = _CLASS.sub(lambda found: _CLASSES[found[1]], pieces[index])
    return re.compile("".join(f"(?:{p})" if i % 2 else re.escape(p) for i, p in enumerate(pieces)))
