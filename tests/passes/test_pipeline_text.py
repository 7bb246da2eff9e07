"""The text of a pipeline: what it says, and where it is wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardpass.diagnostics import ShardingError
from shardpass.passes import parse_pipeline
from shardpass.passes.pipeline_text import NestText, OptionText, PassText


def options_of(text: str) -> list[tuple[str, str | None]]:
    (element,) = parse_pipeline(text)
    assert isinstance(element, PassText)
    return [(option.key, option.value) for option in element.options]


def test_passes_with_options_and_positions() -> None:
    text = " sp-a , sp-b{x=1 y} "
    assert parse_pipeline(text) == (
        PassText("sp-a", (), 1, "sp-a"),
        PassText("sp-b", (OptionText("x", "1", 13), OptionText("y", None, 17)), 8, "sp-b{x=1 y}"),
    )


def test_nesting() -> None:
    text = "builtin.module(cse,func.func( sdy-x{a=b} , cse ))"
    (module,) = parse_pipeline(text)
    assert isinstance(module, NestText)
    assert (module.anchor, module.offset, module.written) == ("builtin.module", 0, text)
    cse, function = module.elements
    assert cse == PassText("cse", (), 15, "cse")
    assert isinstance(function, NestText)
    assert function.written == "func.func( sdy-x{a=b} , cse )"
    assert [inner.written for inner in function.elements] == ["sdy-x{a=b}", "cse"]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("p{}", []),
        ("p{ }", []),
        ("p{a}", [("a", None)]),
        ("p{a=}", [("a", "")]),
        ("p{a=1\n\tb=2  c}", [("a", "1"), ("b", "2"), ("c", None)]),
        ('p{a="x y" b=\'{"}\'}', [("a", "x y"), ("b", '{"}')]),
        ('p{a=""}', [("a", "")]),
        ("p{mesh=data=2,model=4}", [("mesh", "data=2,model=4")]),
        (
            "p{a={b=c d={e}} f=[1, 2] g=<x (y)>}",
            [("a", "{b=c d={e}}"), ("f", "[1, 2]"), ("g", "<x (y)>")],
        ),
        ("p{rules=/a/b.c/r.toml}", [("rules", "/a/b.c/r.toml")]),
        ("p{a-b_c.d=e}", [("a-b_c.d", "e")]),
    ],
)
def test_options(text: str, options: list[tuple[str, str | None]]) -> None:
    assert options_of(text) == options


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("", "the pipeline is empty", 1),
        ("   ", "the pipeline is empty", 4),
        (",a", "expected a pass, found ','", 1),
        ("a,", "expected a pass, found the end", 3),
        ("a,,b", "expected a pass, found ','", 3),
        ("a b", "expected a comma or the end, found 'b'", 3),
        ("a)", "expected a comma or the end, found ')'", 2),
        ("a{x=1", 'the options of "a" are not closed', 2),
        ("a{x={1}", 'the options of "a" are not closed', 2),
        ("a{=1}", "expected an option, found '='", 3),
        ("a{x,y}", "expected an option, found ','", 4),
        ("a{x='1}", "the quote is not closed", 5),
        ('a{x="1"y=2}', "expected white space or a closing brace, found 'y'", 8),
        ("m(a", '"m(" is not closed', 1),
        ("m(,)", "expected a pass, found ','", 3),
        ("a{}{}", "expected a comma or the end, found '{'", 4),
        ("3d", "expected a pass, found '3'", 1),
        ("--sp-a", "expected a pass, found '-'", 1),
    ],
)
def test_faults_have_a_position(text: str, message: str, column: int) -> None:
    with pytest.raises(ShardingError) as caught:
        parse_pipeline(text)
    fault = caught.value.diagnostic
    assert (fault.slug, fault.message) == ("bad-pipeline", message)
    assert fault.excerpt is not None
    assert (fault.excerpt.text, fault.excerpt.column) == (text, column)


def test_the_caret_is_in_the_line_of_the_fault() -> None:
    with pytest.raises(ShardingError) as caught:
        parse_pipeline("sp-a,\n  sp-b{x=1},\n  ?")
    excerpt = caught.value.diagnostic.excerpt
    assert excerpt is not None
    assert (excerpt.text, excerpt.column) == ("  ?", 3)


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,8}", fullmatch=True)
PLAIN = st.text("abc123=,./:-+", max_size=8)
VALUES = st.one_of(
    st.none(),
    PLAIN,
    st.text("ab \t{}[]()<>'=,", max_size=8).map(lambda text: f'"{text}"'),
    st.tuples(PLAIN, PLAIN).map(lambda pair: f"{{{pair[0]} [{pair[1]}]}}"),
)
Shape = tuple[str, object]


def _options(pairs: list[tuple[str, str | None]]) -> str:
    return " ".join(key if value is None else f"{key}={value}" for key, value in pairs)


PASSES = st.tuples(NAMES, st.lists(st.tuples(NAMES, VALUES), max_size=3))
ELEMENTS = st.recursive(
    PASSES, lambda inner: st.tuples(NAMES, st.lists(inner, min_size=1, max_size=3).map(tuple))
)


def write(element: tuple[str, object], space: str) -> str:
    name, inside = element
    if isinstance(inside, tuple):
        return f"{name}({space}{f'{space},{space}'.join(write(e, space) for e in inside)}{space})"
    assert isinstance(inside, list)
    return f"{name}{{{space}{_options(inside)}{space}}}" if inside else name


def read(element: PassText | NestText) -> tuple[str, object]:
    if isinstance(element, NestText):
        return element.anchor, tuple(read(inner) for inner in element.elements)
    return element.name, [(option.key, option.value) for option in element.options]


def expected(element: tuple[str, object]) -> tuple[str, object]:
    name, inside = element
    if isinstance(inside, tuple):
        return name, tuple(expected(e) for e in inside)
    assert isinstance(inside, list)
    return name, [(k, v[1:-1] if v and v[0] == '"' else v) for k, v in inside]


@given(st.lists(ELEMENTS, min_size=1, max_size=3), st.sampled_from(["", " ", "\n "]))
def test_what_is_written_is_read(elements: list[tuple[str, object]], space: str) -> None:
    """Any pipeline, with or without white space; ``written`` reads as the same element again."""
    text = space + f"{space},{space}".join(write(e, space) for e in elements) + space
    parsed = parse_pipeline(text)
    assert [read(element) for element in parsed] == [expected(e) for e in elements]
    for element in parsed:
        assert text[element.offset :].startswith(element.written)
        (again,) = parse_pipeline(element.written)
        assert read(again) == read(element)


@given(st.text("ab-{}()=\"', \n.", max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        elements = parse_pipeline(text)
    except ShardingError as error:
        fault = error.diagnostic
    else:
        assert all(text[e.offset :].startswith(e.written) for e in elements)
        return
    assert fault.slug == "bad-pipeline"
    assert fault.excerpt is not None
    assert 1 <= fault.excerpt.column <= len(fault.excerpt.text) + 1
