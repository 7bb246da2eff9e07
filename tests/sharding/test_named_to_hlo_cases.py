"""What JAX 0.10.2 and 0.12.0.1 both answered for meshes and specs, through our objects."""

import json
import math
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import AxisType

from shardpass import canon
from shardpass.diagnostics import ShardingError
from shardpass.sharding import UNCONSTRAINED, Mesh, NamedSharding, P, spec_to_tensor_sharding

CASES = Path(__file__).parent.parent / "cases" / "named_to_hlo.jsonl"
ROWS = [
    row
    for row in map(json.loads, CASES.read_text().splitlines())
    if row["tier"] == "core" or row.get("unreduced_kind") == "sum"
]
LOWERED = [row for row in ROWS if row["kind"] == "lower"]
LIVE = [row for row in LOWERED if math.prod(row["mesh_shape"]) <= 8]
WITH_INDICES = [row for row in LOWERED if "indices" in row]
ERRORS = [row for row in ROWS if row["kind"] == "error"]

# JAX's exception for each kind of mistake -> ours, by the operation and what is wrong.
SLUGS = {
    "n2h365": "duplicate-axis",
    "n2h367": "unknown-axis",
    "n2h374": "indivisible",
    "n2h378": "indivisible",
    "n2h379": "indivisible",
    "n2h380": "rank-mismatch",
    "n2h381": "rank-mismatch",
    "n2h383": "memory-kind",
}


def entry_of(value):
    if isinstance(value, list):
        return tuple(value)
    return UNCONSTRAINED if value in ("UNCONSTRAINED", "?") else value


def spec_of_row(row):
    return P(
        *map(entry_of, row["spec"]),
        unreduced=set(row.get("unreduced", ())),
        reduced=set(row.get("reduced", ())),
    )


def sharding_of(row, *, live):
    types = tuple(AxisType[name] for name in row.get("axis_types", ())) or None
    mesh = Mesh(axis_sizes=row["mesh_shape"], axis_names=row["axis_names"], axis_types=types)
    if live:
        ids = row.get("device_order") or range(mesh.size)
        mesh = mesh.bind([jax.devices()[index] for index in ids])
    ids = row.get("logical_device_ids")
    return NamedSharding(
        mesh,
        spec_of_row(row),
        memory_kind=row.get("memory_kind"),
        _logical_device_ids=None if ids is None else tuple(ids),
    )


def by_id(row):
    return row["id"]


def test_the_rows_are_all_there():
    assert len(LOWERED) == 179
    assert len(ERRORS) == 8
    assert len(WITH_INDICES) > 90
    assert {row["id"] for row in ERRORS} == SLUGS.keys()


@pytest.mark.parametrize("row", LOWERED, ids=by_id)
def test_lowers_as_jax_does(row):
    sharding = sharding_of(row, live=False)
    assert sharding.to_mhlo(row["ndim"]) == row["mhlo"]
    assert sharding.to_sdy(row["ndim"]) == row["sdy"]
    assert sharding.is_fully_replicated == row["is_fully_replicated"]
    assert sharding.num_devices == row["num_devices"]
    if "logical_device_ids" not in row:
        mesh = dict(zip(row["axis_names"], row["mesh_shape"], strict=True))
        assert str(spec_to_tensor_sharding(mesh, spec_of_row(row), row["ndim"])) == row["sdy"]


@pytest.mark.parametrize("row", [row for row in LOWERED if "shard_shape" in row], ids=by_id)
def test_shard_shape(row):
    sharding = sharding_of(row, live=False)
    assert sharding.shard_shape(tuple(row["global_shape"])) == tuple(row["shard_shape"])


@pytest.mark.parametrize("row", WITH_INDICES, ids=by_id)
def test_indices(row):
    shape = tuple(row["global_shape"])
    live = math.prod(row["mesh_shape"]) <= 8
    sharding = sharding_of(row, live=live)
    if live:
        found = {
            str(device.id): [
                list(part.indices(size)[:2]) for part, size in zip(index, shape, strict=True)
            ]
            for device, index in sharding.devices_indices_map(shape).items()
        }
    else:
        layout = sharding.canonical(len(shape))
        found = dict(
            zip(
                map(str, canon.device_ids(layout).tolist()),
                canon.device_blocks(layout, shape).tolist(),
                strict=True,
            )
        )
    assert found == row["indices"]


@pytest.mark.parametrize("row", LIVE, ids=by_id)
def test_lowers_the_same_with_devices(row):
    """The devices, and their order, are no part of the text."""
    sharding = sharding_of(row, live=True)
    assert sharding.to_mhlo(row["ndim"]) == row["mhlo"]
    assert sharding.to_sdy(row["ndim"]) == row["sdy"]


@pytest.mark.parametrize("row", ERRORS, ids=by_id)
def test_refuses_what_jax_refuses(row):
    def attempt():
        mesh = Mesh(np.array(jax.devices()).reshape(row["mesh_shape"]), row["axis_names"])
        if row["op"] == "memory_kind":
            return NamedSharding(mesh, spec_of_row(row), memory_kind=row["arg"])
        sharding = NamedSharding(mesh, spec_of_row(row))
        return getattr(sharding, row["op"])(tuple(row["arg"]))

    with pytest.raises(ShardingError) as caught:
        attempt()
    assert caught.value.slug == SLUGS[row["id"]]


def test_a_spec_shorter_than_the_rank():
    (row,) = (row for row in ROWS if row["kind"] == "op")
    sharding = sharding_of(row, live=False)
    assert list(sharding.shard_shape(row["arg"])) == row["result"]
