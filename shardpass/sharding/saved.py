"""Reading of what was saved: plain JSON values, each with its place, and trusted in nothing.

A saved state may have been damaged, edited by hand or written by another version. So every value is
read through :class:`Saved`, which says what it must be and, where it is not, at which place:
``NamedSharding.mesh.axes[1]: a list is needed, not the text 'y'``.
"""

from __future__ import annotations

import contextlib
import itertools
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from shardpass.diagnostics import ShardingError, did_you_mean

T = TypeVar("T")

_WORDS = {
    bool: "the truth value",
    int: "the number",
    float: "the number",
    str: "the text",
    list: "the list",
    dict: "the object",
}


@dataclass(frozen=True, slots=True)
class Saved:
    """A value of a saved state, and where it stands: ``NamedSharding.mesh.axes[1]``."""

    value: Any
    place: str

    def error(self, message: str, *, help: str | None = None) -> ShardingError:
        """``bad-state``, said of this place."""
        return ShardingError("bad-state", f"{self.place}: {message}", help=help)

    def fields(self, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Saved]:
        """The entries of an object by key; an optional one that is ``null`` is left out.

        Raises:
          ShardingError: ``bad-state`` if it is no object, a required key is missing, or another
            key is there.
        """
        if type(self.value) is not dict:
            raise self._wrong("an object")
        for key in required:
            if key not in self.value:
                raise self.error(
                    f"the key {key!r} is missing", help=f"it has {_listed(self.value) or 'none'}"
                )
        known = (*required, *optional)
        for key in self.value:
            if key not in known:
                meant = did_you_mean(key, known) if isinstance(key, str) else None
                raise self.error(
                    f"the key {reprlib.repr(key)} means nothing here",
                    help=meant or f"the keys are {_listed(known)}",
                )
        return {
            key: Saved(value, f"{self.place}.{key}")
            for key, value in self.value.items()
            if value is not None or key in required
        }

    def items(self) -> list[Saved]:
        """The elements of a list.

        Raises:
          ShardingError: ``bad-state``.
        """
        if type(self.value) is not list:
            raise self._wrong("a list")
        return [Saved(value, f"{self.place}[{index}]") for index, value in enumerate(self.value)]

    def pair(self) -> tuple[Saved, Saved]:
        """The elements of a list of two.

        Raises:
          ShardingError: ``bad-state``.
        """
        items = self.items()
        if len(items) != 2:
            raise self.error(f"a list of 2 is needed, not of {len(items)}")
        return items[0], items[1]

    def text(self) -> str:
        """A text.

        Raises:
          ShardingError: ``bad-state``.
        """
        if type(self.value) is not str:
            raise self._wrong("a text")
        return self.value

    def whole(self) -> int:
        """A whole number, and no truth value.

        Raises:
          ShardingError: ``bad-state``.
        """
        if type(self.value) is not int:
            raise self._wrong("a whole number")
        return self.value

    def one_of(self, known: Mapping[str, T], what: str, owner: str) -> T:
        """What a text stands for.

        Args:
          known: text -> what it stands for.
          what: what it names, for the message: ``axis type``.
          owner: who knows those: ``jax 0.10.2``.

        Raises:
          ShardingError: ``bad-state``, if it is no text or stands for nothing.
        """
        text = self.text()
        if text not in known:
            shown = reprlib.repr(text)
            raise self.error(
                f"the {what} {shown} is unknown to {owner}, which has {_listed(known) or 'none'}",
                help=did_you_mean(text, known),
            )
        return known[text]

    @contextlib.contextmanager
    def building(self) -> Iterator[None]:
        """Say of this place what a constructor refuses meanwhile; its slug stays."""
        try:
            yield
        except ShardingError as error:
            if error.slug == "bad-state":  # Has a place, within this one.
                raise
            raise error.about(self.place) from None

    def _wrong(self, needed: str) -> ShardingError:
        if self.value is None:
            found = "null"
        else:
            word = _WORDS.get(type(self.value), f"a {type(self.value).__name__},")
            found = f"{word} {reprlib.repr(self.value)}"
        return self.error(f"{needed} is needed, not {found}")


def _listed(keys: Iterable[Any]) -> str:
    shown = [reprlib.repr(key) for key in itertools.islice(keys, 17)]
    return ", ".join([*shown[:16], "..."] if len(shown) > 16 else shown)
