"""What ``jax.export`` keeps to itself: one test per name."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from jax import export
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from shardpass.compat import exporting

SHAPE = jax.ShapeDtypeStruct((8,), "float32")
ON_X = NamedSharding(AbstractMesh((2,), ("x",), axis_types=(AxisType.Auto,)), PartitionSpec("x"))


def exported() -> export.Exported:
    return export.export(jax.jit(jnp.sin))(SHAPE)


def test_named_shardings():
    """``_in_named_shardings`` and ``_out_named_shardings``: what a call constrains values to."""
    assert exporting.named_shardings(exported()) == ((None,), (None,))


def test_with_program():
    """The fields that a rewritten program needs; every one of them exists, or is of old JAX."""
    before = exported()
    after = exporting.with_program(
        before,
        program=before.mlir_module_serialized,
        devices=2,
        arguments=[ON_X],
        results=[None],
        gradient=None,
    )
    assert after.nr_devices == 2
    assert after.in_shardings_jax(None) == (ON_X,)
    assert not after.has_vjp()
    names = {field.name for field in dataclasses.fields(before)}
    assert {"_in_named_shardings", "_out_named_shardings", "_get_vjp"} <= names
    # A file keeps all of it.
    again = export.deserialize(after.serialize())
    assert again.in_shardings_jax(None) == (ON_X,)


def test_tables_of_classes():
    """Both registries, and the words with which JAX misses an entry: by them stand-ins work."""

    class Node:
        pass

    jax.tree_util.register_pytree_node(Node, lambda _: ((), b""), lambda _, __: Node())
    export.register_pytree_node_serialization(
        Node, serialized_name="acme.Node", serialize_auxdata=bytes, deserialize_auxdata=bytes
    )
    data = export.export(jax.jit(lambda node, x: x))(Node(), SHAPE).serialize()
    assert exporting.classes_by_name.pop("acme.Node")[0] is Node
    assert exporting.names_by_class.pop(Node)[0] == "acme.Node"
    with pytest.raises(ValueError, match=r"unregistered type `acme.Node`"):
        export.deserialize(data)
