"""Cut a file into the parts that its markers name: LLVM's ``split-file``, for lit tests.

    python tools/split_file.py FILE FOLDER [--leading-lines]

A line of ``//--- NAME``, or of any one character and ``--- NAME`` (``#--- NAME``), starts the part
NAME, which goes to ``FOLDER/NAME`` with everything up to the next marker, byte for byte. What
stands in front of the first marker, the RUN lines as a rule, goes nowhere. With ``--leading-lines``
each part begins with as many empty lines as there are lines above it in FILE, so that a tool that
reads the part reports the line numbers of FILE.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

_MARKER = re.compile(rb"(?P<mark>//--- |.--- )(?P<name>.*)", re.DOTALL)


class SplitError(Exception):
    """What is wrong with the file or the folder, with the line where there is one."""


def split(data: bytes, *, leading_lines: bool = False) -> dict[str, bytes]:
    """The parts of a file by name, in order.

    Raises:
      SplitError: there is no marker, or a name is empty, has white space around it, occurs twice,
        or leads out of the folder. The message starts with the line's number, if it has one.
    """
    parts: dict[str, list[bytes]] = {}
    part: list[bytes] | None = None
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        marker = _MARKER.fullmatch(line.rstrip(b"\r\n"))
        if marker is None:
            if part is not None:
                part.append(line)
            continue
        name = marker["name"].decode(errors="surrogateescape")
        if not name:
            raise SplitError(f"{number}: a marker without the name of a part")
        if name != name.strip():
            raise SplitError(f"{number}: white space around the name of a part: {name!r}")
        if name in parts:
            raise SplitError(f"{number}: a second part is named {name}")
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise SplitError(f"{number}: {name} leads out of the folder")
        part = parts[name] = [b"\n" * number] if leading_lines else []
    if not parts:
        raise SplitError("no line marks a part, as //--- NAME does")
    return {name: b"".join(lines) for name, lines in parts.items()}


def write(parts: dict[str, bytes], folder: Path) -> None:
    """Write each part under the folder, which is made; a file in its place gives way.

    Raises:
      SplitError: something under the folder is in the way.
    """
    try:
        if folder.is_file():
            folder.unlink()
        for name, content in parts.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    except OSError as error:
        raise SplitError(f"{error.filename}: {error.strerror}") from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Split the file; the exit status is 1, with one line of why, where that cannot be done."""
    parser = argparse.ArgumentParser(description="Cut a file into the parts its markers name.")
    parser.add_argument("file", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--leading-lines",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="start each part with empty lines, so that line numbers are those of FILE",
    )
    options = parser.parse_args(arguments)
    try:
        parts = split(options.file.read_bytes(), leading_lines=options.leading_lines)
        write(parts, options.folder)
    except SplitError as error:
        place = f"{options.file}:" if re.match(r"\d+: ", str(error)) else f"{options.file}: "
        print(f"split_file: error: {place}{error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"split_file: error: {options.file}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
