"""Parts of a file: where they begin, and what is in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardpass.cli.opt.parts import BORDER, parts_of


def test_a_file_that_is_not_cut_is_one_part() -> None:
    (part,) = parts_of(b"a\n// -----\nb", None)
    assert (part.data, part.first_line, part.is_cut_out) == (b"a\n// -----\nb", 1, False)


def test_each_part_knows_its_line() -> None:
    text = b"// RUN: x\n// -----\n\na\n// ----- more\nb\n  // -----\nc"
    found = [(p.index, p.data, p.first_line, p.line) for p in parts_of(text, BORDER)]
    assert found == [
        (0, b"// RUN: x\n", 1, 1),
        (1, b"\n\na\n", 2, 4),
        (2, b"\nb\n  // -----\nc", 5, 6),
    ]


@pytest.mark.parametrize("border", ["//===", "{(*", "-"])
def test_other_borders(border: str) -> None:
    text = f"a\n{border}\nb\n".encode()
    assert [p.data for p in parts_of(text, border)] == [b"a\n", b"\nb\n"]


@pytest.mark.parametrize(
    ("text", "is_empty"),
    [(b"", True), (b"\n // x\n\n", True), (b"// x\nop // y", False)],
)
def test_emptiness(text: bytes, is_empty: bool) -> None:
    assert parts_of(text, BORDER)[0].is_empty is is_empty


@given(st.lists(st.text("ab/- \n", max_size=12).map(str.encode), min_size=1, max_size=5))
def test_lines_stay_where_they_are(pieces: list[bytes]) -> None:
    """In front of a part stand as many line breaks as in the file, so that MLIR counts alike."""
    text = b"\n// -----\n".join(pieces)
    lines = text.split(b"\n")
    for part in parts_of(text, BORDER):
        for number, line in enumerate(part.in_place.split(b"\n")):
            if line:
                assert line == lines[number]
