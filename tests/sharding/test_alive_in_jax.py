"""Our shardings do in JAX what JAX's do, and come back as ours."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import NamedSharding as JaxNamed
from jax.sharding import PartitionSpec as JaxSpec

from shardpass.sharding import Mesh, NamedSharding, P, SingleDeviceSharding
from tests.sharding.alive import one_trace

X = np.arange(64, dtype=np.float32).reshape(8, 8)


@pytest.fixture
def rows_columns(mesh):
    return NamedSharding(mesh, P("x", "y"))


def is_ours(array, spec):
    """Of our class, and cut as ``spec`` says (trailing ``None`` aside)."""
    wanted = NamedSharding(array.sharding.mesh, spec)
    return type(array.sharding) is NamedSharding and array.sharding.is_equivalent_to(
        wanted, array.ndim
    )


def on_every_device(array, whole):
    """Each device holds the block of ``whole`` that the sharding says it does."""
    np.testing.assert_array_equal(array, whole)
    for shard in array.addressable_shards:
        np.testing.assert_array_equal(shard.data, np.asarray(whole)[shard.index])


def test_device_put(rows_columns):
    placed = jax.device_put(X, rows_columns)
    assert placed.sharding is rows_columns
    on_every_device(placed, X)
    moved = jax.device_put(placed, rows_columns.update(spec=P(None, "x")))
    assert is_ours(moved, P(None, "x"))
    on_every_device(moved, X)


def test_jit_follows_its_arguments(rows_columns):
    out = jax.jit(lambda a: a @ a)(jax.device_put(X, rows_columns))
    assert is_ours(out, P("x", "y"))
    on_every_device(out, X @ X)


def test_jit_in_and_out_shardings(mesh, rows_columns):
    columns = NamedSharding(mesh, P(None, "x"))
    out = jax.jit(lambda a: a * 2, in_shardings=rows_columns, out_shardings=columns)(X)
    assert out.sharding == columns
    assert is_ours(out, P(None, "x"))
    on_every_device(out, X * 2)


def test_jit_of_a_pytree(mesh):
    shardings = {"w": NamedSharding(mesh, P("x")), "b": NamedSharding(mesh, P())}
    step = jax.jit(
        lambda tree: jax.tree.map(lambda a: a + 1, tree),
        in_shardings=(shardings,),
        out_shardings=shardings,
    )
    out = step({"w": X, "b": X[0]})
    assert is_ours(out["w"], P("x"))
    assert is_ours(out["b"], P())
    on_every_device(out["w"], X + 1)


def test_nullary_jit(rows_columns):
    out = jax.jit(lambda: jnp.ones((8, 8)), out_shardings=rows_columns)()
    assert is_ours(out, P("x", "y"))


def test_constraint(mesh):
    inner = NamedSharding(mesh, P("y"))
    out = jax.jit(lambda a: jax.lax.with_sharding_constraint(a * 2, inner))(X)
    assert is_ours(out, P("y"))
    on_every_device(out, X * 2)


def test_open_constraint(mesh):
    inner = NamedSharding(mesh, P(P.UNCONSTRAINED, "y"))
    placed = jax.device_put(X, NamedSharding(mesh, P("x")))
    out = jax.jit(lambda a: jax.lax.with_sharding_constraint(a, inner))(placed)
    assert is_ours(out, P("x", "y"))
    on_every_device(out, X)


@pytest.mark.parametrize(("axis", "spec"), [(None, P(None, "x")), ("y", P("y", "x"))])
def test_vmap_of_a_constraint(mesh, axis, spec):
    inner = NamedSharding(mesh, P("x"))
    mapped = jax.vmap(lambda row: jax.lax.with_sharding_constraint(row, inner), spmd_axis_name=axis)
    out = jax.jit(mapped)(X)
    assert out.sharding.is_equivalent_to(JaxNamed(mesh.to_jax(), spec.to_jax()), 2)
    on_every_device(out, X)
    on_every_device(mapped(jnp.asarray(X)), X)


def test_grad_through_a_constraint(mesh, rows_columns):
    def loss(a):
        return (jax.lax.with_sharding_constraint(a, rows_columns) ** 2).sum()

    out = jax.jit(jax.grad(loss))(jax.device_put(X, NamedSharding(mesh, P("x"))))
    assert type(out.sharding) is NamedSharding
    on_every_device(out, 2 * X)


def test_scan(mesh):
    carry = jax.device_put(np.zeros(8, np.float32), NamedSharding(mesh, P("x")))
    rows = jax.device_put(X, NamedSharding(mesh, P(None, "x")))
    total, seen = jax.jit(lambda c, a: jax.lax.scan(lambda s, r: (s + r, s), c, a))(carry, rows)
    assert is_ours(total, P("x"))
    on_every_device(total, X.sum(axis=0))
    assert type(seen.sharding) is NamedSharding


def test_checkpoint_and_cond(rows_columns):
    @jax.checkpoint
    def layer(a):
        a = jax.lax.with_sharding_constraint(a, rows_columns)
        return jax.lax.cond(a.sum() > 0, lambda b: b * 2, lambda b: b, a)

    out = jax.jit(jax.value_and_grad(lambda a: layer(a).sum()))(jax.device_put(X, rows_columns))
    assert float(out[0]) == 2 * X.sum()
    assert is_ours(out[1], P("x", "y"))


def test_eager_ops(rows_columns):
    placed = jax.device_put(X, rows_columns)
    for out, whole in ((placed + 1, X + 1), (placed.T, X.T), (jnp.sin(placed), np.sin(X))):
        assert type(out.sharding) is NamedSharding
        np.testing.assert_allclose(out, whole, rtol=1e-6)
    assert is_ours(placed.T, P("y", "x"))


def test_arrays_from_pieces(rows_columns):
    called = jax.make_array_from_callback(X.shape, rows_columns, lambda index: X[index])
    assert called.sharding is rows_columns
    on_every_device(called, X)
    pieces = [
        jax.device_put(X[index], device)
        for device, index in rows_columns.addressable_devices_indices_map(X.shape).items()
    ]
    joined = jax.make_array_from_single_device_arrays(X.shape, rows_columns, pieces)
    assert joined.sharding is rows_columns
    on_every_device(joined, X)
    local = jax.make_array_from_process_local_data(rows_columns, X)
    on_every_device(local, X)


def test_shape_dtype_struct_eval_shape_and_aot(rows_columns):
    abstract = jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=rows_columns)
    assert abstract.sharding is rows_columns
    assert jax.eval_shape(lambda a: a @ a, abstract).shape == (8, 8)
    lowered = jax.jit(lambda a: a * 2).lower(abstract)
    assert '[{"x"}, {"y"}]' in lowered.as_text() or '{"x", ?}' in lowered.as_text()
    compiled = lowered.compile()
    (expected,), _ = compiled.input_shardings
    assert expected.is_equivalent_to(rows_columns, 2)
    for sharding in (rows_columns, rows_columns.to_jax()):
        out = compiled(jax.device_put(X, sharding))
        on_every_device(out, X * 2)
    assert is_ours(out, P("x", "y"))


def test_shard_map(mesh, rows_columns):
    summed = jax.shard_map(
        lambda a: jax.lax.psum(a, "x"), mesh=mesh, in_specs=P("x", "y"), out_specs=P(None, "y")
    )
    out = jax.jit(summed)(jax.device_put(X, rows_columns))
    on_every_device(out, X[:4] + X[4:])
    partly = jax.shard_map(
        lambda a: a * 2, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"}
    )
    on_every_device(jax.jit(partly)(jax.device_put(X, rows_columns)), X * 2)


def test_constraint_inside_a_partly_manual_shard_map(mesh):
    def body(a):
        inside = NamedSharding(jax.sharding.get_abstract_mesh(), P(None, "y"))
        assert inside.manual_axes == ("x",)
        return jax.lax.with_sharding_constraint(a * 2, inside)

    mapped = jax.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
    on_every_device(jax.jit(mapped)(X), X * 2)


def test_export_keeps_the_names(mesh, rows_columns):
    exported = jax.export.export(
        jax.jit(lambda a: a * 2, in_shardings=rows_columns, out_shardings=rows_columns)
    )(jax.ShapeDtypeStruct(X.shape, X.dtype))
    assert exported.nr_devices == 8
    (wanted,) = exported.in_shardings_jax(mesh.to_jax())
    assert wanted.is_equivalent_to(rows_columns, 2)
    out = jax.jit(exported.call)(jax.device_put(X, rows_columns))
    on_every_device(out, X * 2)


def test_export_with_a_symbolic_size(mesh):
    rows = NamedSharding(mesh, P("x"))
    (size,) = jax.export.symbolic_shape("2*b")
    exported = jax.export.export(jax.jit(lambda a: a * 2, in_shardings=rows))(
        jax.ShapeDtypeStruct((size, 8), X.dtype)
    )
    on_every_device(jax.jit(exported.call)(jax.device_put(X, rows)), X * 2)


def test_explicit_mesh(explicit_mesh):
    placed = jax.device_put(X, NamedSharding(explicit_mesh, P("x", "y")))
    assert str(jax.typeof(placed)) in ("float32[8@x,8@y]", "ShapedArray(float32[8@x,8@y])")
    doubled = jax.jit(lambda a: a * 2)(placed)
    assert doubled.sharding.spec == P("x", "y")
    on_every_device(doubled, X * 2)
    turned = NamedSharding(explicit_mesh, P("y", "x"))
    out = jax.jit(lambda a: jax.sharding.reshard(a, turned))(placed)
    assert out.sharding == turned
    on_every_device(out, X)
    rows = NamedSharding(explicit_mesh, P("x", None))
    product = jax.jit(lambda a: jnp.einsum("ij,jk->ik", a, a, out_sharding=rows))
    out = product(jax.device_put(X, rows))
    assert out.sharding == rows
    on_every_device(out, X @ X)


def test_set_mesh_with_our_specs(devices):
    for axis_type in (AxisType.Auto, AxisType.Explicit):
        mesh = Mesh(devices, ("x", "y"), axis_type)
        with jax.set_mesh(mesh):
            out = jax.jit(lambda a: a + 1, in_shardings=P("x"), out_shardings=P("x"))(X)
            zeros = jnp.zeros((8, 8), device=NamedSharding(mesh, P("y")))
        assert out.sharding.shard_shape(X.shape) == (4, 8)
        assert zeros.sharding.shard_shape(X.shape) == (2, 8)


def test_permuted_devices(devices):
    mesh = Mesh(devices[::-1, ::-1].T, ("y", "x"))
    placed = jax.device_put(X, NamedSharding(mesh, P("x", "y")))
    on_every_device(placed, X)
    on_every_device(jax.jit(lambda a: a @ a.T)(placed), X @ X.T)


def test_uneven_constraint_is_left_to_jax(mesh):
    inner = NamedSharding(mesh, P("y"))
    out = jax.jit(lambda a: jax.lax.with_sharding_constraint(a * 2, inner)[:6])(X[:6])
    on_every_device(out, X[:6] * 2)


def test_one_trace_for_ours_and_jax(mesh, rows_columns):
    one_trace(rows_columns, rows_columns.to_jax())


def test_one_trace_for_constraints_and_specs(mesh):
    traced = []

    def f(a):
        traced.append(a)
        return a + 1

    for sharding in (NamedSharding(mesh, P("x")), JaxNamed(mesh.to_jax(), JaxSpec("x"))):
        jax.jit(f, in_shardings=sharding, out_shardings=sharding)(X)
    assert len(traced) == 1


def test_mixed_with_jax_own(mesh, rows_columns):
    ours = jax.device_put(X, rows_columns)
    theirs = jax.device_put(X, JaxNamed(mesh.to_jax(), JaxSpec("y")))
    out = jax.jit(lambda a, b: a @ b)(ours, theirs)
    assert type(out.sharding) is NamedSharding
    on_every_device(out, X @ X)
    on_every_device(ours + theirs, X + X)


def test_memory_kinds(mesh):
    host = NamedSharding(mesh, P("x"), memory_kind="pinned_host")
    placed = jax.device_put(X, host)
    assert placed.sharding.memory_kind == "pinned_host"
    back = jax.device_put(placed, host.with_memory_kind("device"))
    assert back.sharding == NamedSharding(mesh, P("x"))
    on_every_device(back, X)


def test_lowering_without_devices():
    mesh = Mesh.of(data=16, model=32)
    sharding = NamedSharding(mesh, P("data", "model"))
    traced = jax.jit(lambda a: a * 2, in_shardings=sharding).trace(
        jax.ShapeDtypeStruct((512, 512), np.float32)
    )
    text = traced.lower(lowering_platforms=("tpu",)).as_text()
    assert "mhlo.num_partitions = 512" in text
    assert '<["data"=16, "model"=32]>' in text


@pytest.mark.parametrize("use", ["device_put", "in_shardings"])
def test_errors_speak_of_the_sharding(mesh, use):
    sharding = NamedSharding(mesh, P("x", "y"))
    put = {
        "device_put": lambda x: jax.device_put(x, sharding),
        "in_shardings": jax.jit(lambda a: a, in_shardings=sharding),
    }[use]
    with pytest.raises(ValueError, match="speaks of 2 dimensions, the value has 1"):
        put(X[0])
    with pytest.raises(ValueError, match=r"6"):
        put(X[:, :6])


def test_single_device_among_meshes(rows_columns):
    lone = jax.device_put(X, SingleDeviceSharding(jax.devices()[5]))
    spread = jax.device_put(lone, rows_columns)
    assert is_ours(spread, P("x", "y"))
    on_every_device(spread, X)
