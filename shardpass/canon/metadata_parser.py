"""The parser of ``metadata={op_name="f" source_line=3}``."""

from __future__ import annotations

from typing import Final

from shardpass.canon.metadata import DEFAULTS, Metadata, MetadataValue
from shardpass.canon.scanner import Scanner
from shardpass.diagnostics import did_you_mean

# XLA keeps lines and columns in 32 bits.
_LARGEST: Final = 2**31 - 1
# XLA's ProfileType has the members 0 to 3.
_PROFILE_TYPES: Final = range(4)


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
        scanner.accept(",")  # XLA takes one before any field, and prints none
        scanner.skip_space()
        start = scanner.offset
        name = scanner.word()
        if name not in DEFAULTS or name in fields:
            twice = " stands twice" if name in fields else " is not a field of metadata"
            scanner.offset = start
            scanner.fail(
                "syntax",
                f'"{name}"{twice}' if name else "expected a field of metadata",
                length=max(1, len(name)),
                help=None if name in fields else did_you_mean(name, DEFAULTS),
            )
        if not scanner.text.startswith("=", scanner.offset):
            scanner.unexpected(f'"=" right after {name}')
        scanner.offset += 1
        fields[name] = _value(scanner, name)
    return Metadata(tuple(fields.items()))


def _value(scanner: Scanner, name: str) -> MetadataValue:
    scanner.skip_space()
    start = scanner.offset
    match DEFAULTS[name]:
        case str():
            text = scanner.quoted("a string", "\"'")
            return text if scanner.text[start] == '"' else text.replace('"', '\\"')
        case int():
            value = scanner.integer("a number", least=-_LARGEST - 1)
            if value > _LARGEST:
                scanner.fail(
                    "syntax", f"{name} is beyond 32 bits", offset=start, length=len(str(value))
                )
            return value
        case _:
            return _profile_types(scanner)


def _profile_types(scanner: Scanner) -> tuple[int, ...]:
    scanner.expect("{", "profile_type=")
    if scanner.accept("}"):
        return ()
    scanner.skip_space()
    start = scanner.offset
    values = tuple(scanner.integers("a profile type"))
    if not all(value in _PROFILE_TYPES for value in values):
        scanner.fail(
            "syntax", "a profile type is 0 to 3", offset=start, length=scanner.offset - start
        )
    scanner.expect("}")
    return values
