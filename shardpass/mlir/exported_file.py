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
from shardpass.mlir.bytecode import MAGIC

#: Places in the vtable, in bytes: two for each field, behind the two sizes in front.
_FUNCTION_NAME: Final = 6
_PROGRAM: Final = 30
#: Two sizes and as many fields as the first version had, and more than any version will have.
_LEAST_VTABLE: Final = 40
_MOST_VTABLE: Final = 256


def is_exported(data: bytes) -> bool:
    """Whether ``data`` is a flatbuffer that has bytecode where an ``Exported`` has its program.

    Also one whose end is missing, the program or all of its table: writers put that in front, and
    the list of its fields in front of that.
    """
    try:
        start, size = _program(data)
    except _CutShortError:
        return True
    except struct.error:
        return False
    return size > 0 and MAGIC.startswith(data[start : start + len(MAGIC)])


def program_of(data: bytes, name: str) -> bytes:
    """The portable artifact inside.

    Raises:
      ShardingError: ``unreadable`` where the file ends before it does.
    """
    try:
        start, size = _program(data)
    except _CutShortError as error:
        how = f"a table begins at byte {error}, and the file ends at {len(data)}"
        raise _cut_short(name, how) from error
    if start + size > len(data):
        raise _cut_short(
            name, f"its program ends at byte {start + size}, and the file at {len(data)}"
        )
    return data[start : start + size]


class _CutShortError(struct.error):
    """The file ends in its table."""


def _cut_short(name: str, how: str) -> ShardingError:
    return ShardingError(
        "unreadable", f"{name} is a serialized jax.export.Exported that is cut short: {how}"
    )


def _program(data: bytes) -> tuple[int, int]:
    """Where the program begins, and its size.

    Raises:
      struct.error: if this is no such flatbuffer.
    """
    (table,) = struct.unpack_from("<I", data)
    if _ends_in_table(data, table):
        raise _CutShortError(table)
    (back,) = struct.unpack_from("<i", data, table)
    vtable = table - back
    if table % 4 or vtable < 4 or vtable % 2:
        raise struct.error("no table")
    vtable_size, table_size = struct.unpack_from("<HH", data, vtable)
    if vtable_size < _LEAST_VTABLE or vtable_size % 2 or table_size < 4:
        raise struct.error("no vtable of an Exported")
    _string_at(data, table, vtable, table_size, _FUNCTION_NAME)
    return _string_at(data, table, vtable, table_size, _PROGRAM)


def _ends_in_table(data: bytes, table: int) -> bool:
    """Whether the fields' list of an ``Exported`` is there, and the table behind it is not whole.

    Writers put the list right in front of the table; its own size is at its beginning.
    """
    if table > len(data) or table % 4:
        return False
    for vtable in range(max(4, table - _MOST_VTABLE), table - _LEAST_VTABLE + 1, 2):
        vtable_size, table_size = struct.unpack_from("<HH", data, vtable)
        if vtable_size == table - vtable:
            fields = struct.unpack_from(f"<{vtable_size // 2 - 2}H", data, vtable + 4)
            held = [field for field in fields if field]
            if len(held) == len(set(held)) and all(4 <= field < table_size for field in held):
                needed = (_FUNCTION_NAME, _PROGRAM)
                all_there = all(struct.unpack_from("<H", data, vtable + n)[0] for n in needed)
                return all_there and len(data) < table + table_size
    return False


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
    if place + 4 > len(data):
        return place + 4, 1  # Beyond the end: as much as can be said.
    (size,) = struct.unpack_from("<I", data, place)
    return place + 4, size
