"""How values flow through a module: through calls, loops and branches, both ways.

Two questions are asked here. Backwards: where may a value have come from, *unchanged*
(:meth:`Dataflow.origins`)? A gather's indices lead back to the token argument in this way, through
reshapes, a loop's carry and a wrapper function. Forwards: which results can any argument influence
at all (:func:`influenced_results`)? A result that none can would compare equal under every layout.

Calls are followed without keeping call sites apart: JAX gives each traced function its own
``func.func``, so a function is rarely called in two roles.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from jax.extend.mlir import ir

from shardpass.mlir import entry_function, operations

#: Ops whose result holds values of the given operands and no others (``None``: of all operands).
MOVES: Final[dict[str, Sequence[int] | None]] = {
    "stablehlo.all_gather": None,
    "stablehlo.all_to_all": None,
    "stablehlo.broadcast": (0,),
    "stablehlo.broadcast_in_dim": (0,),
    "stablehlo.clamp": (1,),
    "stablehlo.collective_permute": None,
    "stablehlo.concatenate": None,
    "stablehlo.convert": (0,),
    "stablehlo.copy": (0,),
    "stablehlo.dynamic_broadcast_in_dim": (0,),
    "stablehlo.dynamic_reshape": (0,),
    "stablehlo.dynamic_slice": (0,),
    "stablehlo.dynamic_update_slice": (0, 1),
    "stablehlo.gather": (0,),
    "stablehlo.dynamic_gather": (0,),
    "stablehlo.maximum": None,
    "stablehlo.minimum": None,
    "stablehlo.pad": (0,),
    "stablehlo.real": (0,),
    "stablehlo.reduce_precision": (0,),
    "stablehlo.reshape": (0,),
    "stablehlo.reverse": (0,),
    "stablehlo.select": (1, 2),
    "stablehlo.slice": (0,),
    "stablehlo.torch_index_select": (0,),
    "stablehlo.transpose": (0,),
    "mhlo.copy": (0,),
    "sdy.all_gather": (0,),
    "sdy.all_reduce": (0,),
    "sdy.all_slice": (0,),
    "sdy.all_to_all": (0,),
    "sdy.collective_permute": (0,),
    "sdy.propagation_barrier": (0,),
    "sdy.reduce_scatter": (0,),
    "sdy.reshard": (0,),
    "sdy.sharding_constraint": (0,),
}

#: Ops whose result ``i`` holds operand ``i``.
_ELEMENTWISE_MOVES: Final = frozenset({"stablehlo.optimization_barrier", "stablehlo.sort"})
#: Custom calls that are markers around a value.
_MARKERS: Final = frozenset(
    {"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement"}
)
#: Ops that mix elements of a value even where they keep its shape.
_MIXING: Final = frozenset(
    {
        "stablehlo.convolution",
        "stablehlo.custom_call",
        "stablehlo.dot_general",
        "stablehlo.dynamic_slice",
        "stablehlo.dynamic_update_slice",
        "stablehlo.fft",
        "stablehlo.gather",
        "stablehlo.reverse",
        "stablehlo.transpose",
        "stablehlo.triangular_solve",
    }
)
_BRANCHES: Final = frozenset({"stablehlo.case", "stablehlo.if"})
_RETURNS: Final = frozenset({"func.return", "stablehlo.return", "sdy.return"})
#: Ops that run their region on their operands, one block argument each.
_REGION_CALLS: Final = frozenset({"sdy.manual_computation", "sdy.named_computation"})


class Dataflow:
    """The functions of a module, who calls them, and the steps between values."""

    def __init__(self, root: ir.Operation) -> None:
        self.functions: dict[str, ir.OpView] = {}
        self.callers: dict[str, list[ir.OpView]] = {}
        for op in operations(root):
            if op.operation.name == "func.func":
                self.functions[symbol(op, "sym_name")] = op
            elif op.operation.name == "func.call":
                self.callers.setdefault(symbol(op, "callee"), []).append(op)
        self.entry: ir.OpView = entry_function(root)

    def in_execution_order(self) -> Iterator[ir.OpView]:
        """Every op that the entry function reaches, a called function's at its first call."""
        seen: set[str] = set()

        def visit(function: ir.OpView) -> Iterator[ir.OpView]:
            for op in operations(function):
                yield op
                if op.operation.name == "func.call":
                    callee = symbol(op, "callee")
                    if callee not in seen and callee in self.functions:
                        seen.add(callee)
                        yield from visit(self.functions[callee])

        yield from visit(self.entry)

    def origins(self, value: ir.Value) -> list[ir.Value]:
        """The values that ``value`` may be, or be made up of, one step back."""
        if isinstance(value, ir.BlockArgument):
            return self._origins_of_argument(value)
        op = defining_op(value)
        if op is None:
            return []
        number = ir.OpResult(value).result_number
        name = op.operation.name
        if name in MOVES:
            positions = MOVES[name]
            return [op.operands[i] for i in _positions(op, positions)]
        if name in _ELEMENTWISE_MOVES:
            return [op.operands[number]]
        if name == "stablehlo.custom_call" and target(op) in _MARKERS:
            return [op.operands[0]]
        if name == "func.call" and symbol(op, "callee") in self.functions:
            return [returned(self.functions[symbol(op, "callee")].regions[0])[number]]
        if name == "stablehlo.while":
            return [op.operands[number], returned(op.regions[1])[number]]
        if name in _BRANCHES or name in _REGION_CALLS:
            return [returned(region)[number] for region in op.regions]
        return []

    def argument_number(self, value: ir.Value) -> int | None:
        """Which argument of the entry function ``value`` is, if it is one."""
        if isinstance(value, ir.BlockArgument) and value.owner.owner == self.entry:
            return value.arg_number
        return None

    def is_elementwise(self, value: ir.Value) -> bool:
        """Whether ``value`` enters into nothing of another shape, through any number of ops."""
        shape = value.type
        reached: set[ir.Value] = set()
        waiting = [value]
        while waiting:
            value = waiting.pop()
            if value in reached:
                continue
            reached.add(value)
            for use in value.uses:
                op = use.owner
                if op.operation.name == "func.return":
                    if op.operation.parent == self.entry.operation:
                        continue
                elif op.regions or not _same_shape(op, shape):
                    return False
                waiting.extend(_influenced(self, op, use.operand_number))
        return True

    def _origins_of_argument(self, value: ir.BlockArgument) -> list[ir.Value]:
        parent, number = value.owner.owner, value.arg_number
        name = parent.operation.name
        if name == "func.func":
            calls = self.callers.get(symbol(parent, "sym_name"), [])
            return [call.operands[number] for call in calls]
        if name == "stablehlo.while":
            return [parent.operands[number], returned(parent.regions[1])[number]]
        if name in _REGION_CALLS:
            return [parent.operands[number]]
        return []


def influenced_results(root: ir.Operation, arguments: Collection[int] | None = None) -> list[bool]:
    """For each result of the entry function, whether any argument can change it.

    ``arguments``, if given, are the positions of those that count.

    Follows uses forward: operands and captured values influence results, a loop's condition
    everything that the loop carries, a branch's selector every result of the branch.
    """
    flow = Dataflow(root)
    count = len(returned(flow.entry.regions[0]))
    found: set[int] = set()
    reached: set[ir.Value] = set()
    waiting: list[ir.Value] = [
        value
        for index, value in enumerate(flow.entry.regions[0].blocks[0].arguments)
        if arguments is None or index in arguments
    ]
    while waiting:
        value = waiting.pop()
        if value in reached:
            continue
        reached.add(value)
        for use in value.uses:
            op, number = use.owner, use.operand_number
            if op.operation.name == "func.return" and op.operation.parent == flow.entry.operation:
                found.add(number)
            else:
                waiting.extend(_influenced(flow, op, number))
    return [index in found for index in range(count)]


def _influenced(flow: Dataflow, op: ir.OpView, number: int) -> list[ir.Value]:
    """What changes one step on, when operand ``number`` of ``op`` does."""
    name = op.operation.name
    if name in _RETURNS:
        return _influenced_by_return(flow, op, number)
    if name == "func.call" and symbol(op, "callee") in flow.functions:
        return [flow.functions[symbol(op, "callee")].regions[0].blocks[0].arguments[number]]
    if name == "stablehlo.while":
        carried = [region.blocks[0].arguments[number] for region in op.regions]
        return [op.results[number], *carried]
    if name in _REGION_CALLS:
        return [op.regions[0].blocks[0].arguments[number]]
    if name == "stablehlo.optimization_barrier":
        return [op.results[number]]
    inside = [a for region in op.regions for block in region.blocks for a in block.arguments]
    return [*op.results, *inside]


def _influenced_by_return(flow: Dataflow, op: ir.OpView, number: int) -> list[ir.Value]:
    parent = enclosing_op(op)
    name = parent.operation.name
    if name == "func.func":
        return [call.results[number] for call in flow.callers.get(symbol(parent, "sym_name"), [])]
    if name == "stablehlo.while":
        condition, body = parent.regions
        if op.operation.block == condition.blocks[0]:
            # The trip count is at stake, and with it all that the loop carries.
            return [*parent.results, *condition.blocks[0].arguments, *body.blocks[0].arguments]
        inside = [region.blocks[0].arguments[number] for region in parent.regions]
        return [parent.results[number], *inside]
    if name in _BRANCHES or name in _REGION_CALLS:
        return [parent.results[number]]
    return list(parent.results)


def _same_shape(op: ir.OpView, kind: ir.Type) -> bool:
    name = op.operation.name
    if name in _MIXING:
        return False
    shape = list(ir.RankedTensorType(kind).shape)
    return name == "func.call" or all(
        isinstance(result.type, ir.RankedTensorType)
        and list(ir.RankedTensorType(result.type).shape) == shape
        for result in op.results
    )


def returned(region: ir.Region) -> list[ir.Value]:
    """The operands of the op that ends a region's only block."""
    block = region.blocks[0]
    return list(block.operations[len(block.operations) - 1].operands)


def defining_op(value: ir.Value) -> ir.OpView | None:
    """The op that gives ``value``; ``None`` for an argument of a block."""
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner


def enclosing_op(op: ir.OpView) -> ir.OpView:
    """The op in whose region ``op`` stands."""
    parent = op.operation.parent
    assert parent is not None, "only the module stands in no region"
    return parent.opview


def symbol(op: ir.OpView, name: str) -> str:
    """A symbol or symbol reference attribute as text, without the ``@``."""
    attribute = op.attributes[name]
    if isinstance(attribute, (ir.StringAttr, ir.FlatSymbolRefAttr)):
        return attribute.value
    return str(attribute).removeprefix("@")


def target(op: ir.OpView) -> str:
    """The name of the function that a ``stablehlo.custom_call`` calls."""
    return ir.StringAttr(op.attributes["call_target_name"]).value


def _positions(op: ir.OpView, positions: Sequence[int] | None) -> Sequence[int]:
    return range(len(op.operands)) if positions is None else positions
