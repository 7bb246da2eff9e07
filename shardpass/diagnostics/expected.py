"""Comparison of what was reported with the ``expected-…`` comments of a test file.

The comments are those of MLIR's ``-verify-diagnostics``::

    // expected-error {{6 elements into 4 pieces}}        on the line of the comment
    // expected-warning @+1 {{left replicated}}           one line further down
    // expected-error @below {{...}} / @above {{...}}     the next / previous line
    // expected-error @unknown {{...}}                    without a place in this file
    // expected-remark-re @-2 {{cut into {{[0-9]+}} pieces}}   a regex within double braces

The text must occur in the rendered headline (``error[slug]: message``), so that a test can hold on
to the slug as well. Remarks are compared only in a file that expects some. Source: MLIR's
``SourceMgrDiagnosticVerifierHandler``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from shardpass.diagnostics.diagnostic import (
    Diagnostic,
    Excerpt,
    Severity,
    SourceLocation,
)

_DIRECTIVE = re.compile(
    r"expected-(?P<severity>error|warning|remark)(?P<regex>-re)?"
    r"(?:\s*@(?P<where>[+-][0-9]+|above|below|unknown))?\s*\{\{(?P<text>.*)\}\}\s*$"
)
_LOOKS_LIKE_ONE = re.compile(r"//.*\bexpected-\w+")


@dataclass(frozen=True, slots=True)
class Expectation:
    """One ``expected-…`` comment: what must be reported, and on which line (0 for none)."""

    severity: Severity
    pattern: re.Pattern[str]
    line: int
    written_at: int
    text: str

    def is_met_by(self, diagnostic: Diagnostic) -> bool:
        """Whether ``diagnostic`` is what this comment waits for."""
        line = diagnostic.location.line if diagnostic.location else 0
        headline = f"{diagnostic.severity.value}[{diagnostic.slug}]: {diagnostic.message}"
        return (
            diagnostic.severity is self.severity
            and line == self.line
            and self.pattern.search(headline) is not None
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
    for number, line in enumerate(text.split("\n"), first_line):
        if not _LOOKS_LIKE_ONE.search(line):
            continue
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
                Severity(found["severity"]),
                pattern,
                _line(found["where"], number),
                number,
                found["text"],
            )
        )
    return expectations, faults


def verify(
    text: str, reported: Sequence[Diagnostic], *, file: str = "-", first_line: int = 1
) -> list[Diagnostic]:
    """Everything in which ``reported`` and the comments of ``text`` differ; empty if nothing.

    A diagnostic whose location is in another file than ``file`` counts as one without a place.
    """
    expectations, faults = read_expectations(text, first_line)
    faults = [
        Diagnostic(
            f.severity,
            f.slug,
            f.message,
            SourceLocation(file, f.location.line if f.location else 0, 1),
            f.excerpt,
        )
        for f in faults
    ]
    wanted = list(expectations)
    compares_remarks = any(e.severity is Severity.REMARK for e in wanted)
    for diagnostic in reported:
        if diagnostic.severity is Severity.REMARK and not compares_remarks:
            continue
        here = diagnostic
        if diagnostic.location and diagnostic.location.file != file:
            here = Diagnostic(diagnostic.severity, diagnostic.slug, diagnostic.message)
        met = next((e for e in wanted if e.is_met_by(here)), None)
        if met:
            wanted.remove(met)
            continue
        faults.append(
            Diagnostic(
                Severity.ERROR,
                "unmet-expectation",
                f"unexpected {diagnostic.severity.value}[{diagnostic.slug}]: {diagnostic.message}",
                diagnostic.location or SourceLocation(file),
                diagnostic.excerpt,
                notes=diagnostic.notes,
            )
        )
    faults += [
        Diagnostic(
            Severity.ERROR,
            "unmet-expectation",
            f"expected {e.severity.value} was not reported: {e.text}",
            SourceLocation(file, e.written_at, 1),
        )
        for e in wanted
    ]
    return faults


def _unreadable(message: str, number: int, line: str) -> Diagnostic:
    return Diagnostic(
        Severity.ERROR, "syntax", message, SourceLocation("-", number, 1), Excerpt(line)
    )


def _line(where: str | None, number: int) -> int:
    match where:
        case None:
            return number
        case "unknown":
            return 0
        case "above":
            return number - 1
        case "below":
            return number + 1
        case _:
            return number + int(where)


def _missing_regex(text: str) -> str | None:
    """What is wrong with the inner braces of ``text``, outside of which nothing is a regex."""
    if "{{" not in text:
        return "a regex stands in double braces of its own: expected-error-re {{cut into {{.*}}}}"
    if text.count("{{") != len(re.findall(r"\{\{.*?\}\}", text)):
        return "the double braces around the regex are not closed"
    return None


def _pattern(text: str, *, is_regex: bool) -> re.Pattern[str]:
    if not is_regex:
        return re.compile(re.escape(text))
    pieces = re.split(r"\{\{(.*?)\}\}", text)
    return re.compile("".join(f"(?:{p})" if i % 2 else re.escape(p) for i, p in enumerate(pieces)))
