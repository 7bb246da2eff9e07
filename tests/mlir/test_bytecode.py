"""The frame of bytecode: what MLIR wrote passes, and what does not add up is told of."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from shardpass.cli import guard
from shardpass.mlir import Module, load
from shardpass.mlir.bytecode import MAGIC, fault_in

HEAD = MAGIC + b"\x0dMLIR\0"


def varint(value: int) -> bytes:
    """In as few bytes as it has room in."""
    size = max(1, -(-value.bit_length() // 7))
    return ((value << 1 | 1) << (size - 1)).to_bytes(size, "little")


def section(kind: int, content: bytes) -> bytes:
    return bytes([kind]) + varint(len(content)) + content


def file(**changed: bytes) -> bytes:
    """Bytecode with its sections, some of them as said; it need not mean anything."""
    sections = {
        "strings": varint(2) + varint(3) + varint(5) + b"abcd\0xy\0",
        "dialects": b"",
        "attributes": b"\x07" * 300,
        # Two attributes and a type, of dialects 0 and 1.
        "offsets": varint(2)
        + varint(1)
        + (varint(0) + varint(2) + varint(100 << 1) + varint(150 << 1 | 1))
        + (varint(1) + varint(1) + varint(50 << 1)),
        "ir": b"\0",
        **changed,
    }
    kinds = {"strings": 0, "dialects": 1, "attributes": 2, "offsets": 3, "ir": 4}
    return HEAD + b"".join(section(kinds[name], found) for name, found in sections.items())


def test_what_mlir_writes_passes(module: Module, artifact: bytes) -> None:
    assert fault_in(module.bytecode()) is None
    assert fault_in(artifact) is None
    long = load("module {\n" + "\n".join(
        f'func.func private @f{n}() -> tensor<{n}xf32> attributes {{a = "{"x" * n}"}}'
        for n in range(1, 300)
    ) + "\nfunc.func @main() { return }}")  # fmt: skip
    assert fault_in(long.bytecode()) is None


def test_aligned_sections() -> None:
    """As MLIR writes resources: the data begins at a multiple, with filling in front."""
    start = file()
    before = start + b"\x85" + varint(2) + varint(16)
    whole = before + b"\xcb" * (-len(before) % 16) + b"ab"
    assert fault_in(whole) is None
    assert fault_in(whole[:-1]) is not None
    wrong = start + b"\x85" + varint(2) + varint(12) + b"ab"
    assert fault_in(wrong) == f"the section at byte {len(start)}: an alignment of 12"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (MAGIC, "the head at byte 4: 1 bytes, and 0 are left"),
        (MAGIC + b"\x0dMLIR", "the head at byte 5: a string without an end"),
        (HEAD, "it has no section of strings"),
        (HEAD + b"\0", "the head at byte 11: 1 bytes, and 0 are left"),
        (HEAD + b"\x00\x21abc", "the section of strings at byte 10: 16 bytes, and 3 are left"),
        (HEAD + b"\x09\x01", "the section at byte 10: there is none of number 9"),
        (file() + section(1, b""), f"the section at byte {len(file())}: a second one of dialects"),
        (file(strings=varint(9)), "9 strings in 0 bytes"),
        (
            file(strings=varint(1) + varint(9) + b"abc\0"),
            "strings of 9 bytes in a section with 4 left for them",
        ),
        (
            file(offsets=varint(1) + varint(0) + varint(0) + varint(5)),
            "a group of 5 attributes, and 1 are left",
        ),
        (
            file(offsets=varint(0) + varint(8) + varint(0) + varint(8)),
            "8 types in 0 bytes",
        ),
        (
            file(offsets=varint(1) + varint(0) + varint(0) + varint(1) + varint(299 << 1)),
            "attributes and types of 299 bytes in a section of 300",
        ),
        (
            file(offsets=varint(1) + varint(0)),
            "offsets of attributes and types at byte 332: 1 bytes, and 0 are left",
        ),
    ],
)
def test_what_does_not_add_up(data: bytes, said: str) -> None:
    assert fault_in(file()) is None
    assert fault_in(data) == said


def test_numbers_of_any_length() -> None:
    for size in (1, 127, 128, 20_000, 3_000_000):
        assert fault_in(file(ir=b"\0" * size)) is None
    nine = HEAD + b"\x04\x00" + (1).to_bytes(8, "little") + b"\0"
    assert fault_in(nine) == "it has no section of strings"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*fork.*:RuntimeWarning")
def test_reading_without_an_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kernel, since nothing of Python's runs meanwhile; time that is enough ends nothing."""
    monkeypatch.setattr(guard, "_TO_READ", 0.2)
    ends = [_end_of(task) for task in (_without_end, _soon_done)]
    assert ends == [-signal.SIGPROF, 7]


def _end_of(task: Any) -> int:
    child = os.fork()
    if child == 0:
        with guard._in_time(1000):  # pyright: ignore[reportPrivateUsage]
            task()
        _burn(0.5)
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _without_end() -> None:
    _burn(30)


def _soon_done() -> None:
    Path("/").exists()


def _burn(seconds: float) -> None:
    end = os.times().user + seconds
    while os.times().user < end:
        pass
