"""The smallest module in which ``tools/differential.py`` still finds a difference.

A generated module is what a stream of random numbers makes it. The stream is recorded, and shorter
and simpler ones are tried: parts left out, numbers replaced by nought. Whatever numbers come, the
generator makes a module of them, so that no candidate is void. All candidates of a round go to the
oracle together, since each of its children takes seconds to start.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence

#: What `random.Random` draws: a float below 1, or some bits.
Draw = float | int
Make = Callable[[random.Random], str]
#: Which of several modules still show the difference.
Shows = Callable[[list[str]], list[bool]]

#: How many candidates go to the oracle at a time, and how often.
_AT_ONCE = 100
_MOST = 60
#: The most draws that one thing of several takes, an op or an argument.
_LONGEST = 16
_TAILS = 0.99


class Recorded(random.Random):
    """A generator that writes down all that it draws; the same as ``random.Random(seed)``."""

    def __init__(self, seed: int) -> None:
        """``seed``: as there."""
        super().__init__(seed)
        self.drawn: list[Draw] = []

    def random(self) -> float:
        """As in the base, and written down."""
        self.drawn.append(value := super().random())
        return value

    def getrandbits(self, k: int, /) -> int:
        """As in the base, and written down."""
        self.drawn.append(value := super().getrandbits(k))
        return value


class Replayed(random.Random):
    """A generator that gives what it is told to, and nought from then on."""

    def __init__(self, draws: Sequence[Draw]) -> None:
        """``draws``: in order; one of the wrong kind gives something of the right one."""
        super().__init__(0)
        self._draws = iter(draws)

    def random(self) -> float:
        """The next draw."""
        value = next(self._draws, 0.0)
        return value if isinstance(value, float) else 0.0

    def getrandbits(self, k: int, /) -> int:
        """The next draw, as many of its bits as asked for."""
        return int(next(self._draws, 0)) & ((1 << k) - 1)


def shrink(seed: int, make: Make, shows: Shows) -> str:
    """A module as small as can be found that still shows what the one of ``seed`` shows."""
    source = Recorded(seed)
    text = make(source)
    drawn: list[Draw] = source.drawn
    asked = 0
    tried = {text}
    found = True
    while found:
        found = False
        for candidates in _batches(drawn, text, make, tried):
            if asked == _MOST:
                return text
            asked += 1
            texts = sorted(candidates, key=_size)
            still = [one for one, shown in zip(texts, shows(texts), strict=True) if shown]
            if still:
                drawn, text = candidates[still[0]], still[0]
                found = True
                break
    return text


def _batches(
    drawn: list[Draw], text: str, make: Make, tried: set[str]
) -> Iterator[dict[str, list[Draw]]]:
    """Smaller modules than ``text`` that were not tried yet, and the streams they come from."""
    candidates: dict[str, list[Draw]] = {}
    for draws in itertools.chain(_simpler(drawn), _fewer(drawn)):
        made = make(Replayed(draws))
        if made not in tried and _size(made) < _size(text):
            tried.add(made)
            candidates[made] = draws
        if len(candidates) == _AT_ONCE:
            yield candidates
            candidates = {}
    if candidates:
        yield candidates


def _simpler(drawn: list[Draw]) -> Iterator[list[Draw]]:
    """Streams with a part left out or noughts in its place, large parts first."""
    size = len(drawn)
    while size:
        for start in range(0, len(drawn), max(1, size // 2)):
            rest = drawn[start + size :]
            yield drawn[:start] + rest
            part = drawn[start : start + size]
            if any(part):
                yield drawn[:start] + [type(draw)(0) for draw in part] + rest
            # A coin that shows tails.
            if size == 1 and isinstance(part[0], float) and part[0] < _TAILS:
                yield [*drawn[:start], _TAILS, *rest]
        size //= 2


def _fewer(drawn: list[Draw]) -> Iterator[list[Draw]]:
    """Streams with one number less, and a part left out behind it: one of so many things."""
    for place, draw in enumerate(drawn):
        if not isinstance(draw, int) or not draw:
            continue
        for less in {0, draw - 1}:
            head = [*drawn[:place], less]
            for start in range(place + 1, len(drawn)):
                for size in range(1, min(_LONGEST, len(drawn) - start) + 1):
                    yield head + drawn[place + 1 : start] + drawn[start + size :]


def _size(text: str) -> tuple[int, int, str]:
    return text.count("\n"), len(text), text
