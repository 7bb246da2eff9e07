"""RUN lines are read as lit reads them."""

import pytest

from shardpass.lit.script import Run, Segment, comment_prefixes_of, prefixes_of, run_lines


def commands(text: str) -> list[tuple[int, str]]:
    return [(run.line, run.command) for run in run_lines(text)]


def test_continued_run_lines_are_read_as_one():
    runs = run_lines("// RUN: %shardpass opt %s \\\n// RUN:   | %filecheck %s --check-prefix SDY\n")
    assert [(run.line, run.command) for run in runs] == [
        (1, "%shardpass opt %s | %filecheck %s --check-prefix SDY")
    ]
    assert prefixes_of(runs) == {"SDY": 1}


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
    assert list(prefixes_of([Run(1, command)])) == prefixes


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
