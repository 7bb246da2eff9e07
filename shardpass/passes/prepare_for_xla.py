"""The finishing step between Shardy's passes and XLA: what XLA cannot read is said another way."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy, stablehlo

from shardpass.diagnostics import Sink
from shardpass.mlir import MHLO_SHARDING, SDY_SHARDING, mesh_ops, operations
from shardpass.passes.base import Pass

#: Ops with regions whose operands XLA rewrites before it looks at their shardings.
_CONTROL_FLOW: Final = (stablehlo.WhileOp, stablehlo.CaseOp, stablehlo.IfOp)
_RULE: Final = "sdy.sharding_rule"


@dataclass(frozen=True, kw_only=True)
class PrepareForXla(Pass):
    """Say in XLA's terms what ``sdy-propagation-pipeline`` and JAX leave in a module.

    * ``sdy.reshard`` becomes ``sdy.sharding_constraint``: XLA stops at it with "unknown mesh".
    * ``sdy.sharding`` on ``stablehlo.while``, ``case`` and ``if`` goes: XLA drops operands of a
      loop before it reads the list, which then no longer fits (an error on jaxlib 0.10.2, a
      segmentation fault on 0.12.0.1). Nothing is lost, since XLA does not heed shardings of inner
      ops. ``mhlo.sharding`` goes from there too (the same error on 0.12.0.1): GSPMD finds what a
      loop carries from its body and from what goes into it.
    * ``sdy.sharding_rule`` goes: XLA stops at it with "Failed to get shape".
    * ``@empty_mesh``, which JAX declares for typed PRNG keys, is merged into the module's own mesh:
      XLA takes one.

    Leaves alone: everything else, ``mhlo.sharding`` of other ops included. Order: last.
    """

    name: ClassVar[str] = "sp-prepare-for-xla"

    def run(self, root: ir.Operation, sink: Sink) -> None:
        """See the class."""
        resharded: list[sdy.ReshardOp] = []
        for op in operations(root):
            if isinstance(op, _CONTROL_FLOW):
                for notation in (SDY_SHARDING, MHLO_SHARDING):
                    if notation in op.attributes:
                        del op.attributes[notation]
            if _RULE in op.attributes:
                del op.attributes[_RULE]
            if isinstance(op, sdy.ReshardOp):
                resharded.append(op)
        for op in resharded:
            _to_constraint(op)
        _merge_empty_meshes(root)


def _to_constraint(op: sdy.ReshardOp) -> None:
    with ir.InsertionPoint(op), op.location:
        constraint = sdy.ShardingConstraintOp(op.operands[0], op.attributes["sharding"])
    op.results[0].replace_all_uses_with(constraint.results[0])
    op.erase()


def _merge_empty_meshes(root: ir.Operation) -> None:
    """Let shardings on a mesh without axes and devices speak of the first real mesh instead."""
    empty: list[sdy.MeshOp] = []
    real: list[sdy.MeshOp] = []
    for op in mesh_ops(root):
        mesh = sdy.MeshAttr(op.attributes["mesh"])
        if len(mesh.axes):
            real.append(op)
        elif not len(mesh.device_ids):
            empty.append(op)
    if not empty or not real:
        return
    names = "|".join(re.escape(_symbol(op)) for op in empty)
    # An attribute's text names its mesh as `<@name,`; a name goes on over these characters.
    speaks_of = re.compile(rf"<@(?:{names})(?![\w$.\-])")
    _Rename(speaks_of, f"<@{_symbol(real[0])}").over(root)
    for op in empty:
        op.operation.erase()


def _symbol(op: sdy.MeshOp) -> str:
    return ir.StringAttr(op.attributes["sym_name"]).value


class _Rename:
    """Rewrites attributes by their text, each distinct one once."""

    def __init__(self, pattern: re.Pattern[str], replacement: str) -> None:
        self._pattern = pattern
        self._replacement = replacement
        self._known: dict[ir.Attribute, ir.Attribute] = {}

    def over(self, root: ir.Operation) -> None:
        for op in operations(root):
            for name in list(op.attributes):
                attribute = op.attributes[name]
                renamed = self._renamed(attribute)
                if renamed is not attribute:
                    op.attributes[name] = renamed

    def _renamed(self, attribute: ir.Attribute) -> ir.Attribute:
        # Constants and types are many, long, and never speak of a mesh.
        if isinstance(attribute, (ir.DenseElementsAttr, ir.TypeAttr, ir.IntegerAttr, ir.FloatAttr)):
            return attribute
        found = self._known.get(attribute)
        if found is None:
            text = str(attribute)
            changed = self._pattern.sub(self._replacement, text) if "<@" in text else text
            found = attribute
            if changed != text:
                found = ir.Attribute.parse(changed, attribute.context)
            self._known[attribute] = found
        return found
