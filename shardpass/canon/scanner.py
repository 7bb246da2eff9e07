"""The one scanner under both grammars: Shardy's attributes and XLA's HLO text.

A :class:`Scanner` walks over a text and remembers where it is, so that every refusal carries an
excerpt with a caret. Both notations are flat enough to be read without recursion; nothing here
recurses or backtracks, and no number is turned into an ``int`` before its length is known, so
hostile input costs no more than its own size.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

import numpy as np

from shardpass.diagnostics import Excerpt, ShardingError

# Both XLA and Shardy hold sizes and device ids in signed 64-bit integers.
LARGEST_INTEGER: Final = 2**63 - 1

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.$]*")
_DIGITS: Final = re.compile(r"-?[0-9]+")
# Eighteen digits always fit into 64 bits.
_MAY_BE_TOO_LONG: Final = re.compile(r"[0-9]{19}")
# Possessive, so that a long list leaves no trail to backtrack on.
_LIST_OF_DIGITS: Final = re.compile(r"[0-9]++(?:[ \t\r\n]*+,[ \t\r\n]*+[0-9]++)*+")
_STRINGS: Final = {
    quote: re.compile(rf"{quote}((?:[^{quote}\\]++|\\.)*+){quote}", re.DOTALL) for quote in "'\""
}


class Scanner:
    """A text, and how far it has been read; ``offset`` counts characters from 0."""

    __slots__ = ("offset", "text")

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise ShardingError(
                "abstract-type",
                f"cannot read the text of a mesh or sharding from {type(text).__name__}",
                help="give a str",
            )
        self.text = text
        self.offset = 0

    def fail(
        self,
        slug: str,
        message: str,
        *,
        offset: int | None = None,
        length: int = 1,
        help: str | None = None,
    ) -> NoReturn:
        """Raise ``slug`` with the caret at ``offset``, or at the next thing to be read."""
        if offset is None:
            self.skip_space()
            offset = self.offset
        raise ShardingError(slug, message, help=help, excerpt=Excerpt.at(self.text, offset, length))

    @contextmanager
    def placing(self, offset: int, length: int | None = None) -> Iterator[None]:
        """Errors raised within get a place, if they have none: ``length`` characters at ``offset``.

        Without a length, it is everything that has been read since.
        """
        try:
            yield
        except ShardingError as error:
            found = error.diagnostic
            if found.excerpt is not None:
                raise
            if length is None:
                length = self.offset - offset
            excerpt = Excerpt.at(self.text, offset, max(1, length))
            raise ShardingError.of([found.at(None, excerpt)]) from None

    def unexpected(self, wanted: str) -> NoReturn:
        """Raise ``syntax``: ``wanted`` is what may stand here."""
        self.skip_space()
        found = self.text[self.offset : self.offset + 1]
        self.fail("syntax", f"expected {wanted}, found " + (f'"{found}"' if found else "the end"))

    def skip_space(self) -> None:
        """Go to the next character that is not white space.

        Raises:
          ShardingError: ``syntax`` at a comment. MLIR and HLO have them, attributes that hold one
            do not occur, and no printer would keep it.
        """
        here = self.text[self.offset : self.offset + 1]
        if here and here != "/" and not here.isspace():
            return  # As nearly always.
        match = _SPACE.match(self.text, self.offset)
        self.offset = match.end() if match else self.offset
        if self.text.startswith(("//", "/*"), self.offset):
            raise ShardingError(
                "syntax",
                "a comment inside a sharding",
                excerpt=Excerpt.at(self.text, self.offset, 2),
            )

    def sees(self, literal: str) -> bool:
        """Whether ``literal`` comes next, white space aside."""
        self.skip_space()
        return self.text.startswith(literal, self.offset)

    def accept(self, literal: str) -> bool:
        """Read ``literal`` if it comes next."""
        if not self.sees(literal):
            return False
        self.offset += len(literal)
        return True

    def expect(self, literal: str, after: str = "") -> None:
        """Read ``literal`` or raise ``syntax``."""
        if not self.accept(literal):
            self.unexpected(f'"{literal}"' + (f" after {after}" if after else ""))

    def expect_end(self) -> None:
        """Raise ``trailing-text`` unless only white space is left."""
        self.skip_space()
        rest = len(self.text) - self.offset
        if rest:
            what = "character" if rest == 1 else "characters"
            self.fail("trailing-text", f"{rest} more {what} after the end", length=rest)

    def word(self) -> str:
        """The identifier that comes next; empty, and nothing read, where there is none."""
        self.skip_space()
        match = _WORD.match(self.text, self.offset)
        if not match:
            return ""
        self.offset = match.end()
        return match[0]

    def integer(self, what: str, least: int = 0) -> int:
        """The integer that comes next.

        Raises:
          ShardingError: ``syntax``, for none, one below ``least``, or one beyond 64 bits.
        """
        self.skip_space()
        match = _DIGITS.match(self.text, self.offset)
        if not match:
            self.unexpected(what)
        value = self._value(match[0], self.offset)
        if value < least:
            self.fail(
                "syntax",
                f"{what} must be at least {least}, not {value}",
                offset=self.offset,
                length=len(match[0]),
            )
        self.offset = match.end()
        return value

    def integers(self, what: str) -> list[int]:
        """One or more natural numbers with commas between them."""
        return self.integer_array(what).tolist()

    def integer_array(self, what: str) -> np.ndarray:
        """As :meth:`integers`, int64, read in one sweep: a list can hold every device there is."""
        self.skip_space()
        start = self.offset
        match = _LIST_OF_DIGITS.match(self.text, start)
        if not match:
            self._no_natural_number(what)
        self.offset = match.end()
        if _MAY_BE_TOO_LONG.search(match[0]):
            for found in _DIGITS.finditer(self.text, start, match.end()):
                self._value(found[0], found.start())
        if self.sees(","):
            self.offset += 1
            self._no_natural_number(what)
        return np.fromstring(match[0], dtype=np.int64, sep=",")

    def position_in_list(self, start: int, index: int) -> tuple[int, int]:
        """Offset and length of entry ``index`` of the list of numbers that begins at ``start``."""
        for number, found in enumerate(_DIGITS.finditer(self.text, start)):
            if number == index:
                return found.start(), len(found[0])
        return start, 1

    def quoted(self, what: str, quotes: str) -> str:
        """The text between two of ``quotes``, escapes left as they are.

        It ends at a quote that no backslash stands before; what else a backslash means is the
        business of the grammar.
        """
        self.skip_space()
        quote = self.text[self.offset : self.offset + 1]
        if not quote or quote not in quotes:
            self.unexpected(what)
        match = _STRINGS[quote].match(self.text, self.offset)
        if not match:
            self.fail("syntax", f"{what} is not closed")
        self.offset = match.end()
        return match[1]

    def _no_natural_number(self, what: str) -> NoReturn:
        self.skip_space()
        signed = _DIGITS.match(self.text, self.offset)
        if not signed:
            self.unexpected(what)
        self.fail("syntax", f"{what} must be at least 0", length=len(signed[0]))

    def _value(self, digits: str, offset: int) -> int:
        # int() on megabytes of digits would be quadratic, or refused.
        significant = digits.lstrip("-").lstrip("0")
        if len(significant) > 19 or int(significant or "0") > LARGEST_INTEGER:
            self.fail("syntax", "a number beyond 64 bits", offset=offset, length=len(digits))
        return -int(significant or "0") if digits[0] == "-" else int(significant or "0")
