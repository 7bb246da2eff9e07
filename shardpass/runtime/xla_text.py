"""What XLA writes, without what only its own authors can read."""

from __future__ import annotations

import re
from typing import Final

_TRACE: Final = re.compile(
    # The stack of a status, to standard error or inside the message. Wheels hold no symbols, so
    # that its frames are blank. One that was cut short ends with the text.
    r"\n?[^\S\n]*\*\*\* Begin stack trace \*\*\*.*?(?:\*\*\* End stack trace \*\*\*[^\S\n]*\n?|\Z)"
    # Places in XLA's source, a line each.
    r"|^=== Source Location Trace: ===[^\S\n]*\n(?:external/[^\n]*(?:\n|\Z))*",
    re.DOTALL | re.MULTILINE,
)


def without_traces(text: str) -> str:
    """``text`` without the stack traces of XLA, and without the blank lines that they leave."""
    if "stack trace ***" not in text and "Source Location Trace" not in text:
        return text
    kept = (line for line in _TRACE.sub("\n", text).split("\n") if line.strip())
    return "\n".join(kept)
