"""``sp-propagate``: Shardy's propagation, and a word where it is silent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from jax.extend.mlir import ir

from shardpass.diagnostics import Sink
from shardpass.passes.base import Look, Pass, Stage, option
from shardpass.passes.option_text import one_of
from shardpass.passes.partitioning.partial_results import REFUSE_LOST_PARTIAL_RESULTS
from shardpass.passes.shardy.expansion import expand, set_option, without
from shardpass.passes.shardy.hindsight import Hindsight
from shardpass.passes.shardy.survey import SURVEY

_PIPELINE = "sdy-propagation-pipeline"


@dataclass(frozen=True, kw_only=True)
class Propagate(Pass):
    """Run Shardy's propagation, and warn where it would say nothing.

    Shardings spread from arguments, results and constraints through the whole module; where an op
    needs its operands laid out otherwise, Shardy writes an ``sdy.reshard``. CHLO's ops, which
    Shardy does not know, are given their sharding rules.

    Warned of: a user's uneven sharding that Shardy rewrites, ops whose operands lie on different
    meshes (propagation stops there), and large values that stay whole on every device.
    An error: annotations in GSPMD's notation, and functions that call themselves.
    Leaves alone: what the user has closed.
    Order: behind ``sp-annotate``; in front of ``sp-export-mhlo``.
    """

    name: ClassVar[str] = "sp-propagate"

    conservative: bool = option(
        False, help="do not split a dimension's axes where an op reshapes it"
    )
    strategy: str = option(
        "aggressive",
        help="how conflicts within an op are resolved: aggressive or basic",
        parse=one_of("aggressive", "basic"),
    )
    op_priority: bool = option(True, help="propagate through elementwise ops first")
    keep_sharding_rules: bool = option(False, help="leave each op's sharding rule on it")
    debug_sharding_origins: bool = option(False, help="note on each op where its axes came from")
    debug_edge_sharding: bool = option(False, help="note on each op which edge brought its axes")
    warn_replicated_bytes: int = option(
        64_000_000, help="warn of whole values of this size and more; 0 for none"
    )

    def run(self, root: ir.Operation, sink: Sink) -> None:
        """Not used: propagation is C++, see :meth:`stages`."""
        raise NotImplementedError

    def stages(self) -> Sequence[Stage]:
        """A look at what the user asked for, Shardy's passes, a look at what became of it."""
        hindsight = Hindsight(least_bytes=self.warn_replicated_bytes)
        return (
            Look(hindsight.remember, before_verifier=True),
            SURVEY,
            REFUSE_LOST_PARTIAL_RESULTS,
            self.native_pipeline(),
            Look(hindsight.look_back),
        )

    def native_pipeline(self) -> str:
        """The C++ passes as MLIR's pipeline text.

        Shardy's pipeline is taken apart: most options belong to single passes inside it and not to
        the pipeline, and without its passes that save dumps MLIR's verifier runs three times less.
        """
        changed = {
            key: value
            for key, value, default in (
                ("conservative-propagation", self.conservative, False),
                ("propagation-strategy", self.strategy, "aggressive"),
                ("run-op-priority-propagation", self.op_priority, True),
                ("debug-sharding-origins", self.debug_sharding_origins, False),
                ("debug-propagation-edge-sharding", self.debug_edge_sharding, False),
                ("sink-debug-sharding-origins", self.debug_sharding_origins, False),
                ("sink-debug-propagation-edge-sharding", self.debug_edge_sharding, False),
            )
            if value != default
        }
        elements = expand(_PIPELINE)
        for key, value in changed.items():
            text = str(value).lower() if isinstance(value, bool) else value
            elements = set_option(elements, key, text)
        if self.keep_sharding_rules:
            elements = without(elements, "sdy-drop-sharding-rules")
        return ",".join(elements)
