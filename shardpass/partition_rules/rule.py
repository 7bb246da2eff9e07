"""One rule: which values or ops it speaks of, and the spec that they get."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

from shardpass.diagnostics import Diagnostic, Excerpt, ShardingError
from shardpass.partition_rules.source import Origin
from shardpass.partition_rules.spec import Spec, SpecLike

ANY_SIZE = "?"
"""The entry of ``shape`` that holds for every size."""


@dataclass(frozen=True, init=False)
class Rule:
    """A condition and a spec. A rule speaks of arguments and results, or of ops, never of both.

    Attributes:
      match: a regex searched in the dotted path of an argument or result, and in its raw spelling.
      spec: what a value that fits gets.
      op: a regex for the whole name of an op with its dialect: ``stablehlo.dot_general``.
      loc: a regex searched in the names of an op's location: name stack and ``file:line``.
      rank: the number of dimensions that the value must have.
      shape: the sizes that the value must have; ``"?"`` holds for every size.
      origin: where the rule is written, if it comes from a file.
    """

    match: str | None
    spec: Spec
    op: str | None
    loc: str | None
    rank: int | None
    shape: tuple[int | str, ...] | None
    origin: Origin | None = field(compare=False, repr=False)

    def __init__(
        self,
        match: str | re.Pattern[str] | None = None,
        spec: SpecLike = (),
        *,
        op: str | re.Pattern[str] | None = None,
        loc: str | re.Pattern[str] | None = None,
        rank: int | None = None,
        shape: Sequence[int | str] | None = None,
        origin: Origin | None = None,
    ) -> None:
        """Check each part.

        Raises:
          ShardingError: ``bad-regex``; ``bad-spec``; ``bad-rules``, those of all parts in one
            error. Where the parts are sound, ``bad-rules`` for conditions that cannot hold
            together; ``scalar-spec`` or ``rank-mismatch`` where ``rank`` or ``shape`` already tell
            that the spec is too long.
        """
        settle = object.__setattr__
        settle(self, "origin", origin)
        faults: list[Diagnostic] = []
        for key, value, check in (
            ("match", match, partial(_pattern_text, "match")),
            ("op", op, partial(_pattern_text, "op")),
            ("loc", loc, partial(_pattern_text, "loc")),
            ("spec", spec, Spec.of),
            ("rank", rank, _checked_rank),
            ("shape", shape, _checked_shape),
        ):
            try:
                with placing(origin, key):
                    settle(self, key, check(value))
            except ShardingError as error:
                faults += error.diagnostics
        if faults:
            raise ShardingError.of(faults)
        with placing(origin, None):
            self._check_together()
        with placing(origin, "spec"):
            self._check_length()

    @property
    def speaks_of_ops(self) -> bool:
        """Whether it is about the results of ops rather than arguments and results."""
        return self.op is not None or self.loc is not None

    def fits_shape(self, shape: Sequence[int | None]) -> bool:
        """Whether ``rank`` and ``shape`` hold."""
        if self.rank is not None and len(shape) != self.rank:
            return False
        if self.shape is None:
            return True
        return len(shape) == len(self.shape) and all(
            wanted in (ANY_SIZE, size) for wanted, size in zip(self.shape, shape, strict=True)
        )

    def names_exactly(self, path: str, raw: str) -> bool:
        """Whether ``match`` can match nothing but ``path`` or ``raw``, and is meant for it.

        That is a pattern anchored at both ends with nothing but literal characters between. One
        that sweeps may happen to hit a single name; that says nothing about what was meant.
        """
        spelt_out = _ANCHORED.fullmatch(self.match) if self.match else None
        return spelt_out is not None and _literal(spelt_out["body"]) in (path, raw)

    def place(self, diagnostic: Diagnostic, key: str | None = None) -> Diagnostic:
        """``diagnostic`` at the line of ``key`` in the rules file, if there is one."""
        return self.origin.place(diagnostic, key) if self.origin else diagnostic

    def with_spec(self, spec: SpecLike) -> Rule:
        """The same conditions with another spec."""
        return replace(self, spec=Spec.of(spec))

    def __str__(self) -> str:
        parts = [
            f"{key} = {_toml(value)}"
            for key in ("match", "op", "loc", "rank", "shape")
            if (value := getattr(self, key)) is not None
        ]
        return ", ".join([*parts, f"spec = {self.spec}"])

    def _check_together(self) -> None:
        conditions = (self.match, self.op, self.loc, self.rank, self.shape)
        if all(condition is None for condition in conditions):
            raise ShardingError(
                "bad-rules",
                'a rule needs a "match", "op", "loc", "rank" or "shape"',
                help='match = "" holds for every argument and result, op = ".*" for every op',
            )
        if self.match is not None and self.speaks_of_ops:
            other = "op" if self.op is not None else "loc"
            raise ShardingError(
                "bad-rules",
                f'"match" is about arguments and results, "{other}" about ops, a rule about one',
                help="write two rules",
            )
        if self.rank is not None and self.shape is not None and len(self.shape) != self.rank:
            raise ShardingError(
                "bad-rules",
                f"rank = {self.rank} and a shape of rank {len(self.shape)} never hold together",
                help="drop rank",
            )

    def _check_length(self) -> None:
        rank = len(self.shape) if self.shape is not None else self.rank
        if rank is not None and len(self.spec.dims) > rank:
            raise too_long(self.spec, rank)


def too_long(spec: Spec, rank: int, *, subject: str = "", help: str | None = None) -> ShardingError:
    """The error for a spec with more entries than the value has dimensions."""
    entries = f"{len(spec.dims)} {'entry' if len(spec.dims) == 1 else 'entries'}"
    before = f"{subject}: " if subject else ""
    if rank == 0:
        return ShardingError(
            "scalar-spec",
            f"{before}a spec of {entries} for a scalar",
            help=help or "a scalar can only be replicated: write spec = []",
            excerpt=Excerpt(str(spec), 1, len(str(spec))),
        )
    return ShardingError(
        "rank-mismatch",
        f"{before}a spec of {entries} for {rank} dimension{'s' if rank > 1 else ''}",
        help=help
        or f"drop {len(spec.dims) - rank}, or narrow the rule with rank = {len(spec.dims)}",
        excerpt=Excerpt(str(spec), 1, len(str(spec))),
    )


@contextmanager
def placing(origin: Origin | None, key: str | None) -> Iterator[None]:
    """Give an error that passes through the place of ``key`` in ``origin``."""
    try:
        yield
    except ShardingError as error:
        if origin is None:
            raise
        placed = [d if d.location else origin.place(d, key) for d in error.diagnostics]
        raise ShardingError.of(placed) from error


def _pattern_text(key: str, value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, re.Pattern):
        flags = "".join(c for c, flag in _FLAGS.items() if value.flags & flag)
        value = f"(?{flags}){value.pattern}" if flags else value.pattern
    if not isinstance(value, str):
        raise ShardingError(
            "bad-rules",
            f'"{key}" is a regular expression, not {value!r} of type {type(value).__name__}',
            help=f'write {key} = "..."',
        )
    try:
        re.compile(value)
    except re.error as error:
        raise ShardingError(
            "bad-regex",
            f"{error.msg} at position {error.pos or 0} of {key}",
            help=_regex_help(key, value, error.msg),
            excerpt=Excerpt.at(value, error.pos or 0),
        ) from None
    if key == "op" and "." not in value and _literal(value.strip("^$")) is not None:
        raise ShardingError(
            "bad-rules",
            f'"{value}" is not the name of an op with its dialect, and would match none',
            help=f'write op = "stablehlo.{value}"',
            excerpt=Excerpt(value, 1, max(1, len(value))),
        )
    return value


def _toml(value: Any) -> str:
    if isinstance(value, str) and "'" not in value and value.isprintable():
        return f"'{value}'" if "\\" in value else json.dumps(value, ensure_ascii=False)
    return json.dumps(list(value) if isinstance(value, tuple) else value)


#: What Python's re says where a character that was meant as itself can be the reason.
_BY_A_CHARACTER = (
    "missing )",
    "unbalanced parenthesis",
    "unterminated character set",
    "bad character range",
    "nothing to repeat",
    "multiple repeat",
    "unknown extension",
)
_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE, "a": re.ASCII}


def _regex_help(key: str, value: str, fault: str) -> str:
    if value.startswith("*"):
        return 'this is a regular expression, not a glob: write ".*" for any text'
    if fault.startswith("look-behind"):
        return "write alternatives of one length each: (?<=ab|cd), or one look-behind for each"
    if not fault.startswith(_BY_A_CHARACTER):
        return f'"{key}" is a regular expression: see Python\'s re'
    if key == "match":
        return "put a backslash before a character that is meant as itself"
    return f'"{key}" is a regular expression: see Python\'s re'


def _checked_rank(rank: Any) -> int | None:
    if rank is None or (isinstance(rank, int) and not isinstance(rank, bool) and rank >= 0):
        return rank
    raise ShardingError(
        "bad-rules", f'"rank" is a number of dimensions, not {rank!r}', help="write rank = 2"
    )


def _checked_shape(shape: Any) -> tuple[int | str, ...] | None:
    if shape is None:
        return None
    if isinstance(shape, (list, tuple)) and all(
        size == ANY_SIZE or (isinstance(size, int) and not isinstance(size, bool) and size >= 0)
        for size in shape
    ):
        return tuple(shape)
    raise ShardingError(
        "bad-rules",
        f'"shape" is a list of sizes, not {shape!r}',
        help='write shape = [50304, "?"], where "?" is any size',
    )


_ANCHORED = re.compile(r"(?:\^|\\A)(?P<body>.*)(?:\$|\\Z)", re.DOTALL)
_CHARACTER = re.compile(r"\\(\W)|([^\\.*+?{}\[\]()|^$])|(.)", re.DOTALL)


@lru_cache(1024)
def _literal(pattern: str) -> str | None:
    """The one text that ``pattern`` spells out; ``None`` if it has any other meaning."""
    pieces: list[str] = []
    for found in _CHARACTER.finditer(pattern):
        if found[3] is not None:
            return None
        pieces.append(found[1] if found[1] is not None else found[2])
    return "".join(pieces)
