"""MLIR's quoted strings and symbol names, as its parser reads and its printer writes them.

A backslash stands before a quote, a backslash, ``n``, ``t`` or two hex digits; the printer writes
everything but printable ASCII as the hex digits of its UTF-8 bytes.
"""

from __future__ import annotations

import re

_ESCAPE = re.compile(rb'\\(["\\nt]|[0-9a-fA-F]{2})')
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_PLAIN_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_.$]*")


def quote(text: str) -> str:
    """``text`` as MLIR prints a string, quotes included."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(map(_escaped, text.encode()))}"'


def unquote(inside: str) -> str | None:
    """What stands ``inside`` the quotes, unescaped; ``None`` where no string can say that."""
    raw = inside.encode()
    if b"\\" in _ESCAPE.sub(b"", raw):
        return None
    try:
        return _ESCAPE.sub(_unescaped, raw).decode()
    except UnicodeDecodeError:
        return None


def for_people(text: str) -> str:
    """MLIR's ``text`` with each quoted string in it as it was before it was escaped.

    A string that cannot be printed stays as it is. The other way is not to be had.
    """
    return _QUOTED.sub(_shown, text) if "\\" in text else text


def _shown(match: re.Match[str]) -> str:
    inside = unquote(match[1])
    return f'"{inside}"' if inside is not None and inside.isprintable() else match[0]


def symbol(name: str) -> str:
    """``@mesh``, or ``@"my mesh"`` where quotes are needed."""
    return f"@{name}" if _PLAIN_SYMBOL.fullmatch(name) else f"@{quote(name)}"


def _unescaped(match: re.Match[bytes]) -> bytes:
    code = match[1]
    if len(code) == 2:
        return bytes([int(code, 16)])
    return {b"n": b"\n", b"t": b"\t"}.get(code, code)


def _escaped(byte: int) -> str:
    if byte == ord("\\"):
        return "\\\\"
    return chr(byte) if 32 <= byte < 127 and byte != ord('"') else f"\\{byte:02X}"
