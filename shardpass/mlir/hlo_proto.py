"""HLO protos, read as far as XLA's importer does not: what they are, and what it leaves out.

XLA's importer turns the computations of an ``HloModuleProto`` into StableHLO, with shardings and
names. Which arguments may be overwritten, and how many devices there are, it leaves to the caller.
Source of the numbers of fields: ``xla/service/hlo.proto`` and ``xla/xla_data.proto``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from shardpass.diagnostics import ShardingError
from shardpass.sharding.proto_wire import BYTES, VARINT, Message, Schema

_MODULE: Final[Schema] = {
    1: ("name", BYTES),
    2: ("entry_computation_name", BYTES),
    3: ("computations", BYTES),
    4: ("host_program_shape", BYTES),
    5: ("id", VARINT),
    6: ("entry_computation_id", VARINT),
    8: ("input_output_alias", BYTES),
    12: ("spmd_output_sharding", BYTES),
    14: ("spmd_parameters_shardings", BYTES),
    15: ("device_assignment", BYTES),
    18: ("buffer_donor", BYTES),
}
#: An ``HloProto``, and what wraps a module or an ``HloProto`` in turn: it is field 1 of all.
_WRAPPER: Final[Schema] = {1: ("wrapped", BYTES)}
_DEEPEST: Final = 2
_COMPUTATION: Final[Schema] = {
    1: ("name", BYTES),
    2: ("instructions", BYTES),
    4: ("program_shape", BYTES),
}
_INSTRUCTION: Final[Schema] = {
    2: ("opcode", BYTES),
    7: ("metadata", BYTES),
    9: ("parameter_number", VARINT),
}
_METADATA: Final[Schema] = {2: ("op_name", BYTES)}
#: What stands in every instruction that is a parameter.
_PARAMETER: Final = b"\x12\x09parameter"
_ENTRIES: Final[Schema] = {1: ("entries", BYTES)}
_ALIAS: Final[Schema] = {
    1: ("output_shape_index", VARINT),
    2: ("parameter_number", VARINT),
    3: ("parameter_shape_index", VARINT),
}
_DONOR: Final[Schema] = {1: ("parameter_number", VARINT), 2: ("parameter_shape_index", VARINT)}
_DEVICES: Final[Schema] = {1: ("replica_count", VARINT), 2: ("computation_count", VARINT)}
_PROGRAM_SHAPE: Final[Schema] = {1: ("parameters", BYTES), 2: ("result", BYTES)}
_SHAPE: Final[Schema] = {2: ("element_type", VARINT), 4: ("tuple_shapes", BYTES)}
#: The keys of the fields that an ``HloModuleProto`` begins with.
_FIRST, _SECOND, _THIRD = b"\x0a", b"\x12", b"\x1a"
#: ``TUPLE`` of ``PrimitiveType``.
_TUPLE: Final = 13

#: Where a buffer is: the number of a parameter, and the way into its tuples.
Place = tuple[int, tuple[int, ...]]


@dataclass(frozen=True)
class HloFacts:
    """What an HLO module says and XLA's importer does not hand on.

    Attributes:
      aliases: number of a result -> number of the argument whose buffer it may take over.
      donors: numbers of the arguments whose buffers may be taken by any result.
      unnamed: numbers of the arguments that the source has no name for, only XLA.
      partitions: how many devices run parts of the program, if it says.
      replicas: how many copies of all that there are, if it says.
      misfit: what is wrong between the entry computation and what the module says of it, if so.
      is_partitioned: whether it is what XLA's partitioner made, the program of one device.
    """

    aliases: dict[int, int]
    donors: tuple[int, ...]
    unnamed: frozenset[int]
    partitions: int | None
    replicas: int | None
    misfit: str | None
    is_partitioned: bool


def is_hlo_proto(data: bytes) -> bool:
    """Whether ``data`` is an ``HloModuleProto``, or something around one.

    A file that is cut short, or that has any other field than such a message, is none.
    """
    return _module_in(data) is not None


def begins_as_hlo_proto(data: bytes, depth: int = 0) -> bool:
    """Whether ``data`` begins as an HLO proto does, whatever comes of it behind that.

    For what is cut short or damaged. An ``HloModuleProto`` begins with its name, the name of its
    entry computation, and a computation, in this order; or else with one around it.
    """
    first = _first_field(data, 0, _FIRST)
    if first is None:
        return False
    name, behind = first
    if behind < len(data) and _is_name(name):
        second = _first_field(data, behind, _SECOND)
        if second is not None:
            entry, behind = second
            return _is_name(entry) and data[behind : behind + 1] == _THIRD
    return depth < _DEEPEST and begins_as_hlo_proto(name, depth + 1)


def _first_field(data: bytes, at: int, key: bytes) -> tuple[bytes, int] | None:
    """The bytes of the field at ``at``, as far as they are there, and where the next one begins."""
    if data[at : at + 1] != key:
        return None
    size, shift = 0, 0
    for place in range(at + 1, min(at + 6, len(data))):
        size |= (data[place] & 0x7F) << shift
        shift += 7
        if data[place] < 0x80:
            return data[place + 1 : place + 1 + size], place + 1 + size
    return None


def _is_name(raw: bytes) -> bool:
    try:
        return bool(raw) and raw.decode().isprintable()
    except UnicodeDecodeError:
        return False


def module_of(data: bytes) -> bytes | None:
    """The ``HloModuleProto`` in what :func:`is_hlo_proto` knows; ``None`` in anything else."""
    return _module_in(data)


def fault_in(data: bytes) -> str:
    """What is wrong with what is no ``HloModuleProto`` and only begins as one."""
    for _ in range(_DEEPEST + 1):
        try:
            message = Message(data, _MODULE, "HloModuleProto", partly=True)
            read = partial(_read, _COMPUTATION)
            found = [c.text("name") for c in message.messages("computations", read)]
            if found:
                entry = message.text("entry_computation_name")
                return f"no computation is called {entry!r}, as its entry is"
            data = Message(data, _WRAPPER, "HloProto", partly=True).messages(
                "wrapped", lambda raw, _: raw
            )[0]
        except ShardingError as error:
            return error.diagnostic.message.split(";")[0]
        except IndexError:
            break
    return "it has no computations"


def facts_of(module: bytes) -> HloFacts:
    """What ``module``, a serialized ``HloModuleProto``, says beside its computations."""
    message = Message(module, _MODULE, "HloModuleProto", partly=True)
    program = _first(message, "host_program_shape", _PROGRAM_SHAPE)
    parameters = list(_places(program, "parameters"))
    numbers = {place: number for number, place in enumerate(parameters)}
    results = {place[1]: number for number, place in enumerate(_places(program, "result"))}
    aliases: dict[int, int] = {}
    for entry in _entries(message, "input_output_alias", _ALIAS):
        output = results.get(tuple(entry.numbers("output_shape_index")))
        argument = numbers.get(_place(entry))
        if output is not None and argument is not None:
            aliases[output] = argument
    donors = [numbers.get(_place(entry)) for entry in _entries(message, "buffer_donor", _DONOR)]
    devices = _first(message, "device_assignment", _DEVICES)
    unnamed = _unnamed_parameters(message)
    return HloFacts(
        aliases,
        tuple(sorted(donor for donor in donors if donor is not None)),
        frozenset(numbers[place] for place in parameters if place[0] in unnamed),
        devices.number("computation_count") or None if devices else None,
        devices.number("replica_count") or None if devices else None,
        _misfit(message, program),
        "spmd_output_sharding" in message or "spmd_parameters_shardings" in message,
    )


def _entry_of(message: Message) -> Message | None:
    entry = message.text("entry_computation_name")
    computations = message.messages("computations", partial(_read, _COMPUTATION))
    return next((c for c in computations if c.text("name") == entry), None)


def _unnamed_parameters(message: Message) -> set[int]:
    entry = _entry_of(message)
    raws = entry.messages("instructions", lambda raw, _: raw) if entry else []
    found: set[int] = set()
    for raw in raws:
        if _PARAMETER not in raw:
            continue
        instruction = _read(_INSTRUCTION, raw, 0)
        metadata = _first(instruction, "metadata", _METADATA)
        if instruction.text("opcode") == "parameter" and not (metadata and "op_name" in metadata):
            found.add(instruction.number("parameter_number"))
    return found


def _misfit(message: Message, program: Message | None) -> str | None:
    entry = _entry_of(message)
    if entry is None or "program_shape" not in entry:
        return None
    own = _first(entry, "program_shape", _PROGRAM_SHAPE)
    for what, field in (("arguments", "parameters"), ("results", "result")):
        has, said = len([*_places(own, field)]), len([*_places(program, field)])
        if has != said:
            name = entry.text("name")
            return f"its entry computation {name} has {has} {what}, not {said} as it says"
    return None


def _module_in(data: bytes, depth: int = 0) -> bytes | None:
    if not data:
        return None
    if _is_module(data):
        return data
    if depth == _DEEPEST:
        return None
    try:
        wrapper = Message(data, _WRAPPER, "HloProto", partly=True)
    except ShardingError:
        return None
    wrapped = wrapper.messages("wrapped", lambda raw, _: raw)
    return _module_in(wrapped[0], depth + 1) if len(wrapped) == 1 else None


def _is_module(data: bytes) -> bool:
    """Whether it has computations, the one that it names as its entry among them."""
    try:
        message = Message(data, _MODULE, "HloModuleProto", partly=True)
        entry = message.text("entry_computation_name")
        if not entry or "host_program_shape" not in message:
            return False
        read = partial(_read, _COMPUTATION)
        return any(c.text("name") == entry for c in message.messages("computations", read))
    except ShardingError:
        return False


def _read(schema: Schema, raw: bytes, start: int) -> Message:
    return Message(raw, schema, "a part of an HloModuleProto", start, partly=True)


def _first(message: Message, name: str, schema: Schema) -> Message | None:
    return next(iter(message.messages(name, partial(_read, schema))), None)


def _entries(message: Message, name: str, schema: Schema) -> list[Message]:
    held = _first(message, name, _ENTRIES)
    return held.messages("entries", partial(_read, schema)) if held else []


def _place(entry: Message) -> Place:
    return entry.number("parameter_number"), tuple(entry.numbers("parameter_shape_index"))


def _places(program: Message | None, name: str) -> Iterator[Place]:
    """Every array in the parameters or the result, as XLA's importer numbers them."""
    if program is None:
        return
    for number, shape in enumerate(program.messages(name, partial(_read, _SHAPE))):
        for index in _leaves(shape):
            yield number, index


def _leaves(shape: Message) -> Iterator[tuple[int, ...]]:
    if shape.number("element_type") != _TUPLE:
        yield ()
        return
    for position, part in enumerate(shape.messages("tuple_shapes", partial(_read, _SHAPE))):
        for index in _leaves(part):
            yield (position, *index)
