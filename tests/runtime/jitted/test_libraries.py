"""Training loops of people who use Flax NNX, Optax, Equinox, Orbax, or dicts of parameters."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

import shardpass
from tests.runtime.jitted.steps import mesh_of, same, spec_of

GPT2 = Path(__file__).parents[3] / "examples" / "gpt2"
# Libraries warn of what newer versions of each other do away with.
pytestmark = pytest.mark.filterwarnings("ignore")


class TestFlaxAndOptax:
    @pytest.mark.parametrize("scan", [False, True])
    def test_a_small_gpt2_learns_as_it_does_unsharded(
        self, scan: bool, monkeypatch: pytest.MonkeyPatch
    ):
        """Twenty steps of AdamW; the state is donated from step to step."""
        monkeypatch.syspath_prepend(str(GPT2))
        monkeypatch.delitem(sys.modules, "model", raising=False)
        from flax import nnx
        from model import Batch, Config, Gpt2, TrainState, make_step, optimizer

        config = Config(
            layers=2 if scan else 1, width=32, heads=4, context=16, vocabulary=128, scan=scan
        )
        graph, model = nnx.split(Gpt2(config, rngs=nnx.Rngs(0)))
        state = TrainState(model, optimizer().init(model))
        draw = np.random.default_rng(0)
        rules = GPT2 / ("rules-scan.toml" if scan else "rules.toml")
        ours = shardpass.jit(make_step(graph), mesh=mesh_of(), rules=str(rules), donate_argnums=0)
        theirs = jax.jit(make_step(graph))
        mine, yours = jax.tree.map(jnp.copy, state), state
        losses: list[tuple[float, float]] = []
        tokens = draw.integers(0, 128, (8, 17)).astype(np.int32)
        batch = Batch(tokens[:, :-1], tokens[:, 1:])
        for _ in range(20):
            mine, loss = ours(mine, batch)
            yours, expected = theirs(yours, batch)
            losses.append((float(loss), float(expected)))
        found, wanted = np.array(losses).T
        np.testing.assert_allclose(found, wanted, rtol=2e-4)
        assert wanted[-1] < wanted[0] - 0.4  # It learns, so that there is something to differ.
        cut = [leaf for leaf in jax.tree.leaves(mine) if spec_of(leaf)]
        assert len(cut) == 21  # Seven kernels, biases and embeddings, and both moments of each.


class TestEquinox:
    def test_a_model_and_its_optimiser_in_one_step(self):
        import equinox as eqx

        model = eqx.nn.MLP(8, 4, 32, 2, key=jax.random.key(0))
        params, static = eqx.partition(model, eqx.is_array)
        optimiser = optax.adam(1e-2)

        def step(params: Any, state: Any, x: Any, y: Any) -> Any:
            def loss_of(params: Any) -> Any:
                return ((jax.vmap(eqx.combine(params, static))(x) - y) ** 2).mean()

            loss, gradient = jax.value_and_grad(loss_of)(params)
            updates, state = optimiser.update(gradient, state, params)
            return eqx.apply_updates(params, updates), state, loss

        rules = [
            ("^[xy]$", P("data")),
            (r"layers\.0\.weight$", P("model")),
            (r"layers\.1\.weight$", P(None, "model")),
        ]
        ours = shardpass.jit(step, mesh=mesh_of(), rules=rules, donate_argnums=(0, 1))
        theirs = jax.jit(step)
        draw = np.random.default_rng(0)
        x = draw.normal(size=(8, 8)).astype(np.float32)
        y = draw.normal(size=(8, 4)).astype(np.float32)
        mine = (jax.tree.map(jnp.copy, params), optimiser.init(params))
        yours = (params, optimiser.init(params))
        for _ in range(5):
            *mine, loss = ours(*mine, x, y)
            *yours, expected = theirs(*yours, x, y)
            same(loss, expected)
        assert spec_of(mine[0].layers[0].weight) == ("model",)
        moments = mine[1][0].mu.layers[0].weight
        assert spec_of(moments) == ("model",)


class TestDictsOfParameters:
    def test_paths_with_slashes_as_haiku_writes_them(self):
        params = {
            "mlp/~/linear_0": {"w": np.ones((8, 32), np.float32), "b": np.zeros(32, np.float32)},
            "mlp/~/linear_1": {"w": np.ones((32, 4), np.float32), "b": np.zeros(4, np.float32)},
        }

        def forward(params: Any, x: Any) -> Any:
            for name in sorted(params):
                x = x @ params[name]["w"] + params[name]["b"]
            return x

        f = shardpass.jit(
            lambda params, x: (jax.tree.map(lambda p: p * 2, params), forward(params, x)),
            mesh=mesh_of(),
            rules=[(r"linear_0\.w$", P(None, "model")), (r"linear_1\.w$", P("model"))],
        )
        x = np.ones((8, 8), np.float32)
        doubled, found = f(params, x)
        same(found, forward(params, x))
        assert spec_of(doubled["mlp/~/linear_0"]["w"]) == (None, "model")
        assert spec_of(doubled["mlp/~/linear_1"]["w"]) == ("model",)


class TestOrbax:
    def test_saved_sharded_and_restored_onto_another_mesh(self, tmp_path: Path):
        import orbax.checkpoint as ocp

        rules = [(r"\.w$", P("data", "model"))]
        step = shardpass.jit(
            lambda state: jax.tree.map(lambda leaf: leaf * 2, state), mesh=mesh_of(), rules=rules
        )
        state = {"w": np.arange(64, dtype=np.float32).reshape(8, 8)}
        trained = step(state)
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(tmp_path / "state", trained)
            checkpointer.wait_until_finished()
            other = shardpass.make_mesh((4, 2), ("data", "model"), jax.sharding.AxisType.Auto)
            target = {
                "w": jax.ShapeDtypeStruct(
                    (8, 8), np.float32, sharding=shardpass.NamedSharding(other, P("data", "model"))
                )
            }
            restored = checkpointer.restore(tmp_path / "state", target)
        same(restored["w"], state["w"] * 2)
        assert restored["w"].addressable_shards[0].data.shape == (2, 4)
        again = shardpass.jit(
            lambda state: jax.tree.map(lambda leaf: leaf * 2, state), mesh=other, rules=rules
        )(restored)
        same(again["w"], state["w"] * 4)
        assert again["w"].addressable_shards[0].data.shape == (2, 4)


class TestExportedFunctions:
    def test_a_function_from_a_file_is_a_function(self):
        exported = jax.export.deserialize(
            jax.export.export(jax.jit(lambda x, w: jnp.sin(x @ w)))(
                jax.ShapeDtypeStruct((8, 16), np.float32), jax.ShapeDtypeStruct((16, 8), np.float32)
            ).serialize()
        )
        f = shardpass.jit(
            lambda x, w: exported.call(x, w), mesh=mesh_of(), rules=[("^x$", P("data"))]
        )
        x, w = np.ones((8, 16), np.float32), np.ones((16, 8), np.float32)
        same(f(x, w), np.sin(x @ w))
        assert spec_of(f(x, w))[:1] == ("data",)
