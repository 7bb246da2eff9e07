"""From one class of shardings to another: names recovered, and what stands in the way."""

import jax
import jax.extend.sharding as jax_extend
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import Mesh as JaxMesh
from jax.sharding import NamedSharding as JaxNamed
from jax.sharding import PartitionSpec as JaxSpec
from jax.sharding import SingleDeviceSharding as JaxSingle

from shardpass.diagnostics import ShardingError
from shardpass.sharding import (
    Chunked,
    GSPMDSharding,
    Mesh,
    NamedSharding,
    NoSharding,
    P,
    PmapSharding,
    PositionalSharding,
    Replicated,
    ShardedAxis,
    ShardingSpec,
    SingleDeviceSharding,
    Unstacked,
    to_gspmd,
    to_named,
    to_pmap,
    to_positional,
)

X = np.arange(64, dtype=np.float32).reshape(8, 8)


def over(ids, shape, names, types=None):
    return Mesh(np.array([jax.devices()[i] for i in ids]).reshape(shape), names, types)


def tiles(text, ids=range(8), **more):
    return GSPMDSharding([jax.devices()[i] for i in ids], text, **more)


def fault(ask):
    """The slug and message of the error that ``ask()`` raises, its notes and help."""
    with pytest.raises(ShardingError) as info:
        ask()
    found = info.value.diagnostic
    return found.slug, found.message, found.notes, found.help


def alike(one, other, shape):
    """Equivalent both ways, the same blocks, and the same kind of memory."""
    assert one.is_equivalent_to(other, len(shape))
    assert other.is_equivalent_to(one, len(shape))
    assert one.devices_indices_map(shape) == other.devices_indices_map(shape)
    assert one.memory_kind == other.memory_kind


# Names found again --------------------------------------------------------------------------------

RECOVERED = [
    ("{replicated}", (2, 4), ()),
    ("{devices=[2,4]<=[8]}", (2, 4), ("x", "y")),
    ("{devices=[4,2]<=[2,4]T(1,0)}", (2, 4), ("y", "x")),
    ("{devices=[4,2]0,4,1,5,2,6,3,7}", (2, 4), ("y", "x")),
    ("{devices=[8,1]<=[8]}", (2, 4), (("x", "y"),)),
    ("{devices=[8,1]<=[2,4]T(1,0)}", (2, 4), (("y", "x"),)),
    ("{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}", (2, 4), (None, "y")),
    ("{devices=[2,1,4]<=[8] last_tile_dim_replicate}", (2, 4), ("x",)),
    ("{devices=[4,2]<=[8]}", (2, 2, 2), (("x", "y"), "z")),
    ("{devices=[8,1]<=[8]}", (1, 8, 1), ("y",)),
    ("{mesh['a'=8], [{'a':(4)2}, {'a':(1)2}]}", (2, 2, 2), ("z", "x")),
]


@pytest.mark.parametrize(("text", "sizes", "entries"), RECOVERED)
@pytest.mark.parametrize("class_of", [GSPMDSharding, jax_extend.GSPMDSharding])
def test_names_of_a_mesh(text, sizes, entries, class_of):
    sharding = tiles(text, memory_kind="pinned_host")
    given = sharding if class_of is GSPMDSharding else sharding.to_jax()
    mesh = over(range(8), sizes, ("x", "y", "z")[: len(sizes)])
    for onto in (mesh, mesh.to_jax()):
        named = to_named(given, onto, ndim=2)
        assert type(named) is NamedSharding
        assert named.spec == P(*entries)
        assert named.mesh == mesh
        alike(named, sharding, (8, 8))


def test_names_of_a_mesh_of_permuted_devices():
    """The mesh has the devices of the tiles, in an order that turns its axes over."""
    sharding = tiles("{devices=[2,4]<=[8]}")
    mesh = over((0, 4, 1, 5, 2, 6, 3, 7), (4, 2), ("y", "x"))
    named = to_named(sharding, mesh)
    assert named.spec == P("x", "y")
    assert named.devices_indices_map((8, 8)) == sharding.devices_indices_map((8, 8))
    # As in JAX, one program cannot use both: its devices are in one order.
    assert not named.is_equivalent_to(sharding, 2)
    shuffled = (5, 2, 7, 0, 3, 6, 1, 4)
    named = to_named(tiles("{devices=[2,4]<=[8]}", shuffled), over(shuffled, (2, 4), ("x", "y")))
    assert named.spec == P("x", "y")
    alike(named, tiles("{devices=[2,4]<=[8]}", shuffled), (8, 8))


def test_a_list_is_an_iota_to_a_mesh_in_its_order():
    listed = tiles("{devices=[2,4]3,1,0,2,5,7,6,4}")
    named = to_named(listed, over((3, 1, 0, 2, 5, 7, 6, 4), (2, 4), ("x", "y")))
    assert named.spec == P("x", "y")
    assert named.devices_indices_map((8, 8)) == listed.devices_indices_map((8, 8))


def test_replicas_in_another_order_than_the_mesh():
    """Which of its replicas comes first is no part of a layout."""
    listed = tiles("{devices=[2,1,4]0,1,2,3,4,5,6,7 last_tile_dim_replicate}")
    named = to_named(listed, over((3, 1, 0, 2, 7, 5, 4, 6), (2, 4), ("x", "y")), ndim=2)
    assert named.spec == P("x")
    assert named.devices_indices_map((8, 8)) == listed.devices_indices_map((8, 8))


def test_a_mesh_without_devices():
    named = to_named(tiles("{devices=[4,2]<=[2,4]T(1,0)}"), Mesh.of(x=2, y=4))
    assert named == NamedSharding(Mesh.of(x=2, y=4), P("y", "x"), memory_kind="device")


def test_axes_of_its_own():
    sharding = tiles("{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}", range(7, -1, -1))
    named = to_named(sharding)
    assert named.mesh.axis_names == ("axis_0", "axis_1")
    assert named.spec == P("axis_1")
    alike(named, sharding, (8, 8))
    listed = tiles("{devices=[2,4]3,1,0,2,5,7,6,4}")
    alike(to_named(listed), listed, (8, 8))
    np.testing.assert_array_equal(jax.device_put(X, to_named(listed)), X)
    kept = to_named(tiles("{mesh['r'=2,'c'=4], [{'c'}, {'r'}]}"))
    assert kept.spec == P("c", "r")
    split = tiles("{mesh['r'=8], [{'r':(2)4}, {'r':(1)2}]}")
    assert to_named(split).spec == P("axis_1", "axis_0")
    alike(to_named(split), split, (8, 8))


def test_one_device():
    device = jax.devices()[3]
    for sharding in (SingleDeviceSharding(device), JaxSingle(device)):
        named = to_named(sharding, ndim=2)
        assert named.spec == P()
        assert named.device_set == {device}
        alike(named, sharding, (8, 8))
        alike(to_named(sharding, over([3], (1, 1), ("x", "y")), ndim=2), sharding, (8, 8))
        alike(to_gspmd(sharding, 2), sharding, (8, 8))
        alike(to_positional(sharding, 2), sharding, (8, 8))
        alike(to_pmap(sharding, 2), sharding, (8, 8))


def test_a_named_sharding_stays_or_changes_its_mesh(mesh):
    sharding = NamedSharding(mesh, P(("x", "y"), None))
    assert to_named(sharding) is sharding
    assert to_named(sharding, mesh) is sharding
    assert to_named(sharding.to_jax()) == sharding
    assert type(to_named(sharding.to_jax())) is NamedSharding
    flat = to_named(sharding, over(range(8), (8,), ("all",)))
    assert flat.spec == P("all")
    alike(flat, sharding, (8, 8))


def test_partial_results_need_explicit_axes(mesh, explicit_mesh):
    sharding = tiles("{devices=[2,1,4]<=[8] last_tile_dims={unreduced}}")
    named = to_named(sharding, explicit_mesh)
    assert named.spec == P("x", unreduced={"y"})
    assert named.is_equivalent_to(sharding, 2)
    assert to_gspmd(named, 2).is_equivalent_to(sharding, 2)
    own = to_named(sharding)
    assert own.mesh.axis_types == (AxisType.Auto, AxisType.Explicit)
    assert own.is_equivalent_to(sharding, 2)
    slug, message, _, _ = fault(lambda: to_named(sharding, mesh))
    assert slug == "bad-spec"
    assert message == 'axis "y" is Auto, and only Explicit axes can be unreduced'


def test_manual_axes_are_types_of_the_mesh(mesh):
    sharding = tiles("{devices=[2,1,4]<=[8] last_tile_dims={manual}}")
    types = (AxisType.Auto, AxisType.Manual)
    named = to_named(sharding, over(range(8), (2, 4), ("x", "y"), types))
    assert named.spec == P("x")
    assert named.is_equivalent_to(sharding, 2)
    assert to_named(sharding).mesh.axis_types == types
    assert to_named(sharding).is_equivalent_to(sharding, 2)
    slug, message, _, hint = fault(lambda: to_named(sharding, mesh))
    assert slug == "not-expressible"
    assert message == (
        '{devices=[2,1,4]<=[8] last_tile_dims={manual}} is manual over "y", '
        "the mesh x=2, y=4 over no axis"
    )
    assert hint == "give a mesh whose axes have the type AxisType.Manual just there"


# The other classes --------------------------------------------------------------------------------


def test_named_to_positional_and_back(mesh):
    sharding = NamedSharding(mesh, P("y", "x"), memory_kind="pinned_host")
    positional = to_positional(sharding)
    assert positional.shape == (4, 2)
    alike(positional, sharding, (8, 8))
    assert to_named(positional, mesh) == sharding
    partly = to_positional(NamedSharding(mesh, P(None, "y")))
    assert partly == PositionalSharding(mesh.devices).replicate(0)
    assert to_named(partly, mesh).spec == P(None, "y")
    assert to_positional(partly) is partly


def test_named_to_pmap_and_back():
    mesh = over(range(7, -1, -1), (8,), ("i",))
    for spec, sharding in ((P("i"), [Chunked([8]), NoSharding()]), (P(None, "i"), None)):
        named = NamedSharding(mesh, spec)
        mapped = to_pmap(named, (8, 8))
        if sharding is not None:
            assert mapped.sharding_spec == ShardingSpec(sharding, [ShardedAxis(0)])
        alike(mapped, named, (8, 8))
        assert to_named(mapped, mesh) == named
        assert to_pmap(mapped) is mapped
        assert to_pmap(named, 2) == mapped
    copies = to_pmap(NamedSharding(mesh, P()), (3, 2))
    assert copies.sharding_spec == ShardingSpec([NoSharding()] * 2, [Replicated(8)])


def test_several_mapped_dimensions(mesh):
    named = NamedSharding(mesh, P("y", None, "x"))
    mapped = to_pmap(named, (4, 3, 2))
    assert mapped.sharding_spec.mesh_shape == (2, 4)
    alike(mapped, named, (4, 3, 2))
    assert to_named(mapped, mesh) == named


@pytest.mark.parametrize("out_axes", [0, 1])
def test_what_pmap_returns_today(out_axes):
    out = jax.pmap(lambda row: row * 2, out_axes=out_axes)(X)
    mapped = to_pmap(out.sharding, out.shape)
    assert mapped == PmapSharding.default((8, 8), out_axes)
    alike(mapped, out.sharding, out.shape)
    assert to_named(mapped, out.sharding.mesh) == out.sharding
    again = jax.device_put(np.asarray(out), mapped)
    for shard, other in zip(again.addressable_shards, out.addressable_shards, strict=True):
        np.testing.assert_array_equal(shard.data, other.data)


def test_round_through_every_class(mesh):
    named = NamedSharding(mesh, P("y", "x"), memory_kind="pinned_host")
    found = named
    for step in (
        lambda s: to_gspmd(s, 2),
        to_positional,
        lambda s: to_pmap(s, (4, 2)),
        to_gspmd,
        lambda s: to_pmap(s, 2),
        to_positional,
    ):
        found = step(found)
        alike(found, named, (4, 2))
    assert to_named(found, mesh) == named


class Rows(jax.sharding.Sharding):
    """Somebody else's class, with no more than what JAX asks of one."""

    def __init__(self, devices):
        super().__init__()
        self._wrapped = JaxNamed(JaxMesh(devices, ("r",)), JaxSpec("r"))

    device_set = property(lambda self: self._wrapped.device_set)
    num_devices = property(lambda self: self._wrapped.num_devices)
    memory_kind = property(lambda self: self._wrapped.memory_kind)
    is_fully_replicated = property(lambda self: self._wrapped.is_fully_replicated)
    is_fully_addressable = property(lambda self: self._wrapped.is_fully_addressable)
    _device_assignment = property(lambda self: self._wrapped._device_assignment)
    _internal_device_list = property(lambda self: self._wrapped._internal_device_list)

    def _to_xla_hlo_sharding(self, ndim):
        return self._wrapped._to_xla_hlo_sharding(ndim)


def test_foreign_classes_are_converted_by_what_they_lower_to(mesh):
    rows = Rows(mesh.devices.ravel()[::-1])
    alike(to_named(rows, ndim=2), rows, (8, 8))
    alike(to_gspmd(rows, 2), rows, (8, 8))
    alike(to_positional(rows, 2), rows, (8, 8))
    alike(to_pmap(rows, 2), rows, (8, 8))
    assert fault(lambda: to_gspmd(rows))[0] == "rank-mismatch"


# What stands in the way ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names", "sizes", "parts", "said", "split"),
    [
        (
            "{devices=[4,2]<=[8]}",
            ("x", "y"),
            (2, 4),
            '"y":(1)2, "y":(2)2',
            '[{"x", "y":(1)2}, {"y":(2)2}]',
            "x=2, y0=2, y1=2",
        ),
        (
            "{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}",
            ("x", "y"),
            (2, 4),
            '"y":(2)2',
            '[{"y":(2)2}, {}]',
            "x=2, y0=2, y1=2",
        ),
        (
            "{devices=[2,4]<=[8]}",
            ("a",),
            (8,),
            '"a":(1)2, "a":(2)4',
            '[{"a":(1)2}, {"a":(2)4}]',
            "a0=2, a1=4",
        ),
    ],
)
def test_sub_axes_are_told_as_sdy(text, names, sizes, parts, said, split):
    mesh = over(range(8), sizes, names)
    described = mesh.mesh_shape.describe()
    assert fault(lambda: to_named(tiles(text), mesh)) == (
        "not-expressible",
        f"no PartitionSpec on the mesh {described} says {text}: it cuts by {parts}, and a spec by "
        "whole axes",
        (f"in sub-axes it is #sdy.sharding<mesh{mesh.mesh_shape}, {said}>",),
        f"give a mesh that has the parts for axes: {split}",
    )
    # The advice works.
    parts_mesh = over(
        range(8),
        [int(part.split("=")[1]) for part in split.split(", ")],
        [part.split("=")[0] for part in split.split(", ")],
    )
    alike(to_named(tiles(text), parts_mesh), tiles(text), (8, 8))


def test_no_axes_at_all(mesh):
    slug, message, _, _ = fault(lambda: to_named(tiles("{devices=[8]0,1,2,3,4,5,7,6}"), mesh))
    assert slug == "not-expressible"
    assert message == "no cut of the axes x=2, y=4 gives {devices=[8]0,1,2,3,4,5,7,6}"


def test_meshes_of_other_devices(mesh):
    small = over(range(4), (2, 2), ("x", "y"))
    names = [str(device) for device in jax.devices()]
    assert fault(lambda: to_named(tiles("{replicated}"), small))[:2] == (
        "mesh-mismatch",
        f"the sharding is over 8 devices, the mesh x=2, y=2 over 4: {', '.join(names[4:])} are "
        "not in the mesh",
    )
    assert fault(lambda: to_named(SingleDeviceSharding(jax.devices()[3]), small))[:2] == (
        "mesh-mismatch",
        f"the sharding is over 1 devices, the mesh x=2, y=2 over 4: {', '.join(names[:3])} are "
        "only in the mesh",
    )
    assert fault(lambda: to_named(tiles("{replicated}"), Mesh.of(x=4)))[:2] == (
        "mesh-mismatch",
        "GSPMDSharding({replicated}, memory_kind='device') is over 8 devices, the mesh x=4 has 4",
    )
    assert fault(lambda: to_named(tiles("{replicated}"), "x"))[0] == "abstract-type"
    assert fault(lambda: to_named(P("x"), mesh))[:2] == (
        "abstract-type",
        "a sharding is needed, not PartitionSpec PartitionSpec('x')",
    )


def test_wrong_ranks(mesh):
    message = "{devices=[2,4]<=[8]} is for 2 dimensions, the value has 3"
    for ask in (
        lambda: to_named(tiles("{devices=[2,4]<=[8]}"), mesh, ndim=3),
        lambda: to_named(tiles("{devices=[2,4]<=[8]}"), ndim=3),
        lambda: to_gspmd(tiles("{devices=[2,4]<=[8]}"), 3),
        lambda: to_positional(tiles("{devices=[2,4]<=[8]}"), 3),
        lambda: to_pmap(tiles("{devices=[2,4]<=[8]}"), (2, 4, 1)),
    ):
        assert fault(ask)[:2] == ("rank-mismatch", message)
    positional = to_positional(NamedSharding(mesh, P("x", "y")))
    assert fault(lambda: to_positional(positional, 1))[0] == "rank-mismatch"
    mapped = to_pmap(NamedSharding(mesh, P("x", "y")), 2)
    assert fault(lambda: to_pmap(mapped, 1))[0] == "rank-mismatch"


def test_unstacked_dimensions_have_no_other_form(mesh):
    spec = ShardingSpec([Unstacked(8), NoSharding()], [ShardedAxis(0)])
    mapped = PmapSharding(jax.devices(), spec)
    for ask in (
        lambda: to_named(mapped),
        lambda: to_named(mapped, mesh),
        lambda: to_gspmd(mapped),
        lambda: to_positional(mapped),
    ):
        slug, _, _, hint = fault(ask)
        assert slug == "not-expressible"
        assert "Chunked(8)" in hint
    assert to_pmap(mapped, (8, 3)) is mapped


def test_mapped_sizes():
    named = NamedSharding(over(range(8), (8,), ("i",)), P("i"))
    slug, message, _, _ = fault(lambda: to_pmap(named, (16, 3)))
    assert slug == "mapped-size"
    assert message == (
        "dimension 0 of shape (16, 3) has 16 elements and is mapped over 8 devices, "
        "one element each"
    )
    assert fault(lambda: to_pmap(to_pmap(named, 2), (16, 3)))[0] == "mapped-size"


def test_manual_axes_have_no_place():
    named = NamedSharding(over(range(8), (8,), ("i",), AxisType.Manual), P())
    for convert, name in ((to_positional, "PositionalSharding"), (to_pmap, "PmapSharding")):
        for sharding in (named, tiles("{manual}")):
            assert fault(lambda c=convert, s=sharding: c(s, 1))[:2] == (
                "not-expressible",
                f"no {name} says {{manual}}: it has no manual axes",
            )


def test_partial_results_and_lists():
    partial = tiles("{devices=[2,1,4]<=[8] last_tile_dims={unreduced}}")
    for convert in (to_positional, to_pmap):
        slug, message, _, _ = fault(lambda c=convert: c(partial))
        assert slug == "not-expressible"
        assert "{devices=[2,1,4]<=[8] last_tile_dims={unreduced}}" in message
    listed = tiles("{devices=[2,4]3,1,0,2,5,7,6,4}")
    alike(to_positional(listed), listed, (8, 8))
    assert fault(lambda: to_pmap(listed))[0] == "not-expressible"


def test_without_devices():
    free = NamedSharding(Mesh.of(x=2), P("x"))
    assert to_named(free) is free
    assert to_named(free, Mesh.of(a=1, b=2)).spec == P("b")
    for convert in (to_gspmd, to_positional, to_pmap):
        assert fault(lambda c=convert: c(free))[0] == "device-free"
