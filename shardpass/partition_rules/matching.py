"""Finding the rule for a value, quickly: a module has thousands of ops and few rules.

The rules are split once into those about values and those about ops. For each op name the op rules
that its name lets through are found once; most names have none, so that their ops cost a look into
a dictionary and their locations are never read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from shardpass.partition_rules.rule import Rule

Shape = tuple[int, ...]

# Bounds what a long-lived process keeps; the largest modules seen have about 10,000 distinct ops.
_MOST_REMEMBERED = 65_536


@dataclass(frozen=True, slots=True)
class Match:
    """The rule that a value or op result gets.

    Attributes:
      index: its place among the rules, from 0.
      rule: the rule.
      others: the places of the later rules that hold as well.
      exact: whether the rule spells out this value's name, rather than sweeping over it.
    """

    index: int
    rule: Rule
    others: tuple[int, ...] = ()
    exact: bool = False


@dataclass(frozen=True, slots=True)
class _OpRule:
    index: int
    rule: Rule
    op: Callable[[str], object] | None
    loc: Callable[[str], object] | None


class Matcher:
    """Rules with their expressions compiled; the first rule that holds comes first."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = tuple(rules)
        self._value_rules = [
            (i, rule, re.compile(rule.match or "").search)
            for i, rule in enumerate(self._rules)
            if not rule.speaks_of_ops
        ]
        self._op_rules = [
            _OpRule(
                i,
                rule,
                re.compile(rule.op).fullmatch if rule.op is not None else None,
                re.compile(rule.loc).search if rule.loc is not None else None,
            )
            for i, rule in enumerate(self._rules)
            if rule.speaks_of_ops
        ]
        self._candidates: dict[str, tuple[_OpRule, ...]] = {}
        self._for_op = lru_cache(_MOST_REMEMBERED)(self._find_for_op)

    def for_value(self, path: str, raw: str, shape: Sequence[int]) -> Match | None:
        """The rule for an argument or result.

        Args:
          path: its dotted path (``st.h.0.fc.kernel``).
          raw: its name as the module spells it (``st['h'][0]['fc']['kernel'].value``).
          shape: global shape.
        """
        found = [
            (i, rule)
            for i, rule, search in self._value_rules
            if (search(path) or (raw != path and search(raw))) and rule.fits_shape(shape)
        ]
        return _match(found, exact=bool(found) and found[0][1].names_exactly(path, raw))

    def for_op(
        self, op_name: str, location_names: Sequence[str], shape: Sequence[int]
    ) -> Match | None:
        """The rule for one result of an op.

        Args:
          op_name: with its dialect (``stablehlo.dot_general``).
          location_names: the texts of its location: name stack, ``file:line``.
          shape: global shape of the result.
        """
        if not self.candidates(op_name):
            return None
        return self._for_op(op_name, tuple(location_names), tuple(shape))

    def candidates(self, op_name: str) -> tuple[_OpRule, ...]:
        """The op rules whose name condition holds; empty for most ops."""
        known = self._candidates.get(op_name)
        if known is None:
            known = tuple(r for r in self._op_rules if r.op is None or r.op(op_name))
            self._candidates[op_name] = known
        return known

    def reads_locations(self, op_name: str) -> bool:
        """Whether any rule for ``op_name`` looks at locations."""
        return any(rule.loc for rule in self.candidates(op_name))

    def _find_for_op(self, op_name: str, names: tuple[str, ...], shape: Shape) -> Match | None:
        return _match(
            [
                (r.index, r.rule)
                for r in self.candidates(op_name)
                if r.rule.fits_shape(shape) and (r.loc is None or any(map(r.loc, names)))
            ]
        )


def _match(found: list[tuple[int, Rule]], exact: bool = False) -> Match | None:
    if not found:
        return None
    (index, rule), *rest = found
    return Match(index, rule, tuple(i for i, _ in rest), exact)
