"""The same names on a mesh of other sizes."""

import math

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import mesh_shapes, tensor_shardings

from shardpass.canon import AxisRef, MeshShape, TensorSharding, device_blocks
from shardpass.canon.retargeting import axis_on, retargeted, uncut
from shardpass.diagnostics import ShardingError

OLD = MeshShape.of(x=4, y=2, one=1)


def spec_of(sharding: TensorSharding) -> jax.sharding.PartitionSpec:
    return jax.sharding.PartitionSpec(
        *(tuple(axis.name for axis in dim.axes) for dim in sharding.dims)
    )


@given(
    tensor_shardings(
        mesh_shapes(max_axes=3, max_devices=8, permuted=False),
        sub_axes=False,
        unreduced=False,
        hints=False,
    ),
    st.data(),
)
def test_the_blocks_are_those_of_the_same_spec_in_jax(
    sharding: TensorSharding, data: st.DataObject
) -> None:
    """Oracle: ``NamedSharding`` with the same ``PartitionSpec`` on the new mesh."""
    axes: list[tuple[str, int]] = []
    for name in data.draw(st.permutations(sharding.mesh.names)):
        room = 8 // math.prod(size for _, size in axes)
        axes.append((name, data.draw(st.integers(1, max(1, room)))))
    new = MeshShape(tuple(axes))
    found, missing = retargeted(sharding, new)
    assert not missing
    shape = tuple(2 * tiles for tiles in found.tiles())
    devices = jax.devices()[: new.size]
    mesh = jax.sharding.Mesh(np.array(devices).reshape(new.sizes), new.names)
    theirs = jax.sharding.NamedSharding(mesh, spec_of(sharding)).devices_indices_map(shape)
    for device, block in zip(devices, device_blocks(found, shape).tolist(), strict=True):
        indices = [s.indices(n)[:2] for s, n in zip(theirs[device], shape, strict=True)]
        assert [tuple(pair) for pair in block] == indices


@given(tensor_shardings(mesh_shapes(permuted=False)))
def test_the_same_mesh_changes_nothing(sharding: TensorSharding) -> None:
    assert retargeted(sharding, sharding.mesh) == (sharding, ())


@pytest.mark.parametrize(
    ("axis", "new", "expected"),
    [
        (AxisRef("x"), MeshShape.of(x=16), AxisRef("x")),
        (AxisRef("x"), MeshShape.of(y=2, x=1), AxisRef("x")),
        (AxisRef("x", 1, 2), MeshShape.of(x=8), AxisRef("x", 1, 2)),
        (AxisRef("x", 1, 2), MeshShape.of(x=2), AxisRef("x")),
        (AxisRef("x", 2, 2), MeshShape.of(x=4, z=3), AxisRef("x", 2, 2)),
    ],
)
def test_axes(axis: AxisRef, new: MeshShape, expected: AxisRef) -> None:
    assert axis_on(axis, OLD, new) == expected


@pytest.mark.parametrize(
    ("axis", "new", "slug", "message"),
    [
        (AxisRef("x"), MeshShape.of(y=8), "unknown-axis", 'axis "x" is not in the mesh y=8'),
        (
            AxisRef("x", 1, 2),
            MeshShape.of(x=3),
            "bad-sub-axis",
            '"x":(1)2 of "x"=4 has no like in "x"=3',
        ),
        (
            AxisRef("x", 2, 2),
            MeshShape.of(x=2),
            "bad-sub-axis",
            '"x":(2)2 of "x"=4 has no like in "x"=2',
        ),
        # It was the last part, and of 8 it would not be.
        (
            AxisRef("x", 2, 2),
            MeshShape.of(x=8),
            "bad-sub-axis",
            '"x":(2)2 of "x"=4 has no like in "x"=8',
        ),
    ],
)
def test_axes_that_are_not_there(axis: AxisRef, new: MeshShape, slug: str, message: str) -> None:
    with pytest.raises(ShardingError) as caught:
        axis_on(axis, OLD, new)
    assert (caught.value.slug, caught.value.diagnostic.message) == (slug, message)
    assert caught.value.diagnostic.help


TEXT = '<@m, [{"x":(1)2, "y", "x":(2)2, ?}p1, {"one"}p2]>'


def test_every_fault_is_raised_and_what_is_dropped_told() -> None:
    sharding = TensorSharding.parse(TEXT, {"m": OLD})
    with pytest.raises(ShardingError) as caught:
        retargeted(sharding, MeshShape.of(x=2))
    slugs = ["unknown-axis", "bad-sub-axis"]
    assert [fault.slug for fault in caught.value.diagnostics] == slugs
    found, missing = retargeted(sharding, MeshShape.of(x=2), drop=True)
    assert found.dims_text() == '[{"x", ?}p1, {}]'
    assert [fault.slug for fault in missing] == slugs


def test_parts_that_have_come_together_are_one() -> None:
    sharding = TensorSharding.parse(TEXT, {"m": OLD})
    assert retargeted(sharding, MeshShape.of(x=4), drop=True)[0].dims_text() == '[{"x", ?}p1, {}]'


def test_sets_come_in_the_order_of_the_new_mesh() -> None:
    sharding = TensorSharding.parse(
        '<@m, [], replicated={"x"}, unreduced={"y", "one"}>', {"m": OLD}
    )
    found, _ = retargeted(sharding, MeshShape.of(one=1, y=8, x=2))
    assert found.to_sdy("n") == '#sdy.sharding<@n, [], replicated={"x"}, unreduced={"one", "y"}>'


def test_a_reduction_goes_with_its_axes() -> None:
    sharding = TensorSharding(OLD, (), unreduced=(AxisRef("y"),), reduction="max")
    assert retargeted(sharding, MeshShape.of(y=4))[0].reduction == "max"
    assert retargeted(sharding, MeshShape.of(x=4), drop=True)[0].reduction is None


def test_uncut() -> None:
    sharding = TensorSharding.parse('<@m, [{"x", ?}p1, {"y"}p2, {"one"}]>', {"m": OLD})
    assert uncut(sharding, [0, 1]).dims_text() == '[{?}p1, {}, {"one"}]'
