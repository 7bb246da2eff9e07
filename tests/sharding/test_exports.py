"""``shardpass.sharding`` in the place of ``jax.sharding``: one import line to rewrite."""

import jax
import pytest

import shardpass.sharding

PUBLIC = [name for name in dir(jax.sharding) if not name.startswith("_")]
OURS = {"Mesh", "NamedSharding", "PartitionSpec", "Sharding", "SingleDeviceSharding"}


def test_what_there_must_be_at_least():
    assert set(PUBLIC) >= OURS
    assert {"AbstractMesh", "AxisType", "get_abstract_mesh", "get_mesh", "set_mesh"} <= set(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_nothing_public_is_missing(name):
    assert name in dir(shardpass.sharding)
    assert name in shardpass.sharding.__all__
    assert (getattr(shardpass.sharding, name) is getattr(jax.sharding, name)) == (name not in OURS)


def test_a_name_is_listed_once():
    assert len(shardpass.sharding.__all__) == len(set(shardpass.sharding.__all__))


def test_what_is_loaded_later():
    later = shardpass.sharding._MODULE_OF
    assert set(later) < set(shardpass.sharding.__all__)
    for name, module in later.items():
        value = getattr(shardpass.sharding, name)
        assert value.__module__ == f"shardpass.sharding.{module}"
        assert vars(shardpass.sharding)[name] is value


def test_star_import():
    found = {}
    exec("from shardpass.sharding import *", found)
    assert found["AxisType"] is jax.sharding.AxisType
    assert found["Mesh"] is shardpass.sharding.Mesh
    assert found["set_mesh"] is jax.set_mesh


def test_an_unknown_name():
    with pytest.raises(AttributeError, match=r"'shardpass.sharding' has no attribute 'set_mush'"):
        _ = shardpass.sharding.set_mush
    with pytest.raises(ImportError, match="NoSuchSharding"):
        exec("from shardpass.sharding import NoSuchSharding")
