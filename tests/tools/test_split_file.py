"""split_file cuts where LLVM's split-file does, and refuses what it cannot cut."""

from pathlib import Path

import pytest
from split_file import SplitError, main, split

TWO = b"""// RUN: split-file %s %t
//--- a.mlir
first
  //--- not.a.marker
//--- sub/b.mlir

last"""


def test_each_part_is_what_stands_behind_its_marker():
    assert split(TWO) == {
        "a.mlir": b"first\n  //--- not.a.marker\n",
        "sub/b.mlir": b"\nlast",
    }


def test_leading_lines_keep_the_numbers_of_lines():
    parts = split(TWO, leading_lines=True)
    assert parts["a.mlir"].split(b"\n").index(b"first") == TWO.split(b"\n").index(b"first")
    assert parts["sub/b.mlir"].split(b"\n").index(b"last") == TWO.split(b"\n").index(b"last")


@pytest.mark.parametrize("mark", [b"#--- x", b"//--- x", b";--- x"])
def test_any_one_character_marks_as_two_slashes_do(mark: bytes):
    assert split(mark + b"\nbody\n") == {"x": b"body\n"}


def test_carriage_returns_stay_in_parts_and_out_of_names():
    assert split(b"#--- x\r\nbody\r\n") == {"x": b"body\r\n"}


def test_a_marker_at_the_end_makes_an_empty_part():
    assert split(b"#--- x") == {"x": b""}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"//---x\n--- x\n", "no line marks a part, as //--- NAME does"),
        (b"\n//--- \n", "2: a marker without the name of a part"),
        (b"//---  x\n", "1: white space around the name of a part: ' x'"),
        (b"//--- x \n", "1: white space around the name of a part: 'x '"),
        (b"//--- x\n#--- x\n", "2: a second part is named x"),
        (b"//--- ../x\n", "1: ../x leads out of the folder"),
        (b"//--- /x\n", "1: /x leads out of the folder"),
    ],
)
def test_what_cannot_be_cut_is_said_with_its_line(text: bytes, message: str):
    with pytest.raises(SplitError) as caught:
        split(text)
    assert str(caught.value) == message


def test_the_program_writes_the_parts(tmp_path: Path):
    source, out = tmp_path / "in.test", tmp_path / "out"
    source.write_bytes(TWO)
    out.write_text("in the way")
    assert main([str(source), str(out)]) == 0
    assert (out / "a.mlir").read_bytes() == b"first\n  //--- not.a.marker\n"
    assert (out / "sub" / "b.mlir").read_bytes() == b"\nlast"


def test_the_program_says_what_it_cannot_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source, out = tmp_path / "in.test", tmp_path / "out"
    assert main([str(source), str(out)]) == 1
    source.write_bytes(b"//--- \n")
    assert main([str(source), str(out)]) == 1
    source.write_bytes(b"//--- a\n//--- a/b\n")
    assert main([str(source), str(out)]) == 1
    first, second, third = capsys.readouterr().err.splitlines()
    assert first == f"split_file: error: {source}: No such file or directory"
    assert second == f"split_file: error: {source}:1: a marker without the name of a part"
    assert third.startswith(f"split_file: error: {source}: {out / 'a'}")
    assert not (out / "a" / "b").exists()
