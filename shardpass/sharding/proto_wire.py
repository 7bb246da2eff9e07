"""Protobuf's wire format, read against a list of fields, every fault with its position.

Only as much of it as shardings need: numbers, packed or one by one, and messages within messages.
Source: the protobuf encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from shardpass.diagnostics import ShardingError

VARINT, BYTES = 0, 2
_SIZES = {1: 8, 5: 4}

Schema = Mapping[int, tuple[str, int]]
T = TypeVar("T")


class Message:
    """The fields of one message.

    Args:
      data: its bytes.
      schema: field number -> name, and wire type.
      what: the name of the message, for errors.
      start: where it begins in the outermost message.
      partly: whether it has other fields as well, which are passed over.

    Raises:
      ShardingError: ``syntax``, for what is no such message.
    """

    def __init__(
        self, data: bytes, schema: Schema, what: str, start: int = 0, *, partly: bool = False
    ) -> None:
        self._fields: dict[str, list[Any]] = {}
        for position, number, wire, value in _entries(data, start):
            name, expected = schema.get(number, ("", -1))
            if not name and partly:
                continue
            if not name:
                raise fault(position, f"{what} has no field {number}")
            values = self._fields.setdefault(name, [])
            if wire == expected:
                values.append(_signed(value) if wire == VARINT else value)
            elif wire == BYTES and expected == VARINT:  # numbers packed one after the other
                offset, packed = value
                values += [_signed(number) for number in _packed(packed, offset)]
            else:
                raise fault(position, f"{name} is not written as wire type {wire}")

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def numbers(self, name: str) -> list[int]:
        """All numbers of a repeated field."""
        return self._fields.get(name, [])

    def number(self, name: str) -> int:
        """The number of a field; 0 where it is missing, as protobuf has it."""
        return self._fields[name][-1] if self._fields.get(name) else 0

    def text(self, name: str) -> str:
        """The text of a field; empty where it is missing.

        Raises:
          ShardingError: ``syntax``, for what is no UTF-8.
        """
        if name not in self:
            return ""
        offset, raw = self._fields[name][-1]
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise fault(offset + error.start, f"{name} is no UTF-8") from None

    def messages(self, name: str, read: Callable[[bytes, int], T]) -> list[T]:
        """All messages of a repeated field, read by ``read(bytes, position)``."""
        return [read(raw, offset) for offset, raw in self._fields.get(name, ())]


def fault(position: int, what: str) -> ShardingError:
    """The error that tells of byte ``position``."""
    return ShardingError("syntax", f"byte {position}: {what}; this is no serialized OpSharding")


def _entries(data: bytes, start: int) -> Iterator[tuple[int, int, int, Any]]:
    """The entries of a message: position, field number, wire type, value.

    A varint is an unsigned number; what has a length is its position and its bytes.
    """
    at = 0
    while at < len(data):
        position = start + at
        key, at = _varint(data, at, start)
        number, wire = divmod(key, 8)
        if wire == VARINT:
            value, at = _varint(data, at, start)
            yield position, number, wire, value
            continue
        if wire == BYTES:
            size, at = _varint(data, at, start)
        elif wire in _SIZES:
            size = _SIZES[wire]
        else:
            raise fault(position, f"no field is written as wire type {wire}")
        if size > len(data) - at:
            raise fault(position, f"a field of {size} bytes, and {len(data) - at} are left")
        yield position, number, wire, (start + at, data[at : at + size])
        at += size


def _packed(data: bytes, start: int) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _varint(data, at, start)
        yield value


def _varint(data: bytes, at: int, start: int) -> tuple[int, int]:
    value = 0
    for index in range(at, min(at + 10, len(data))):
        value |= (data[index] & 0x7F) << 7 * (index - at)
        if data[index] < 0x80:
            return value, index + 1
    raise fault(start + at, "a number without an end")


def _signed(value: int) -> int:
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value
