"""Which text the FileCheck of a RUN line reads its directives from.

Most often that is the test (``%s``). It may be a file beside it (``%S/Inputs/plan.checks``), or a
part of the test that ``split-file %s %t`` has put into a file of its own (``%t/plan.mlir``)::

    //--- plan.mlir

What a RUN line makes itself (``%t.checks``) is nobody's to read beforehand.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shardpass.lit.script import ANY_FILE, THIS_FILE, Run, Segment

#: FileCheck's options whose value may be the next word.
_VALUED = frozenset(
    {
        "check-prefix",
        "check-prefixes",
        "comment-prefixes",
        "dump-input",
        "dump-input-context",
        "dump-input-filter",
        "implicit-check-not",
        "input-file",
    }
)
_IS_CHECKER = re.compile(r"(?:.*/)?%?(?:filecheck|FileCheck)")
_REDIRECTION = re.compile(r"(?P<operator>\d?[<>]{1,2}(?:&\d)?)(?P<target>.*)")
_BESIDE = re.compile(r"%(?:[/:]?[Sp]|\{/?[Sp]:[^}]*\})/(?P<name>.+)")
_SPLITTING = re.compile(
    r"(?:^|\s)(?:\S*/)?%?split-file\s+(?P<options>(?:-\S+\s+)*)\S+\s+(?P<to>\S+)"
)
#: As split-file reads it. Source: LLVM's ``split-file.cpp``.
_PART = re.compile(r"(?:.|//)--- (?P<name>\S.*?)\s*$")


@dataclass(frozen=True)
class Reading:
    """What one FileCheck reads.

    Attributes:
      line: of the RUN line.
      prefixes: of the directives it reads.
      part: the name of a part of the test.
      file: a file that is not the test.
    """

    line: int
    prefixes: tuple[str, ...]
    part: str | None = None
    file: Path | None = None

    @property
    def is_of_test(self) -> bool:
        """Whether the whole test is read."""
        return self.part is None and self.file is None


@dataclass(frozen=True)
class Section:
    """Lines of a test, counted from 1; ``name`` is that of the file split-file makes of them."""

    name: str | None
    first: int
    last: int


def readings_of(path: Path, runs: Sequence[Run]) -> list[Reading]:
    """What the FileChecks in the RUN lines of the test at ``path`` read, in order."""
    folders = [found["to"] for run in runs for found in _SPLITTING.finditer(run.command)]
    return [
        reading
        for run in runs
        for segment in run.segments
        if segment.checks and (reading := _reading(path, run.line, segment, folders))
    ]


def prefixes_of(readings: Iterable[Reading]) -> dict[str, int]:
    """Each prefix that is read, and the line of the first RUN that does."""
    found: dict[str, int] = {}
    for reading in readings:
        for prefix in reading.prefixes:
            found.setdefault(prefix, reading.line)
    return found


def _reading(path: Path, line: int, segment: Segment, folders: Sequence[str]) -> Reading | None:
    prefixes = tuple(segment.prefixes)
    if THIS_FILE.search(segment.text) or not ANY_FILE.search(segment.text):
        return Reading(line, prefixes)
    word = _file_word(segment.text)
    if word is None:
        return None
    if beside := _BESIDE.fullmatch(word):
        return Reading(line, prefixes, file=path.parent / beside["name"])
    for folder in folders:
        if word.startswith(f"{folder}/"):
            return Reading(line, prefixes, part=word.removeprefix(f"{folder}/"))
    return None


def _file_word(command: str) -> str | None:
    """The word of a FileCheck's command that names the file with its directives."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    # A suite's own name for it is the first word.
    checker = next((i for i, word in enumerate(words) if _IS_CHECKER.fullmatch(word)), 0)
    is_value = False
    for word in words[checker + 1 :]:
        redirection = _REDIRECTION.fullmatch(word)
        if is_value:
            is_value = False
        elif redirection:
            # `2>&1` and `<file` are whole.
            is_value = not redirection["target"] and "&" not in redirection["operator"]
        elif word.startswith("-"):
            is_value = word.lstrip("-") in _VALUED
        else:
            return word
    return None


def sections_of(text: str, runs: Sequence[Run]) -> list[Section]:
    """The parts of a test that is split, with what stands in front of them; else all of it."""
    lines = text.splitlines()
    starts: list[tuple[str | None, int]] = [(None, 1)]
    if any(_SPLITTING.search(run.command) for run in runs):
        starts += _parts(lines)
    ends = [first - 1 for _, first in starts[1:]] + [len(lines)]
    return [Section(name, first, last) for (name, first), last in zip(starts, ends, strict=True)]


def _parts(lines: Sequence[str]) -> Iterator[tuple[str, int]]:
    for number, line in enumerate(lines, 1):
        if found := _PART.match(line):
            yield found["name"], number
