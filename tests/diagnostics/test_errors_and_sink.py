"""The exception that carries diagnostics, and the place where they are collected."""

import copy
import pickle

import pytest

from shardpass.diagnostics import (
    Diagnostic,
    Excerpt,
    Severity,
    ShardingError,
    Sink,
    SourceLocation,
)

PLACE = SourceLocation("rules.toml", 3, 9)


def full() -> ShardingError:
    return ShardingError(
        "bad-regex",
        "the regex does not compile",
        help="close the bracket",
        notes=["rule 2", "of 3"],
        path="params.w",
        location=PLACE,
        excerpt=Excerpt("a[b", 2, 2),
    )


def test_an_error_is_a_value_error_with_a_diagnostic() -> None:
    error = full()
    assert isinstance(error, ValueError)
    assert error.slug == "bad-regex"
    assert error.diagnostic == Diagnostic(
        Severity.ERROR,
        "bad-regex",
        "the regex does not compile",
        PLACE,
        Excerpt("a[b", 2, 2),
        "params.w",
        ("rule 2", "of 3"),
        "close the bracket",
    )
    assert error.diagnostics == (error.diagnostic,)


def test_text_of_an_error() -> None:
    assert str(full()) == (
        "rules.toml:3:9: the regex does not compile\n  a[b\n   ^^\n  note: rule 2\n  note: of 3\n"
        "  help: close the bracket"
    )
    assert str(ShardingError("syntax", "no")) == "no"
    assert str(ShardingError("syntax", "no", help="yes")) == "no (yes)"


def test_text_of_an_error_about_a_long_line_is_short() -> None:
    error = ShardingError("mlir", "bad", excerpt=Excerpt("\t" + "x" * 1_000_000, 500_000))
    message, line, caret = str(error).split("\n")
    assert message == "bad"
    assert len(line) == 162
    assert caret.index("^") == 81


def test_text_of_an_error_keeps_the_caret_behind_tabs() -> None:
    error = ShardingError("mlir", "bad", excerpt=Excerpt("\tab", 3))
    assert str(error) == "bad\n  \tab\n  \t ^"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_survives_pickling(protocol: int) -> None:
    warning = Diagnostic(Severity.WARNING, "unused-rule", "rule 1 matched nothing")
    error = ShardingError.of([warning, full().diagnostic])
    again = pickle.loads(pickle.dumps(error, protocol))
    assert type(again) is ShardingError
    assert again.diagnostics == error.diagnostics == (warning, full().diagnostic)
    assert again.diagnostic == full().diagnostic
    assert str(again) == str(error)
    assert again.args == error.args


def test_an_error_survives_copying() -> None:
    assert copy.deepcopy(full()).diagnostics == full().diagnostics


def test_the_first_error_stands_in_front() -> None:
    warning = Diagnostic(Severity.WARNING, "replicated", "whole")
    first = Diagnostic(Severity.ERROR, "syntax", "one")
    second = Diagnostic(Severity.ERROR, "mlir", "two")
    error = ShardingError.of([warning, first, second])
    assert (error.slug, str(error)) == ("syntax", "one")
    assert error.diagnostics == (warning, first, second)


def test_a_sink_keeps_order_and_holds_equal_ones_once() -> None:
    sink = Sink()
    sink.warning("replicated", "b", path="w", notes=["n"])
    sink.remark("replicated", "a")
    sink.warning("replicated", "b", path="w", notes=["n"])
    sink.warning("replicated", "b", path="v", notes=["n"])
    assert [(d.severity.value, d.message, d.path) for d in sink] == [
        ("warning", "b", "w"),
        ("remark", "a", None),
        ("warning", "b", "v"),
    ]
    assert len(sink) == 3
    assert sink.diagnostics[0].notes == ("n",)


def test_a_sink_without_errors_raises_nothing() -> None:
    sink = Sink()
    sink.warning("replicated", "whole")
    assert not sink.has_errors
    sink.raise_errors()
    assert len(sink) == 1


def test_a_sink_raises_all_that_it_holds() -> None:
    sink = Sink()
    sink.warning("replicated", "whole")
    sink.error("syntax", "one", location=PLACE, excerpt=Excerpt("x"), help="h")
    sink.report_error(ShardingError.of([full().diagnostic]))
    assert sink.has_errors
    with pytest.raises(ShardingError) as caught:
        sink.raise_errors()
    assert caught.value.diagnostics == sink.diagnostics
    assert [d.slug for d in caught.value.diagnostics] == ["replicated", "syntax", "bad-regex"]
    assert caught.value.diagnostic.location == PLACE


@pytest.mark.parametrize(
    ("location", "text"),
    [
        (SourceLocation("a.toml", 3, 9), "a.toml:3:9: bad"),
        (SourceLocation("a.toml", 3), "a.toml:3: bad"),
        (SourceLocation("a.hlo", name="dot.1"), 'a.hlo: "dot.1": bad'),
        # A message about a file as a whole names it.
        (SourceLocation("a.toml"), "bad"),
        (SourceLocation("-", 3, 9), "bad"),
        (None, "bad"),
    ],
)
def test_the_place_stands_in_the_text(location: SourceLocation | None, text: str) -> None:
    assert str(ShardingError("syntax", "bad", location=location)) == text
