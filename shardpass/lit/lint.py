"""Find lit tests that check less than they seem to."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from shardpass.diagnostics import Diagnostic, Excerpt, Severity, ShardingError, SourceLocation
from shardpass.lit.check_files import Reading, prefixes_of, readings_of, sections_of
from shardpass.lit.directives import check_counts, unread_lines
from shardpass.lit.script import (
    ANY_FILE,
    THIS_FILE,
    Run,
    Segment,
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


def lint_files(paths: Sequence[Path], *, are_all: bool = True) -> list[Diagnostic]:
    """All faults of tests, and of the files beside them that hold their directives.

    Args:
      paths: the tests.
      are_all: whether no others may read the files beside them; a prefix that nobody reads is a
        fault only then.

    Raises:
      ShardingError: ``unreadable``, for a test that cannot be opened.
    """
    faults: list[Diagnostic] = []
    beside: dict[Path, list[tuple[Reading, list[Run]]]] = {}
    for path in paths:
        faults += lint_file(path)
        with contextlib.suppress(UnicodeDecodeError):
            runs = run_lines(_text_of(path))
            for reading in readings_of(path, runs):
                if reading.file and reading.file.is_file() and reading.file not in paths:
                    beside.setdefault(reading.file.resolve(), []).append((reading, runs))
    for file, readers in sorted(beside.items()):
        faults += _lint_beside(file, readers, are_all=are_all)
    return faults


def lint_file(path: Path) -> list[Diagnostic]:
    """All faults of one test, by line; each is an error with the line that it is about.

    Not being text is one as well.

    Raises:
      ShardingError: ``unreadable``, for a file that cannot be opened.
    """
    try:
        return lint_text(path, _text_of(path))
    except UnicodeDecodeError:
        return [_no_text(path)]


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ShardingError("unreadable", f"cannot read {shown(path)}: {error.strerror}") from error


def _no_text(path: Path) -> Diagnostic:
    return Diagnostic(Severity.ERROR, "unreadable", f"cannot read {shown(path)}: not text in UTF-8")


def _lint_beside(
    path: Path, readers: Sequence[tuple[Reading, list[Run]]], *, are_all: bool
) -> list[Diagnostic]:
    """The faults of a file that holds directives for tests elsewhere."""
    try:
        text = _text_of(path)
    except UnicodeDecodeError:
        return [_no_text(path)]
    runs = [run for _, of_test in readers for run in of_test]
    prefixes = list(prefixes_of(reading for reading, _ in readers))
    return [
        *(
            fault(path, 1, UNCHECKED, message)
            for _, message in _unmet(text, dict.fromkeys(prefixes, 1))
        ),
        *(
            fault(path, each.line, UNREAD, each.message, text, each.word)
            for each in unread_lines(text, runs, prefixes, is_known=are_all)
        ),
    ]


def lint_text(path: Path, text: str) -> list[Diagnostic]:
    """All faults of a test whose text is given."""
    runs = run_lines(text)
    readings = readings_of(path, runs)
    faults = [
        *(fault(path, line, UNCHECKED, message, text) for line, message in _unchecked(text, runs)),
        *(
            fault(path, line, UNCHECKED, message, text)
            for line, message in _unread_files(text, runs, readings)
        ),
    ]
    for section in sections_of(text, runs):
        lines = "\n".join(text.splitlines()[section.first - 1 : section.last])
        # Who reads the whole test reads its parts as well.
        prefixes = list(
            prefixes_of(r for r in readings if not r.file and r.part in (None, section.name))
        )
        faults += [
            fault(path, each.line, UNREAD, each.message, text, each.word)
            for each in unread_lines(lines, runs, prefixes, first_line=section.first)
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


def _unread_files(
    text: str, runs: list[Run], readings: Sequence[Reading]
) -> Iterator[tuple[int, str]]:
    """Files and parts that FileCheck reads and that are not there, and prefixes without lines."""
    lines = text.splitlines()
    yield from _unmet(text, prefixes_of(r for r in readings if r.is_of_test))
    sections = {section.name: section for section in sections_of(text, runs)}
    for part in dict.fromkeys(r.part for r in readings if r.part):
        reading = [r for r in readings if r.part == part]
        section = sections.get(part)
        if section is None:
            yield reading[0].line, f"no part `{part}` in the file, which %filecheck reads"
            continue
        held = "\n".join(lines[section.first - 1 : section.last])
        yield from _unmet(held, prefixes_of(reading), f"part `{part}`")
    for reading in readings:
        if reading.file and not reading.file.is_file():
            yield reading.line, f"no file {shown(reading.file)}, which %filecheck reads"


def _unmet(
    text: str, prefixes: dict[str, int], where: str = "the file"
) -> Iterator[tuple[int, str]]:
    for prefix, (every, wanting) in check_counts(text, list(prefixes)).items():
        if not every:
            yield prefixes[prefix], f"no {prefix}: line in {where}"
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
