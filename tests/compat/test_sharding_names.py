"""What the objects need of JAX beyond what it documents: one test per name.

Each test says what the name must be, and what breaks in the package when it is not.
"""

import inspect
import warnings

import jax
import numpy as np
import pytest

from shardpass.compat import devices, lowering, mesh_context, output_shardings

THREE = ("out_s", "out_aval", "orig_in_s")


@pytest.fixture
def mesh():
    return jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("x", "y"))


@pytest.mark.parametrize("kind", ["NamedSharding", "SingleDeviceSharding"])
def test_output_sharding_handlers(kind):
    """``pxla._orig_out_sharding_handlers``: without our entry jit gives back another class."""
    table = output_shardings.handlers()
    assert isinstance(table, dict)
    handler = table[getattr(jax.sharding, kind)]
    assert tuple(inspect.signature(handler).parameters) == THREE


def test_output_sharding_handlers_are_asked_by_exact_type(mesh):
    """An entry for a class must be what decides the class of a result."""
    asked = []

    class Mine(jax.sharding.NamedSharding):
        pass

    def handler(made_by_xla, aval, origin):
        asked.append((type(made_by_xla).__name__, type(origin)))
        return table[jax.sharding.NamedSharding](made_by_xla, aval, origin)

    table = output_shardings.handlers()
    table[Mine] = handler
    try:
        mine = Mine(mesh, jax.sharding.PartitionSpec("x"))
        # Of a shape that no other test has: Mine equals JAX's, and what it compiled is kept.
        out = jax.jit(lambda a: a.T)(jax.device_put(np.zeros((8, 328)), mine))
    finally:
        del table[Mine]
    assert asked == [("GSPMDSharding", Mine)]
    assert out.sharding.spec == jax.sharding.PartitionSpec(None, "x")


def test_mesh_enter(mesh):
    """``Mesh.__enter__`` takes its ``warnings`` from its module: else ``with mesh`` warns again."""
    assert "warnings" in mesh_context.enter_mesh.__code__.co_names
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mesh_context.enter_mesh(mesh)
        try:
            spec = jax.sharding.PartitionSpec("x")
            out = jax.jit(lambda a: jax.lax.with_sharding_constraint(a, spec))(np.zeros(8))
        finally:
            mesh_context.exit_mesh(mesh)
    assert out.sharding.mesh == mesh
    with pytest.raises(RuntimeError, match="mesh"):
        jax.jit(lambda a: jax.lax.with_sharding_constraint(a + 1, spec))(np.zeros(8))


def test_jax_still_warns(mesh):
    """Once JAX stops warning, ``shardpass.compat.mesh_context`` can go."""
    with pytest.warns(DeprecationWarning, match="with jax.set_mesh"), mesh:
        pass


def test_to_xla_hlo_sharding(mesh):
    """``Sharding._to_xla_hlo_sharding``: foreign shardings are compared by its text."""
    named = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("y"))
    assert lowering.hlo_text(named, 2) == ("{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}")
    single = jax.sharding.SingleDeviceSharding(jax.devices()[3])
    assert lowering.hlo_text(single, 2) == "{replicated}"


def test_device_assignment(mesh):
    """``Sharding._device_assignment``: foreign shardings are compared by their device order."""
    named = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("y"))
    assert lowering.device_assignment(named) == tuple(jax.devices())
    single = jax.sharding.SingleDeviceSharding(jax.devices()[3])
    assert lowering.device_assignment(single) == (jax.devices()[3],)


def test_internal_device_list(mesh):
    """``Sharding._internal_device_list``: equivalence compares devices and their order by it."""

    def devices_of(mesh):
        return lowering.device_list(jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))

    turned = jax.sharding.Mesh(mesh.devices[::-1], ("x", "y"))
    renamed = jax.sharding.Mesh(mesh.devices.reshape(8), ("z",))
    assert devices_of(mesh) == devices_of(renamed)
    assert devices_of(mesh) != devices_of(turned)
    assert list(devices_of(turned)) == list(turned.devices.flat)


def test_logical_device_ids(mesh):
    """``NamedSharding._logical_device_ids``: the permutation that a lowered mesh carries."""
    spec = jax.sharding.PartitionSpec("y")
    assert lowering.logical_device_ids(jax.sharding.NamedSharding(mesh, spec)) is None
    ids = (7, 6, 5, 4, 3, 2, 1, 0)
    permuted = jax.sharding.NamedSharding(mesh, spec, _logical_device_ids=ids)
    assert lowering.logical_device_ids(permuted) == ids


def test_device():
    """``jax.Device`` is the class of every device: meshes refuse what is not one."""
    assert devices.Device is jax.Device
    assert all(isinstance(device, devices.Device) for device in jax.devices())
