"""The text of a pipeline: its grammar, with positions for every fault.

::

    pipeline = element {"," element}
    element  = name ["{" options "}"] | anchor "(" [pipeline] ")"
    options  = key ["=" value] {" " key ["=" value]}
    value    = "quoted" | 'quoted' | anything without white space, with balanced braces

It is MLIR's own form, with two differences: a pass of ours may stand anywhere in it, and no pass
has to be nested under the op that it runs on, since that is looked up. MLIR's parser does not know
Python passes, hence a parser of our own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from shardpass.diagnostics import Excerpt, ShardingError

_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_SPACE = re.compile(r"\s*")
_BRACKETS = {"{": "}", "[": "]", "(": ")", "<": ">"}


@dataclass(frozen=True, slots=True)
class OptionText:
    """``key=value`` in braces; ``value`` is without quotes, or ``None`` for a bare key."""

    key: str
    value: str | None
    offset: int


@dataclass(frozen=True, slots=True)
class PassText:
    """A pass by name. ``written`` is all of it as it stands in the text."""

    name: str
    options: tuple[OptionText, ...]
    offset: int
    written: str


@dataclass(frozen=True, slots=True)
class NestText:
    """Passes nested by the user under the op that they run on."""

    anchor: str
    elements: tuple[PassText | NestText, ...]
    offset: int
    written: str


def parse_pipeline(text: str) -> tuple[PassText | NestText, ...]:
    """Read a pipeline's text.

    Raises:
      ShardingError: ``bad-pipeline``, with the text and a caret.
    """
    reader = _Reader(text)
    reader.skip_space()
    if reader.at_end:
        reader.fail("the pipeline is empty", help="name at least one pass, like sp-propagate")
    elements = reader.elements()
    if not reader.at_end:
        reader.fail(f"expected a comma or the end, found {reader.rest[0]!r}")
    return elements


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.offset = 0

    @property
    def rest(self) -> str:
        return self.text[self.offset :]

    @property
    def at_end(self) -> bool:
        return self.offset >= len(self.text)

    def fail(self, message: str, *, help: str | None = None, offset: int | None = None) -> NoReturn:
        at = self.offset if offset is None else offset
        raise ShardingError("bad-pipeline", message, excerpt=Excerpt.at(self.text, at), help=help)

    def skip_space(self) -> None:
        found = _SPACE.match(self.text, self.offset)
        self.offset = found.end() if found else self.offset

    def take(self, character: str) -> bool:
        self.skip_space()
        if not self.text.startswith(character, self.offset):
            return False
        self.offset += 1
        self.skip_space()
        return True

    def elements(self) -> tuple[PassText | NestText, ...]:
        found = [self.element()]
        while self.take(","):
            found.append(self.element())
        return tuple(found)

    def element(self) -> PassText | NestText:
        self.skip_space()
        start = self.offset
        name = self.name("a pass")
        if self.text.startswith("(", self.offset):
            self.take("(")
            inner = () if self.text.startswith(")", self.offset) else self.elements()
            if not self.text.startswith(")", self.offset):
                self.fail(f'"{name}(" is not closed', offset=start)
            self.offset += 1
            written = self.text[start : self.offset]
            self.skip_space()
            return NestText(name, inner, start, written)
        options: tuple[OptionText, ...] = ()
        if self.text.startswith("{", self.offset):
            options = self.options(name)
        written = self.text[start : self.offset]
        self.skip_space()
        return PassText(name, options, start, written)

    def name(self, what: str) -> str:
        found = _NAME.match(self.text, self.offset)
        if not found:
            here = repr(self.rest[0]) if not self.at_end else "the end"
            self.fail(f"expected {what}, found {here}")
        self.offset = found.end()
        return found[0]

    def options(self, name: str) -> tuple[OptionText, ...]:
        opened = self.offset
        self.offset += 1
        found: list[OptionText] = []
        while True:
            self.skip_space()
            if self.at_end:
                self.fail(f'the options of "{name}" are not closed', offset=opened)
            if self.text[self.offset] == "}":
                self.offset += 1
                return tuple(found)
            start = self.offset
            key = self.name("an option")
            value = None
            if self.text.startswith("=", self.offset):
                self.offset += 1
                value = self.value()
            found.append(OptionText(key, value, start))

    def value(self) -> str:
        if not self.at_end and self.text[self.offset] in "\"'":
            return self.quoted()
        start = self.offset
        closers: list[str] = []
        while not self.at_end:
            character = self.text[self.offset]
            if closers and character == closers[-1]:
                closers.pop()
            elif character in _BRACKETS:
                closers.append(_BRACKETS[character])
            elif not closers and (character.isspace() or character == "}"):
                break
            self.offset += 1
        return self.text[start : self.offset]

    def quoted(self) -> str:
        quote = self.text[self.offset]
        end = self.text.find(quote, self.offset + 1)
        if end < 0:
            self.fail("the quote is not closed")
        value = self.text[self.offset + 1 : end]
        self.offset = end + 1
        if not self.at_end and not self.rest[0].isspace() and self.rest[0] != "}":
            self.fail(f"expected white space or a closing brace, found {self.rest[0]!r}")
        return value
