"""What ``GSPMDSharding`` needs of jaxlib and JAX beyond what they document: one test per name."""

import jax
import jax.extend.sharding as jax_extend
import pytest

from shardpass.canon import MeshShape, TensorSharding
from shardpass.compat import hlo_sharding, lowering, sharding_hooks

TEXT = "{devices=[4,2]<=[2,4]T(1,0)}"


def test_hlo_sharding_is_what_jax_extend_returns():
    """``xla_client.HloSharding``: by its class we know one that we are given."""
    made = jax_extend.get_hlo_sharding_from_serialized_proto(b"")
    assert type(made) is hlo_sharding.HloSharding


def test_op_sharding_is_what_jax_extend_returns():
    """``xla_client.OpSharding``: by its class we know one that we are given."""
    made = jax_extend.get_op_sharding_from_serialized_proto(b"")
    assert type(made) is hlo_sharding.OpSharding


def test_from_text():
    """``HloSharding.from_string``: JAX's class is given what our text says."""
    made = hlo_sharding.from_text(TEXT)
    assert type(made) is hlo_sharding.HloSharding
    assert repr(made) == TEXT


def test_proto_bytes():
    """``HloSharding.to_proto``, ``OpSharding.SerializeToString``: what we read both by."""
    made = hlo_sharding.from_text(TEXT)
    expected = b"\x08\x03\x1a\x02\x04\x02J\x02\x02\x04R\x02\x01\x00"
    assert hlo_sharding.proto_bytes(made) == expected
    assert hlo_sharding.proto_bytes(made.to_proto()) == expected


def test_of_sharding():
    """``GSPMDSharding._hlo_sharding``: what JAX's own object holds."""
    made = jax_extend.GSPMDSharding(jax.devices(), hlo_sharding.from_text(TEXT))
    assert repr(hlo_sharding.of_sharding(made)) == TEXT


def test_hlo_proto():
    """``HloSharding.to_proto``: only there JAX says how partial results are to be combined."""
    made = jax_extend.GSPMDSharding(jax.devices(), hlo_sharding.from_text(TEXT))
    assert lowering.hlo_proto(made, 2) == hlo_sharding.proto_bytes(hlo_sharding.from_text(TEXT))


def test_to_sdy_sharding():
    """``Sharding._to_sdy_sharding``: what ours answers JAX with is what JAX's own do."""
    mesh = jax.sharding.AbstractMesh((2, 4), ("x", "y"))
    named = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("y"))
    ours = sharding_hooks.sdy_array(TensorSharding.build(MeshShape.of(x=2, y=4), [["y"], []]))
    with jax.interpreters.mlir.make_ir_context():
        text = str(ours.build({}))
        assert text == str(named._to_sdy_sharding(2).build({}))
    assert text == '#sdy.sharding<mesh<["x"=2, "y"=4]>, [{"y"}, {}]>'


@pytest.mark.parametrize("shardy", [True, False])
def test_uses_shardy(shardy):
    """``jax.config.jax_use_shardy_partitioner``: who partitions what JAX lowers."""
    jax.config.update("jax_use_shardy_partitioner", shardy)
    try:
        assert lowering.uses_shardy() is shardy
    finally:
        jax.config.update("jax_use_shardy_partitioner", True)
