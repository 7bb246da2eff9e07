"""Single StableHLO ops, and small programs, run by jaxlib's own reference interpreter.

``stablehlo.eval_module`` runs a function ``main`` from dense attributes to dense attributes. Here
an op becomes such a function: it is cloned into a module of its own, with the values that it and
its regions use as arguments, beside the functions that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, stablehlo

Functions = Mapping[str, ir.Operation]


def nested(op: ir.Operation | ir.OpView) -> Iterator[ir.Operation]:
    """The op and all ops in its regions, parents first."""
    yield op.operation
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from nested(inner)


def named_functions(op: ir.Operation | ir.OpView, functions: Functions) -> dict[str, ir.Operation]:
    """The functions that the op and its regions name, and those that these name."""
    found: dict[str, ir.Operation] = {}
    left = [op.operation]
    while left:
        for inner in nested(left.pop()):
            for _, attribute in inner.attributes.items():
                if not isinstance(attribute, ir.FlatSymbolRefAttr):
                    continue
                name = attribute.value
                if name in functions and name not in found:
                    found[name] = functions[name]
                    left.append(functions[name])
    return found


def evaluate(
    op: ir.Operation | ir.OpView,
    values: Mapping[ir.Value, ir.Attribute],
    functions: Functions,
) -> list[ir.Attribute]:
    """The results of one op.

    Args:
      op: reads no values but operands, and those of ``values`` in its regions.
      values: what is known where the op stands.
      functions: those of the module, by name.
    """
    used = dict.fromkeys(
        operand for inner in nested(op) for operand in inner.operands if operand in values
    )

    def build(arguments: Sequence[ir.Value]) -> list[ir.Value]:
        inside = dict(zip(used, arguments, strict=True))
        copy = op.operation.clone()
        for inner in nested(copy):
            for place, operand in enumerate(inner.operands):
                if operand in inside:
                    inner.operands[place] = inside[operand]
        return list(copy.results)

    return evaluate_built(
        build,
        [values[value] for value in used],
        [result.type for result in op.results],
        op.context,
        named_functions(op, functions).values(),
    )


def evaluate_built(
    build: Callable[[Sequence[ir.Value]], Sequence[ir.Value]],
    arguments: Sequence[ir.Attribute],
    results: Sequence[ir.Type],
    context: ir.Context,
    functions: Iterable[ir.Operation] = (),
) -> list[ir.Attribute]:
    """The results of a function whose body ``build`` makes, from arguments to what it returns."""
    with context, ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            for function in functions:
                function.clone()
            types = [ir.DenseElementsAttr(argument).type for argument in arguments]
            main = func.FuncOp("main", (types, list(results)))
        block = main.add_entry_block()
        with ir.InsertionPoint(block):
            func.ReturnOp(list(build(block.arguments)))
        return list(stablehlo.eval_module(module, list(arguments)))


def evaluate_text(
    body: str, arguments: Sequence[ir.Attribute], results: Sequence[str]
) -> list[ir.Attribute]:
    """The results of a function with this body, from ``%a0``, ``%a1``, … to ``results``.

    ``results`` are types; the body ends with its own return.
    """
    context = arguments[0].context
    types = [ir.DenseElementsAttr(argument).type for argument in arguments]
    taken = ", ".join(f"%a{place}: {type_}" for place, type_ in enumerate(types))
    text = f"func.func @main({taken}) -> ({', '.join(results)}) {{\n{body}\n}}"
    return list(stablehlo.eval_module(ir.Module.parse(text, context), list(arguments)))
