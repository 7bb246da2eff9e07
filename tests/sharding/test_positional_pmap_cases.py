"""What jax 0.4.38 answered for the two classes that JAX has dropped since, row by row.

Rows of tier ``quirk`` are decided here: where the old JAX ran into an assertion, ours raises a
:class:`ShardingError`; where objects that differ had equal hashes, ours may have other ones.
"""

import jax
import numpy as np
import pytest
from cases import Row, each, load

from shardpass.canon import HloSharding
from shardpass.diagnostics import ShardingError
from shardpass.sharding import (
    Chunked,
    Mesh,
    NamedSharding,
    NoSharding,
    P,
    PmapSharding,
    PositionalSharding,
    Replicated,
    ShardedAxis,
    ShardingSpec,
    Unstacked,
)

ROWS = load("positional_pmap")


def devices_of(ids):
    return np.vectorize(lambda index: jax.devices()[index], otypes=[object])(np.array(ids, int))


def positional(row: Row) -> PositionalSharding:
    """The sharding of a row: its devices, and what was done to them."""
    sharding = PositionalSharding(devices_of(row["devices"]))
    for name, *arguments in row["ops"]:
        keywords = arguments.pop() if arguments and isinstance(arguments[-1], dict) else {}
        arguments = [tuple(a) if isinstance(a, list) else a for a in arguments]
        sharding = sharding.T if name == "T" else getattr(sharding, name)(*arguments, **keywords)
    return sharding


DIMS = {"N": NoSharding, "C": Chunked, "U": Unstacked, "S": ShardedAxis, "R": Replicated}


def entry(value):
    if isinstance(value, str):
        return DIMS[value]()
    name, *arguments = value
    return DIMS[name](*arguments)


def pmapped(row: Row) -> PmapSharding:
    if row["ctor"] == "spec":
        spec = ShardingSpec(map(entry, row["sharding"]), map(entry, row["mesh_mapping"]))
        return PmapSharding(devices_of(row["devices"]), spec)
    devices = row["devices"]
    return PmapSharding.default(
        tuple(row["shape"]),
        row["sharded_dim"],
        None if devices is None else list(devices_of(devices)),
    )


def with_default_kind(text: str) -> str:
    return text.replace("unpinned_host", jax.devices()[0].default_memory().kind)


def normalised(index, shape):
    return [
        list(part.indices(size)[:2]) if isinstance(part, slice) else part
        for part, size in zip(index, shape, strict=True)
    ]


def answers_queries(sharding, row: Row):
    for query in row["queries"]:
        shape = tuple(query["global_shape"])
        if "shard_shape_error" in query or "indices_error" in query:
            # The old PmapSharding gave a shard shape for values of other ranks, and no blocks.
            with pytest.raises(ShardingError) as caught:
                sharding.shard_shape(shape)
            assert caught.value.diagnostic.slug in ("indivisible", "rank-mismatch", "mapped-size")
            with pytest.raises(ShardingError):
                sharding.devices_indices_map(shape)
        else:
            assert sharding.shard_shape(shape) == tuple(query["shard_shape"])
            found = sharding.devices_indices_map(shape)
            assert {str(d.id): normalised(i, shape) for d, i in found.items()} == query["indices"]
            assert list(found) == list(sharding.device_order)
        if "compatible" in query:
            if query["compatible"]:
                sharding.check_compatible_aval(shape)
            else:
                with pytest.raises(ShardingError):
                    sharding.check_compatible_aval(shape)


def is_plain(cls):
    return lambda row: row["cls"] == cls and "kind" not in row and "error" not in row


def test_the_rows_are_all_there():
    assert len(ROWS) == 67
    assert sum(row["tier"] == "core" for row in ROWS) == 61
    assert {row["id"] for row in ROWS if row["tier"] == "quirk"} == {
        "pp000",
        "pp058",
        "pp060",
        "pp065",
        "pp104",
        "pp113",
    }


@each("positional_pmap", is_plain("PositionalSharding"))
def test_positional(row: Row):
    sharding = positional(row)
    assert sharding.shape == tuple(row["shape"])
    assert sharding.ndim == row["ndim"]
    assert sharding.num_devices == row["num_devices"]
    assert sharding.is_fully_replicated == row["is_fully_replicated"]
    assert sharding.is_fully_addressable == row["is_fully_addressable"]
    assert repr(sharding) == with_default_kind(row["repr"])
    texts = {int(k.removeprefix("hlo_ndim")): row[k] for k in row if k.startswith("hlo_ndim")}
    for ndim, text in {sharding.ndim: row["hlo"], **texts}.items():
        found = sharding.canonical_hlo(ndim)
        assert found == HloSharding.parse(text)
        assert str(found) == sharding.to_mhlo(ndim) == str(HloSharding.parse(text).to_v2())
    answers_queries(sharding, row)


@each("positional_pmap", lambda r: r["cls"] == "PositionalSharding" and "ops" in r and "error" in r)
def test_positional_errors(row: Row):
    with pytest.raises(ShardingError) as caught:
        positional(row)
    slugs = {"pp014": "bad-reshape", "pp056": "not-enough-devices"}
    assert caught.value.diagnostic.slug == slugs.get(row["id"], "unknown-dimension")


@each("positional_pmap", lambda r: r["cls"] == "PositionalSharding" and r.get("kind") == "equality")
def test_positional_equality(row: Row):
    a, b = positional(row["a"]), positional(row["b"])
    assert (a == b, b == a) == (row["equal"],) * 2
    if row["equal"]:
        assert hash(a) == hash(b)
    for ndim, equivalent in row.get("equivalent", {}).items():
        assert a.is_equivalent_to(b, int(ndim)) == equivalent


@each("positional_pmap", lambda row: row.get("kind") == "equivalent_to_named")
def test_positional_and_named(row: Row):
    sharding = positional(row["a"])
    spec = P(*(tuple(part) if isinstance(part, list) else part for part in row["spec"]))
    named = NamedSharding(Mesh(devices_of(row["mesh"]), row["axis_names"]), spec)
    for other in (named, named.to_jax()):
        assert sharding.is_equivalent_to(other, row["ndim"]) == row["equivalent"]
        assert other.is_equivalent_to(sharding, row["ndim"]) == row["equivalent"]
        assert (sharding == other, other == sharding) == (row["equal"],) * 2


@each("positional_pmap", lambda row: row.get("kind") == "from_hlo")
def test_positional_from_hlo(row: Row):
    hlo = HloSharding.parse(row["hlo"])
    if "error" in row:
        with pytest.raises(ShardingError, match="no array of tiles") as caught:
            PositionalSharding.from_hlo(hlo, jax.devices())
        assert caught.value.diagnostic.slug == "not-expressible"
        return
    sharding = PositionalSharding.from_hlo(hlo, jax.devices())
    assert sharding.shape == tuple(row["shape"])
    assert sharding.num_devices == row["num_devices"]
    assert sharding.is_fully_replicated == row["is_fully_replicated"]
    if not hlo.subgroup_types or hlo.subgroup_types[0].value == "replicated":
        assert sharding.canonical_hlo(sharding.ndim) == hlo


@each("positional_pmap", is_plain("PmapSharding"))
def test_pmap(row: Row):
    sharding = pmapped(row)
    assert [device.id for device in sharding.device_order] == row["device_ids"]
    assert sharding.devices.shape == tuple(row["devices_shape"])
    assert repr(sharding.sharding_spec) == row["sharding_spec"]
    assert sharding.num_devices == row["num_devices"]
    assert sharding.is_fully_replicated == row["is_fully_replicated"]
    assert sharding.is_fully_addressable == row["is_fully_addressable"]
    assert str(sharding) == row["str"]
    answers_queries(sharding, row)
    # The old JAX had no lowering and no memory kinds for it.
    hosted = sharding.with_memory_kind("pinned_host")
    assert (hosted.memory_kind, hosted == sharding) == ("pinned_host", False)
    ndim = len(sharding.sharding_spec.sharding)
    if sharding.sharding_spec.has_unstacked:
        with pytest.raises(ShardingError, match=r"use .*Chunked"):
            sharding.to_mhlo(ndim)
    else:
        named = sharding.to_jax()
        shape = tuple(row["queries"][0]["global_shape"])
        assert sharding.is_equivalent_to(named, ndim)
        assert named.devices_indices_map(shape) == sharding.devices_indices_map(shape)


@each("positional_pmap", lambda row: row["cls"] == "PmapSharding" and "error" in row)
def test_pmap_errors(row: Row):
    with pytest.raises(ShardingError) as caught:
        pmapped(row)
    slugs = {"pp101": "device-count", "pp104": "unknown-dimension"}
    assert caught.value.diagnostic.slug == slugs[row["id"]]


@each("positional_pmap", lambda row: row["cls"] == "PmapSharding" and row.get("kind") == "equality")
def test_pmap_equality(row: Row):
    a, b = (
        PmapSharding.default(tuple(shape), dim, list(devices_of(devices)))
        for shape, dim, devices in (row["a"], row["b"])
    )
    assert (a == b, b == a) == (row["equal"],) * 2
    assert (hash(a) == hash(b)) == row["hash_equal"]
    assert a.is_equivalent_to(b, 2) == row["equivalent"]
    assert b.is_equivalent_to(a, len(row["b"][0])) == row["equivalent"]
