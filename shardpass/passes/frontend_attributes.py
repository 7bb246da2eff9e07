"""Shardy's attributes in the form that survives a trip through HLO.

Where a module has to pass through code that does not know the dialect, JAX stores Shardy's meshes
and shardings as strings under ``mhlo.frontend_attributes``, with keys that begin with ``xla.sdy.``.
"""

from __future__ import annotations

from jax.extend.mlir import ir

FRONTEND_ATTRIBUTES = "mhlo.frontend_attributes"
_PREFIX = "xla.sdy."


def has_sdy_attributes(op: ir.Operation | ir.OpView) -> bool:
    """Whether ``op`` carries entries of Shardy's among its frontend attributes."""
    found = op.attributes.get(FRONTEND_ATTRIBUTES)
    return isinstance(found, ir.DictAttr) and any(e.name.startswith(_PREFIX) for e in found)


def without_sdy_entries(entries: ir.DictAttr) -> ir.DictAttr:
    """The dictionary of an argument or a result, less Shardy's frontend attributes."""
    if FRONTEND_ATTRIBUTES not in entries:
        return entries
    kept = {entry.name: entry.attr for entry in entries}
    of_others = _of_others(ir.DictAttr(kept.pop(FRONTEND_ATTRIBUTES)))
    if of_others:
        kept[FRONTEND_ATTRIBUTES] = ir.DictAttr.get(of_others, context=entries.context)
    return ir.DictAttr.get(kept, context=entries.context)


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
