"""Which arguments of a call are static or donated, by their places and by their names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax

from shardpass.diagnostics import ShardingError, did_you_mean

_BY_PLACE: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)

Numbers = int | Sequence[int] | None
Names = str | Iterable[str] | None


@dataclass(frozen=True)
class Chosen:
    """Some arguments of a function, however they are passed.

    Attributes:
      numbers: their places, where they are passed by position; negative ones count from the end.
      names: their names, where they are passed by name.
    """

    numbers: tuple[int, ...]
    names: frozenset[str]

    @classmethod
    def of(cls, function: Callable[..., Any], numbers: Numbers, names: Names, what: str) -> Chosen:
        """Read ``static_argnums`` and ``static_argnames``, as ``jax.jit`` does.

        Where one of the two is not given, it is found by the function's signature.

        Raises:
          ShardingError: ``bad-argument`` for a name that no parameter has.
        """
        parameters = _parameters(function)
        chosen = (numbers,) if isinstance(numbers, int) else tuple(numbers or ())
        called = (names,) if isinstance(names, str) else tuple(names or ())
        by_place = [p.name for p in parameters if p.kind in _BY_PLACE]
        takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
        for name in called if parameters and not takes_any else ():
            if name not in {p.name for p in parameters}:
                raise ShardingError(
                    "bad-argument",
                    f'{what} names "{name}", and {_name(function)} has no such parameter',
                    help=did_you_mean(name, [p.name for p in parameters]),
                )
        if names is None:
            called = tuple(by_place[n] for n in chosen if -len(by_place) <= n < len(by_place))
        if numbers is None:
            chosen = tuple(by_place.index(name) for name in called if name in by_place)
        return cls(chosen, frozenset(called))

    def places(self, count: int, names: Sequence[str]) -> frozenset[int]:
        """Where they are in a call with ``count`` positional arguments and then those ``names``."""
        found = {n % count for n in self.numbers if count and -count <= n < count}
        found |= {count + place for place, name in enumerate(names) if name in self.names}
        return frozenset(found)


def by_position(
    function: Callable[..., Any], count: int, names: Sequence[str]
) -> inspect.Signature | None:
    """The signature of ``function`` where all arguments of a call are passed by position.

    Args:
      function: the function.
      count: how many were.
      names: the names of the others, which stand behind them.
    """
    if not names:
        return None  # Its own will do.
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    first = [p.name for p in _parameters(function) if p.kind in _BY_PLACE][:count]
    first += [f"argument_{place}" for place in range(len(first), count)]
    return inspect.Signature([inspect.Parameter(name, kind) for name in (*first, *names)])


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", repr(function))


@dataclass(frozen=True)
class Arrangement:
    """How many arguments come by position, and which by name, where there are no static ones.

    Attributes:
      count: those by position.
      names: those by name, in alphabetical order.
    """

    count: int
    names: tuple[str, ...] = ()

    def by_position(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """All arguments by position.

        Raises:
          TypeError: for any others.
        """
        if len(args) != self.count or sorted(kwargs) != list(self.names):
            raise TypeError(
                f"the function was lowered for {self._said(self.count, self.names)}, and is called "
                f"with {self._said(len(args), sorted(kwargs))}"
            )
        return (*args, *(kwargs[name] for name in self.names))

    def apart(self, pair: Any) -> Any:
        """``(args, {})``, all of them by position, as ``(args, kwargs)``."""
        args, _ = pair
        return tuple(args[: self.count]), dict(zip(self.names, args[self.count :], strict=True))

    def tree(self, tree: Any) -> Any:
        """The structure of such a pair in the same way."""
        leaves = [object() for _ in range(tree.num_leaves)]
        return jax.tree.structure(self.apart(jax.tree.unflatten(tree, leaves)))

    @staticmethod
    def _said(count: int, names: Sequence[str]) -> str:
        by_name = f" and {', '.join(names)} by name" if names else ""
        return f"{count} by position{by_name}"
