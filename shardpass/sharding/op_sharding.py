"""XLA's ``OpSharding``, the proto form of a sharding, read field by field.

jaxlib reads it too, and trusts it: bytes that are no proto give ``{replicated}`` without a word,
and tiles that do not fit their devices abort the process or place something else. So the wire
format is read here, where every fault has a place, and the algebra checks the rest. Only a named
sharding (V3), which newer jaxlibs write, goes through jaxlib's own reader; it is nested deeply and
has a text that says the same.

Sources: ``OpSharding`` in ``xla/xla_data.proto``, ``HloSharding::FromProto``, and the protobuf
encoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from jax.extend import sharding as jax_extend

from shardpass.canon import HloSharding, Metadata, ShardGroup, SubgroupType, TileAssignment
from shardpass.diagnostics import ShardingError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_FIELDS: Final = {
    1: ("type", _VARINT),
    2: ("tile_shape", _BYTES),
    3: ("tile_assignment_dimensions", _VARINT),
    4: ("tile_assignment_devices", _VARINT),
    5: ("tuple_shardings", _BYTES),
    6: ("replicate_on_last_tile_dim", _VARINT),
    7: ("metadata", _BYTES),
    8: ("last_tile_dims", _VARINT),
    9: ("iota_reshape_dims", _VARINT),
    10: ("iota_transpose_perm", _VARINT),
    11: ("is_shard_group", _VARINT),
    12: ("shard_group_id", _VARINT),
    13: ("shard_group_type", _VARINT),
    14: ("named_sharding", _BYTES),
}
_KINDS: Final = {
    0: HloSharding.replicated(),
    4: HloSharding.manual(),
    5: HloSharding.unknown(),
    6: HloSharding.unreduced(),
}
_MAXIMAL, _TUPLE, _TILED = 1, 2, 3
_SUBGROUPS: Final = {
    0: SubgroupType.REPLICATED,
    4: SubgroupType.MANUAL,
    6: SubgroupType.UNREDUCED,
}
_SHARD_LIKE: Final = 1
# Of XLA's OpMetadata, what says how unreduced values combine; the rest tells of the origin.
_METADATA: Final = {1: "op_type", 2: "op_name"}
_REDUCTIONS: Final = ("max", "min")


def from_proto_bytes(data: bytes) -> HloSharding:
    """The sharding that a serialized ``OpSharding`` holds.

    A tile assignment of one device, which says neither that the value is replicated nor where it
    is, is read as ``{replicated}``: that is how JAX reads it.

    Raises:
      ShardingError: ``syntax`` for bytes that are no ``OpSharding``, with the position;
        ``bad-tile-assignment``, ``duplicate-device``; ``not-expressible`` for a tuple in a tuple.
    """
    return _sharding(_read(data, 0))


def _sharding(fields: dict[str, list[Any]]) -> HloSharding:
    if "named_sharding" in fields:
        raw = fields["raw"][0]
        return HloSharding.parse(repr(jax_extend.get_hlo_sharding_from_serialized_proto(raw)))
    kind = _last(fields, "type", 0)
    if kind == _TUPLE:
        nested = (_read(data, offset) for offset, data in fields.get("tuple_shardings", ()))
        return HloSharding.tuple_of([_sharding(element) for element in nested])
    notes = [_metadata(data, offset) for offset, data in fields.get("metadata", ())]
    reductions = [note.reduction for note in notes if note.reduction in _REDUCTIONS]
    reduction = reductions[0] if reductions else None
    devices = fields.get("tile_assignment_devices", [])
    if kind in _KINDS:
        found = HloSharding.unreduced(reduction) if kind == 6 else _KINDS[kind]
    elif kind == _MAXIMAL:
        if len(devices) != 1:
            raise ShardingError(
                "bad-tile-assignment", f"a maximal sharding of {len(devices)} devices, not of 1"
            )
        found = HloSharding.maximal(devices[0])
    elif kind == _TILED:
        found = _tiled(fields, devices, reduction)
    else:
        raise ShardingError("syntax", f"an OpSharding has no type {kind}")
    if not _last(fields, "is_shard_group", 0):
        return found
    exact = _last(fields, "shard_group_type", 0) != _SHARD_LIKE
    group = ShardGroup(_last(fields, "shard_group_id", 0), exact)
    return HloSharding(
        found.kind,
        found.tile,
        found.subgroup_types,
        found.device,
        group=group,
        reduction=found.reduction,
    )


def _tiled(
    fields: dict[str, list[Any]], devices: Sequence[int], reduction: str | None
) -> HloSharding:
    dims = fields.get("tile_assignment_dimensions", [])
    types = []
    for number in fields.get("last_tile_dims", ()):
        if number not in _SUBGROUPS:
            raise ShardingError("syntax", f"an OpSharding has no subgroups of type {number}")
        types.append(_SUBGROUPS[number])
    if not types and _last(fields, "replicate_on_last_tile_dim", 0):
        types = [SubgroupType.REPLICATED]
    reshape = fields.get("iota_reshape_dims", [])
    if reshape:
        tile = TileAssignment.iota(dims, reshape, fields.get("iota_transpose_perm", []))
    else:
        tile = TileAssignment.listed(dims, devices)
    if tile.size == 1:
        return HloSharding.replicated()
    return HloSharding.tiled(tile, types, reduction)


def _metadata(data: bytes, start: int) -> Metadata:
    said = []
    for _, number, wire, value in _entries(data, start):
        if number in _METADATA and wire == _BYTES:
            said.append((_METADATA[number], value[1].decode("utf-8", "replace")))
    return Metadata(tuple(said))


def _last(fields: dict[str, list[Any]], name: str, default: int) -> int:
    return fields[name][-1] if fields.get(name) else default


def _read(data: bytes, start: int) -> dict[str, list[Any]]:
    """Name -> values of one ``OpSharding``; ``raw`` is the whole."""
    fields: dict[str, list[Any]] = {"raw": [data]}
    for position, number, wire, value in _entries(data, start):
        name, expected = _FIELDS.get(number, (None, None))
        if name is None:
            raise _fault(position, f"an OpSharding has no field {number}")
        values = fields.setdefault(name, [])
        if wire == expected:
            values.append(_signed(value) if wire == _VARINT else value)
        elif wire == _BYTES:  # numbers packed one after the other
            offset, packed = value
            values += [_signed(number) for number in _packed(packed, offset)]
        else:
            raise _fault(position, f"{name} is not written as wire type {wire}")
    return fields


def _entries(data: bytes, start: int) -> Iterator[tuple[int, int, int, Any]]:
    """The entries of a message: position, field number, wire type, value.

    A varint is an unsigned number, what has a length is its position and its bytes. Positions count
    from the start of the outermost message, ``start`` being where this one begins.
    """
    at = 0
    while at < len(data):
        position = start + at
        key, at = _varint(data, at, start)
        number, wire = divmod(key, 8)
        if wire == _VARINT:
            value, at = _varint(data, at, start)
            yield position, number, wire, value
            continue
        if wire == _BYTES:
            size, at = _varint(data, at, start)
        elif wire in (_FIXED32, _FIXED64):
            size = 4 if wire == _FIXED32 else 8
        else:
            raise _fault(position, f"no field is written as wire type {wire}")
        if size > len(data) - at:
            raise _fault(position, f"a field of {size} bytes, and {len(data) - at} are left")
        yield position, number, wire, (start + at, data[at : at + size])
        at += size


def _packed(data: bytes, start: int) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _varint(data, at, start)
        yield value


def _varint(data: bytes, at: int, start: int) -> tuple[int, int]:
    value = 0
    for index in range(at, min(at + 10, len(data))):
        value |= (data[index] & 0x7F) << 7 * (index - at)
        if data[index] < 0x80:
            return value, index + 1
    raise _fault(start + at, "a number without an end")


def _signed(value: int) -> int:
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value


def _fault(position: int, what: str) -> ShardingError:
    return ShardingError("syntax", f"byte {position}: {what}; this is no serialized OpSharding")
