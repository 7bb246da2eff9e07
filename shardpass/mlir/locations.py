"""From MLIR locations to places that people can open, and back to the names they gave.

A location is a small tree. The leaves that matter are files with line and column: ``"-"`` stands
for the text that was parsed, anything else is the Python source that JAX recorded. Names sit above
them: the argument's pytree path, or the name stack of an op (``jit(step)/transpose/dot_general``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import cast

from jax.extend.mlir import ir

from shardpass.canon.mlir_string import quote
from shardpass.diagnostics import SourceLocation

#: What MLIR's parser calls a module that it was handed as a string.
PARSED_TEXT = "-"


#: Such a place as it is printed. Nothing else that MLIR prints looks like it: quotes in strings are
#: escaped.
_PRINTED = re.compile(r'"-":(?=\d+:\d+)')


def with_file_name(text: str, name: str) -> str:
    """Printed MLIR in which places in the text that was parsed are places in file ``name``.

    Whoever reads it next would take them for places in what he reads.
    """
    return _PRINTED.sub(lambda _: f"{quote(name)}:", text)


def file_positions(location: ir.Location) -> Iterator[SourceLocation]:
    """Every file position in ``location``, innermost call first."""
    match location:
        case ir.FileLineColLoc():
            yield SourceLocation(location.filename, location.start_line, location.start_col)
        case ir.NameLoc():
            yield from file_positions(location.child_loc)
        case ir.CallSiteLoc():
            yield from file_positions(location.callee)
            yield from file_positions(location.caller)
        case ir.FusedLoc():
            for part in cast(list[ir.Location], location.locations):
                yield from file_positions(part)


def at_place(text: str, place: SourceLocation | None) -> str:
    """A note with its place in front, where it has one.

    The text that is being parsed has no name of its own.
    """
    if place is None or not place.line:
        return text
    return f"line {place.line}: {text}" if place.file == PARSED_TEXT else f"{place}: {text}"


def location_names(location: ir.Location) -> Iterator[str]:
    """Every name in ``location``, outermost first."""
    match location:
        case ir.NameLoc():
            yield location.name_str
            yield from location_names(location.child_loc)
        case ir.CallSiteLoc():
            yield from location_names(location.callee)
            yield from location_names(location.caller)
        case ir.FusedLoc():
            for part in cast(list[ir.Location], location.locations):
                yield from location_names(part)


def locate(op: ir.Operation | ir.OpView) -> SourceLocation | None:
    """Where ``op`` was written: the module's text, else the innermost line of Python."""
    return next(file_positions(op.location), None)


def value_name(value: ir.BlockArgument) -> str | None:
    """The name that JAX recorded for a block argument, if it did."""
    location = value.location
    return location.name_str if isinstance(location, ir.NameLoc) else None
