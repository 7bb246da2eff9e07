"""What Shardy's C++ passes take for granted, given to them or refused beforehand.

They abort the process, or touch memory that is not there, where

* a module of several functions has no public ``@main``: its functions are looked up from there, and
  a pipeline drops private ones that nobody calls;
* a function is declared without a body;
* functions call themselves (:data:`shardpass.passes.shardy.survey.REFUSE_RECURSION`).

Both supported jaxlibs were tried with each pass and each of these.
"""

from __future__ import annotations

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func

from shardpass.diagnostics import ShardingError, Sink
from shardpass.mlir import (
    EntryName,
    is_public,
    locate,
    present_as_before,
    present_as_main,
)


def needs_main(native: str) -> bool:
    """Whether the pipeline text ``native`` has a pass of Shardy in it."""
    return "sdy-" in native


class EntryAsMain:
    """Lends a module's entry function the name and the visibility that Shardy asks for."""

    def __init__(self) -> None:
        self._was: EntryName | None = None

    def enter(self, root: ir.Operation, sink: Sink) -> None:
        """Make ``root`` fit for Shardy's passes.

        Raises:
          ShardingError: ``not-supported`` for a function without a body; ``no-entry-function``,
            where a module of several functions has none that could be the first.
        """
        functions = [
            op for op in root.regions[0].blocks[0].operations if isinstance(op, func.FuncOp)
        ]
        for function in functions:
            if function.is_external:
                raise ShardingError(
                    "not-supported",
                    f"@{function.name.value} is declared and has no body, and Shardy's passes "
                    "follow every function",
                    location=locate(function),
                    help="give it a body, or remove it; code from elsewhere is called by a "
                    "stablehlo.custom_call",
                )
        if len(functions) == 1 and is_public(functions[0]):
            return  # Whatever it is called, since there is nothing to look up.
        self._was = present_as_main(root)

    def enter_if_any(self, root: ir.Operation, sink: Sink) -> None:
        """As :meth:`enter`, and leave a module as it is that has no entry function.

        For whoever asks for a pass of Shardy by name, and wants what it does to just this module,
        in a process that may die of it: some passes go over all functions as they stand.
        """
        try:
            self.enter(root, sink)
        except ShardingError as error:
            if error.slug != "no-entry-function":
                raise

    def leave(self, root: ir.Operation, sink: Sink | None = None) -> None:
        """Give the entry function back what it had; once is enough."""
        present_as_before(root, self._was)
        self._was = None
