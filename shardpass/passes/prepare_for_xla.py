"""The finishing step between Shardy's passes and XLA: what XLA cannot read is said another way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jax.extend.mlir import ir

from shardpass.diagnostics import Sink
from shardpass.mlir import prepare_for_xla
from shardpass.passes.base import Pass


@dataclass(frozen=True, kw_only=True)
class PrepareForXla(Pass):
    """Say in XLA's terms what ``sdy-propagation-pipeline`` and JAX leave in a module.

    * ``sdy.reshard`` and Shardy's collectives become ``sdy.sharding_constraint``, each of where it
      puts its value: XLA stops at them with "unknown mesh", and makes collectives of its own. One
      that leaves a partial sum goes.
    * ``sdy.sharding`` on ``stablehlo.while``, ``case`` and ``if`` goes: XLA drops operands of a
      loop before it reads the list, which then no longer fits (an error on jaxlib 0.10.2, a
      segmentation fault on 0.12.0.1). Nothing is lost, since XLA does not heed shardings of inner
      ops. ``mhlo.sharding`` goes from there too (the same error on 0.12.0.1): GSPMD finds what a
      loop carries from its body and from what goes into it.
    * Where the branches of an ``if`` or ``case`` end in values with different shardings, those go:
      XLA wants one for all ("Inconsistent conditional sharding"), and finds it itself.
    * ``sdy.sharding_rule`` goes: XLA stops at it with "Failed to get shape".
    * Named (V3) ``mhlo.sharding`` becomes tiles: GSPMD aborts the process on one with manual axes.
    * A ``broadcast_in_dim`` with ``mhlo.sharding`` that stretches a dimension of one element gets a
      ``reshape`` in front, which takes that dimension away: XLA gives the op's sharding to an
      operand that still has it, and GSPMD cuts one element over many devices and sends it around.
    * ``@empty_mesh``, which JAX declares for typed PRNG keys, is merged into the module's own mesh:
      XLA takes one.
    * A mesh axis whose name has to be escaped (``дата``, ``a"b``) is called ``axis_0`` and so on,
      a mesh whose name has to be quoted ``mesh_0``: XLA reads back no escapes of MLIR's (an abort
      on jaxlib 0.10.2). Nothing is lost, since the names do not come out of XLA.

    Leaves alone: everything else, other ``mhlo.sharding`` included. Order: last.
    """

    name: ClassVar[str] = "sp-prepare-for-xla"

    def run(self, root: ir.Operation, sink: Sink) -> None:
        """See the class."""
        prepare_for_xla(root)
