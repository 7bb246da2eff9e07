"""Which pass a lit test is about: read from file names and sources, nothing is imported."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).resolve().parent.parent

_CLASS = re.compile(r"^class (?P<class_name>\w+)\b", re.MULTILINE)
_NAME = re.compile(
    r"^    name(?:\s*:\s*[\w.\[\]]+)?\s*=\s*[\"'](?P<name>sp-[a-z0-9-]+)[\"']", re.MULTILINE
)


class PassSource(NamedTuple):
    """A pass as its source file declares it."""

    name: str
    class_name: str
    path: Path
    line: int


def passes_in(folder: Path) -> list[PassSource]:
    """Every ``name = "sp-…"`` in the classes of the folder's modules, in order of name."""
    found = []
    for path in sorted(folder.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        for match in _NAME.finditer(text):
            class_name = ""
            for head in _CLASS.finditer(text, 0, match.start()):
                class_name = head["class_name"]
            line = text.count("\n", 0, match.start()) + 1
            found.append(PassSource(match["name"], class_name, path, line))
    return sorted(found)
