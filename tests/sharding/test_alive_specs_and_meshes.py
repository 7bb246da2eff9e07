"""``PartitionSpec`` and ``Mesh`` of ours in every JAX API that takes one."""

import threading

import jax
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import Mesh as JaxMesh
from jax.sharding import NamedSharding as JaxNamed
from jax.sharding import PartitionSpec as JaxSpec

from shardpass.sharding import Mesh, NamedSharding, P, make_mesh
from tests.sharding.alive import X, one_value, partitioned_by, same

SPECS = [("x", "y"), (None, "x"), (("y", "x"), None), (), ("y",)]


@pytest.fixture(params=["shardy", "gspmd"])
def partitioner(request):
    with partitioned_by(request.param):
        yield request.param


@pytest.fixture(params=[AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"])
def any_mesh(request, devices):
    return Mesh(devices, ("x", "y"), request.param)


def both_ways(mesh, run, whole=X):
    """What ``run(mesh, class of specs)`` gives with ours, with JAX's, and with the two mixed."""
    theirs = run(mesh.to_jax(), JaxSpec)
    for ours in (run(mesh, P), run(mesh.to_jax(), P), run(mesh, JaxSpec)):
        same(ours, theirs, whole)
    return theirs


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.usefixtures("partitioner")
class TestSpecsUnderAMesh:
    def test_device_put(self, any_mesh, spec):
        def run(mesh, make_spec):
            with jax.set_mesh(mesh):
                return jax.device_put(X, make_spec(*spec))

        out = both_ways(any_mesh, run)
        assert out.sharding == NamedSharding(any_mesh, P(*spec))

    def test_in_and_out_shardings(self, any_mesh, spec):
        def run(mesh, make_spec):
            with jax.set_mesh(mesh):
                step = jax.jit(
                    lambda a: a * 2,
                    in_shardings=make_spec(*spec),
                    out_shardings=make_spec(*spec),
                )
                return step(jax.device_put(X, make_spec(*spec)))

        both_ways(any_mesh, run, X * 2)

    def test_in_shardings_of_a_tree(self, any_mesh, spec):
        def run(mesh, make_spec):
            with jax.set_mesh(mesh):
                specs = {"a": make_spec(*spec), "b": (make_spec(),)}
                step = jax.jit(
                    lambda tree: tree["a"] + tree["b"][0],
                    in_shardings=(specs,),
                    out_shardings=make_spec(*spec),
                )
                return step(jax.device_put({"a": X, "b": (X[0],)}, specs))

        both_ways(any_mesh, run, X + X[0])

    def test_constraint(self, any_mesh, spec):
        auto = any_mesh.update(axis_types=AxisType.Auto)

        def run(mesh, make_spec):
            with jax.set_mesh(mesh):
                return jax.jit(lambda a: jax.lax.with_sharding_constraint(a + 1, make_spec(*spec)))(
                    X
                )

        both_ways(auto, run, X + 1)

    def test_shape_dtype_struct(self, any_mesh, spec):
        def run(mesh, make_spec):
            sharding = JaxNamed(mesh, make_spec(*spec))
            abstract = jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=sharding)
            compiled = jax.jit(lambda a: a + 1).lower(abstract).compile()
            return compiled(jax.device_put(X, sharding))

        both_ways(any_mesh, run, X + 1)

    def test_jax_named_sharding(self, any_mesh, spec):
        def run(mesh, make_spec):
            return jax.device_put(X, JaxNamed(mesh, make_spec(*spec)))

        both_ways(any_mesh, run)
        for mesh in (any_mesh, any_mesh.to_jax()):
            for made in (P(*spec), JaxSpec(*spec)):
                one_value(NamedSharding(mesh, made), JaxNamed(mesh, made))
                one_value(JaxNamed(mesh, made), JaxNamed(any_mesh.to_jax(), JaxSpec(*spec)))


@pytest.mark.usefixtures("partitioner")
def test_specs_under_the_older_context(mesh):
    def run(mesh, make_spec):
        with Mesh.from_jax(mesh):
            return jax.jit(lambda a: jax.lax.with_sharding_constraint(a, make_spec("x", "y")))(X)

    out = both_ways(mesh, run)
    assert out.sharding.is_equivalent_to(NamedSharding(mesh, P("x", "y")), 2)


def test_a_spec_is_a_leaf():
    for spec in (P("x", ("y", "z")), P(), P(None), P(P.UNCONSTRAINED)):
        assert jax.tree.leaves(spec) == [spec]
        assert jax.tree.structure(spec) == jax.tree.structure(JaxSpec())
        assert jax.tree.map(type, {"a": [spec]}) == {"a": [P]}
        assert jax.tree_util.all_leaves([spec])
    tree = {"w": P("x"), "b": (P(), None)}
    assert jax.tree.leaves(tree) == [P(), P("x")]
    flat, structure = jax.tree.flatten(tree)
    assert structure == jax.tree.structure({"w": 0, "b": (0, None)})
    assert jax.tree.unflatten(structure, flat) == tree
    assert jax.tree_util.tree_map_with_path(lambda path, leaf: leaf, tree) == tree


def test_a_tree_of_specs_makes_a_tree_of_shardings(mesh):
    specs = {"w": P("x", "y"), "b": [P("y"), P()]}
    shardings = jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs)
    placed = jax.device_put({"w": X, "b": [X[0], X[1]]}, shardings)
    assert jax.tree.map(lambda a: a.sharding.spec, placed) == specs
    assert jax.tree.all(jax.tree.map(lambda a: type(a.sharding) is NamedSharding, placed))


def test_a_spec_is_a_static_argument():
    traced = []

    def f(a, spec):
        traced.append(spec)
        return a

    step = jax.jit(f, static_argnums=1)
    for spec in (P("x"), P(("x",)), P("x")):
        step(X, spec)
    assert len(traced) == 1


# Meshes ---------------------------------------------------------------------------------------


def test_set_mesh_nests_and_ends(any_mesh, devices):
    other = Mesh(devices.reshape(8), "z", any_mesh.axis_types[0])
    before = jax.sharding.get_abstract_mesh()
    with jax.set_mesh(any_mesh):
        assert jax.sharding.get_mesh() == any_mesh
        assert jax.sharding.get_abstract_mesh() == any_mesh.abstract_mesh
        with jax.set_mesh(other):
            assert jax.sharding.get_mesh() == other
            placed = jax.device_put(X, P("z"))
            with jax.set_mesh(any_mesh):
                assert jax.sharding.get_mesh() == any_mesh
            assert jax.sharding.get_mesh() == other
        assert jax.sharding.get_mesh() == any_mesh
    assert jax.sharding.get_abstract_mesh() == before
    assert placed.sharding == NamedSharding(other, P("z"))


def test_set_mesh_is_left_by_an_exception(any_mesh):
    before = jax.sharding.get_abstract_mesh()
    with pytest.raises(KeyError, match="out"), jax.set_mesh(any_mesh):
        raise KeyError("out")
    assert jax.sharding.get_abstract_mesh() == before


def test_use_abstract_mesh(any_mesh):
    free = any_mesh.without_devices()
    with jax.sharding.use_abstract_mesh(free):
        assert jax.sharding.get_abstract_mesh() == free
        placed = NamedSharding(jax.sharding.get_abstract_mesh(), P("x", "y"))
    assert placed.mesh == free
    assert placed.shard_shape((8, 8)) == (4, 2)
    assert jax.sharding.get_abstract_mesh() != free


def test_one_context_for_ours_and_jax(any_mesh):
    """A function called under our mesh and under JAX's is traced once."""
    traced = []

    @jax.jit
    def f(a):
        traced.append(a)
        return a + 1

    for mesh in (any_mesh, any_mesh.to_jax(), Mesh.from_jax(any_mesh.to_jax())):
        with jax.set_mesh(mesh):
            f(X)
    assert len(traced) == 1


def rows_of_a_bare_spec():
    out = jax.jit(lambda a: jax.lax.with_sharding_constraint(a, P("x")))(X)
    return out.sharding.shard_shape(X.shape)[0]


def test_one_mesh_object_entered_again_and_again(mesh):
    with mesh, mesh:
        with mesh:
            assert rows_of_a_bare_spec() == 4
        assert rows_of_a_bare_spec() == 4
    for _ in range(3):
        with mesh as entered:
            assert entered is mesh
            assert rows_of_a_bare_spec() == 4
    with pytest.raises((RuntimeError, ValueError), match="mesh"):
        rows_of_a_bare_spec()


def test_jax_contexts_and_ours_nest(mesh, devices):
    other = Mesh(devices.reshape(8), "x")
    with mesh:
        with jax.set_mesh(other):
            assert rows_of_a_bare_spec() == 1
        assert rows_of_a_bare_spec() == 4
    with jax.set_mesh(mesh):
        assert rows_of_a_bare_spec() == 4


def test_threads_have_contexts_of_their_own(devices):
    """One mesh object entered by several threads, and others entered meanwhile."""
    shared = Mesh(devices, ("x", "y"))
    lone = Mesh(devices.reshape(8), "x")
    meeting = threading.Barrier(4, timeout=60)
    found = {}

    def work(number):
        mesh = shared if number % 2 else lone
        with mesh:
            meeting.wait()
            inside = rows_of_a_bare_spec()
            with shared:
                meeting.wait()
                within = rows_of_a_bare_spec()
            meeting.wait()
            after = rows_of_a_bare_spec()
        try:
            rows_of_a_bare_spec()
            outside = "taken"
        except (RuntimeError, ValueError):
            outside = "refused"
        found[number] = (inside, within, after, outside)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    with shared:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
        assert rows_of_a_bare_spec() == 4
    assert found == {
        number: (4 if number % 2 else 1, 4, 4 if number % 2 else 1, "refused")
        for number in range(4)
    }


def test_a_mesh_is_a_key_and_a_static_argument(any_mesh):
    table = {any_mesh: 1}
    assert table[any_mesh.to_jax()] == 1
    traced = []
    step = jax.jit(lambda a, mesh: traced.append(mesh) or a, static_argnums=1)
    for mesh in (any_mesh, Mesh.from_jax(any_mesh.to_jax()), any_mesh.update()):
        step(X, mesh)
    assert len(traced) == 1
    assert jax.tree.leaves({"mesh": any_mesh}) == [any_mesh]


@pytest.mark.parametrize(
    ("sizes", "names"),
    [((2, 4), ("x", "y")), ((8,), ("x",)), ((2, 2, 2), ("x", "y", "z")), ((4,), ("x",))],
)
def test_make_mesh_puts_devices_as_jax_does(sizes, names):
    ours, theirs = make_mesh(sizes, names), jax.make_mesh(sizes, names)
    one_value(ours, theirs)
    assert ours.devices.tolist() == theirs.devices.tolist()
    assert isinstance(ours, JaxMesh)
    whole = np.arange(64.0, dtype=np.float32).reshape(8, 8)
    same(
        jax.device_put(whole, NamedSharding(ours, P("x"))),
        jax.device_put(whole, JaxNamed(theirs, JaxSpec("x"))),
        whole,
    )
