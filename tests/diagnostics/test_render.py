"""Diagnostics as people read them, and as programs do."""

import json

import pytest

from shardpass.diagnostics import (
    Diagnostic,
    Excerpt,
    Severity,
    ShardingError,
    SourceLocation,
    did_you_mean,
    render,
    summary,
)
from shardpass.diagnostics.slugs import SLUGS

WHOLE = Diagnostic(
    Severity.ERROR,
    "indivisible",
    'argument 0 ("wq"), dimension 1: 6 elements into 4 pieces',
    SourceLocation("model.mlir", 6, 1),
    Excerpt("func.func @main() {", 1, 4),
    "wq",
    ('sharding is [{"x"}, {"y"}] on mesh x=2, y=4', "a second fact"),
    "pad to 8, or drop an axis",
)


def test_everything_that_a_diagnostic_can_say() -> None:
    assert render(WHOLE) == (
        'model.mlir:6:1: error[indivisible]: argument 0 ("wq"), dimension 1: 6 elements into 4 '
        "pieces\n"
        "func.func @main() {\n"
        "^^^^\n"
        '  note: sharding is [{"x"}, {"y"}] on mesh x=2, y=4\n'
        "  note: a second fact\n"
        "  help: pad to 8, or drop an axis"
    )
    assert str(WHOLE) == render(WHOLE)


def test_nothing_but_a_sentence() -> None:
    bare = Diagnostic(Severity.WARNING, "unused-rule", "rule 2 matched nothing")
    assert render(bare) == "warning[unused-rule]: rule 2 matched nothing"


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (SourceLocation("a.mlir"), "a.mlir"),
        (SourceLocation("a.mlir", 7), "a.mlir:7"),
        (SourceLocation("a.mlir", 7, 3), "a.mlir:7:3"),
        (SourceLocation("a.mlir", 0, 3), "a.mlir"),
    ],
)
def test_a_place_shows_what_is_known(place: SourceLocation, text: str) -> None:
    assert str(place) == text


def underlined(excerpt: Excerpt) -> list[str]:
    return render(Diagnostic(Severity.ERROR, "syntax", "bad", excerpt=excerpt)).split("\n")[1:]


def test_tabs_in_front_of_the_caret_stay_tabs() -> None:
    assert underlined(Excerpt("\ta\tbc", 4, 2)) == ["\ta\tbc", "\t \t^^"]


def test_the_caret_may_stand_behind_the_end() -> None:
    assert underlined(Excerpt("abc", 4)) == ["abc", "   ^"]


def test_nothing_is_shown_of_a_blank_line() -> None:
    for text in ("", "  ", "\t"):
        assert underlined(Excerpt(text, 1)) == []


def test_the_underline_ends_with_the_text() -> None:
    assert underlined(Excerpt("abc", 2, 40)) == ["abc", " ^^"]


@pytest.mark.parametrize("column", [1, 2, 79, 80, 81, 200, 5000, 9998, 9999, 10_000])
def test_a_long_line_is_cut_around_the_caret(column: int) -> None:
    """160 columns at most, and the caret under the very character that it was under."""
    text = "".join(chr(0x4E00 + i) for i in range(10_000))
    line, caret = underlined(Excerpt(text, column))
    assert len(line) == 160
    assert line[caret.index("^")] == text[column - 1]
    assert caret.strip() == "^"
    assert line.startswith("...") == (column > 80)
    assert line.endswith("...") == (column < 9920)


def test_a_long_line_with_the_caret_behind_its_end() -> None:
    line, caret = underlined(Excerpt("a" * 500, 501))
    assert line == "..." + "a" * 157
    assert caret == " " * 160 + "^"


@pytest.mark.parametrize(
    ("offset", "length", "expected"),
    [
        (0, 1, Excerpt("ab", 1, 1)),
        (1, 9, Excerpt("ab", 2, 1)),
        (2, 1, Excerpt("ab", 3, 1)),
        (3, 1, Excerpt("cde", 1, 1)),
        (4, 2, Excerpt("cde", 2, 2)),
        (6, 1, Excerpt("cde", 4, 1)),
        (99, 1, Excerpt("cde", 4, 1)),
        (-5, 1, Excerpt("ab", 1, 1)),
    ],
)
def test_the_line_of_an_offset(offset: int, length: int, expected: Excerpt) -> None:
    assert Excerpt.at("ab\ncde", offset, length) == expected


def test_json_has_every_field_and_leaves_out_absent_ones() -> None:
    assert json.loads(json.dumps(WHOLE.to_json())) == {
        "severity": "error",
        "slug": "indivisible",
        "message": 'argument 0 ("wq"), dimension 1: 6 elements into 4 pieces',
        "location": {"file": "model.mlir", "line": 6, "column": 1},
        "excerpt": {"text": "func.func @main() {", "column": 1, "length": 4},
        "path": "wq",
        "notes": ['sharding is [{"x"}, {"y"}] on mesh x=2, y=4', "a second fact"],
        "help": "pad to 8, or drop an axis",
    }
    bare = Diagnostic(Severity.REMARK, "replicated", "left whole")
    assert bare.to_json() == {"severity": "remark", "slug": "replicated", "message": "left whole"}


def test_a_slug_outside_the_catalogue_is_refused() -> None:
    with pytest.raises(LookupError, match="'no-such-slug' is not in the catalogue"):
        Diagnostic(Severity.ERROR, "no-such-slug", "bad")
    with pytest.raises(LookupError, match="'no-such-slug'"):
        ShardingError("no-such-slug", "bad")


def test_slugs_are_short_names_with_a_meaning() -> None:
    for slug, meaning in SLUGS.items():
        assert slug == slug.lower().replace("_", "-").strip()
        assert meaning
        assert not meaning.endswith(".")


def test_a_place_is_filled_in_where_there_is_none() -> None:
    bare = Diagnostic(Severity.ERROR, "syntax", "bad")
    here, there = SourceLocation("a", 1), SourceLocation("b", 2)
    assert bare.at(here, Excerpt("x")).location == here
    assert bare.at(here).at(there, Excerpt("x")) == Diagnostic(
        Severity.ERROR, "syntax", "bad", here, Excerpt("x")
    )


@pytest.mark.parametrize(
    ("severities", "text"),
    [
        ([], ""),
        (["remark"], ""),
        (["error"], "1 error"),
        (["warning", "error", "error"], "2 errors, 1 warning"),
        (["warning", "remark", "warning"], "2 warnings"),
    ],
)
def test_summary(severities: list[str], text: str) -> None:
    assert summary(Diagnostic(Severity(s), "syntax", "bad") for s in severities) == text


def test_the_nearest_name_is_suggested() -> None:
    known = ["sp-annotate", "sp-propagate"]
    assert did_you_mean("sp-anotate", known) == 'did you mean "sp-annotate"?'
    assert did_you_mean("sdy", known) is None
    assert did_you_mean("x", []) is None
