"""Who carries a sharding: what messages call the value, and where it stands."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func

from shardpass.canon import HloSharding
from shardpass.diagnostics import Note, ShardingError, SourceLocation
from shardpass.mlir import (
    MHLO_SHARDING,
    argument_attributes,
    arguments_of,
    locate,
    operations,
    read_mhlo,
    result_attributes,
    results_of,
    where_written,
)
from shardpass.passes.identities import call_target


@dataclass(frozen=True)
class Holder:
    """A value with a sharding.

    Attributes:
      text: ``argument 0 ("w")``, or ``the result of stablehlo.add``.
      location: where it is written.
      path: of an argument or a result.
    """

    text: str
    location: SourceLocation | None
    path: str | None = None

    def note(self, sharding: HloSharding) -> Note:
        """That it carries ``sharding``, at its place."""
        return Note(f"{self.text} is {sharding.describe()}", self.location)


def holders_of(root: ir.Operation) -> dict[HloSharding, Holder]:
    """The first holder of each sharding in GSPMD's notation, in program order.

    For messages alone: it goes over the whole module. What cannot be read is left out.
    """
    found: dict[HloSharding, Holder] = {}
    for attribute, holder in _all(root):
        with contextlib.suppress(ShardingError):
            whole = read_mhlo(attribute)
            for sharding in whole.elements if whole.is_tuple else (whole,):
                found.setdefault(sharding, holder)
    return found


def _all(root: ir.Operation) -> Iterator[tuple[ir.Attribute, Holder]]:
    for op in operations(root):
        if isinstance(op, func.FuncOp):
            for values, read in (
                (arguments_of, argument_attributes),
                (results_of, result_attributes),
            ):
                for value, entries in zip(values(op), read(op), strict=True):
                    if MHLO_SHARDING in entries:
                        holder = Holder(str(value), where_written(op, value), value.path)
                        yield entries[MHLO_SHARDING], holder
        elif MHLO_SHARDING in op.attributes:
            target = call_target(op)
            name = f"{op.operation.name}{f' @{target}' if target else ''}"
            yield op.attributes[MHLO_SHARDING], Holder(f"the result of {name}", locate(op))
