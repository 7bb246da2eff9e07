"""``sp-partition``: the program that each device runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from jax.extend.mlir import ir

from shardpass.diagnostics import Sink
from shardpass.mlir import (
    locate,
    meshes_of,
    native,
    operations,
)
from shardpass.passes.base import Look, Pass, Stage, option
from shardpass.passes.explicit_collectives import LIFT_MESHES, native_passes
from shardpass.passes.inlining import inline_calls
from shardpass.passes.meshes.replica_groups import REPLICA_GROUPS, list_replica_groups
from shardpass.passes.partitioning.chlo_calls import hide_chlo, show_chlo
from shardpass.passes.partitioning.combining import drop_repeated_reductions
from shardpass.passes.partitioning.faults import (
    CONVERTER,
    knows_control_flow,
    refuse_before_conversion,
    refuse_before_exchange,
)
from shardpass.passes.partitioning.local_program import Signature
from shardpass.passes.partitioning.propagated import REFUSE_UNPROPAGATED
from shardpass.passes.partitioning.whole_values import (
    say_what_collectives_take,
    say_whole,
    take_back,
)
from shardpass.passes.shardy.expansion import expand, set_option
from shardpass.passes.shardy.survey import REFUSE_GSPMD

_RESOLVE: Final = "sdy-resolve-permutation-factors"
_TO_COLLECTIVES: Final = "sdy-reshard-to-collectives"
#: How devices are told apart: by partition, as JAX does. Any count above one says so; without, the
#: newer passes write programs for replicas.
_ACROSS_PARTITIONS: Final = (("partition-count", "2"),)
_RULES: Final = f"{native.FUNCTION}(sdy-populate-op-sharding-rules)"
_CAST: Final = "builtin.unrealized_conversion_cast"
_DROP_RULES: Final = f"{native.FUNCTION}(sdy-drop-sharding-rules)"


@dataclass(frozen=True, kw_only=True)
class Partition(Pass):
    """Write the program that each device runs: local shapes, and StableHLO's collectives.

    Shardy's own partitioner does it, behind its plan of collectives (``sp-explicit-collectives``)
    and its exchange of borders where a window, a pad or a slice crosses from one device to the
    next. XLA's partitioner is another one, whose program a compiled executable shows.

    ``wrap`` puts the result into an ``sdy.manual_computation`` over all axes, with the arguments
    and results of before: what XLA compiles and runs, with these very collectives.

    An error, each with its place, and all in one run: dimensions that do not divide, partial
    results as values, ops that Shardy has no sharding rule for (custom calls above all) or takes
    apart wrongly, reductions that its ``all_reduce`` cannot say, and all that
    ``sp-explicit-collectives`` refuses. With jaxlib 0.10.2 also loops that carry what is cut, parts
    of axes, look-ups along a cut dimension, and dynamic slices of what is cut; calls are inlined
    there.
    Leaves alone: names, donation and other attributes of arguments and results; CHLO's ops.
    Order: last, behind ``sp-propagate``. Shardings and meshes are gone from the result.
    """

    name: ClassVar[str] = "sp-partition"

    wrap: bool = option(False, help="put the result into a manual computation, which XLA compiles")

    def run(self, root: ir.Operation, sink: Sink) -> None:
        """Not used: the work is C++, see :meth:`stages`."""
        raise NotImplementedError

    def stages(self) -> Sequence[Stage]:
        """Checks on whole arrays before each native step that would not survive them."""
        return tuple(self._stages())

    def _stages(self) -> Iterator[Stage]:
        signature = Signature()
        newer = knows_control_flow()
        insertion, collectives = native_passes()
        yield REFUSE_GSPMD
        yield REFUSE_UNPROPAGATED
        yield Look(signature.remember)
        yield LIFT_MESHES
        yield say_what_collectives_take
        if not newer:
            yield inline_calls
            yield "symbol-dce"
        yield list_groups
        yield hide_chlo
        yield ",".join((_RULES, *insertion))
        yield drop_repeated_reductions
        yield Look(refuse_before_exchange)
        yield say_whole
        yield ",".join(self._to_collectives(collectives, newer))
        yield Look(refuse_before_conversion)
        yield ",".join(self._to_local(newer))
        yield take_back
        yield show_chlo
        yield Look(refuse_leftovers)
        yield signature.state_devices
        if self.wrap:
            yield signature.wrap

    def _to_collectives(self, plan: Sequence[str], newer: bool) -> Iterator[str]:
        """The plan from reshards on, with the exchange of borders in front.

        The older converter wants a product's partial results in an ``all_reduce`` of their own, so
        that there nothing is merged behind the collectives.
        """
        resolve = expand(_RESOLVE)
        for key, value in (*_ACROSS_PARTITIONS, ("rng-bit-generator-unsafe", "false")):
            resolve = set_option(resolve, key, value)
        yield from resolve
        for step in plan:
            if _TO_COLLECTIVES in step and not newer:
                yield step
                return
            yield step

    def _to_local(self, newer: bool) -> Iterator[str]:
        convert = expand(CONVERTER)
        for key, value in (*_ACROSS_PARTITIONS, ("enable-rgv3", "false")):
            convert = set_option(convert, key, value)
        yield from convert
        yield "sdy-drop-sharding-and-mesh"
        yield _DROP_RULES


def list_groups(root: ir.Operation, sink: Sink) -> None:
    """Let collectives that are there already name devices, since meshes go."""
    meshes = meshes_of(root)
    for op in operations(root):
        if REPLICA_GROUPS in op.attributes:
            list_replica_groups(op, meshes)


def refuse_leftovers(root: ir.Operation, sink: Sink) -> None:
    """Report what Shardy has not made local, so that no such program leaves."""
    for op in operations(root):
        name = op.operation.name
        if name == _CAST:
            why = f"made a value of type {op.results[0].type} local, and not the op beside it"
        elif name.startswith("sdy."):
            why = f"left {name} as it was"
        else:
            continue
        sink.error(
            "not-partitionable",
            f"Shardy {why}",
            location=locate(op),
            help="keep the value whole on every device (an sdy.sharding_constraint)",
        )
