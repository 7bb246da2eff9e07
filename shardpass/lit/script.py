"""The RUN lines of a lit test, as lit reads them.

A line with ``RUN:`` in it holds a command; a backslash at its end goes on with the next. Commands
may use substitutions of the test's own (``DEFINE:`` and ``REDEFINE:``), and parts that depend on a
feature (``%if feature %{ ... %} %else %{ ... %}``). Both parts of such a choice are read: the
linter is about all that a test may do. ``END.`` ends the reading.

Source: lit's ``TestRunner`` and "Test-specific substitutions" in LLVM's guide to lit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_DIRECTIVE = re.compile(r"(?P<keyword>RUN:|REDEFINE:|DEFINE:|END\.)(?P<rest>.*)$")
_DEFINITION = re.compile(r"\s*(?P<name>%\{[\w:-]+\})\s*=\s*(?P<value>.*)$")
_CHOICE = re.compile(r"%if\s.*?%\{|%\}\s*%else\s*%\{|%\}")
_PREFIXES = re.compile(r"--?check-prefix(?:es)?(?:=|\s+)(?P<names>[\w,-]+)")
_COMMENTS = re.compile(r"--?comment-prefixes(?:=|\s+)(?P<names>[\w,-]+)")

#: A file that lit names: the test itself, and any.
THIS_FILE = re.compile(r"%/?s(?![A-Za-z_])|%\{/?s:")
ANY_FILE = re.compile(r"%[/:]?[sSpt](?![A-Za-z_])|%\{/?[sSpt]:")
_CHECKER = re.compile(r"(?:^|\s)(?:\S*/)?(?:%?filecheck|%?FileCheck)(?:\s|$)")
#: ``%{name}`` and ``%name`` that neither lit nor this kit gives a meaning.
_UNKNOWN = re.compile(
    r"%(?!shardpass\b|filecheck\b|devices\b|[/:]?[sSpt](?![A-Za-z_])|/?et\b|basename_t\b"
    r"|\{/?[sSpt]:|\{pathsep\}|\{fs-|dbg\b|%)(?:\{[A-Za-z]|[A-Za-z])"
)

#: How often a definition may lead to the next.
_DEPTH = 10


class Segment(NamedTuple):
    """A command of a RUN line, and what stands before it (``""``, ``|``, ``&&``, ``;``, ``||``)."""

    joint: str
    text: str

    @property
    def checks(self) -> bool:
        """Whether this is FileCheck."""
        return bool(_CHECKER.search(self.text) or _PREFIXES.search(self.text))

    @property
    def prefixes(self) -> list[str]:
        """The prefixes of FileCheck's directives that this command reads."""
        named = [name for found in _PREFIXES.finditer(self.text) for name in _split(found["names"])]
        return named or ["CHECK"]


class Run(NamedTuple):
    """A RUN line with its continuations and definitions, and the number of its first line."""

    line: int
    command: str

    @property
    def segments(self) -> list[Segment]:
        """The commands between ``|``, ``&&``, ``;`` and ``||`` that stand outside of quotes."""
        return list(_segments(self.command))

    @property
    def has_unknown_substitutions(self) -> bool:
        """Whether it says something that only the suite's configuration can explain."""
        return bool(_UNKNOWN.search(self.command))


def run_lines(text: str) -> list[Run]:
    """The RUN lines of a test."""
    definitions: dict[str, str] = {}
    runs: list[Run] = []
    keyword, first, open_text = "", 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        found = _DIRECTIVE.search(line)
        if not found:
            continue
        if found["keyword"] == "END.":
            if not found["rest"].strip():
                break
            continue
        if not open_text or found["keyword"] != keyword:
            keyword, first, open_text = found["keyword"], number, ""
        open_text += " " + found["rest"].strip()
        if open_text.endswith("\\"):
            open_text = open_text[:-1].rstrip()
            continue
        whole, open_text = open_text.strip(), ""
        if keyword == "RUN:":
            runs.append(Run(first, _expand(whole, definitions)))
        elif defined := _DEFINITION.match(whole):
            definitions[defined["name"]] = defined["value"]
    if open_text.strip() and keyword == "RUN:":
        runs.append(Run(first, _expand(open_text.strip(), definitions)))
    return runs


def comment_prefixes_of(runs: Sequence[Run]) -> set[str]:
    """What FileCheck takes for the start of a comment, beside its own ``COM`` and ``RUN``."""
    found = (match for run in runs for match in _COMMENTS.finditer(run.command))
    return {name for match in found for name in _split(match["names"])}


def _split(names: str) -> list[str]:
    return [name for name in names.split(",") if name]


def _expand(command: str, definitions: dict[str, str]) -> str:
    for _ in range(_DEPTH):
        before = command
        for name, value in definitions.items():
            command = command.replace(name, value)
        if command == before:
            break
    return _CHOICE.sub(" ", command).strip()


def _segments(command: str) -> Iterator[Segment]:
    joint, quote, start, position = "", "", 0, 0
    while position < len(command):
        character = command[position]
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif found := re.match(r"\|\||&&|\||;", command[position:]):
            yield Segment(joint, command[start:position].strip())
            joint = found[0]
            position = start = position + len(joint)
            continue
        position += 1
    yield Segment(joint, command[start:].strip())
