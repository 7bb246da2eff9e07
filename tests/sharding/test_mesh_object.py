"""Mesh: JAX's mesh by another name, with devices or without."""

import copy
import pickle
import threading

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import Mesh as JaxMesh

from shardpass.canon import MeshShape
from shardpass.diagnostics import ShardingError
from shardpass.sharding import Mesh, NamedSharding, P, as_mesh_shape, make_mesh

AUTO = (AxisType.Auto, AxisType.Auto)
EXPLICIT = (AxisType.Explicit, AxisType.Explicit)


def refused(slug, make, *words):
    with pytest.raises(ShardingError) as caught:
        make()
    assert caught.value.slug == slug
    for word in words:
        assert word in str(caught.value)


def test_stands_for_jax_mesh(devices, mesh):
    theirs = JaxMesh(devices, ("x", "y"), axis_types=AUTO)
    assert mesh == theirs
    assert theirs == mesh
    assert hash(mesh) == hash(theirs)
    assert mesh.to_jax() is theirs
    assert isinstance(mesh, JaxMesh)
    assert isinstance(mesh, Mesh)
    assert not isinstance(theirs, Mesh)
    assert Mesh.from_jax(theirs) == mesh
    assert Mesh.from_jax(mesh) is mesh
    assert mesh != JaxMesh(devices, ("x", "y"), axis_types=EXPLICIT)
    assert mesh != JaxMesh(devices.T, ("x", "y"), axis_types=AUTO)


def test_members(devices, mesh):
    assert mesh.axis_names == ("x", "y")
    assert mesh.axis_sizes == (2, 4)
    assert mesh.axis_types == AUTO
    assert mesh.shape == {"x": 2, "y": 4}
    assert mesh.size == 8
    assert mesh.devices.tolist() == devices.tolist()
    assert mesh.device_ids.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert mesh.local_mesh == mesh
    assert mesh.local_devices == jax.local_devices()
    assert not mesh.is_multi_process
    assert not mesh.is_device_free
    assert mesh.mesh_shape == MeshShape.of(x=2, y=4)
    assert mesh.abstract_mesh == JaxMesh(devices, ("x", "y"), axis_types=AUTO).abstract_mesh
    assert not mesh.empty


def test_local_mesh_keeps_the_axis_types(explicit_mesh):
    assert explicit_mesh.local_mesh == explicit_mesh


def test_one_name_for_one_dimension():
    mesh = Mesh(jax.devices(), "data")
    assert mesh.shape == {"data": 8}
    assert mesh == JaxMesh(np.array(jax.devices()), "data", axis_types=(AxisType.Auto,))


def test_without_devices():
    mesh = Mesh.of(data=2, model=4)
    theirs = AbstractMesh((2, 4), ("data", "model"), axis_types=AUTO)
    assert mesh == theirs
    assert theirs == mesh
    assert hash(mesh) == hash(theirs)
    assert isinstance(mesh, AbstractMesh)
    assert not isinstance(mesh, JaxMesh)
    assert mesh.is_device_free
    assert mesh.size == 8
    assert Mesh(axis_sizes=(2, 4), axis_names=("data", "model")) == mesh
    assert Mesh.of({"data": 2, "model": 4}) == mesh
    assert Mesh.of(MeshShape.of(data=2, model=4)) == mesh
    assert Mesh.of(data=2, model=4, axis_types=AxisType.Explicit).axis_types == EXPLICIT


def test_a_mesh_of_a_million_devices_costs_nothing():
    mesh = Mesh.of(data=1024, model=1024)
    assert mesh.size == 1024 * 1024
    assert NamedSharding(mesh, P("model")).to_mhlo(2) == (
        "{devices=[1024,1,1024]<=[1024,1024]T(1,0) last_tile_dim_replicate}"
    )


@pytest.mark.parametrize(
    "member",
    ["devices", "device_ids", "local_devices", "local_mesh", "is_multi_process", "__enter__"],
)
def test_without_devices_says_so(member):
    mesh = Mesh.of(data=2, model=4)
    refused(
        "device-free",
        lambda: mesh.__enter__() if member == "__enter__" else getattr(mesh, member),
        "data=2, model=4",
        "bind",
    )


def test_bind_and_without_devices(devices, mesh):
    free = Mesh.of(x=2, y=4)
    assert free.bind() == mesh
    assert free.bind(jax.devices()[::-1]).device_ids.tolist() == [[7, 6, 5, 4], [3, 2, 1, 0]]
    assert mesh.without_devices() == free
    assert Mesh.of(x=2).bind().device_ids.tolist() == [0, 1]
    refused("not-enough-devices", Mesh.of(x=4, y=4).bind, "x=4, y=4 needs 16", "there are 8")
    refused("not-enough-devices", lambda: free.bind(jax.devices()[:3]), "there are 3")
    refused("device-count", lambda: Mesh.of(x=2).bind(jax.devices()), "8 devices", "of 2")


def test_update(devices, mesh):
    assert mesh.update(axis_names=("a", "b")) == Mesh(devices, ("a", "b"))
    assert mesh.update(axis_types=EXPLICIT).axis_types == EXPLICIT
    assert mesh.update(devices=devices.T).axis_sizes == (4, 2)
    assert mesh.update(devices.T, ("a", "b")) == Mesh(devices.T, ("a", "b"))
    assert Mesh.of(x=2).update(axis_names=("z",)) == Mesh.of(z=2)
    assert Mesh.of(x=2).update((16,), ("z",)) == Mesh.of(z=16)
    refused("bad-mesh", lambda: mesh.update(axis_names=("x", "x")), '"x" stands 2 times')


@pytest.mark.parametrize(
    ("slug", "make", "words"),
    [
        ("bad-mesh", lambda d: Mesh(d, ("x", "x")), ['"x" stands 2 times']),
        ("bad-mesh", lambda d: Mesh(d, ("x",)), ["1 axis names", "2 dimensions", "(2, 4)"]),
        ("bad-mesh", lambda d: Mesh(d, ("x", None)), ["None", "NoneType"]),
        ("bad-mesh", lambda d: Mesh(d, ("x", "")), ["empty"]),
        ("bad-mesh", lambda d: Mesh(d[:0], ("x", "y")), ['"x" has size 0']),
        ("bad-mesh", lambda d: Mesh([], "x"), ['"x" has size 0']),
        ("bad-mesh", lambda d: Mesh.of(x=0), ['"x" has size 0']),
        ("bad-mesh", lambda d: Mesh.of(x=2.0), ['"x" has size 2.0']),
        ("bad-mesh", lambda d: Mesh.of(x=True), ['"x" has size True']),
        ("bad-mesh", lambda d: Mesh(), ["one of the two"]),
        ("bad-mesh", lambda d: Mesh(d, ("x", "y"), axis_sizes=(2, 4)), ["one of the two"]),
        ("bad-mesh", lambda d: Mesh(d, ("x", "y"), (AxisType.Auto,)), ["1 axis types for 2"]),
        ("bad-mesh", lambda d: Mesh(d, ("x", "y"), ("auto", "auto")), ["'auto'", "AxisType"]),
        ("duplicate-device", lambda d: Mesh([d[0], d[0]], ("x", "y")), ["(0, 0) and (1, 0)"]),
        ("abstract-type", lambda d: Mesh([0, 1], "x"), ["at (0,) stands 0"]),
        ("abstract-type", lambda d: Mesh.from_jax("mesh"), ["str"]),
        ("not-expressible", lambda d: Mesh.of(MeshShape((("x", 2),), (1, 0))), ["device ids"]),
    ],
)
def test_what_is_no_mesh_is_refused(slug, make, words, devices):
    refused(slug, lambda: make(devices), *words)


MIXED = (AxisType.Explicit, AxisType.Auto)


@pytest.mark.parametrize(
    ("given", "types"),
    [
        ({AxisType.Auto: ("x", "y")}, AUTO),
        ({AxisType.Explicit: ["y", "x"]}, EXPLICIT),
        ({AxisType.Auto: "y", AxisType.Explicit: "x"}, MIXED),
        (MIXED, MIXED),
        (list(MIXED), MIXED),
        (AxisType.Explicit, EXPLICIT),
        (None, AUTO),
    ],
)
def test_axis_types_in_the_older_form_and_todays(devices, given, types):
    theirs = JaxMesh(devices, ("x", "y"), axis_types=types)
    assert Mesh(devices, ("x", "y"), given) == theirs
    assert Mesh(devices, ("x", "y"), axis_types=given).axis_types == types
    assert Mesh.of(x=2, y=4, axis_types=given).axis_types == types
    if given is not None:
        assert make_mesh((2, 4), ("x", "y"), given) == theirs
        assert Mesh(devices, ("x", "y"), (AxisType.Manual,) * 2).update(axis_types=given) == theirs


def test_update_reads_axis_types_by_the_new_names(devices, mesh):
    given = {AxisType.Auto: "b", AxisType.Explicit: "a"}
    for renamed in (
        mesh.update(axis_names=("a", "b"), axis_types=given),
        mesh.update(devices, ("a", "b"), given),
        mesh.update(devices, ("a", "b"), axis_types=given),
    ):
        assert renamed == JaxMesh(devices, ("a", "b"), axis_types=MIXED)
    assert Mesh.of(x=2, y=4).update((4, 4), ("a", "b"), given).axis_types == MIXED
    assert mesh.update(devices.reshape(8), "z", AxisType.Explicit).axis_types == EXPLICIT[:1]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({AxisType.Auto: "x"}, ["names 1 of 2 axes", "y has no type"]),
        ({AxisType.Auto: ("x", "y"), AxisType.Explicit: "y"}, ['"y" has two types', "Explicit"]),
        ({AxisType.Auto: ("x", "y", "z")}, ["'z' the type Auto", "axes x, y"]),
        ({AxisType.Auto: ("x", "yy")}, ['did you mean "y"?']),
        ({AxisType.Auto: ("x", 3)}, ["gives 3 the type Auto"]),
        ({"Auto": ("x", "y")}, ["'Auto'", "AxisType.Auto"]),
    ],
)
def test_an_older_form_that_does_not_fit_the_axes(devices, given, words):
    refused("bad-mesh", lambda: Mesh(devices, ("x", "y"), given), *words)


def test_what_jax_lets_pass_is_refused_too(devices):
    twice = JaxMesh(devices, ("x", "x"))
    refused("bad-mesh", lambda: Mesh.from_jax(twice), '"x" stands 2 times')
    refused("bad-mesh", lambda: NamedSharding(twice, P("x")), '"x" stands 2 times')
    same = JaxMesh(np.array([devices[0], devices[0]]), ("x", "y"))
    refused("duplicate-device", lambda: Mesh.from_jax(same), "device 0 stands twice")
    refused("duplicate-device", lambda: as_mesh_shape(same), "device 0 stands twice")


def test_make_mesh_is_jax_make_mesh():
    ours = make_mesh((2, 4), ("x", "y"))
    assert ours == jax.make_mesh((2, 4), ("x", "y"))
    assert ours.axis_types == EXPLICIT
    assert type(ours) is Mesh
    auto = make_mesh((2, 2), ("x", "y"), AxisType.Auto, devices=jax.devices()[4:])
    assert auto.device_ids.tolist() == [[4, 5], [6, 7]]
    assert auto.axis_types == AUTO
    refused("not-enough-devices", lambda: make_mesh((4, 4), ("x", "y")), "needs 16", "are 8")
    refused("bad-mesh", lambda: make_mesh((2, 4), ("x", "x")), '"x" stands 2 times')
    refused("bad-mesh", lambda: make_mesh((2, 4), ("x",)), "1 axis names")


def specs_in_context_cut(x):
    """Rows per device of a bare ``P('x')``: only a mesh in context gives it a meaning."""
    out = jax.jit(lambda a: jax.lax.with_sharding_constraint(a, P("x")))(x)
    return out.sharding.shard_shape(x.shape)[0]


def test_context_nests_and_is_per_thread(mesh):
    x = np.zeros((8, 8))
    other = Mesh(jax.devices(), "x")
    with mesh as entered:
        assert entered is mesh
        assert specs_in_context_cut(x) == 4
        with other:
            assert specs_in_context_cut(x) == 1
            with mesh:
                assert specs_in_context_cut(x) == 4
            assert specs_in_context_cut(x) == 1
        assert specs_in_context_cut(x) == 4

        seen = []
        thread = threading.Thread(target=lambda: seen.append(_outcome(x)))
        thread.start()
        thread.join()
        assert "mesh" in seen[0]
    assert "mesh" in _outcome(x)


def test_context_is_left_by_an_exception(mesh):
    with pytest.raises(KeyError), mesh:
        raise KeyError("out")
    assert "mesh" in _outcome(np.zeros((8, 8)))


def test_decorates_a_function(mesh):
    @mesh
    def rows():
        return specs_in_context_cut(np.zeros((8, 8)))

    assert rows() == 4


def _outcome(x):
    try:
        return specs_in_context_cut(x)
    except (RuntimeError, ValueError) as error:
        return str(error)


@pytest.mark.parametrize("axis_type", [AxisType.Auto, AxisType.Explicit])
def test_set_mesh_takes_it(devices, axis_type):
    mesh = Mesh(devices, ("x", "y"), axis_type)
    with jax.set_mesh(mesh):
        placed = jax.device_put(np.zeros((8, 8)), P("x", "y"))
    assert placed.sharding.shard_shape((8, 8)) == (4, 2)
    assert placed.sharding.mesh == mesh


def test_shard_map_takes_it(mesh):
    x = np.arange(16.0).reshape(8, 2)
    sums = jax.shard_map(
        lambda a: jax.lax.psum(a, ("x", "y")), mesh=mesh, in_specs=P(("x", "y")), out_specs=P()
    )
    np.testing.assert_array_equal(sums(x), x.sum(axis=0, keepdims=True))


def test_jax_named_sharding_takes_it(mesh):
    for held in (mesh, mesh.without_devices()):
        mixed = jax.sharding.NamedSharding(held, P("x"))
        assert mixed == jax.sharding.NamedSharding(held.to_jax(), P("x").to_jax())
        assert mixed == NamedSharding(held, P("x"))


def test_copy_and_pickle(mesh):
    assert copy.copy(mesh) is mesh
    assert copy.deepcopy([mesh])[0] is mesh
    free = Mesh.of(data=2, model=4, axis_types=(AxisType.Auto, AxisType.Explicit))
    assert pickle.loads(pickle.dumps(free)) == free
    assert pickle.loads(pickle.dumps(free)).axis_types == free.axis_types
    assert pickle.loads(pickle.dumps(mesh)) == mesh


def test_shows_itself(mesh):
    assert str(mesh) == "Mesh('x': 2, 'y': 4)"
    assert str(Mesh.of(x=2, axis_types=AxisType.Explicit)) == (
        "Mesh('x': 2, axis_types=(Explicit,), no devices)"
    )
    assert repr(mesh) == (
        "Mesh(device_ids=[[0, 1, 2, 3], [4, 5, 6, 7]], axis_names=('x', 'y'), "
        "axis_types=(Auto, Auto))"
    )
    assert repr(Mesh.of(data=2)) == (
        "Mesh(axis_sizes=(2,), axis_names=('data',), axis_types=(Auto,))"
    )


def test_cannot_be_changed(mesh):
    with pytest.raises(AttributeError):
        mesh.axis_names = ("a", "b")
    shape = mesh.shape
    shape["x"] = 7
    assert mesh.shape["x"] == 2
