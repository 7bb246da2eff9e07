"""RUN lines are read as lit reads them."""

from pathlib import Path

import pytest

from shardpass.lit.check_files import prefixes_of, readings_of, sections_of
from shardpass.lit.script import Run, Segment, comment_prefixes_of, run_lines

TEST = Path("suite/t.mlir")


def commands(text: str) -> list[tuple[int, str]]:
    return [(run.line, run.command) for run in run_lines(text)]


def test_continued_run_lines_are_read_as_one():
    runs = run_lines("// RUN: %shardpass opt %s \\\n// RUN:   | %filecheck %s --check-prefix SDY\n")
    assert [(run.line, run.command) for run in runs] == [
        (1, "%shardpass opt %s | %filecheck %s --check-prefix SDY")
    ]
    assert prefixes_of(readings_of(TEST, runs)) == {"SDY": 1}


def test_definitions_are_put_in_where_they_are_used():
    text = (
        "// DEFINE: %{pass} = --sp-a\n"
        "// DEFINE: %{run} = %shardpass opt \\\n"
        "// DEFINE:   %s %{pass}\n"
        "// RUN: %{run} | one\n"
        "// REDEFINE: %{pass} = --sp-b\n"
        "// RUN: %{run} | two\n"
    )
    assert commands(text) == [
        (4, "%shardpass opt %s --sp-a | one"),
        (6, "%shardpass opt %s --sp-b | two"),
    ]


def test_definitions_of_each_other_come_to_an_end():
    text = "// DEFINE: %{a} = %{b}\n// DEFINE: %{b} = %{a}\n// RUN: %{a}\n"
    assert [run.line for run in run_lines(text)] == [3]


def test_both_branches_of_a_choice_are_read():
    text = "# RUN: a %if jax-0.12+ %{ b %if x %{ c %} %} %else %{ d %{mine} %} e\n"
    (run,) = run_lines(text)
    assert run.command.split() == ["a", "b", "c", "d", "%{mine}", "e"]


def test_nothing_is_read_behind_the_end():
    assert commands("# RUN: a\n# END. of the sentence\n# RUN: b\n# END.\n# RUN: c\n") == [
        (1, "a"),
        (3, "b"),
    ]


def test_a_line_that_goes_on_nowhere_is_read():
    assert commands("# RUN: a \\\n") == [(1, "a")]


def test_commands_are_split_outside_of_quotes():
    run = Run(1, "a 'b|c' | d \"e;f\" && g; h || i 2>&1")
    assert run.segments == [
        Segment("", "a 'b|c'"),
        Segment("|", 'd "e;f"'),
        Segment("&&", "g"),
        Segment(";", "h"),
        Segment("||", "i 2>&1"),
    ]


@pytest.mark.parametrize(
    ("command", "prefixes"),
    [
        ("x | %filecheck %s", ["CHECK"]),
        ("x | FileCheck %s", ["CHECK"]),
        ("x | /usr/bin/FileCheck-18 --check-prefix=A %s", ["A"]),
        ("x | %filecheck %s --check-prefixes=A,B -check-prefix C", ["A", "B", "C"]),
        ("x | %my_check %s --check-prefix=A", ["A"]),
        ("x | %filecheck %S/other --check-prefix=A", []),
        ("x | %filecheck %t --check-prefix=A", []),
        ("filecheck_like %s", []),
        ("x", []),
    ],
)
def test_the_prefixes_that_are_read_from_the_file(command: str, prefixes: list[str]):
    readings = readings_of(TEST, [Run(1, command)])
    assert list(prefixes_of(r for r in readings if r.is_of_test)) == prefixes


@pytest.mark.parametrize(
    ("command", "part", "file"),
    [
        ("x | %filecheck %s", None, None),
        ("x | %filecheck %S/Inputs/a.checks", None, "suite/Inputs/a.checks"),
        ("x | %filecheck --check-prefix A %p/b < %t", None, "suite/b"),
        ("%filecheck '%S/b' --input-file %t", None, "suite/b"),
        ("%filecheck < %t.out --dump-input fail %{/S:real}/b", None, "suite/b"),
        ("x 2>&1 | FileCheck --input-file=%t.out 2>&1 %t/parts/a.mlir", "parts/a.mlir", None),
        ("x | /usr/bin/FileCheck-18 --check-prefix=A %t/a", "a", None),
    ],
)
def test_where_filecheck_reads(command: str, part: str | None, file: str | None):
    (found,) = readings_of(TEST, [Run(1, "rm -rf %t && split-file -a %s %t"), Run(2, command)])
    assert (found.line, found.part, found.file) == (2, part, file and Path(file))


@pytest.mark.parametrize("command", ["x | %filecheck %t.a/b", "x | %filecheck %t/a", "x"])
def test_what_a_test_makes_is_not_read_before(command: str):
    assert readings_of(TEST, [Run(1, "split-file %s %t.dir"), Run(2, command)]) == []


def test_the_parts_of_a_test():
    text = "// RUN: x\n\n//--- a\none\n#--- b/c.mlir \n// ----- \nthree\n"
    split = [Run(1, "%split-file %s %t")]
    assert [(s.name, s.first, s.last) for s in sections_of(text, split)] == [
        (None, 1, 2),
        ("a", 3, 4),
        ("b/c.mlir", 5, 7),
    ]
    assert [(s.name, s.first, s.last) for s in sections_of(text, [])] == [(None, 1, 7)]


def test_the_comment_prefixes_of_filecheck():
    runs = [Run(1, "x | %filecheck %s --comment-prefixes=SAY,NB")]
    assert comment_prefixes_of(runs) == {"SAY", "NB"}


@pytest.mark.parametrize(
    "command",
    [
        "%shardpass opt %s %S %t %t1 %t.mlir %/s %{s:stem} --devices %devices | %filecheck %s",
        "not env A=%{pathsep} %{/t:real} 100%% %basename_t",
    ],
)
def test_substitutions_of_lit_and_of_the_kit_are_known(command: str):
    assert not Run(1, command).has_unknown_substitutions


@pytest.mark.parametrize("command", ["%tool %s", "%{mine} %s", "%shardpasses", "%split"])
def test_others_are_the_suites_own(command: str):
    assert Run(1, command).has_unknown_substitutions
