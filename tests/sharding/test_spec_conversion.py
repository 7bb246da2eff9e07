"""Meshes and specs of any make into the algebra, and back."""

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import Mesh as JaxMesh
from jax.sharding import PartitionSpec as JaxSpec

from shardpass.canon import AxisRef, DimSharding, MeshShape, TensorSharding
from shardpass.diagnostics import ShardingError
from shardpass.sharding import (
    UNCONSTRAINED,
    Mesh,
    P,
    as_mesh_shape,
    as_partition_entries,
    as_spec,
    spec_of,
    spec_to_tensor_sharding,
)

SHAPE = MeshShape.of(x=2, y=4)


def refused(slug, make, *words):
    with pytest.raises(ShardingError) as caught:
        make()
    assert caught.value.slug == slug
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda d: SHAPE,
        lambda d: {"x": 2, "y": 4},
        lambda d: Mesh(d, ("x", "y")),
        lambda d: Mesh.of(x=2, y=4),
        lambda d: JaxMesh(d, ("x", "y")),
        lambda d: JaxMesh(d[::-1], ("x", "y")),
        lambda d: AbstractMesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2),
    ],
)
def test_any_mesh(make, devices):
    assert as_mesh_shape(make(devices)) == SHAPE


def test_what_is_no_mesh():
    refused("abstract-type", lambda: as_mesh_shape("x=2"), "str 'x=2'")
    refused("abstract-type", lambda: as_mesh_shape(None), "NoneType")
    refused("bad-mesh", lambda: as_mesh_shape({"x": -2}), "-2")


def test_jax_empty_mesh_has_no_axes():
    assert as_mesh_shape(JaxMesh(np.empty((), dtype=object), ())) == MeshShape(())
    assert as_mesh_shape(AbstractMesh((), ())) == MeshShape(())


@pytest.mark.parametrize(
    "spec", [P("x", None), JaxSpec("x", None), ("x", None), ["x", None], [("x",), ()]]
)
def test_any_spec(spec):
    assert as_spec(spec) == P("x", None)
    assert as_partition_entries(spec) == ("x", None)


def test_entries_say_the_rest_too():
    assert as_spec(None) == P()
    entries = as_partition_entries(JaxSpec(None, UNCONSTRAINED, unreduced={"y"}, reduced={"z"}))
    assert entries == (None, UNCONSTRAINED)
    assert list(entries) == [None, UNCONSTRAINED]
    assert entries.unreduced == {"y"}
    assert entries.reduced == {"z"}
    assert entries.unreduced_kind == ("sum" if hasattr(jax.sharding, "UnreducedKind") else None)


def test_what_is_no_spec():
    refused("abstract-type", lambda: as_spec("x"), "PartitionSpec('x')")
    refused("abstract-type", lambda: as_partition_entries(3), "int 3")
    refused("bad-spec", lambda: as_spec([["x", ["y"]]]), "entry 0")


@pytest.mark.parametrize(
    ("spec", "rank", "text"),
    [
        (P(), 0, "[]"),
        (P(), 2, "[{}, {}]"),
        (P("x"), 3, '[{"x"}, {}, {}]'),
        (P(("y", "x"), None), 2, '[{"y", "x"}, {}]'),
        (P(UNCONSTRAINED, "x"), 3, '[{?}, {"x"}, {}]'),
        (JaxSpec("y"), 1, '[{"y"}]'),
        (("x", "y"), 2, '[{"x"}, {"y"}]'),
    ],
)
def test_spec_to_tensor_sharding(spec, rank, text):
    sharding = spec_to_tensor_sharding({"x": 2, "y": 4}, spec, rank)
    assert sharding == TensorSharding.parse(f"<@m, {text}>", {"m": SHAPE})


def test_unreduced_axes_come_in_mesh_order():
    sharding = spec_to_tensor_sharding(SHAPE, P(None, unreduced={"y", "x"}), 1)
    assert sharding.unreduced == (AxisRef("x"), AxisRef("y"))
    assert sharding.reduction is None


def test_reduced_axes_are_no_part_of_a_layout():
    with_them = spec_to_tensor_sharding(SHAPE, P("x", reduced={"y"}), 1)
    assert with_them == spec_to_tensor_sharding(SHAPE, P("x"), 1)


def test_spec_to_tensor_sharding_refuses():
    ask = spec_to_tensor_sharding
    refused("rank-mismatch", lambda: ask(SHAPE, P("x", "y"), 1), "2 dimensions", "has 1", "drop 1")
    refused("rank-mismatch", lambda: ask(SHAPE, P("x"), 0), "a scalar takes PartitionSpec()")
    refused("unknown-axis", lambda: ask(SHAPE, P("z"), 1), '"z"', "x=2, y=4")
    refused("unknown-axis", lambda: ask(SHAPE, P(unreduced={"z"}), 1), '"z"')
    refused("duplicate-axis", lambda: ask(SHAPE, P("x", ("y", "x")), 2), '"x"')


@pytest.mark.parametrize(
    "spec",
    [P(), P("x", None), P(("y", "x")), P(UNCONSTRAINED, "y"), P("x", unreduced={"y"})],
    ids=repr,
)
def test_spec_of_is_the_inverse(spec):
    sharding = spec_to_tensor_sharding(SHAPE, spec, len(spec))
    assert spec_of(sharding) == spec


def test_spec_of_keeps_the_kind_of_reduction():
    sharding = TensorSharding(SHAPE, (DimSharding(),), unreduced=(AxisRef("x"),), reduction="max")
    if hasattr(jax.sharding, "UnreducedKind"):
        assert spec_of(sharding).unreduced_kind is jax.sharding.UnreducedKind.max
    else:
        refused("bad-spec", lambda: spec_of(sharding), "'max'", "knows sums alone")


def test_explicit_replication_of_closed_dimensions_needs_no_saying():
    text = '<@m, [{"x"}, {}], replicated={"y"}>'
    assert spec_of(TensorSharding.parse(text, {"m": SHAPE})) == P("x", None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('<@m, [{"y":(1)2}, {}]>', 'dimension 0 is cut by the sub-axis "y":(1)2'),
        ('<@m, [{}, {"x"}p1]>', "dimension 1 has priority 1"),
        ('<@m, [{"x", ?}]>', "dimension 0 is cut and open at once"),
        ('<@m, [{?}], replicated={"x"}>', 'dimension 0 is open but for "x"'),
        ('<@m, [{}], unreduced={"y":(2)2}>', 'unreduced over the sub-axis "y":(2)2'),
    ],
)
def test_spec_of_says_what_no_spec_can(text, why):
    sharding = TensorSharding.parse(text, {"m": SHAPE})
    refused("not-expressible", lambda: spec_of(sharding), why)


def test_spec_of_a_single_device():
    maximal = TensorSharding(MeshShape.maximal(3), ())
    refused("not-expressible", lambda: spec_of(maximal), "device 3")
