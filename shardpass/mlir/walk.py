"""Going over the ops of a module.

Collect, then mutate: an op that is erased or moved while MLIR walks takes the walk with it, so the
functions here give lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from jax.extend.mlir import ir

Op = TypeVar("Op", bound=ir.OpView)

#: What a look of :func:`visit` gives to go on.
ADVANCE: Final = ir.WalkResult.ADVANCE


def operations(root: ir.Operation | ir.OpView) -> Iterator[ir.OpView]:
    """Every op inside ``root``, parents before children, in program order."""
    for region in root.regions:
        for block in region.blocks:
            for op in block.operations:
                yield op
                if len(op.regions):
                    yield from operations(op)


def collect(root: ir.Operation | ir.OpView, *kinds: type[Op]) -> list[Op]:
    """The ops of the given classes inside ``root``, in program order."""
    return [op for op in operations(root) if isinstance(op, kinds)]


def with_attribute(root: ir.Operation | ir.OpView, name: str) -> list[ir.OpView]:
    """The ops inside ``root`` that carry attribute ``name``."""
    return [op for op in operations(root) if name in op.attributes]


def where(root: ir.Operation | ir.OpView, holds: Callable[[ir.OpView], bool]) -> list[ir.OpView]:
    """The ops inside ``root`` for which ``holds`` is true."""
    return [op for op in operations(root) if holds(op)]


def visit(root: ir.Operation | ir.OpView, look: Callable[[ir.Operation], ir.WalkResult]) -> None:
    """Call ``look`` with ``root`` and every op inside, parents first, in program order.

    For attributes alone: ops come as plain operations, without the class of their kind, which saves
    half the time of :func:`operations`. ``look`` may set and remove attributes; it moves and erases
    nothing, and gives :data:`ADVANCE` to go on, or MLIR's ``SKIP`` to pass over what is inside.
    What it raises leaves as it is: MLIR's own walk would make a ``RuntimeError`` of it.
    """
    raised: list[Exception] = []

    def step(op: ir.Operation) -> ir.WalkResult:
        try:
            return look(op)
        except Exception as error:
            raised.append(error)
            return ir.WalkResult.INTERRUPT

    root.walk(step, ir.WalkOrder.PRE_ORDER)
    if raised:
        raise raised[0]
