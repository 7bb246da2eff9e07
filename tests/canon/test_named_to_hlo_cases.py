"""Every row of what JAX's NamedSharding says: texts, shard shapes, blocks, errors."""

import json

import pytest
from cases import Row, each, load

from shardpass.canon import (
    AxisRef,
    DimSharding,
    HloSharding,
    MeshShape,
    TensorSharding,
    device_blocks,
    device_ids,
    to_hlo,
)
from shardpass.diagnostics import ShardingError

# Rows of errors that are about other objects than shardings of a rank.
NOT_OF_THE_ALGEBRA = {"memory_kind"}


def mesh_of(row: Row) -> MeshShape:
    axes = tuple(zip(row["axis_names"], row["mesh_shape"], strict=True))
    ids = row.get("logical_device_ids")
    return MeshShape(axes, tuple(ids) if ids else None)


def sharding_of(row: Row, rank: int) -> TensorSharding:
    """What the row's spec means for a value of ``rank`` dimensions."""
    mesh = mesh_of(row)
    dims = []
    for entry in [*row["spec"], *[None] * (rank - len(row["spec"]))]:
        names = [entry] if isinstance(entry, str) else entry or []
        axes = tuple(AxisRef(name) for name in names if name != "UNCONSTRAINED")
        dims.append(DimSharding(axes, open="UNCONSTRAINED" in names))
    unreduced = tuple(AxisRef(name) for name in mesh.names if name in row.get("unreduced", ()))
    return TensorSharding(
        mesh, tuple(dims), unreduced=unreduced, reduction=row.get("unreduced_kind")
    )


def manual_of(row: Row) -> list[str]:
    types = row.get("axis_types", ["Auto"] * len(row["axis_names"]))
    return [n for n, kind in zip(row["axis_names"], types, strict=True) if kind == "Manual"]


def lowers(row: Row) -> bool:
    return row["kind"] == "lower"


@each("named_to_hlo", lowers)
def test_texts_are_jaxs(row: Row):
    sharding = sharding_of(row, row["ndim"])
    lowered = to_hlo(sharding, manual_of(row))
    assert sharding.to_sdy() == row["sdy"]
    if mesh_of(row).device_ids is None and "logical_device_ids" in row:
        # JAX lists 0, 1, 2, ... one by one here; a mesh of ours is the same with and without it.
        assert lowered == HloSharding.parse(row["mhlo"])
    else:
        assert str(lowered) == row["mhlo"]
    if "mhlo_with_metadata" in row:
        assert lowered.to_text(metadata=True) == row["mhlo_with_metadata"]


@each("named_to_hlo", lowers)
def test_shapes_are_jaxs(row: Row):
    sharding = sharding_of(row, row["ndim"])
    assert sharding.is_fully_replicated == row["is_fully_replicated"]
    assert sharding.mesh.size == row["num_devices"]
    if "shard_shape" in row:
        assert list(sharding.shard_shape(row["global_shape"])) == row["shard_shape"]
        assert list(to_hlo(sharding).shard_shape(row["global_shape"])) == row["shard_shape"]


@each("named_to_hlo", lambda row: lowers(row) and "indices" in row)
def test_every_device_holds_the_block_that_jax_gives_it(row: Row):
    sharding = sharding_of(row, row["ndim"])
    blocks = device_blocks(sharding, row["global_shape"])
    # JAX numbers real devices; which of them stands at a mesh position is the row's device_order.
    order = row.get("device_order", device_ids(sharding).tolist())
    assert {str(d): b.tolist() for d, b in zip(order, blocks, strict=True)} == row["indices"]


@each("named_to_hlo", lambda row: lowers(row) and "indices" in row)
def test_tiles_place_blocks_as_the_axes_do(row: Row):
    sharding = sharding_of(row, row["ndim"])
    lowered = to_hlo(sharding)
    ids = device_ids(lowered, row["num_devices"])
    by_tiles = device_blocks(lowered, row["global_shape"], row["num_devices"])
    by_axes = device_blocks(sharding, row["global_shape"])
    placed = dict(zip(device_ids(sharding).tolist(), by_axes.tolist(), strict=True))
    assert dict(zip(ids.tolist(), by_tiles.tolist(), strict=True)) == placed


ERROR_SLUGS = {
    "n2h365": "duplicate-axis",
    "n2h367": "unknown-axis",
    "n2h374": "indivisible",
    "n2h378": "indivisible",
    "n2h379": "indivisible",
    "n2h380": "rank-mismatch",
    "n2h381": "rank-mismatch",
}


@each("named_to_hlo", lambda row: row["id"] in ERROR_SLUGS)
def test_refuses_what_jax_refuses(row: Row):
    def ask() -> tuple[int, ...]:
        rank = len(row["arg"]) if row["op"] == "shard_shape" else len(row["spec"])
        return sharding_of(row, rank).shard_shape(row["arg"])

    with pytest.raises(ShardingError) as refused:
        ask()
    assert refused.value.slug == ERROR_SLUGS[row["id"]]


def test_a_spec_shorter_than_the_rank_leaves_the_rest_whole():
    (row,) = load("named_to_hlo", lambda row: row["kind"] == "op")
    shape = row["arg"]
    assert list(sharding_of(row, len(shape)).shard_shape(shape)) == row["result"]


def test_every_row_of_errors_is_covered_or_of_another_layer():
    errors = load("named_to_hlo", lambda row: row["kind"] == "error")
    ours = {row["id"] for row in errors if row["op"] not in NOT_OF_THE_ALGEBRA}
    assert ours == ERROR_SLUGS.keys(), json.dumps([row["id"] for row in errors])
