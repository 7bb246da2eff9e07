"""Shardings of other classes and on other meshes, given for arguments and results."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import shardpass
from shardpass import ShardingError
from shardpass.runtime.jitted.policy import Policy, fixed
from tests.runtime.jitted.steps import mesh_of, same

X = np.arange(32, dtype=np.float32).reshape(8, 4)
DEVICES = jax.devices()
OTHER = jax.make_mesh((4, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
THREE = jax.make_mesh((2, 2, 2), ("a", "b", "c"))

GIVEN = [
    (shardpass.GSPMDSharding(DEVICES, "{devices=[2,4]<=[8]}"), P("data", "model")),
    (
        shardpass.GSPMDSharding(DEVICES, "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}"),
        P(None, "model"),
    ),
    (shardpass.GSPMDSharding(DEVICES, "{replicated}"), P()),
    (shardpass.PositionalSharding(DEVICES).reshape(2, 4), P("data", "model")),
    (shardpass.PositionalSharding(DEVICES).reshape(8, 1), P(("data", "model"), None)),
    (shardpass.PmapSharding.default((8, 4), 0), P(("data", "model"), None)),
    (NamedSharding(OTHER, P(("a", "b"))), P(("data", "model"))),
    (NamedSharding(THREE, P("a", ("b", "c"))), P("data", "model")),
    (shardpass.NamedSharding(THREE, P(None, ("b", "c"))), P(None, "model")),
]


def double(x: Any) -> Any:
    return x * 2


def normal(spec: Any) -> tuple[Any, ...]:
    """The entries of a spec, without those at its end that cut nothing."""
    entries = list(spec)
    while entries and entries[-1] is None:
        entries.pop()
    return tuple(entries)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize(("given", "spec"), GIVEN)
def test_they_are_said_by_the_axes_of_the_function(given: Any, spec: P, kind: AxisType) -> None:
    mesh = mesh_of(kind)
    by_argument = shardpass.jit(double, mesh=mesh, in_shardings=given)(X)
    by_result = shardpass.jit(double, mesh=mesh, out_shardings=given)(X)
    for found in (by_argument, by_result):
        assert found.sharding.mesh.axis_names == ("data", "model")
        assert normal(found.sharding.spec) == normal(spec)
        assert found.sharding.is_equivalent_to(given, 2)
        same(found, X * 2)


def test_they_are_kept_in_trees_and_beside_rules() -> None:
    tiles = shardpass.GSPMDSharding(DEVICES, "{devices=[2,1,4]<=[8] last_tile_dim_replicate}")
    f = shardpass.jit(
        lambda params, x: (params["w"] + x, x),
        mesh=mesh_of(),
        rules=[("x", P(None, "model"))],
        in_shardings=({"w": tiles}, None),
        out_shardings=(None, tiles),
    )
    lowered = f.lower({"w": X}, X).as_text()
    assert '%arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}' in lowered
    assert (
        '%arg1: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>}' in lowered
    )
    total, x = f({"w": X}, X)
    same(total, X * 2)
    assert normal(x.sharding.spec) == ("data",)


def test_on_the_same_axes_nothing_is_said_anew() -> None:
    """A named sharding of the mesh itself, whatever the types of its axes."""
    typed = NamedSharding(mesh_of(AxisType.Explicit), P("data"))
    found = shardpass.jit(double, mesh=mesh_of(), out_shardings=typed)(X)
    assert found.sharding == typed


def test_without_devices() -> None:
    mesh = jax.sharding.AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    policy = Policy.of(mesh)
    tiles = shardpass.GSPMDSharding(DEVICES, "{devices=[2,4]<=[8]}")
    assert fixed((tiles, None), policy, "in_shardings") == (
        NamedSharding(mesh, P("data", "model")),
        None,
    )
    one_axis = jax.sharding.AbstractMesh((8,), ("z",), axis_types=(AxisType.Auto,))
    on_one_axis = NamedSharding(one_axis, P(None, "z"))
    spec = P(None, ("data", "model"))
    assert fixed(on_one_axis, policy, "out_shardings") == NamedSharding(mesh, spec)
    assert fixed(on_one_axis, Policy.of(mesh_of()), "out_shardings") == NamedSharding(
        mesh_of(), spec
    )
    few = shardpass.GSPMDSharding(DEVICES[:4], "{devices=[2,2]<=[4]}")
    with pytest.raises(ShardingError, match=r"^in_shardings .*over 4 devices, the mesh .* has 8"):
        fixed(few, policy, "in_shardings")
