"""What XLA cannot read of what Shardy's passes and JAX leave in a module, said another way.

:class:`shardpass.passes.prepare_for_xla.PrepareForXla` is the pass, and says what is done and why.
"""

from __future__ import annotations

import itertools
import re
from typing import Final

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, sdy, stablehlo

from shardpass.canon.mlir_string import quote, symbol
from shardpass.diagnostics import ShardingError
from shardpass.mlir.attributes import (
    MHLO_SHARDING,
    SDY_SHARDING,
    mesh_ops,
    meshes_of,
    read_mhlo,
    write_mhlo,
)
from shardpass.mlir.collectives import COLLECTIVES
from shardpass.mlir.entry import entries_of, rewrite_entries, with_entry
from shardpass.mlir.stretching import is_stretching, reshape_before
from shardpass.mlir.walk import operations

#: Ops with regions whose operands XLA rewrites before it looks at their shardings.
_CONTROL_FLOW: Final = (stablehlo.WhileOp, stablehlo.CaseOp, stablehlo.IfOp)
#: Ops with a region for each case, of which one runs.
_BRANCHING: Final = (stablehlo.CaseOp, stablehlo.IfOp)
#: Ops that give the value that they take in another layout, and that XLA takes none of.
_MOVING: Final = (sdy.ReshardOp, *COLLECTIVES)
_STABLEHLO_MESH: Final = "stablehlo.mesh"
#: Ops that ask for a sharding, which is not theirs to lose.
_ASKING: Final = frozenset({"stablehlo.custom_call", "sdy.manual_computation"})
_RULE: Final = "sdy.sharding_rule"
_DIALECT: Final = "sdy."
#: What is in the text of every named sharding.
_NAMED: Final = (b"mesh[", b"single_device[", b"maximal_mesh[")


def prepare_for_xla(root: ir.Operation) -> None:
    """Rewrite ``root`` so that XLA takes it."""
    moving: list[ir.OpView] = []
    stretching: list[stablehlo.BroadcastInDimOp] = []
    for op in operations(root):
        if isinstance(op, _BRANCHING):
            _let_branches_agree(op)
        if isinstance(op, _CONTROL_FLOW):
            for notation in (SDY_SHARDING, MHLO_SHARDING):
                if notation in op.attributes:
                    del op.attributes[notation]
        if _RULE in op.attributes:
            del op.attributes[_RULE]
        if isinstance(op, _MOVING):
            moving.append(op)
        if isinstance(op, stablehlo.BroadcastInDimOp) and is_stretching(op):
            stretching.append(op)
        if MHLO_SHARDING in op.attributes:
            op.attributes[MHLO_SHARDING] = _tiled(op.attributes[MHLO_SHARDING])
        if isinstance(op, func.FuncOp):
            rewrite_entries(op, _entries_tiled)
    for op in moving:
        _to_constraint(op)
    for op in stretching:
        reshape_before(op)
    _rename_meshes(root)
    _merge_empty_meshes(root)
    _rename_axes(root)


def _let_branches_agree(op: ir.OpView) -> None:
    """Drop what ops say of the values that branches end in, where one branch says another thing.

    XLA wants one sharding of all roots ("Inconsistent conditional sharding") and finds it itself.
    """
    blocks = [region.blocks[0] for region in op.regions]
    ends = [block.operations[len(block.operations) - 1] for block in blocks]
    for index in range(len(op.results)):
        roots = [end.operands[index].owner for end in ends]
        # What comes from outside is handed in, and says what it says there.
        inside = [r for r in roots if not isinstance(r, ir.Block) and r.parent == op.operation]
        said = {tuple(_said(root)) for root in inside} - {()}
        for root in inside if len(said) > 1 else ():
            for notation, _ in _said(root):
                del root.attributes[notation]


def _said(root: ir.Operation) -> list[tuple[str, ir.Attribute]]:
    """The annotations that an op has and does not consist of."""
    if root.name in _ASKING:
        return []
    return [(n, root.attributes[n]) for n in (SDY_SHARDING, MHLO_SHARDING) if n in root.attributes]


def _to_constraint(op: ir.OpView) -> None:
    """Say where the value of ``op`` lies, of which it is another layout and nothing else.

    A constraint to partial sums would say something that only a program of one device can mean.
    """
    result = op.operands[0]
    target = op.attributes["sharding" if isinstance(op, sdy.ReshardOp) else "out_sharding"]
    if not len(sdy.TensorShardingAttr(target).unreduced_axes):
        with ir.InsertionPoint(op), op.location:
            result = sdy.ShardingConstraintOp(result, sdy.TensorShardingAttr(target)).results[0]
    op.results[0].replace_all_uses_with(result)
    op.operation.erase()


def _tiled(attribute: ir.Attribute) -> ir.Attribute:
    """An ``mhlo.sharding`` without the names of axes, if it has some and can be read."""
    if not isinstance(attribute, ir.StringAttr):
        return attribute
    if not any(word in attribute.value_bytes for word in _NAMED):
        return attribute
    try:
        return write_mhlo(read_mhlo(attribute).without_names(), attribute.context)
    except ShardingError:
        return attribute


def _entries_tiled(entries: ir.DictAttr) -> ir.DictAttr:
    if MHLO_SHARDING not in entries:
        return entries
    tiled = _tiled(entries[MHLO_SHARDING])
    return entries if tiled == entries[MHLO_SHARDING] else with_entry(entries, MHLO_SHARDING, tiled)


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


def _rename_meshes(root: ir.Operation) -> None:
    """Give meshes plain names where MLIR has to quote those they have."""
    symbols = (op.attributes.get("sym_name") for op in root.regions[0].blocks[0].operations)
    taken = {ir.StringAttr(name).value for name in symbols if name is not None}
    plain = (name for index in itertools.count() if (name := f"mesh_{index}") not in taken)
    for op in mesh_ops(root):
        if symbol(_symbol(op)) != f"@{_symbol(op)}":
            name = next(plain)
            ir.SymbolTable.replace_all_symbol_uses(_symbol(op), name, root)
            op.attributes["sym_name"] = ir.StringAttr.get(name, context=root.context)


def _rename_axes(root: ir.Operation) -> None:
    """Give axes plain names where MLIR has to escape those they have."""
    names = dict.fromkeys(name for mesh in meshes_of(root).values() for name in mesh.names)
    plain = (name for index in itertools.count() if (name := f"axis_{index}") not in names)
    new = {quote(name): f'"{next(plain)}"' for name in names if quote(name) != f'"{name}"'}
    if not new:
        return
    # Each has a backslash in it, so that none is found across the border of two other strings.
    escaped = re.compile("|".join(map(re.escape, new)))
    known: dict[ir.Attribute, ir.Attribute] = {}

    def renamed(attribute: ir.Attribute) -> ir.Attribute:
        found = known.get(attribute)
        if found is None:
            text = escaped.sub(lambda name: new[name[0]], str(attribute))
            found = known[attribute] = ir.Attribute.parse(text, attribute.context)
        return found

    def entries_renamed(entries: ir.DictAttr) -> ir.DictAttr:
        for name in (name for name in entries_of(entries) if name.startswith(_DIALECT)):
            entries = with_entry(entries, name, renamed(entries[name]))
        return entries

    for op in operations(root):
        if isinstance(op, func.FuncOp):
            rewrite_entries(op, entries_renamed)
        attributes = op.attributes
        if isinstance(op, sdy.MeshOp) and _STABLEHLO_MESH in attributes:
            del attributes[_STABLEHLO_MESH]  # The same mesh again, which XLA does not ask for.
        for name in list(attributes):
            if _is_sdy(attributes[name]):
                attributes[name] = renamed(attributes[name])


def _is_sdy(attribute: ir.Attribute) -> bool:
    """Whether ``attribute`` is one of Shardy's own, and not what may hold a user's string."""
    plain = (ir.DenseElementsAttr, ir.TypeAttr, ir.IntegerAttr, ir.FloatAttr, ir.StringAttr)
    return not isinstance(attribute, plain) and str(attribute).startswith("#sdy")


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
