"""The parser of ``metadata={op_name="f" source_line=3}``."""

from __future__ import annotations

from typing import Final

from shardpass.canon.metadata import Metadata, MetadataValue
from shardpass.canon.scanner import LARGEST_INTEGER, Scanner
from shardpass.diagnostics import did_you_mean

_STRINGS: Final = ("op_type", "op_name", "source_file", "deduplicated_name", "scheduling_name")
_INTEGERS: Final = (
    "source_line",
    "source_end_line",
    "source_column",
    "source_end_column",
    "stack_frame_id",
)
_LISTS: Final = ("profile_type",)
_KNOWN: Final = (*_STRINGS, *_INTEGERS, *_LISTS)


def parse_metadata(scanner: Scanner) -> tuple[Metadata, ...]:
    """Read what follows ``metadata=``: one entry in braces, or several in braces of their own."""
    scanner.expect("{", "metadata=")
    if not scanner.sees("{"):
        return (_entry(scanner),)
    entries: list[Metadata] = []
    while not scanner.accept("}"):
        if entries:
            scanner.expect(",", "an entry of metadata")
        scanner.expect("{")
        entries.append(_entry(scanner))
    return tuple(entries)


def _entry(scanner: Scanner) -> Metadata:
    """Read what follows the opening brace, up to and with the closing one."""
    fields: dict[str, MetadataValue] = {}
    while not scanner.accept("}"):
        if fields:
            scanner.accept(",")
        scanner.skip_space()
        start = scanner.offset
        name = scanner.word()
        if name not in _KNOWN or name in fields:
            twice = " stands twice" if name in fields else " is not a field of metadata"
            scanner.offset = start
            scanner.fail(
                "syntax",
                f'"{name}"{twice}' if name else "expected a field of metadata",
                length=max(1, len(name)),
                help=None if name in fields else did_you_mean(name, _KNOWN),
            )
        scanner.expect("=", name)
        fields[name] = _value(scanner, name)
    return Metadata(tuple(fields.items()))


def _value(scanner: Scanner, name: str) -> MetadataValue:
    if name in _STRINGS:
        return scanner.quoted("a string", "\"'")
    if name in _INTEGERS:
        return scanner.integer("a number", least=-LARGEST_INTEGER - 1)
    scanner.expect("{", f"{name}=")
    values = tuple(scanner.integers("a number"))
    scanner.expect("}")
    return values
