"""HLO into StableHLO and back, by XLA's own importer and exporter.

The importer keeps shardings, as ``mhlo.sharding`` on arguments, results and ops, and the names that
JAX gave to arguments and ops. What it leaves out is added here: which arguments are donated, and
for how many devices the program is. HLO text can say the latter in its first line, a proto only
where XLA had chosen the devices.
"""

from __future__ import annotations

import contextlib
import re
from typing import Final

import jax
from jax.extend.mlir import hlo_to_stablehlo, ir
from jax.extend.mlir.dialects import func, stablehlo

from shardpass.compat import hlo_import
from shardpass.diagnostics import ShardingError, SourceLocation
from shardpass.mlir import hlo_proto
from shardpass.mlir.attributes import MHLO_SHARDING, NUM_PARTITIONS, mesh_ops, read_mhlo
from shardpass.mlir.entry import (
    ALIASING_OUTPUT,
    BUFFER_DONOR,
    argument_attributes,
    entry_function,
    is_of_shardy,
    is_public,
    mhlo_shardings,
    set_argument_attributes,
    with_entry,
)
from shardpass.mlir.hlo_proto import HloFacts
from shardpass.mlir.locations import value_name
from shardpass.mlir.walk import operations

NUM_REPLICAS: Final = "mhlo.num_replicas"

#: What XLA's importer writes on every module; said in other words here, or not at all.
_OF_THE_IMPORTER: Final = {
    "mhlo.cross_program_prefetches": "[]",
    "mhlo.is_dynamic": "false",
    "mhlo.use_auto_spmd_partitioning": "false",
    "mhlo.input_output_alias": None,
}
_FIRST_LINE = re.compile(r"^HloModule\b.*$", re.MULTILINE)
_COUNT = re.compile(r"\b(num_partitions|replica_count)=(\d+)")
_SCHEDULED = re.compile(r"\bis_scheduled=true\b")
#: What XLA appends to names.
_NUMBER = re.compile(r"\.\d+$")
#: How XLA's parser says where it stopped.
_PLACE = re.compile(r"was parsing (\d+):(\d+): error: (.*?)(?:\n|$)")


def from_text(context: ir.Context, text: str, name: str) -> ir.Module:
    """HLO text as a StableHLO module.

    Raises:
      ShardingError: ``unreadable`` with the line that XLA's parser stopped at, or for a program
        that XLA has cut up for its devices already.
    """
    first = _FIRST_LINE.search(text)
    header = first[0] if first else ""
    counts = {key: int(number) for key, number in _COUNT.findall(header)}
    partitions = counts.get("num_partitions")
    if _SCHEDULED.search(header) and (partitions or 1) > 1:
        raise _partitioned(name, partitions)
    try:
        proto = hlo_import.proto_of_text(text)
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        raise _unparsed(str(error), name) from error
    facts = hlo_proto.facts_of(proto)
    return _imported(context, proto, facts, partitions, counts.get("replica_count"), name)


def from_proto(context: ir.Context, data: bytes, name: str) -> ir.Module:
    """A serialized ``HloModuleProto``, ``HloProto`` or snapshot as a StableHLO module.

    Raises:
      ShardingError: ``unreadable`` for what XLA cannot read, or has cut up for its devices already.
    """
    module = hlo_proto.module_of(data)
    if module is None:
        raise _damaged(hlo_proto.fault_in(data), name)
    try:
        facts = hlo_proto.facts_of(module)
    except ShardingError as error:
        raise _damaged(str(error), name) from error
    if facts.is_partitioned and facts.partitions != 1:
        raise _partitioned(name, facts.partitions)
    return _imported(context, module, facts, facts.partitions, facts.replicas, name)


def to_proto(root: ir.Operation, bytecode: bytes, name: str) -> bytes:
    """The serialized ``HloModuleProto`` of a module; the count of devices is not in it.

    Args:
      root: the module.
      bytecode: the same as bytecode.
      name: what messages call it.

    Raises:
      ShardingError: ``not-expressible`` for Shardy's notation, which HLO has not, and for what
        XLA's exporter refuses.
    """
    if mesh_ops(root) or any(map(is_of_shardy, operations(root))):
        raise ShardingError(
            "not-expressible",
            f"{name} has Shardy's notation in it, which HLO has not",
            help="run sp-export-mhlo over it first (shardpass shard --notation mhlo)",
        )
    try:
        return hlo_import.proto_of_stablehlo(bytecode)
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        raise ShardingError(
            "not-expressible", f"XLA cannot say {name} in HLO: {_one_line(str(error))}"
        ) from error


def to_text(root: ir.Operation, bytecode: bytes, name: str) -> str:
    """The HLO text of a module, with the count of devices in its first line.

    Raises:
      ShardingError: as :func:`to_proto`.
    """
    text = hlo_import.text_of_proto(to_proto(root, bytecode, name))
    first, line_break, rest = text.partition("\n")
    for key, attribute in (("replica_count", NUM_REPLICAS), ("num_partitions", NUM_PARTITIONS)):
        count = root.attributes.get(attribute)
        if isinstance(count, ir.IntegerAttr) and count.value > 1 and f"{key}=" not in first:
            first += f", {key}={count.value}"
    return first + line_break + rest


def _imported(
    context: ir.Context,
    proto: bytes,
    facts: HloFacts,
    partitions: int | None,
    replicas: int | None,
    name: str,
) -> ir.Module:
    if facts.misfit:
        # XLA's importer dies of it.
        raise _damaged(facts.misfit, name)
    try:
        found = ir.Module.parse(hlo_to_stablehlo(proto), context)
    except (jax.errors.JaxRuntimeError, ValueError, ir.MLIRError) as error:
        raise _damaged(str(error), name) from error
    root = found.operation
    for attribute, idle in _OF_THE_IMPORTER.items():
        if attribute in root.attributes and idle in (None, str(root.attributes[attribute])):
            del root.attributes[attribute]
    _donate(root, facts)
    _drop_numbers(root, facts)
    _drop_copies(root)
    _annotate_loops(root)
    if partitions is None:
        partitions = _devices_of(root)
    number = ir.IntegerType.get_signless(32, context)
    for attribute, count in ((NUM_PARTITIONS, partitions), (NUM_REPLICAS, replicas)):
        if count is not None:
            root.attributes[attribute] = ir.IntegerAttr.get(number, count)
    return found


def _drop_copies(root: ir.Operation) -> None:
    """Take HLO's ``copy`` for the value that it copies: passes know no rule for it.

    One with a sharding of its own stays, since that binds in GSPMD's notation.
    """
    for op in [op for op in operations(root) if op.operation.name == "mhlo.copy"]:
        if MHLO_SHARDING not in op.attributes and op.operands[0].type == op.results[0].type:
            op.results[0].replace_all_uses_with(op.operands[0])
            op.operation.erase()


def _annotate_loops(root: ir.Operation) -> None:
    """Give loops what their bodies' parameters say, which XLA's importer leaves behind.

    It writes each body twice: into its loop, and as a function that nobody calls and that keeps the
    parameters' shardings. The two are known to be the same by their ops.
    """
    said: dict[tuple[str, ...], set[tuple[ir.Attribute, ...]]] = {}
    for op in root.regions[0].blocks[0].operations:
        if isinstance(op, func.FuncOp) and not op.is_external and not is_public(op):
            entries = argument_attributes(op)
            if entries and all(MHLO_SHARDING in of_one for of_one in entries):
                shape = _shape_of(op.regions[0].blocks[0])
                found = tuple(of_one[MHLO_SHARDING] for of_one in entries)
                said.setdefault(shape, set()).add(found)
    if not said:
        return
    for op in operations(root):
        if not isinstance(op, stablehlo.WhileOp) or MHLO_SHARDING in op.attributes:
            continue
        candidates = said.get(_shape_of(op.regions[1].blocks[0]), set())
        if len(candidates) != 1:
            continue
        texts = [ir.StringAttr(attribute).value for attribute in next(iter(candidates))]
        text = texts[0] if len(texts) == 1 else f"{{{', '.join(texts)}}}"
        op.attributes[MHLO_SHARDING] = ir.StringAttr.get(text, root.context)


def _shape_of(block: ir.Block) -> tuple[str, ...]:
    """What tells a body from others: its parameters' types, and its ops but for the last."""
    return (
        *(str(argument.type) for argument in block.arguments),
        *(f"{op.operation.name} {[str(r.type) for r in op.results]}" for op in block.operations),
    )[:-1]


def _devices_of(root: ir.Operation) -> int | None:
    """How many devices the shardings are for; ``None`` where they do not say."""
    found = {attribute for op in operations(root) for attribute in mhlo_shardings(op)}
    counts: list[int] = []
    for attribute in found:
        # One that cannot be read is reported by whoever reads it for what it says.
        with contextlib.suppress(ShardingError):
            sharding = read_mhlo(attribute)
            parts = sharding.elements if sharding.is_tuple else (sharding,)
            counts += [part.num_devices or 1 for part in parts]
    most = max(counts, default=1)
    return most if most > 1 else None


def _donate(root: ir.Operation, facts: HloFacts) -> None:
    if not facts.aliases and not facts.donors:
        return
    function = entry_function(root)
    entries = list(argument_attributes(function))
    number = ir.IntegerType.get_signless(32, root.context)
    for result, argument in facts.aliases.items():
        said = ir.IntegerAttr.get(number, result)
        entries[argument] = with_entry(entries[argument], ALIASING_OUTPUT, said)
    for argument in facts.donors:
        yes = ir.BoolAttr.get(True, root.context)
        entries[argument] = with_entry(entries[argument], BUFFER_DONOR, yes)
    set_argument_attributes(function, entries)


def _drop_numbers(root: ir.Operation, facts: HloFacts) -> None:
    """Call arguments ``x`` that XLA alone has a name for, and calls ``x.1``.

    It numbers its instructions so that no two have the same name. What JAX called an argument is
    in the metadata, which HLO text need not have; rules are to match with and without. Names that
    nothing but the number tells apart stay.
    """
    if not facts.unnamed:
        return
    arguments = entry_function(root).body.blocks[0].arguments
    names = [value_name(argument) or "" for argument in arguments]
    plain = [
        _NUMBER.sub("", name) if index in facts.unnamed else name
        for index, name in enumerate(names)
    ]
    # The parts of a tuple have its name, all of them.
    owners: dict[str, set[str]] = {}
    for name, before in zip(plain, names, strict=True):
        owners.setdefault(name, set()).add(before)
    for argument, name, before in zip(arguments, plain, names, strict=True):
        location = argument.location
        if name != before and len(owners[name]) == 1 and isinstance(location, ir.NameLoc):
            with root.context:
                argument.set_location(ir.Location.name(name or before, location.child_loc))


def _partitioned(name: str, partitions: int | None) -> ShardingError:
    count = f" for {partitions} devices" if partitions else ""
    return ShardingError(
        "unreadable",
        f"{name} is HLO that XLA has partitioned{count} already: the program of one device, on "
        "pieces of the arrays",
        help="take the program from before that, such as a dump called before_optimizations",
    )


def _unparsed(said: str, name: str) -> ShardingError:
    found = _PLACE.search(said)
    if found is None:
        return _damaged(said, name)
    line, column, why = int(found[1]), int(found[2]), found[3]
    return ShardingError(
        "unreadable",
        f"XLA cannot read this HLO text: {_one_line(why).rstrip(', ')}",
        location=SourceLocation(name, line, column),
    )


def _damaged(said: str, name: str) -> ShardingError:
    return ShardingError(
        "unreadable",
        f"{name} is HLO that XLA cannot read: {_one_line(said)}",
        help="it may be cut short, or written by an XLA newer than the installed one",
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())
