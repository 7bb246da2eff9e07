"""The entry function of a module, and its arguments and results as users know them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, cast

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func

from shardpass.diagnostics import ShardingError, SourceLocation
from shardpass.mlir.attributes import MHLO_SHARDING, SDY_SHARDING
from shardpass.mlir.locations import file_positions, locate, value_name
from shardpass.mlir.paths import dotted, result_name

#: The function that a run starts at, where a module has it.
MAIN: Final = "main"
#: Attributes that tie a result to the argument whose buffer it may take over.
ALIASING_OUTPUT = "tf.aliasing_output"
BUFFER_DONOR = "jax.buffer_donor"
RESULT_INFO = "jax.result_info"

#: What the names of Shardy's ops and attributes begin with.
_SHARDY: Final = "sdy."
_USUAL = (SDY_SHARDING, ALIASING_OUTPUT, RESULT_INFO, BUFFER_DONOR, MHLO_SHARDING)


@dataclass(frozen=True)
class EntryValue:
    """An argument or a result of the entry function.

    Attributes:
      is_result: whether it is a result.
      index: its position, from 0.
      raw: its name as JAX spelt it (``st['w'].value``), or ``arg3`` where there is none.
      path: the same, dotted (``st.w``).
      type: its MLIR type.
    """

    is_result: bool
    index: int
    raw: str
    path: str
    type: ir.Type

    @property
    def is_tensor(self) -> bool:
        """Whether it is a ranked tensor (and not, say, a token)."""
        return isinstance(self.type, ir.RankedTensorType)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Its global shape in elements.

        Raises:
          ShardingError: ``dynamic-shape``, where a dimension has no static size.
        """
        if not isinstance(self.type, ir.RankedTensorType):
            return ()
        if not self.type.has_static_shape:
            raise ShardingError(
                "dynamic-shape",
                f"{self} is {self.type}: it has a dimension without a static size",
                path=self.path,
                help="export the module for concrete shapes, or refine them first "
                "(jax.extend.mlir.refine_polymorphic_shapes)",
            )
        return tuple(self.type.shape)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Its global shape with -1 for a dimension without a static size."""
        if not isinstance(self.type, ir.RankedTensorType):
            return ()
        return static_sizes(self.type)

    @property
    def element_type(self) -> str:
        """The element type as MLIR writes it (``f32``, ``bf16``, ``ui32``, ``complex<f32>``)."""
        return str(self.type.element_type) if isinstance(self.type, ir.RankedTensorType) else ""

    @property
    def size(self) -> int:
        """How many elements the whole array has."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        kind = "result" if self.is_result else "argument"
        return f'{kind} {self.index} ("{self.path}")'


def static_sizes(kind: ir.RankedTensorType) -> tuple[int, ...]:
    """The shape of a tensor type with -1 for a dimension without a static size."""
    if kind.has_static_shape:
        return tuple(kind.shape)
    return tuple(-1 if kind.is_dynamic_dim(i) else kind.get_dim_size(i) for i in range(kind.rank))


def entry_function(root: ir.Operation) -> func.FuncOp:
    """The function that a run starts at: ``@main``, or the only public function.

    Raises:
      ShardingError: ``no-entry-function``.
    """
    functions = [op for op in root.regions[0].blocks[0].operations if isinstance(op, func.FuncOp)]
    defined = [f for f in functions if not f.is_external]
    for function in defined:
        if function.name.value == MAIN:
            return function
    public = [f for f in defined if is_public(f)]
    if len(public) == 1:
        return public[0]
    found = ", ".join(f"@{f.name.value}" for f in public) or "none"
    if public:
        help = "name the function to shard @main, or make the others private"
    elif defined:
        help = (
            f'make the function to start at public, without "private" (@{defined[0].name.value}?)'
        )
    else:
        help = "give the module a function @main with a body"
    raise ShardingError(
        "no-entry-function",
        f"the module has no function @main and not exactly one other public one (public: {found})",
        location=locate((public[1:] or functions or [root])[0]),
        help=help,
    )


def is_public(function: func.FuncOp) -> bool:
    """Whether code outside the module may call ``function``."""
    attributes = function.attributes
    return (
        "sym_visibility" not in attributes
        or ir.StringAttr(attributes["sym_visibility"]).value == "public"
    )


@dataclass(frozen=True)
class EntryName:
    """What an entry function was called before :func:`present_as_main`."""

    name: str
    visibility: ir.Attribute | None


def present_as_main(root: ir.Operation) -> EntryName | None:
    """Call the entry function ``@main`` and make it public, as Shardy and XLA take for granted.

    Shardy looks ``@main`` up and aborts the process where there is none; passes that drop private
    functions drop a private entry. Its callers are rewritten too.

    Returns:
      What :func:`present_as_before` needs; ``None`` where nothing had to change.

    Raises:
      ShardingError: ``no-entry-function``; ``not-supported``, if something else has the name.
    """
    function = entry_function(root)
    was = EntryName(function.name.value, function.attributes.get("sym_visibility"))
    if was.name == MAIN and is_public(function):
        return None
    for op in root.regions[0].blocks[0].operations:
        symbol = op.attributes.get("sym_name")
        if was.name != MAIN and symbol is not None and ir.StringAttr(symbol).value == MAIN:
            raise ShardingError(
                "not-supported",
                f"Shardy and XLA ask for the entry function, @{was.name}, under the name @main, "
                f"which an {op.operation.name} has",
                help="call that something else",
            )
    _call(root, function, EntryName(MAIN, None))
    return was


def present_as_before(root: ir.Operation, was: EntryName | None) -> None:
    """Undo :func:`present_as_main`, where ``@main`` is still there."""
    if was is None:
        return
    for op in root.regions[0].blocks[0].operations:
        if isinstance(op, func.FuncOp) and op.name.value == MAIN:
            _call(root, op, was)
            return


def _call(root: ir.Operation, function: func.FuncOp, new: EntryName) -> None:
    before = function.name.value
    if before != new.name:
        ir.SymbolTable.replace_all_symbol_uses(before, new.name, root)
        function.attributes["sym_name"] = ir.StringAttr.get(new.name, context=root.context)
    if new.visibility is not None:
        function.attributes["sym_visibility"] = new.visibility
    elif "sym_visibility" in function.attributes:
        del function.attributes["sym_visibility"]


def arguments_of(function: func.FuncOp) -> list[EntryValue]:
    """The arguments, in order."""
    named = [] if function.is_external else [value_name(a) for a in function.arguments]
    values: list[EntryValue] = []
    for index, kind in enumerate(function.type.inputs):
        raw = (named[index] if named else None) or f"arg{index}"
        values.append(EntryValue(False, index, raw, dotted(raw), kind))
    return values


def results_of(function: func.FuncOp) -> list[EntryValue]:
    """The results, in order."""
    types = function.type.results
    values: list[EntryValue] = []
    for index, (kind, entries) in enumerate(zip(types, result_attributes(function), strict=True)):
        info = ir.StringAttr(entries[RESULT_INFO]).value if RESULT_INFO in entries else None
        raw, path = result_name(info, index, len(types))
        values.append(EntryValue(True, index, raw, path, kind))
    return values


def where_written(function: func.FuncOp, value: EntryValue) -> SourceLocation | None:
    """Where ``value`` of ``function`` stands: an argument at its own place if it has one.

    Names that JAX gives to arguments have none, nor have results; they stand where the function is.
    """
    if not (value.is_result or function.is_external):
        own = next(file_positions(function.arguments[value.index].location), None)
        if own:
            return own
    return locate(function)


def aliases_of(function: func.FuncOp) -> dict[int, int]:
    """Result index -> index of the donated argument whose buffer it takes over."""
    return {
        ir.IntegerAttr(entries[ALIASING_OUTPUT]).value: index
        for index, entries in enumerate(argument_attributes(function))
        if ALIASING_OUTPUT in entries
    }


def argument_attributes(function: func.FuncOp) -> list[ir.DictAttr]:
    """One dictionary an argument, empty ones included."""
    return _dictionaries(function, "arg_attrs", len(function.type.inputs))


def result_attributes(function: func.FuncOp) -> list[ir.DictAttr]:
    """One dictionary a result, empty ones included."""
    return _dictionaries(function, "res_attrs", len(function.type.results))


def mhlo_shardings(op: ir.OpView) -> list[ir.Attribute]:
    """The ``mhlo.sharding`` attributes of an op, or of the arguments and results of a function."""
    held: list[Any] = [op.attributes]
    if isinstance(op, func.FuncOp):
        held = [*argument_attributes(op), *result_attributes(op)]
    return [entries[MHLO_SHARDING] for entries in held if MHLO_SHARDING in entries]


def is_of_shardy(op: ir.OpView) -> bool:
    """Whether ``op`` is one of Shardy's, or has attributes of it, on itself or a function's values.

    Any of its attributes count, also those that are for reading alone.
    """
    if op.operation.name.startswith(_SHARDY) or any(n.startswith(_SHARDY) for n in op.attributes):
        return True
    if not isinstance(op, func.FuncOp):
        return False
    held = [op.attributes[name] for name in ("arg_attrs", "res_attrs") if name in op.attributes]
    dictionaries = {entries for values in held for entries in ir.ArrayAttr(values)}
    return any(e.name.startswith(_SHARDY) for entries in dictionaries for e in ir.DictAttr(entries))


def _dictionaries(function: func.FuncOp, name: str, count: int) -> list[ir.DictAttr]:
    if name in function.attributes:
        # jaxlib's stubs do not know that the elements come with their own type.
        return cast(list[ir.DictAttr], list(ir.ArrayAttr(function.attributes[name])))
    return [ir.DictAttr.get({}, context=function.context)] * count


def set_argument_attributes(function: func.FuncOp, attributes: list[ir.DictAttr]) -> None:
    """Replace the dictionaries of all arguments at once."""
    with function.context:
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(list(attributes))


def set_result_attributes(function: func.FuncOp, attributes: list[ir.DictAttr]) -> None:
    """Replace the dictionaries of all results at once."""
    with function.context:
        function.attributes["res_attrs"] = ir.ArrayAttr.get(list(attributes))


def rewrite_entries(function: func.FuncOp, rewrite: Callable[[ir.DictAttr], ir.DictAttr]) -> None:
    """Put the dictionary of each argument and result of ``function`` through ``rewrite``."""
    for read, write in (
        (argument_attributes, set_argument_attributes),
        (result_attributes, set_result_attributes),
    ):
        before = read(function)
        after = [rewrite(entries) for entries in before]
        if after != before:
            write(function, after)


def entries_of(attributes: ir.DictAttr) -> dict[str, ir.Attribute]:
    """``attributes`` as names and values.

    Asking for the names that JAX and Shardy write is four times quicker than going over the entries
    of a ``DictAttr``, and there may be thousands of arguments.
    """
    found = {name: attributes[name] for name in _USUAL if name in attributes}
    if len(found) == len(attributes):
        return found
    return {entry.name: entry.attr for entry in attributes}


def with_entry(attributes: ir.DictAttr, name: str, value: ir.Attribute | None) -> ir.DictAttr:
    """``attributes`` with ``name`` set, or taken out where ``value`` is ``None``."""
    entries = entries_of(attributes)
    entries.pop(name, None)
    if value is not None:
        entries[name] = value
    return ir.DictAttr.get(entries, context=attributes.context)
