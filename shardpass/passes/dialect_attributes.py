"""Attributes of Shardy's dialect on ops and on the values of functions, whatever they are called.

Beside ``sdy.sharding`` there is what propagation was asked to leave for reading, sharding rules,
origins and edges (``sdy.sharding_rule``, ``sdy.sharding_origins``, ``sdy.propagation_edges``). The
last two are checked against the sharding beside them, so that a module from which only the sharding
was taken does not verify.
"""

from __future__ import annotations

from jax.extend.mlir import ir

from shardpass.mlir import entries_of, rewrite_entries

__all__ = [
    "drop_dialect_attributes",
    "is_of_dialect",
    "rewrite_entries",
    "without_dialect_attributes",
]

_PREFIX = "sdy."


def is_of_dialect(name: str) -> bool:
    """Whether an attribute of this name belongs to Shardy's dialect."""
    return name.startswith(_PREFIX)


def drop_dialect_attributes(op: ir.Operation | ir.OpView) -> None:
    """Remove every attribute of Shardy's dialect from ``op`` itself."""
    attributes = op.attributes
    for name in [name for name in attributes if is_of_dialect(name)]:
        del attributes[name]


def without_dialect_attributes(entries: ir.DictAttr) -> ir.DictAttr:
    """The dictionary of an argument or result, less the attributes of Shardy's dialect."""
    kept = {name: value for name, value in entries_of(entries).items() if not is_of_dialect(name)}
    return ir.DictAttr.get(kept, context=entries.context) if len(kept) < len(entries) else entries
