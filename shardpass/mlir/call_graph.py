"""Who calls whom in a module, and that nobody calls himself.

StableHLO knows no recursion: a function is inlined where it is called. The verifier does not look,
and Shardy's passes and XLA follow the calls until their stack is full, which ends the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func

from shardpass.diagnostics import ShardingError
from shardpass.mlir.locations import locate
from shardpass.mlir.walk import ADVANCE, visit

#: Ops that name functions, and the attribute in which they do.
CALLS: Final = {
    "func.call": "callee",
    "stablehlo.composite": "decomposition",
    "stablehlo.custom_call": "called_computations",
}
_FUNCTION: Final = func.FuncOp.OPERATION_NAME


class CallGraph:
    """The calls of a module, gathered by a walk over its ops, parents first.

    The walk is the caller's (:func:`shardpass.mlir.visit`), so that it can look for other things as
    well; :meth:`of` does nothing else.
    """

    def __init__(self) -> None:
        self._caller = ""
        #: Caller -> the functions that it names -> the first op that does.
        self._calls: dict[str, dict[str, ir.Operation]] = {}

    @classmethod
    def of(cls, root: ir.Operation) -> CallGraph:
        """That of the ``builtin.module`` operation ``root``."""
        graph = cls()
        visit(root, graph.look)
        return graph

    def look(self, op: ir.Operation) -> ir.WalkResult:
        """Take note of ``op``, which the walk has come to."""
        name = op.name
        if name in CALLS:
            self.add(op, name)
        elif name == _FUNCTION:
            self.enter(op)
        return ADVANCE

    def enter(self, function: ir.Operation) -> None:
        """What follows is inside of ``function``."""
        self._caller = ir.StringAttr(function.attributes["sym_name"]).value

    def add(self, op: ir.Operation, name: str) -> None:
        """Take note of ``op``, whose ``name`` is in :data:`CALLS`."""
        for callee in _named(op.attributes.get(CALLS[name])):
            self._calls.setdefault(self._caller, {}).setdefault(callee, op)

    def check(self) -> None:
        """Refuse a function that calls itself, directly or not.

        Raises:
          ShardingError: ``not-supported``, at the call that closes the circle.
        """
        cycle = self._cycle()
        if not cycle:
            return
        others = ", which calls ".join(f"@{name}" for name in (*cycle[1:], cycle[0]))
        called = others if len(cycle) > 1 else "itself"
        raise ShardingError(
            "not-supported",
            f"@{cycle[0]} calls {called}: StableHLO has no recursion",
            location=locate(self._calls[cycle[-1]][cycle[0]]),
            help="write the repetition as a stablehlo.while",
        )

    def _cycle(self) -> list[str]:
        """The functions on a circle of calls, in order; empty where there is none."""
        done: set[str] = set()
        for start in self._calls:
            # A list of what is still to follow instead of recursion: chains may be long.
            path: dict[str, Iterator[str]] = {}
            if start not in done:
                path[start] = iter(self._calls[start])
            while path:
                caller = next(reversed(path))
                callee = next(path[caller], None)
                if callee is None:
                    done.add(caller)
                    del path[caller]
                elif callee in path:
                    names = list(path)
                    return names[names.index(callee) :]
                elif callee not in done and callee in self._calls:
                    path[callee] = iter(self._calls[callee])
        return []


def _named(attribute: ir.Attribute | None) -> list[str]:
    if attribute is None:
        return []
    if isinstance(attribute, ir.ArrayAttr):
        return [name for element in attribute for name in _named(element)]
    return [ir.FlatSymbolRefAttr(attribute).value]
