"""``jax.shard_map`` with our meshes and our specs: what each device sees and gives back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as JaxSpec

from shardpass.sharding import Mesh, NamedSharding, P, make_mesh
from tests.sharding.alive import X, partitioned_by, same

SPECS = [("x", "y"), (None, "x"), (("y", "x"),), ("y", "x"), ("x",), ()]


@pytest.fixture(params=["shardy", "gspmd"], autouse=True)
def partitioner(request):
    with partitioned_by(request.param):
        yield request.param


@pytest.fixture(params=[AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"])
def our_mesh(request, devices):
    return Mesh(devices, ("x", "y"), request.param)


def both_ways(our_mesh, run, whole):
    """What ``run(mesh, class of specs)`` gives with ours, compared with JAX's."""
    ours, theirs = run(our_mesh, P), run(our_mesh.to_jax(), JaxSpec)
    same(ours, theirs, whole)
    return ours


def placed(value, mesh, spec):
    """``value`` cut as the function wants it, which Explicit axes insist on."""
    return jax.device_put(value, jax.NamedSharding(mesh, spec))


def block_numbers(spec):
    """For each element, the number of the block that it is in, counted as ``axis_index`` does."""
    shard = NamedSharding(Mesh.of(x=2, y=4), P(*spec)).shard_shape(X.shape)
    rows, columns = np.indices(X.shape)
    return (rows // shard[0]) * (8 // shard[1]) + columns // shard[1]


def axes_of(spec):
    """The axes of a spec, in its order."""
    entries = [entry if isinstance(entry, tuple) else (entry,) for entry in spec if entry]
    return tuple(axis for entry in entries for axis in entry)


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("jitted", [True, False], ids=["jit", "eager"])
def test_every_device_sees_its_block(our_mesh, spec, jitted):
    seen = []

    def body(a):
        seen.append(a.shape)
        number = jax.lax.axis_index(axes_of(spec)) if spec else 0
        return a * 10 + number

    def run(mesh, make_spec):
        mapped = jax.shard_map(
            body, mesh=mesh, in_specs=make_spec(*spec), out_specs=make_spec(*spec)
        )
        mapped = jax.jit(mapped) if jitted else mapped
        return mapped(placed(X, mesh, make_spec(*spec)))

    out = both_ways(our_mesh, run, X * 10 + block_numbers(spec))
    sharding = NamedSharding(our_mesh, P(*spec))
    assert set(seen) == {sharding.shard_shape(X.shape)}
    assert out.sharding.is_equivalent_to(sharding, 2)


def test_collectives(our_mesh):
    def run(mesh, make_spec):
        def body(a):
            total = jax.lax.psum(a, "x")
            return jax.lax.all_gather(total, "y", axis=1, tiled=True)

        mapped = jax.shard_map(
            body,
            mesh=mesh,
            in_specs=make_spec("x", "y"),
            out_specs=make_spec(None, None),
            check_vma=False,
        )
        return jax.jit(mapped)(placed(X, mesh, make_spec("x", "y")))

    both_ways(our_mesh, run, X[:4] + X[4:])


def test_trees_of_specs(our_mesh):
    """A spec is a leaf: a dict of them stands for a dict of arrays."""

    def run(mesh, make_spec):
        specs = {"w": make_spec("x", "y"), "b": make_spec("y")}
        mapped = jax.shard_map(
            lambda tree, scale: {"w": tree["w"] * scale, "b": tree["b"] + 1},
            mesh=mesh,
            in_specs=(specs, make_spec()),
            out_specs=specs,
        )
        tree = {"w": placed(X, mesh, specs["w"]), "b": placed(X[0], mesh, specs["b"])}
        out = jax.jit(mapped)(tree, jnp.float32(3))
        np.testing.assert_array_equal(out["b"], X[0] + 1)
        return out["w"]

    both_ways(our_mesh, run, X * 3)


def test_some_axes_alone(devices):
    auto = Mesh(devices, ("x", "y"))

    def run(mesh, make_spec):
        mapped = jax.shard_map(
            lambda a: a + jax.lax.axis_index("x"),
            mesh=mesh,
            in_specs=make_spec("x"),
            out_specs=make_spec("x"),
            axis_names={"x"},
        )
        return jax.jit(mapped)(placed(X, mesh, make_spec("x", "y")))

    both_ways(auto, run, X + np.arange(2).repeat(4)[:, None])


def test_a_constraint_on_the_axes_that_are_left(devices, partitioner):
    auto = Mesh(devices, ("x", "y"))

    def run(mesh, make_spec):
        def body(a):
            inside = jax.sharding.get_abstract_mesh()
            assert inside.axis_names == ("x", "y")
            wanted = (NamedSharding if make_spec is P else jax.NamedSharding)(
                inside, make_spec(None, "y")
            )
            return jax.lax.with_sharding_constraint(a * 2, wanted)

        mapped = jax.shard_map(
            body, mesh=mesh, in_specs=make_spec("x"), out_specs=make_spec("x"), axis_names={"x"}
        )
        return jax.jit(mapped)(X)

    both_ways(auto, run, X * 2)


def test_the_mesh_in_context(our_mesh):
    """Without ``mesh=``, the mesh is the one that ``jax.set_mesh`` has set."""

    def run(mesh, make_spec):
        with jax.set_mesh(mesh):
            mapped = jax.shard_map(
                lambda a: a + jax.lax.axis_index("y"),
                in_specs=make_spec(None, "y"),
                out_specs=make_spec(None, "y"),
            )
            return jax.jit(mapped)(jax.device_put(X, make_spec(None, "y")))

    both_ways(our_mesh, run, X + np.arange(4).repeat(2))


def test_as_a_decorator(our_mesh):
    def run(mesh, make_spec):
        @jax.jit
        @jax.shard_map(mesh=mesh, in_specs=make_spec("x"), out_specs=make_spec("x"))
        def doubled(a):
            return a * 2

        return doubled(placed(X, mesh, make_spec("x")))

    both_ways(our_mesh, run, X * 2)


def test_grad_and_vmap(our_mesh):
    def run(mesh, make_spec):
        mapped = jax.shard_map(
            lambda a: a**2, mesh=mesh, in_specs=make_spec("x"), out_specs=make_spec("x")
        )
        stack = placed(np.stack([X, X + 1]), mesh, make_spec(None, "x"))
        stacked = jax.jit(jax.vmap(mapped))(stack)
        np.testing.assert_array_equal(stacked, np.stack([X, X + 1]) ** 2)
        return jax.jit(jax.grad(lambda a: mapped(a).sum()))(placed(X, mesh, make_spec("x")))

    both_ways(our_mesh, run, 2 * X)


def test_ours_and_jax_mixed(our_mesh):
    for mesh in (our_mesh, our_mesh.to_jax(), make_mesh((2, 4), ("x", "y"), our_mesh.axis_types)):
        for in_spec, out_spec in ((P, JaxSpec), (JaxSpec, P), (P, P)):
            mapped = jax.shard_map(
                lambda a: a * 2, mesh=mesh, in_specs=in_spec("x"), out_specs=out_spec("x")
            )
            argument = placed(X, mesh, in_spec("x"))
            same(jax.jit(mapped)(argument), argument * 2, X * 2)


def test_a_mesh_without_devices(our_mesh):
    """The devices come with the arguments."""
    free = our_mesh.without_devices()

    def run(mesh, make_spec):
        mapped = jax.shard_map(
            lambda a: a * 3, mesh=mesh, in_specs=make_spec("x"), out_specs=make_spec("x")
        )
        return jax.jit(mapped)(placed(X, our_mesh, make_spec("x")))

    same(run(free, P), run(free.to_jax(), JaxSpec), X * 3)


def test_a_spec_of_an_unknown_axis_is_refused(our_mesh):
    mapped = jax.shard_map(lambda a: a, mesh=our_mesh, in_specs=P("z"), out_specs=P("z"))
    with pytest.raises(ValueError, match="z"):
        mapped(X)
