"""The modules in one file: ``--split-input-file``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

#: What stands between modules, as in mlir-opt.
BORDER: Final = "// -----"

_COMMENT = re.compile(rb"^\s*//.*$", re.MULTILINE)


@dataclass(frozen=True)
class Part:
    """A module as it stands in a file.

    Attributes:
      index: which it is, from 0.
      data: its bytes.
      first_line: the number of its first line in the file.
      is_cut_out: whether there may be others beside it.
    """

    index: int
    data: bytes
    first_line: int = 1
    is_cut_out: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in it but comments."""
        return not _COMMENT.sub(b"", self.data).strip()

    @property
    def in_place(self) -> bytes:
        """Its text behind as many empty lines as make MLIR count lines as the whole file does."""
        return b"\n" * (self.first_line - 1) + self.data

    @property
    def line(self) -> int:
        """Where its text begins, behind empty lines."""
        blank = len(self.data) - len(self.data.lstrip())
        return self.first_line + self.data.count(b"\n", 0, blank)


def parts_of(data: bytes, border: str | None) -> list[Part]:
    """The modules between the lines that begin with ``border``; ``None`` for no border.

    What is no text has no lines.
    """
    border = BORDER if border == "" else border
    if border is None or b"\0" in data:
        return [Part(0, data)]
    split = re.compile(rb"^%b.*$" % re.escape(border.encode()), re.MULTILINE)
    found: list[Part] = []
    start = 0
    line = 1
    for end, behind in [*(match.span() for match in split.finditer(data)), (len(data), len(data))]:
        found.append(Part(len(found), data[start:end], line, is_cut_out=True))
        line += data.count(b"\n", start, behind)
        start = behind
    return found
