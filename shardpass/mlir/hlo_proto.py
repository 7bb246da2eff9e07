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
_COMPUTATION: Final[Schema] = {1: ("name", BYTES), 4: ("program_shape", BYTES)}
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
      partitions: how many devices run parts of the program, if it says.
      replicas: how many copies of all that there are, if it says.
      misfit: what is wrong between the entry computation and what the module says of it, if so.
      is_partitioned: whether it is what XLA's partitioner made, the program of one device.
    """

    aliases: dict[int, int]
    donors: tuple[int, ...]
    partitions: int | None
    replicas: int | None
    misfit: str | None
    is_partitioned: bool


def is_hlo_proto(data: bytes) -> bool:
    """Whether ``data`` is an ``HloModuleProto``, or something around one.

    A file that is cut short, or that has any other field than such a message, is none.
    """
    return _module_in(data) is not None


def module_of(data: bytes) -> bytes:
    """The ``HloModuleProto`` in what :func:`is_hlo_proto` knows."""
    found = _module_in(data)
    assert found is not None
    return found


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
    return HloFacts(
        aliases,
        tuple(sorted(donor for donor in donors if donor is not None)),
        devices.number("computation_count") or None if devices else None,
        devices.number("replica_count") or None if devices else None,
        _misfit(message, program),
        "spmd_output_sharding" in message or "spmd_parameters_shardings" in message,
    )


def _misfit(message: Message, program: Message | None) -> str | None:
    entry = message.text("entry_computation_name")
    read = partial(_read, _COMPUTATION)
    for computation in message.messages("computations", read):
        if computation.text("name") == entry and "program_shape" in computation:
            own = _first(computation, "program_shape", _PROGRAM_SHAPE)
            for what, field in (("arguments", "parameters"), ("results", "result")):
                has, said = len([*_places(own, field)]), len([*_places(program, field)])
                if has != said:
                    return f"its entry computation {entry} has {has} {what}, not {said} as it says"
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
