"""What XLA made of a program, told apart by what it does and not by how things are called."""

from __future__ import annotations

import collections
import re
from typing import Any

_KINDS = "all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter"


def bare(compiled: Any) -> str:
    """The optimized program without metadata, the tables it speaks of, and names but by number."""
    text = re.sub(r"(, )?metadata=\{[^}]*\}", "", compiled.as_text())
    text = re.sub(r"HloModule [\w.]+", "HloModule m", text)
    text = re.sub(r"\n(FileNames|FunctionNames|FileLocations|StackFrames)\n(.+\n)*", "", text)
    names: dict[str, str] = {}
    return re.sub(
        r"%[\w.-]+|[\w.-]+(?=: )",
        lambda found: names.setdefault(found[0].removeprefix("%"), f"%{len(names)}"),
        text,
    )


def collectives(compiled: Any) -> collections.Counter[str]:
    """How many there are of each kind."""
    return collections.Counter(re.findall(rf" ({_KINDS})(?:-start)?\(", compiled.as_text()))
