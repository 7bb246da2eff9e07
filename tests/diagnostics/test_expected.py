"""``expected-error`` comments against what was reported."""

from dataclasses import replace

import pytest

from shardpass.diagnostics import Diagnostic, Note, Severity, SourceLocation
from shardpass.diagnostics.expected import read_expectations, verify


def said(
    line: int | None,
    message: str = "6 elements into 4 pieces",
    severity: Severity = Severity.ERROR,
    slug: str = "indivisible",
    file: str = "-",
) -> Diagnostic:
    place = None if line is None else SourceLocation(file, line, 1)
    return Diagnostic(severity, slug, message, place)


def faults(text: str, *reported: Diagnostic, first_line: int = 1) -> list[tuple[str, int, str]]:
    return [
        (d.slug, d.location.line if d.location else -1, d.message)
        for d in verify(text, reported, first_line=first_line)
    ]


@pytest.mark.parametrize(
    ("comment", "line"),
    [
        ("// expected-error {{6 elements}}", 3),
        ("// expected-error @+1 {{6 elements}}", 4),
        ("// expected-error@+2 {{6 elements}}", 5),
        ("// expected-error @-2 {{6 elements}}", 1),
        ("// expected-error @below {{6 elements}}", 4),
        ("// expected-error @above {{6 elements}}", 2),
        ("// expected-error @unknown {{6 elements}}", None),
        ("op // expected-error {{error[indivisible]: 6 elements into 4 pieces}}", 3),
        ("  // expected-error {{6 elements}}   ", 3),
        ("// expected-error-re {{{{[0-9]+}} elements into {{.*}} pieces}}", 3),
        ("// expected-error-re @below {{^error{{.}}indivisible]: 6}}", 4),
    ],
)
def test_where_a_comment_looks(comment: str, line: int | None) -> None:
    text = f"one\ntwo\n{comment}\nfour\nfive\n"
    if "^" not in comment:
        assert faults(text, said(line)) == []
    wrong = 9 if line != 9 else 1
    assert [slug for slug, *_ in faults(text, said(wrong))] == ["unmet-expectation"] * 2


def test_a_regex_stands_between_literal_text() -> None:
    """What is outside the inner braces is literal, dots and brackets included."""
    text = "// expected-error-re {{error[mlir]: a.b {{[xy]}}!}}"
    assert faults(text, said(1, "a.b x!", slug="mlir")) == []
    assert len(faults(text, said(1, "aXb x!", slug="mlir"))) == 2
    assert len(faults(text, said(1, "a.b z!", slug="mlir"))) == 2


def test_literal_text_is_not_a_regex() -> None:
    assert faults('// expected-error {{[{"x"}, {}]}}', said(1, 'is [{"x"}, {}] on x=2')) == []
    assert len(faults("// expected-error {{a.b}}", said(1, "aXb"))) == 2


def test_severity_counts() -> None:
    warning = said(1, severity=Severity.WARNING)
    assert faults("// expected-warning {{6 elements}}", warning) == []
    assert faults("// expected-error {{6 elements}}", warning) == [
        (
            "unmet-expectation",
            1,
            "unexpected warning[indivisible]: 6 elements into 4 pieces",
        ),
        ("unmet-expectation", 1, "expected error was not reported: 6 elements"),
    ]


def test_remarks_count_only_where_some_are_expected() -> None:
    remark = said(1, "left whole", Severity.REMARK, "replicated")
    other = said(2, "left whole", Severity.REMARK, "replicated")
    assert faults("nothing expected", remark) == []
    text = "// expected-remark {{left whole}}\n"
    assert faults(text, remark) == []
    assert faults(text, remark, other) == [
        ("unmet-expectation", 2, "unexpected remark[replicated]: left whole")
    ]


def test_one_comment_may_be_met_several_times() -> None:
    text = "// expected-error {{6 elements}}\n"
    assert faults(text, said(1), said(1, "6 elements into 5 pieces")) == []


def test_equal_comments_are_each_to_be_met() -> None:
    both = "// expected-error @+2 {{6 elements}}\n// expected-error @+1 {{6 elements}}\n"
    assert faults(both, said(3), said(3, "6 elements into 5 pieces")) == []
    assert faults(both, said(3)) == [
        ("unmet-expectation", 2, "expected error was not reported: 6 elements")
    ]


def test_above_and_below_pass_over_lines_with_comments() -> None:
    text = """\
op
// expected-warning @above {{a}}
// expected-error @above {{b}}
// expected-error @below {{c}}
// expected-warning @below {{d}}
op // expected-remark {{e}}
op
"""
    warning, remark = Severity.WARNING, Severity.REMARK
    found = [said(1, "a", warning), said(1, "b"), said(7, "c"), said(7, "d", warning)]
    assert faults(text, *found, said(6, "e", remark)) == []
    assert len(faults(text, said(2, "a", warning), *found[1:], said(6, "e", remark))) == 2


def test_notes_are_met_at_their_own_places() -> None:
    error = replace(said(3), attached=(Note("defined here", SourceLocation("-", 1, 5)),))
    text = "op // expected-note {{defined here}}\n\nop // expected-error {{6 elements}}\n"
    assert faults(text, error) == []
    assert faults("\n\n// expected-error {{6 elements}}", error) == [
        ("unmet-expectation", 1, "unexpected note: defined here")
    ]
    assert faults(text, said(3)) == [
        ("unmet-expectation", 1, "expected note was not reported: defined here")
    ]


def test_notes_without_a_place_count_where_some_are_expected() -> None:
    error = replace(said(2), notes=("on mesh x=2", "at axis x"))
    assert faults("\n// expected-error {{6 elements}}", error) == []
    text = "// expected-note @+1 {{on mesh}}\n// expected-error {{6 elements}}\n"
    assert faults(text, error) == [("unmet-expectation", 2, "unexpected note: at axis x")]


@pytest.mark.parametrize("text", ["pad to 8", "help: pad to 8", "help: pad"])
def test_help_may_be_expected(text: str) -> None:
    error = replace(said(2), notes=("on mesh x=2",), help="pad to 8")
    other = replace(said(2, "another"), help="drop it")
    assert (
        faults(f"// expected-note @+1 {{{{{text}}}}}\nx // expected-error {{{{6 el}}}}", error)
        == []
    )
    # Nor is help ever wanted, nor its note by a comment about the help.
    both = "// expected-error @+1 {{6 el}}\nx // expected-error {{another}}\n"
    assert faults(both, error, other) == []
    assert faults(f"{both}// expected-note @-1 {{{{{text}}}}}", error, other) == []


def test_help_is_met_where_it_is_given() -> None:
    error = replace(said(2), notes=("on mesh x=2",), help="pad to 8")
    wanted = "// expected-note @{} {{{{{}}}}}\n// expected-error {{{{6 elements}}}}"
    unmet = "expected note was not reported: "
    assert faults(wanted.format("+1", "help: drop"), error) == [
        ("unmet-expectation", 2, "unexpected note: on mesh x=2"),
        ("unmet-expectation", 1, f"{unmet}help: drop"),
    ]
    assert [found[2] for found in faults(wanted.format("+0", "pad to"), error)] == [
        "unexpected note: on mesh x=2",
        f"{unmet}pad to",
    ]
    # It is no error, whatever it says.
    assert faults("\n// expected-error {{6 elements}}\n// expected-error @-1 {{pad}}", error) == [
        ("unmet-expectation", 3, "expected error was not reported: pad")
    ]
    assert (
        faults("// expected-note @+1 {{note: pad}}\n// expected-error {{6 elements}}", error) != []
    )


def test_only_what_is_expected_may_count() -> None:
    warning = said(2, "left whole", Severity.WARNING, "replicated")
    text = "// expected-error {{6 elements}}\n"
    assert verify(text, [said(1), warning], level="only-expected") == []
    missing, near = verify(text, [said(1, severity=Severity.WARNING)], level="only-expected")[::-1]
    assert missing.message == "expected error was not reported: 6 elements"
    assert near.notes == ("expected here is: error",)


def test_a_place_in_another_file_counts_as_none() -> None:
    elsewhere = said(1, file="rules.toml")
    assert faults("// expected-error @unknown {{6 elements}}", elsewhere) == []
    assert faults("// expected-error {{6 elements}}", elsewhere) == [
        ("unmet-expectation", 1, "unexpected error[indivisible]: 6 elements into 4 pieces"),
        ("unmet-expectation", 1, "expected error was not reported: 6 elements"),
    ]


def test_faults_name_the_file_that_was_verified() -> None:
    text = "// expected-error {{a}}\n// expected-eror {{b}}"
    reported = [said(7, file="m.mlir")]
    found = verify(text, reported, file="m.mlir")
    assert [str(d.location) for d in found] == ["m.mlir:2:1", "m.mlir:7:1", "m.mlir:1:1"]


def test_lines_count_from_where_the_part_starts() -> None:
    text = "// expected-error @+1 {{6 elements}}\nop\n"
    assert faults(text, said(12), first_line=11) == []
    assert len(faults(text, said(2), first_line=11)) == 2


def test_line_feeds_alone_end_a_line() -> None:
    """MLIR counts neither form feeds nor Unicode's separators as the end of a line."""
    text = "// one\f two\u2028 three\x1d\n// expected-error {{6 elements}}\r\n"
    assert faults(text, said(2)) == []


@pytest.mark.parametrize(
    "comment",
    [
        "// expected-eror {{a}}",
        "// expected-errors {{a}}",
        "// expected-notes {{a}}",
        "// expected-error a",
        "// expected-error {{a}",
        "// expected-error {a}",
        "// expected-error @+ {{a}}",
        "// expected-error @under {{a}}",
        "// expected-error {{a}} or so",
        "// expected-error-regex {{a}}",
        "// expected-error @+1",
    ],
)
def test_a_misspelt_comment_is_a_fault(comment: str) -> None:
    expectations, found = read_expectations(f"\n{comment}\n")
    assert expectations == []
    assert [(d.slug, d.location and d.location.line) for d in found] == [("syntax", 2)]
    assert found[0].excerpt is not None
    assert found[0].excerpt.text == comment
    assert faults(f"\n{comment}\n")[0][2] == (
        "not a comment of the form expected-error @+1 {{text}}"
    )


def test_a_regex_that_does_not_compile_is_a_fault() -> None:
    (fault,) = verify("// expected-error-re {{a {{[}} b}}", [])
    assert fault.slug == "syntax"
    assert fault.message.startswith("the regex does not compile: ")
    assert fault.location == SourceLocation("-", 1, 1)


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        (
            "// expected-error-re @+1 {{[0-9]+ elements}}",
            "a regex stands in double braces of its own: expected-error-re {{cut into {{.*}}}}",
        ),
        (
            "// expected-error-re {{a {{b}}",
            "the double braces around the regex are not closed",
        ),
    ],
)
def test_a_regex_outside_of_inner_braces_is_a_fault(comment: str, message: str) -> None:
    """It would be compared literally, and never met."""
    expectations, found = read_expectations(comment)
    assert expectations == []
    assert [(d.slug, d.message) for d in found] == [("syntax", message)]


def test_prose_is_not_a_comment() -> None:
    assert read_expectations("an expected-error in prose\n// we expected errors here\n") == ([], [])


def test_posix_classes_are_read_as_mlir_reads_them(recwarn: pytest.WarningsRecorder) -> None:
    text = "// expected-error-re {{cut into {{[[:digit:]]+}} {{[^[:space:]]+}}}}\n"
    (expectation,), faults = read_expectations(text)
    assert faults == []
    assert expectation.pattern.search("error[x]: 6 cut into 4 pieces")
    assert not expectation.pattern.search("error[x]: 6 cut into four pieces")
    assert len(recwarn) == 0
