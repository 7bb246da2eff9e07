"""Modules that differ are made smaller as long as they still do."""

import random
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))


def test_what_is_recorded_makes_the_same_module_again() -> None:
    from differential_modules import gspmd_module, shardy_module
    from differential_shrinking import Recorded, Replayed

    for make in (gspmd_module, shardy_module):
        for seed in range(20):
            source = Recorded(seed)
            text = make(source)
            assert text == make(random.Random(seed)) == make(Replayed(source.drawn))


def test_any_stream_makes_a_module() -> None:
    """Also one that is empty, or says nonsense."""
    from differential_modules import gspmd_module, shardy_module
    from differential_shrinking import Replayed

    from shardpass import load

    chance = random.Random(3)
    for make in (gspmd_module, shardy_module):
        for count in (0, 1, 7, 40):
            draws = [chance.choice((0, 0.5, 3, 0.999, 2**40 + 1)) for _ in range(count)]
            assert load(make(Replayed(draws)).encode()).main.name.value == "main"


def test_nothing_is_left_but_what_shows_it() -> None:
    from differential_modules import shardy_module
    from differential_shrinking import shrink

    word = "sharding_group"
    seed = next(n for n in range(200) if shardy_module(random.Random(n)).count(word) > 1)
    asked: list[int] = []

    def shows(texts: list[str]) -> list[bool]:
        asked.append(len(texts))
        return [word in text for text in texts]

    small = shrink(seed, shardy_module, shows)
    assert small.count(word) == 1
    assert small.count("%a1") == 0  # One argument is enough.
    assert max(asked) <= 100


def test_a_module_that_nothing_smaller_stands_for_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the oracle is asked so often and no more."""
    import differential_shrinking
    from differential_modules import gspmd_module

    monkeypatch.setattr(differential_shrinking, "_MOST", 1)
    monkeypatch.setattr(differential_shrinking, "_AT_ONCE", 20)
    asked: list[int] = []

    def shows(texts: list[str]) -> list[bool]:
        asked.append(len(texts))
        return [False] * len(texts)

    found = differential_shrinking.shrink(5, gspmd_module, shows)
    assert found == gspmd_module(random.Random(5))
    assert asked == [20]


def test_the_smallest_module_still_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the oracle dies of one op, a module with that op is left."""
    import differential
    import differential_shrinking

    asked: list[int] = []

    def ask(texts: list[str], what: str) -> list[str | None]:
        asked.append(len(texts))
        return [None if "case" in text else text for text in texts]

    monkeypatch.setattr(differential, "ask", ask)
    monkeypatch.setattr(differential_shrinking, "_MOST", 2)
    monkeypatch.setattr(differential_shrinking, "_AT_ONCE", 20)
    make = differential.WAYS["round trip"].make
    seed = next(n for n in range(200) if "stablehlo.case" in make(random.Random(n)))
    found = differential.smallest(differential.Difference("round trip", seed, "XLA aborts", ""))
    assert "stablehlo.case" in found
    assert len(found) < len(make(random.Random(seed)))
    assert asked == [20, 20]
