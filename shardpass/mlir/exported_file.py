"""The program inside a serialized ``jax.export.Exported``, without reading the rest of it.

The file is a flatbuffer: a table whose first four bytes are the place of a list of offsets (its
*vtable*), one for each field, and everything else found by offsets from where it is mentioned.
Reading the one field with the program needs neither the ``flatbuffers`` package nor the classes of
the exported function's pytrees. Sources: the flatbuffer internals document; the order of fields in
``jax/_src/export/serialization.fbs``, which may only grow.
"""

from __future__ import annotations

import struct
from typing import Final

from shardpass.diagnostics import ShardingError
from shardpass.mlir.files import is_bytecode

#: Places in the vtable, in bytes: two for each field, behind the two sizes in front.
_FUNCTION_NAME: Final = 6
_PROGRAM: Final = 30
#: Two sizes and as many fields as the first version had.
_LEAST_VTABLE: Final = 40


def is_exported(data: bytes) -> bool:
    """Whether ``data`` is a flatbuffer that has bytecode where an ``Exported`` has its program.

    Also one whose end is missing: writers put the table in front.
    """
    try:
        start, size = _program(data)
    except struct.error:
        return False
    return size > 0 and (start >= len(data) or is_bytecode(data[start : start + 4]))


def program_of(data: bytes, name: str) -> bytes:
    """The portable artifact inside.

    Raises:
      ShardingError: ``unreadable`` where the file ends before it does.
    """
    start, size = _program(data)
    if start + size > len(data):
        raise ShardingError(
            "unreadable",
            f"{name} is a serialized jax.export.Exported that is cut short: its program ends at "
            f"byte {start + size}, and the file at {len(data)}",
        )
    return data[start : start + size]


def _program(data: bytes) -> tuple[int, int]:
    """Where the program begins, and its size.

    Raises:
      struct.error: if this is no such flatbuffer.
    """
    (table,) = struct.unpack_from("<I", data)
    (back,) = struct.unpack_from("<i", data, table)
    vtable = table - back
    if table % 4 or vtable < 4 or vtable % 2:
        raise struct.error("no table")
    vtable_size, table_size = struct.unpack_from("<HH", data, vtable)
    if vtable_size < _LEAST_VTABLE or vtable_size % 2 or table_size < 4:
        raise struct.error("no vtable of an Exported")
    _string_at(data, table, vtable, table_size, _FUNCTION_NAME)
    return _string_at(data, table, vtable, table_size, _PROGRAM)


def _string_at(
    data: bytes, table: int, vtable: int, table_size: int, field: int
) -> tuple[int, int]:
    """Where the bytes of a field begin, and how many there are."""
    (offset,) = struct.unpack_from("<H", data, vtable + field)
    if not 4 <= offset <= table_size - 4:
        raise struct.error("a field is missing")
    place = table + offset
    (forward,) = struct.unpack_from("<I", data, place)
    place += forward
    if place >= len(data):
        return place, 1  # Beyond the end: as much as can be said.
    (size,) = struct.unpack_from("<I", data, place)
    return place + 4, size
