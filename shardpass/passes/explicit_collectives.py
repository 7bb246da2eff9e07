"""``sp-explicit-collectives``: what moves between devices, as ops that one can read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from jax.extend.mlir import ir

from shardpass.diagnostics import Sink
from shardpass.passes.base import Pass, Stage
from shardpass.passes.partitioning.combining import WARN_OF_COMBINERS, drop_repeated_reductions
from shardpass.passes.partitioning.propagated import REFUSE_UNPROPAGATED
from shardpass.passes.partitioning.whole_values import say_what_collectives_take, take_back
from shardpass.passes.shardy.expansion import expand, without
from shardpass.passes.shardy.survey import SURVEY
from shardpass.passes.verify import REFUSE_OTHER_COUNT

_PIPELINE: Final = "sdy-export-pipeline{enable-insert-explicit-collectives=true}"
_INSERTION: Final = "sdy-insert-explicit-reshards"
#: Gives meshes that are written into the shardings a name, by which the others look them up.
LIFT_MESHES: Final = "sdy-lift-inlined-meshes"
#: Passes of that pipeline that finish propagation, which has been, or change what a caller sees.
_NOT_ASKED_FOR: Final = (
    "sdy-constant-or-scalar-merger",
    "sdy-sink-data-flow-edges",
    "sdy-remove-sharding-groups",
    "sdy-update-non-divisible-input-output-shardings",
    "sdy-remove-sub-axes-in-input-output-shardings",
    "sdy-inline-meshes",
)


@dataclass(frozen=True, kw_only=True)
class ExplicitCollectives(Pass):
    """Show what moves between devices as ``sdy`` collectives; shapes stay global.

    Wherever an op needs its operands laid out otherwise than they are, or leaves partial results,
    Shardy writes what happens: ``sdy.all_gather``, ``all_slice``, ``all_to_all``,
    ``collective_permute``, ``all_reduce``, ``reduce_scatter``. This is Shardy's plan. XLA makes its
    own, often the same one; what a compiled program does, a report of it says.

    An error: a module that has not been propagated, values on different meshes or on a single
    device, dimensions without a static size, annotations in GSPMD's notation.
    Warned of: combinations that Shardy's ``all_reduce`` cannot say (a product), arguments that are
    cut where nothing inside is.
    Leaves alone: what manual computations do by themselves; the shardings of arguments and results.
    Order: behind ``sp-propagate``. XLA does not read the result; ``sp-prepare-for-xla`` makes
    constraints of it, which it does read.
    """

    name: ClassVar[str] = "sp-explicit-collectives"

    def run(self, root: ir.Operation, sink: Sink) -> None:
        """Not used: the work is C++, see :meth:`stages`."""
        raise NotImplementedError

    def stages(self) -> Sequence[Stage]:
        """The checks, Shardy's passes, and a look at what they cannot say."""
        insertion, collectives = native_passes()
        return (
            SURVEY,
            REFUSE_OTHER_COUNT,
            REFUSE_UNPROPAGATED,
            LIFT_MESHES,
            say_what_collectives_take,
            ",".join(insertion),
            drop_repeated_reductions,
            ",".join(collectives),
            take_back,
            WARN_OF_COMBINERS,
        )


def native_passes() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Shardy's passes from a propagated module to reshards, and from there to collectives.

    They are read from the pipeline that Shardy has for it, which differs by version.
    """
    elements = expand(_PIPELINE)
    for name in _NOT_ASKED_FOR:
        elements = without(elements, name)
    inserted = next(i for i, element in enumerate(elements) if _INSERTION in element) + 1
    return elements[:inserted], elements[inserted:]
