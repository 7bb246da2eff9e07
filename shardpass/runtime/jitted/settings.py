"""What holds for every call of one function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shardpass.runtime.jitted.planning import Plan, Plans
from shardpass.runtime.jitted.policy import Policy
from shardpass.runtime.jitted.signature import Chosen
from shardpass.runtime.jitted.telling import warn


@dataclass(frozen=True, eq=False)
class Settings:
    """What holds for every call of one function.

    Attributes:
      function: the user's.
      policy: what he asks for.
      plans: its plans, where it is the outermost one.
      plans_inside: its plans inside another function of ``shardpass.jit``.
      in_shardings: what the user has fixed: a tree, ``None`` where the plan decides.
      out_shardings: the same for the results.
      static: which arguments are static.
      donated: which are donated.
      own_pipeline: whether the user gave a pipeline.
      options: what else ``jax.jit`` is given.
      on_plan: is told each plan when it is first used, with these settings.
      rewrites: whether passes that change what the function computes are heeded, as far as this
        JAX allows.
      is_inside: whether other transformations are at work, in which all of a plan is constraints.
    """

    function: Callable[..., Any]
    policy: Policy
    plans: Plans
    plans_inside: Plans
    in_shardings: Any
    out_shardings: Any
    static: Chosen
    donated: Chosen
    own_pipeline: bool
    options: dict[str, Any]
    on_plan: Callable[[Settings, Plan], None]
    rewrites: bool = True
    is_inside: bool = False
    said: set[Any] = field(default_factory=set)
    plans_told: set[tuple[Plan, bool]] = field(default_factory=set)

    def tell(self, plan: Plan) -> None:
        """Tell the user of a plan that is about to be used, if he has not been."""
        if (plan, self.rewrites) not in self.plans_told:
            self.plans_told.add((plan, self.rewrites))
            self.on_plan(self, plan)

    def say_once(self, key: Any, text: Callable[[], str]) -> None:
        """Warn the user of something, if he has not been."""
        if key not in self.said:
            self.said.add(key)
            warn(text())
