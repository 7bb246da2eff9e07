"""``shardpass.pjit``: scripts of the time when it was a function of its own."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import shardpass
from shardpass import ShardingError
from tests.runtime.jitted.steps import RULES, batch, mesh_of, parameters, same, spec_of, train_step

X = np.arange(64, dtype=np.float32).reshape(8, 8)


class TestInsideABlock:
    def test_resources_under_their_first_name(self):
        f = shardpass.pjit(
            lambda x, y: x @ y,
            in_axis_resources=(PartitionSpec("data"), PartitionSpec(None, "model")),
            out_axis_resources=PartitionSpec("data", "model"),
        )
        with shardpass.Mesh(mesh_of().devices, ("data", "model")):
            found = f(X, X)
        same(found, X @ X)
        assert spec_of(found) == ("data", "model")

    def test_none_means_whole_as_it_did(self):
        f = shardpass.pjit(lambda x: x, in_shardings=None, out_shardings=None)
        with shardpass.Mesh(mesh_of().devices, ("data", "model")):
            found = f(X)
        assert found.sharding.is_fully_replicated
        assert len(found.sharding.device_set) == 8

    def test_each_call_takes_the_mesh_of_its_own_block(self):
        f = shardpass.pjit(lambda x: x * 2, in_axis_resources=PartitionSpec("rows"))
        for devices in (jax.devices(), jax.devices()[:4]):
            with shardpass.Mesh(np.array(devices), ("rows",)):
                assert len(f(X).sharding.device_set) == len(devices)

    def test_rules_and_donation_and_numbers(self):
        step = shardpass.pjit(train_step, rules=RULES, donate_argnums=(0,))
        with shardpass.Mesh(mesh_of().devices, ("data", "model")):
            state, _ = step(parameters(), batch())
            again, loss = step(state, batch())
        assert state["up"].is_deleted()
        expected = train_step(train_step(parameters(), batch())[0], batch())
        same((again, loss), expected)

    def test_as_a_decorator_and_with_set_mesh(self):
        @shardpass.pjit(in_axis_resources=PartitionSpec("data"))
        def double(x: np.ndarray) -> np.ndarray:
            return x * 2

        with jax.set_mesh(mesh_of()):
            assert spec_of(double(X)) == ("data",)


class TestWrongUse:
    def test_outside_of_any_block(self):
        f = shardpass.pjit(lambda x: x, in_axis_resources=PartitionSpec("data"))
        with pytest.raises(ShardingError, match="there is no mesh") as caught:
            f(X)
        assert caught.value.slug == "bad-mesh"
        assert "with mesh" in (caught.value.diagnostic.help or "")

    def test_both_names_at_once(self):
        with pytest.raises(
            ShardingError, match="in_axis_resources is what in_shardings was called"
        ):
            shardpass.pjit(lambda x: x, in_axis_resources=None, in_shardings=None)
