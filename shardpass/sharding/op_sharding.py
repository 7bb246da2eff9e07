"""XLA's ``OpSharding``, the proto form of a sharding, read field by field.

jaxlib reads it too, and trusts it: bytes that are no proto give ``{replicated}`` without a word,
and tiles or axes that do not fit abort the process or place something else. So everything is read
here, where every fault has a place, and the algebra checks the rest.

Sources: ``OpSharding`` and ``NamedShardingProto`` in ``xla/xla_data.proto``,
``HloSharding::FromProto``; the numbers of the latter's fields as jaxlib 0.10 and 0.12 write them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from shardpass.canon import (
    AxisRef,
    DimSharding,
    HloSharding,
    MeshShape,
    Metadata,
    NamedHlo,
    ShardGroup,
    SubgroupType,
    TensorSharding,
    TileAssignment,
)
from shardpass.canon.lowering import named_to_hlo
from shardpass.diagnostics import ShardingError
from shardpass.sharding.proto_wire import BYTES, VARINT, Message, Schema, fault

_OP: Final[Schema] = {
    1: ("type", VARINT),
    2: ("tile_shape", BYTES),
    3: ("tile_assignment_dimensions", VARINT),
    4: ("tile_assignment_devices", VARINT),
    5: ("tuple_shardings", BYTES),
    6: ("replicate_on_last_tile_dim", VARINT),
    7: ("metadata", BYTES),
    8: ("last_tile_dims", VARINT),
    9: ("iota_reshape_dims", VARINT),
    10: ("iota_transpose_perm", VARINT),
    11: ("is_shard_group", VARINT),
    12: ("shard_group_id", VARINT),
    13: ("shard_group_type", VARINT),
    14: ("named_sharding", BYTES),
}
_NAMED: Final[Schema] = {
    2: ("mesh", BYTES),
    3: ("dim_shardings", BYTES),
    4: ("replicated_axes", BYTES),
    5: ("unreduced_axes", BYTES),
    6: ("metadata", BYTES),
    7: ("manual_axes", BYTES),
}
_MESH: Final[Schema] = {
    1: ("axes", BYTES),
    2: ("device_ids", VARINT),
    3: ("device_order", BYTES),
}
_MESH_AXIS: Final[Schema] = {1: ("name", BYTES), 2: ("size", VARINT)}
_ORDER: Final[Schema] = {1: ("reshape_dims", VARINT), 2: ("transpose_perm", VARINT)}
_DIM: Final[Schema] = {1: ("axes", BYTES), 2: ("is_closed", VARINT)}
_AXIS: Final[Schema] = {1: ("mesh_axis_index", VARINT), 2: ("sub_axis", BYTES)}
_SUB_AXIS: Final[Schema] = {1: ("pre_size", VARINT), 2: ("size", VARINT)}
# Of XLA's OpMetadata, what says how unreduced values combine; the rest tells of the origin.
_METADATA: Final[Schema] = {1: ("op_type", BYTES), 2: ("op_name", BYTES)}

_KINDS: Final = {
    0: HloSharding.replicated(),
    4: HloSharding.manual(),
    5: HloSharding.unknown(),
    6: HloSharding.unreduced(),
}
_MAXIMAL, _TUPLE, _TILED, _UNREDUCED = 1, 2, 3, 6
_SUBGROUPS: Final = {
    0: SubgroupType.REPLICATED,
    4: SubgroupType.MANUAL,
    6: SubgroupType.UNREDUCED,
}
_SHARD_LIKE: Final = 1
_REDUCTIONS: Final = ("max", "min")


def from_proto_bytes(data: bytes) -> HloSharding:
    """The sharding that a serialized ``OpSharding`` holds.

    A tile assignment of one device, which says neither that the value is replicated nor where it
    is, is read as ``{replicated}``: that is how JAX reads it.

    Raises:
      ShardingError: ``syntax`` for bytes that are no ``OpSharding``, with the position;
        ``not-expressible`` for a tuple in a tuple; ``bad-tile-assignment``, ``duplicate-device``,
        and for a named sharding what :class:`shardpass.canon.TensorSharding` refuses.
    """
    return _sharding(data, 0)


def _sharding(data: bytes, start: int) -> HloSharding:
    message = Message(data, _OP, "an OpSharding", start)
    if "named_sharding" in message:
        return message.messages("named_sharding", _named)[-1]
    kind = message.number("type")
    devices = message.numbers("tile_assignment_devices")
    if kind == _TUPLE:
        return HloSharding.tuple_of(message.messages("tuple_shardings", _sharding))
    reduction = _reduction(message)
    if kind == _UNREDUCED:
        found = HloSharding.unreduced(reduction)
    elif kind in _KINDS:
        found = _KINDS[kind]
    elif kind == _MAXIMAL:
        if len(devices) != 1:
            raise ShardingError(
                "bad-tile-assignment", f"a maximal sharding of {len(devices)} devices, not of 1"
            )
        found = HloSharding.maximal(devices[0])
    elif kind == _TILED:
        found = _tiled(message, devices, reduction)
    else:
        raise fault(start, f"an OpSharding has no type {kind}")
    if not message.number("is_shard_group"):
        return found
    exact = message.number("shard_group_type") != _SHARD_LIKE
    return replace(found, group=ShardGroup(message.number("shard_group_id"), exact))


def _tiled(message: Message, devices: Sequence[int], reduction: str | None) -> HloSharding:
    dims = message.numbers("tile_assignment_dimensions")
    types = []
    for number in message.numbers("last_tile_dims"):
        if number not in _SUBGROUPS:
            raise ShardingError("syntax", f"an OpSharding has no subgroups of type {number}")
        types.append(_SUBGROUPS[number])
    if not types and message.number("replicate_on_last_tile_dim"):
        types = [SubgroupType.REPLICATED]
    reshape = message.numbers("iota_reshape_dims")
    if reshape:
        tile = TileAssignment.iota(dims, reshape, message.numbers("iota_transpose_perm"))
    else:
        tile = TileAssignment.listed(dims, devices)
    if tile.size == 1:
        return HloSharding.replicated()
    return HloSharding.tiled(tile, types, reduction)


def _named(data: bytes, start: int) -> HloSharding:
    message = Message(data, _NAMED, "a named sharding", start)
    mesh, order = (message.messages("mesh", _mesh) or [(MeshShape(), None)])[-1]

    def axis(data: bytes, start: int) -> AxisRef:
        return _axis(data, start, mesh)

    def dim(data: bytes, start: int) -> DimSharding:
        said = Message(data, _DIM, "a dimension", start)
        return DimSharding(tuple(said.messages("axes", axis)), open=not said.number("is_closed"))

    dims = tuple(message.messages("dim_shardings", dim))
    replicated, unreduced, manual = (
        tuple(message.messages(f"{name}_axes", axis))
        for name in ("replicated", "unreduced", "manual")
    )
    reduction = _reduction(message) if unreduced else None
    sharding = TensorSharding(mesh, dims, replicated, unreduced, reduction)
    return named_to_hlo(NamedHlo(sharding, manual, order))


def _mesh(data: bytes, start: int) -> tuple[MeshShape, TileAssignment | None]:
    message = Message(data, _MESH, "a mesh", start)
    axes = tuple(message.messages("axes", _mesh_axis))
    ids = message.numbers("device_ids")
    mesh = MeshShape(axes, tuple(ids) or None)
    orders = message.messages(
        "device_order", lambda data, start: Message(data, _ORDER, "an order of devices", start)
    )
    if not orders:
        return mesh, None
    said = orders[-1]
    order = TileAssignment.iota(
        mesh.sizes or (1,), said.numbers("reshape_dims"), said.numbers("transpose_perm")
    )
    return mesh, order if len(order.reshape_dims) > 1 else None


def _mesh_axis(data: bytes, start: int) -> tuple[str, int]:
    message = Message(data, _MESH_AXIS, "an axis of a mesh", start)
    return message.text("name"), message.number("size")


def _axis(data: bytes, start: int, mesh: MeshShape) -> AxisRef:
    message = Message(data, _AXIS, "an axis", start)
    index = message.number("mesh_axis_index")
    if not 0 <= index < len(mesh.axes):
        raise fault(start, f"axis {index} of a mesh that has {len(mesh.axes)}")
    parts = message.messages(
        "sub_axis", lambda data, start: Message(data, _SUB_AXIS, "a sub-axis", start)
    )
    if not parts:
        return AxisRef(mesh.names[index])
    return AxisRef(mesh.names[index], parts[-1].number("pre_size"), parts[-1].number("size"))


def _reduction(message: Message) -> str | None:
    """How partial results are to be combined; ``None`` for the sum."""
    for note in message.messages("metadata", _metadata):
        if note.reduction in _REDUCTIONS:
            return note.reduction
    return None


def _metadata(data: bytes, start: int) -> Metadata:
    said = Message(data, _METADATA, "metadata", start, partly=True)
    return Metadata(tuple((name, said.text(name)) for name in ("op_type", "op_name")))
