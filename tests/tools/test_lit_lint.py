"""What this project wants of its lit tests, beside what every suite does."""

from pathlib import Path

import pytest
from lit_lint import own_faults, pass_faults
from lit_passes import PassSource, passes_in

PASSES = Path("lit_tests/passes")
NAMES = ["sp-annotate", "sp-merge-meshes", "sp-merge"]
RUN = "// RUN: %shardpass opt %s --sp-annotate | %filecheck %s\n"


def messages(text: str, path: Path) -> list[str]:
    found = own_faults(path, text, NAMES, PASSES)
    return [f"{fault.location.line}: {fault.message}" for fault in found if fault.location]


def test_a_test_of_its_pass_has_no_faults():
    assert messages(RUN, PASSES / "annotate.mlir") == []


@pytest.mark.parametrize("word", ["XFAIL", "REQUIRES", "UNSUPPORTED", "TODO", "FIXME"])
def test_no_test_is_skipped_or_left_over(word: str):
    (found,) = messages(f"{RUN}// {word}: x\n", PASSES / "annotate.mlir")
    assert found.startswith(f"2: {word}: a test is neither skipped")


@pytest.mark.parametrize("program", ["FileCheck", "filecheck", "python"])
def test_no_program_of_the_machine_is_run(program: str):
    text = RUN.replace("%filecheck", program)
    assert messages(text, PASSES / "annotate.mlir") == [
        f"1: {program}: write %shardpass or %filecheck"
    ]


@pytest.mark.parametrize("flag", ["--sp-strip", "--sp-annotated"])
def test_a_test_runs_the_pass_that_it_is_named_after(flag: str):
    found = messages(RUN.replace("--sp-annotate", flag), PASSES / "annotate-errors.mlir")
    assert found == ["1: no RUN line runs sp-annotate"]


def test_a_file_named_after_no_pass_is_a_fault():
    found = messages(RUN, PASSES / "anotate.mlir")
    assert found == ["1: no pass is named sp-anotate; did you mean annotate.mlir?"]


def test_files_elsewhere_need_not_be_named_after_a_pass():
    assert messages(RUN, Path("lit_tests/cli/anything.mlir")) == []


def test_passes_are_read_from_their_sources(tmp_path: Path):
    source = (
        "class First:\n    pass\n\n\n"
        'class DropMeshes(Pass):\n    name: ClassVar[str] = "sp-drop-meshes"\n'
    )
    path = tmp_path / "drop_meshes.py"
    path.write_text(source)
    assert passes_in(tmp_path) == [PassSource("sp-drop-meshes", "DropMeshes", path, 6)]


def test_a_pass_whose_names_differ_or_without_a_test_is_a_fault(tmp_path: Path):
    (tmp_path / "right.mlir").touch()
    passes = [
        PassSource("sp-right", "Right", Path("right.py"), 3),
        PassSource("sp-two-words", "Twowords", Path("two_word.py"), 3),
    ]
    assert [fault.message for fault in pass_faults(passes, tmp_path)] == [
        "sp-two-words belongs in two_words.py",
        "sp-two-words is the name of a class TwoWords",
        "sp-two-words has no lit test passes/two-words.mlir",
    ]
