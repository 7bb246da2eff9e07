"""What a pipeline's text makes of the options of a pass, by the types of its fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Optional

import pytest

from shardpass.diagnostics import ShardingError
from shardpass.passes import Pass, build
from shardpass.passes.base import option
from shardpass.passes.option_text import fields_without_reader

if TYPE_CHECKING:
    from collections.abc import Sized


@dataclass(frozen=True, kw_only=True)
class Typed(Pass):
    """Have options."""

    name: ClassVar[str] = "acme-typed"
    flag: bool = option(False, help="")
    count: int = option(1, help="")
    share: float = option(0.5, help="")
    word: str = option("w", help="")
    may_count: int | None = option(None, help="")
    may_flag: "bool | None" = None  # noqa: UP037
    old_style: Optional[float] = option(None, help="")  # noqa: UP045
    anything: Any = option(None, help="")
    sizes: tuple[int, ...] = option(
        (), help="", parse=lambda text: tuple(map(int, text.split("x")))
    )
    state: int = dataclasses.field(default=0, init=False)


@dataclass(frozen=True, kw_only=True)
class Untold(Pass):
    """Have options that no text can set."""

    name: ClassVar[str] = "acme-untold"
    sizes: tuple[int, ...] = (1, 2)
    names: list[str] = dataclasses.field(default_factory=list)
    call: Callable[[], None] | None = None
    late: Sized | None = None
    either: int | str | None = None
    fine: int = 3


@dataclass(frozen=True, kw_only=True)
class Needy(Pass):
    """Have an option without a default."""

    name: ClassVar[str] = "acme-needy"
    width: int


def made(text: str, cls: type[Pass] = Typed) -> Any:
    (found,) = build(text, [cls])
    return found


def fault(text: str, cls: type[Pass] = Typed) -> tuple[str, str | None]:
    with pytest.raises(ShardingError) as caught:
        build(text, [cls])
    assert caught.value.slug == "bad-option"
    return caught.value.diagnostic.message, caught.value.diagnostic.help


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("", Typed()),
        ("flag", Typed(flag=True)),
        ("flag=no may-flag", Typed(flag=False, may_flag=True)),
        ("may-flag=false", Typed(may_flag=False)),
        ("count=-3 share=1e3 word=3", Typed(count=-3, share=1000.0, word="3")),
        ("may-count=7 old-style=2", Typed(may_count=7, old_style=2.0)),
        ("anything=7", Typed(anything="7")),
        ("sizes=2x3", Typed(sizes=(2, 3))),
    ],
)
def test_a_text_becomes_what_the_field_is(options: str, wanted: Typed) -> None:
    found = made(f"acme-typed{{{options}}}")
    assert found == wanted
    assert [type(value) for value in vars(found).values()] == [
        type(value) for value in vars(wanted).values()
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("count=x", "option \"count\" of acme-typed: 'x' is not a whole number"),
        ("may-count=1.5", "option \"may-count\" of acme-typed: '1.5' is not a whole number"),
        ("may-flag=2", "option \"may-flag\" of acme-typed: '2' is not true or false"),
        ("old-style=x", "option \"old-style\" of acme-typed: 'x' is not a number"),
        ("word", 'option "word" of acme-typed: needs a value'),
        ("state=1", 'acme-typed has no option "state"'),
    ],
)
def test_a_text_that_does_not_fit(options: str, message: str) -> None:
    assert fault(f"acme-typed{{{options}}}")[0] == message


def test_no_field_gets_a_raw_text_that_is_of_another_type() -> None:
    assert [*fields_without_reader(Typed)] == []
    assert [*fields_without_reader(Untold)] == [
        ("sizes", "tuple"),
        ("names", "list[str]"),
        ("call", "Callable[[], None] | None"),
        ("late", "Sized | None"),
        ("either", "int | str | None"),
    ]
    assert made("acme-untold{fine=4}", Untold).fine == 4
    assert fault("acme-untold{sizes=1}", Untold)[0] == (
        'option "sizes" of acme-untold: no text becomes tuple; it wants a reader, '
        "option(…, parse=…)"
    )


def test_annotations_need_not_be_deferred() -> None:
    """A module without ``from __future__ import annotations`` holds the types themselves."""
    now = dataclasses.make_dataclass(
        "Now",
        [
            ("a", int | None, None),
            ("b", Optional[str], None),  # noqa: UP045
            ("c", Any, None),
            ("d", bool),
            ("e", list[int], dataclasses.field(default_factory=list)),
        ],
        bases=(Pass,),
        frozen=True,
        kw_only=True,
        namespace={"name": "acme-now"},
    )
    assert [*fields_without_reader(now)] == [("e", "list[int]")]
    found = made("acme-now{a=1 b=2 c=3 d}", now)
    assert (found.a, found.b, found.c, found.d) == (1, "2", "3", True)


def test_an_option_without_a_default_is_asked_for() -> None:
    assert made("acme-needy{width=2}", Needy) == Needy(width=2)
    assert fault("cse,acme-needy", Needy) == (
        'acme-needy needs its option "width"',
        "acme-needy{width=…}",
    )
