"""The frame of MLIR bytecode, checked before MLIR reads what is in it.

Bytecode is a magic number, a version, the name of a producer, and sections with their lengths in
front. MLIR's reader believes the lengths of some: over a damaged file it may ask for more memory
than there is, or go on for ever. Source: "MLIR Bytecode Format" in MLIR's documentation.
"""

from __future__ import annotations

from typing import Final

#: The first four bytes of MLIR bytecode.
MAGIC: Final = b"ML\xefR"
#: What sections are called, by their numbers.
_SECTIONS: Final = (
    "strings",
    "dialects",
    "attributes and types",
    "offsets of attributes and types",
    "IR",
    "resources",
    "offsets of resources",
    "versions of dialects",
    "properties",
)
_STRINGS: Final = 0
_ATTRIBUTES: Final = 2
_OFFSETS: Final = 3
#: Set in the number of a section that begins at a multiple of something.
_ALIGNED: Final = 0x80


class _FaultError(Exception):
    """What is wrong with the frame."""


class _Reader:
    """Numbers and names from bytes, one after the other."""

    def __init__(self, data: bytes, at: int, end: int, what: str) -> None:
        self._data = data
        self.at = at
        self.end = end
        self._what = what

    def byte(self) -> int:
        return self.take(1)[0]

    def take(self, size: int) -> bytes:
        if size > self.end - self.at:
            raise _FaultError(
                f"{self._what} at byte {self.at}: {size} bytes, and {self.end - self.at} are left"
            )
        self.at += size
        return self._data[self.at - size : self.at]

    def number(self) -> int:
        """A varint: the zeros at the low end of its first byte count the bytes behind it."""
        first = self.byte()
        if first == 0:
            return int.from_bytes(self.take(8), "little")
        more = (first & -first).bit_length() - 1
        return int.from_bytes(bytes([first]) + self.take(more), "little") >> (more + 1)

    def string(self) -> bytes:
        end = self._data.find(b"\0", self.at, self.end)
        if end < 0:
            raise _FaultError(f"{self._what} at byte {self.at}: a string without an end")
        found = self._data[self.at : end]
        self.at = end + 1
        return found


def fault_in(data: bytes) -> str | None:
    """What is wrong with the frame of ``data``, bytecode by its magic; ``None`` if nothing is.

    The sections fit into the file; the strings fill theirs; attributes and types, by what is said
    of their sizes, fill theirs. What the sections mean is for MLIR to say.
    """
    try:
        _check(data)
    except _FaultError as fault:
        return str(fault)
    return None


def _check(data: bytes) -> None:
    reader = _Reader(data, len(MAGIC), len(data), "the head")
    reader.number()
    reader.string()
    sections: dict[int, tuple[int, int]] = {}
    while reader.at < len(data):
        start = reader.at
        kind = reader.byte()
        size = reader.number()
        if kind & _ALIGNED:
            alignment = reader.number()
            if alignment.bit_count() != 1:
                raise _FaultError(f"the section at byte {start}: an alignment of {alignment}")
            reader.take(-reader.at % alignment)
        kind &= ~_ALIGNED
        if kind >= len(_SECTIONS):
            raise _FaultError(f"the section at byte {start}: there is none of number {kind}")
        if kind in sections:
            raise _FaultError(f"the section at byte {start}: a second one of {_SECTIONS[kind]}")
        if size > len(data) - reader.at:
            raise _FaultError(
                f"the section of {_SECTIONS[kind]} at byte {start}: {size} bytes, and "
                f"{len(data) - reader.at} are left"
            )
        sections[kind] = reader.at, reader.at + size
        reader.at += size
    for needed in range(5):
        if needed not in sections:
            raise _FaultError(f"it has no section of {_SECTIONS[needed]}")
    _check_strings(_Reader(data, *sections[_STRINGS], _SECTIONS[_STRINGS]))
    start, end = sections[_ATTRIBUTES]
    _check_offsets(_Reader(data, *sections[_OFFSETS], _SECTIONS[_OFFSETS]), end - start)


def _check_strings(reader: _Reader) -> None:
    count = reader.number()
    if count > reader.end - reader.at:
        raise _FaultError(f"{count} strings in {reader.end - reader.at} bytes")
    total = sum(reader.number() for _ in range(count))
    left = reader.end - reader.at
    if total != left:
        raise _FaultError(f"strings of {total} bytes in a section with {left} left for them")


def _check_offsets(reader: _Reader, size: int) -> None:
    left = [reader.number(), reader.number()]
    total = 0
    for index, kind in enumerate(("attributes", "types")):
        while left[index]:
            reader.number()  # The dialect.
            count = reader.number()
            if count > left[index]:
                raise _FaultError(f"a group of {count} {kind}, and {left[index]} are left")
            left[index] -= count
            if count > reader.end - reader.at:
                raise _FaultError(f"{count} {kind} in {reader.end - reader.at} bytes")
            total += sum(reader.number() >> 1 for _ in range(count))
    if total != size:
        raise _FaultError(f"attributes and types of {total} bytes in a section of {size}")
