"""A mesh as people type it on a command line: ``data=2,model=4``."""

from __future__ import annotations

import re

from shardpass.canon import MeshShape
from shardpass.diagnostics import Excerpt, ShardingError

_AXIS = re.compile(r"\s*(?P<name>[^\s=,]+)\s*=\s*(?P<size>[0-9]+)\s*")
_EXAMPLE = "write it like data=2,model=4"


def parse_mesh(text: str) -> MeshShape:
    """Read ``name=size`` pairs, separated by commas, major axis first.

    Raises:
      ShardingError: ``bad-mesh``, with a caret, and what ``MeshShape`` itself refuses.
    """
    axes: list[tuple[str, int]] = []
    # mlir-opt takes a value in braces, too; inside a pipeline's braces they keep commas together.
    braced = re.fullmatch(r"\{([^{}]*)\}", text)
    text = braced[1] if braced else text
    offset = 0
    while offset < len(text):
        found = _AXIS.match(text, offset)
        if not found:
            raise _fault("expected an axis as name=size", text, offset)
        axes.append((found["name"], int(found["size"])))
        offset = found.end()
        if offset < len(text) and text[offset] != ",":
            raise _fault("expected a comma or the end", text, offset)
        offset += 1
    if not axes:
        raise ShardingError("bad-mesh", "the mesh is empty", help=_EXAMPLE)
    return MeshShape(tuple(axes))


def _fault(message: str, text: str, offset: int) -> ShardingError:
    return ShardingError("bad-mesh", message, excerpt=Excerpt.at(text, offset), help=_EXAMPLE)
