"""Find lit tests that check less than they seem to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from shardpass.diagnostics import Diagnostic, Excerpt, Severity, ShardingError, SourceLocation
from shardpass.lit.directives import check_counts, unread_lines
from shardpass.lit.script import (
    ANY_FILE,
    THIS_FILE,
    Run,
    Segment,
    prefixes_of,
    run_lines,
)

UNREAD = "unread-directive"
UNCHECKED = "unchecked-test"

_OPT = re.compile(r"%shardpass\s+opt\b")
_PRINTS_NO_MODULE = re.compile(r"--?(?:list-passes|help|version)\b|-h\b")
_LOOKS = re.compile(r"(?<![\w-])(?:--?verify-diagnostics|-o|--output)\b|>(?!&)")
_SPLITS = re.compile(
    r"(?<![\w-])--?split-input-file(?:=(?P<quote>[\"']?)(?P<marker>.+?)(?P=quote)(?=\s|$))?"
)
_MARKER = "// -----"


def lint_file(path: Path) -> list[Diagnostic]:
    """All faults of one test, by line; each is an error with the line that it is about.

    Not being text is one as well.

    Raises:
      ShardingError: ``unreadable``, for a file that cannot be opened.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        why = f"cannot read {shown(path)}: not text in UTF-8"
        return [Diagnostic(Severity.ERROR, "unreadable", why)]
    except OSError as error:
        raise ShardingError("unreadable", f"cannot read {shown(path)}: {error.strerror}") from error
    return lint_text(path, text)


def lint_text(path: Path, text: str) -> list[Diagnostic]:
    """All faults of a test whose text is given."""
    runs = run_lines(text)
    faults = [
        *(fault(path, line, UNCHECKED, message, text) for line, message in _unchecked(text, runs)),
        *(
            fault(path, each.line, UNREAD, each.message, text, each.word)
            for each in unread_lines(text, runs)
        ),
    ]
    return sorted(faults, key=lambda each: each.location.line if each.location else 0)


def fault(
    path: Path, line: int, slug: str, message: str, text: str = "", word: str = ""
) -> Diagnostic:
    """An error about a line of a test, with its text and a caret under ``word``."""
    lines = text.splitlines()
    excerpt = None
    if 0 < line <= len(lines):
        column = max(0, lines[line - 1].find(word)) if word else 0
        excerpt = Excerpt(lines[line - 1], column + 1, max(1, len(word)))
    location = SourceLocation(shown(path), line)
    return Diagnostic(Severity.ERROR, slug, message, location, excerpt)


def shown(path: Path) -> str:
    """The path as people write it: from where they stand, if it lies below."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _unchecked(text: str, runs: list[Run]) -> Iterator[tuple[int, str]]:
    """RUN lines that do not use the file or whose outcome nothing checks, and unused prefixes."""
    if not runs:
        yield 1, "no RUN line"
        return
    for run in runs:
        yield from ((run.line, message) for message in _run_faults(run))
    commands = "\n".join(run.command for run in runs)
    opaque = any(run.has_unknown_substitutions for run in runs)
    lines = text.splitlines()
    markers = {found["marker"] or _MARKER for found in _SPLITS.finditer(commands)}
    if not (markers or opaque) and any(line.startswith(_MARKER) for line in lines):
        yield 1, f"`{_MARKER}` in the file, and no RUN line has --split-input-file"
    for marker in sorted(markers):
        if not any(line.startswith(marker) for line in lines):
            yield 1, f"--split-input-file, and no `{marker}` in the file"
    if not opaque and not THIS_FILE.search(commands):
        yield runs[0].line, "no RUN line uses the file (%s)"
    prefixes = prefixes_of(runs)
    for prefix, (every, wanting) in check_counts(text, list(prefixes)).items():
        if not every:
            yield prefixes[prefix], f"no {prefix}: line in the file"
        elif not wanting:
            yield prefixes[prefix], f"nothing but {prefix}-NOT: an empty output passes"


def _run_faults(run: Run) -> Iterator[str]:
    segments = run.segments
    for position, segment in enumerate(segments):
        if segment.joint == "||":
            yield "|| hides a failure"
        if segment.joint == ";":
            yield "; hides a failure of what stands in front of it: write &&"
        words = [w for w in segment.text.split() if w not in ("not", "env") and "=" not in w]
        if words and words[0] == "shardpass":
            yield "shardpass: write %shardpass, which runs the one of this Python"
        if segment.checks and not ANY_FILE.search(segment.text) and _is_plain(segment):
            yield "%filecheck without %s: it reads its checks from there"
        if not _OPT.search(segment.text) or _PRINTS_NO_MODULE.search(segment.text):
            continue
        piped = segment.joint == "|"
        if not piped and not ANY_FILE.search(segment.text) and _is_plain(segment):
            yield "%shardpass without %s, %t or %S: it reads no file"
        following = segments[position + 1 : position + 2]
        is_read = bool(following) and following[0].joint == "|"
        wants_failure = segment.text.startswith("not ")
        if not (is_read or wants_failure or _LOOKS.search(segment.text)) and _is_plain(segment):
            yield "nothing looks at what this line prints or reports"


def _is_plain(segment: Segment) -> bool:
    return not Run(0, segment.text).has_unknown_substitutions
