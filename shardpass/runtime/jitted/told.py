"""What a ``jax.jit`` is told of a plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shardpass.runtime.jitted.planning import Boundary, Placed, Plan


@dataclass(frozen=True)
class Told:
    """What a ``jax.jit`` knows of the plan.

    Attributes:
      boundary: its shardings; all of them are open before there is a plan.
      loose: arguments, leaf by leaf, that it takes wherever they lie.
      rewritten: whether its module goes through the pipeline.
    """

    boundary: Boundary = field(default_factory=Boundary)
    loose: frozenset[int] = frozenset()
    rewritten: bool = False

    @property
    def arguments(self) -> tuple[Placed, ...]:
        """Its shardings for the arguments."""
        places = enumerate(self.boundary.arguments)
        return tuple(None if n in self.loose else place for n, place in places)


class AnotherBoundaryError(ValueError):
    """In the middle of a trace: these arguments are for another ``jax.jit``.

    Attributes:
      plan: what that one is to be told of; ``None`` for the one that is told nothing.
      trees: of the arguments and results.
      rewritten: whether its module is to go through the pipeline.
    """

    def __init__(self, plan: Plan | None, trees: Any = None, *, rewritten: bool = False) -> None:
        super().__init__()
        self.plan = plan
        self.trees = trees
        self.rewritten = rewritten


def expect(told: Told, plan: Plan | None, trees: Any = None, *, rewritten: bool = False) -> None:
    """Go on only if a ``jax.jit`` knows what it has to: of ``plan``, or nothing.

    Raises:
      AnotherBoundaryError: if not.
    """
    needed = Boundary() if plan is None else plan.boundary
    if told.boundary != needed or told.rewritten != rewritten:
        raise AnotherBoundaryError(plan, trees, rewritten=rewritten)
