"""Shardy's attributes in the form that survives a trip through HLO.

Where a module has to pass through code that does not know the dialect, JAX and XLA store Shardy's
meshes and shardings as strings under ``mhlo.frontend_attributes``, with keys that begin with
``xla.sdy.``. Old versions escaped the quotes in them once more, and wrote a mesh as a string within
the string.

Source: ``xla/service/spmd/shardy/constants.h`` and ``sdy_round_trip/``; the strings as jax 0.4.38
and jaxlib 0.10 and 0.12 write them.
"""

from __future__ import annotations

import re
from typing import Any, Final

from jax.extend.mlir import ir

from shardpass.diagnostics import Diagnostic, ShardingError, Sink
from shardpass.mlir import hearing, locate, mesh_ops

FRONTEND_ATTRIBUTES = "mhlo.frontend_attributes"
_PREFIX = "xla.sdy."

#: Entries, without the prefix.
MESHES: Final = "meshes"
SHARDING: Final = "sharding"
SHARDING_RULE: Final = "sharding_rule"
GROUP_ID: Final = "sharding_group_id"
DIRECTION: Final = "allowed_direction"
ARGUMENT_SHARDINGS: Final = "tuple_args_shardings"
RESULT_SHARDINGS: Final = "tuple_results_shardings"
IN_SHARDINGS: Final = "in_shardings"
OUT_SHARDINGS: Final = "out_shardings"
MANUAL_AXES: Final = "manual_axes"

_NO_MESHES: Final = '"{}"'

_BARE_QUOTE = re.compile(r'(?<!\\)"')
_ESCAPED = re.compile(r"\\(.)")


def sdy_entries(holder: Any) -> dict[str, ir.Attribute]:
    """Shardy's entries among frontend attributes, by their names without the prefix.

    Args:
      holder: the attributes of an op, or the dictionary of an argument or a result.
    """
    if FRONTEND_ATTRIBUTES not in holder:
        return {}
    return {
        entry.name.removeprefix(_PREFIX): entry.attr
        for entry in ir.DictAttr(holder[FRONTEND_ATTRIBUTES])
        if entry.name.startswith(_PREFIX)
    }


def read_entry(name: str, entry: ir.Attribute, op: ir.Operation | ir.OpView) -> ir.Attribute:
    """The attribute that an entry spells.

    Args:
      name: what the entry is called, for the message.
      entry: a string; anything else is taken as it is.
      op: where the entry was found.

    Raises:
      ShardingError: ``syntax``, with the place, for text that MLIR does not read.
    """
    if not isinstance(entry, ir.StringAttr):
        return entry
    text = entry.value
    if not _BARE_QUOTE.search(text):  # Each quote is escaped: so it was escaped once more.
        text = _ESCAPED.sub(r"\1", text)
    heard: list[Diagnostic] = []
    try:
        with hearing(op.context, heard.append):
            return ir.Attribute.parse(text, op.context)
    except ir.MLIRError:
        why = f": {heard[0].message}" if heard else ""
        raise ShardingError(
            "syntax",
            f"{op.operation.name}: {_PREFIX}{name} cannot be read{why}",
            location=locate(op),
            notes=[f"it is {text}"],
        ) from None


def without_sdy_entries(entries: ir.DictAttr) -> ir.DictAttr:
    """The dictionary of an argument or a result, less Shardy's frontend attributes."""
    if FRONTEND_ATTRIBUTES not in entries:
        return entries
    kept = {entry.name: entry.attr for entry in entries}
    of_others = _of_others(ir.DictAttr(kept.pop(FRONTEND_ATTRIBUTES)))
    if of_others:
        kept[FRONTEND_ATTRIBUTES] = ir.DictAttr.get(of_others, context=entries.context)
    return ir.DictAttr.get(kept, context=entries.context)


def has_sdy_attributes(op: ir.Operation | ir.OpView) -> bool:
    """Whether ``op`` carries entries of Shardy's among its frontend attributes."""
    found = op.attributes.get(FRONTEND_ATTRIBUTES)
    return isinstance(found, ir.DictAttr) and any(e.name.startswith(_PREFIX) for e in found)


def is_round_trip(root: ir.Operation) -> bool:
    """Whether a module has its meshes as strings alone, so that Shardy's passes see none of it."""
    meshes = sdy_entries(root.attributes).get(MESHES)
    return meshes is not None and str(meshes) != _NO_MESHES and not any(mesh_ops(root))


def refuse_round_trip(root: ir.Operation, sink: Sink) -> None:
    """Report a module whose annotations are strings that no pass but the import reads."""
    if is_round_trip(root):
        sink.error(
            "already-annotated",
            "the module has Shardy's notation as strings (xla.sdy.meshes), as XLA carries it "
            "through HLO",
            location=locate(root),
            help="import it first: sp-import-mhlo",
        )


def without_sdy_attributes(op: ir.Operation | ir.OpView) -> None:
    """Drop Shardy's entries from the frontend attributes of ``op``; others stay."""
    attributes = op.attributes
    if FRONTEND_ATTRIBUTES not in attributes:
        return
    entries = ir.DictAttr(attributes[FRONTEND_ATTRIBUTES])
    kept = _of_others(entries)
    if len(kept) == len(entries):
        return
    if kept:
        attributes[FRONTEND_ATTRIBUTES] = ir.DictAttr.get(kept, context=op.context)
    else:
        del attributes[FRONTEND_ATTRIBUTES]


def _of_others(entries: ir.DictAttr) -> dict[str, ir.Attribute]:
    return {e.name: e.attr for e in entries if not e.name.startswith(_PREFIX)}
