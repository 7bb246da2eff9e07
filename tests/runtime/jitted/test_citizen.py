"""Functions of ``shardpass.jit`` under JAX's transformations, caches, checks and counters."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import shardpass
from tests.runtime.jitted.steps import (
    RULES,
    batch,
    constraints,
    events,
    mesh_of,
    parameters,
    placed,
    same,
    spec_of,
    train_step,
)
from tests.runtime.optimized import bare

ON_X = [("^x$", PartitionSpec("data"))]


def cubed(x: Any) -> Any:
    return x**3


class TestTransformations:
    def test_derivatives(self):
        f = shardpass.jit(lambda x: cubed(x).sum(), mesh=mesh_of(), rules=ON_X)
        x = np.arange(8, dtype=np.float32)
        same(jax.grad(f)(x), 3 * x**2)
        assert spec_of(jax.grad(f)(x)) == ("data",)
        value, tangent = jax.jvp(f, (x,), (np.ones_like(x),))
        same((value, tangent), ((x**3).sum(), (3 * x**2).sum()))
        same(jax.hessian(f)(x), np.diag(6 * x))

    def test_mapped(self):
        f = shardpass.jit(cubed, mesh=mesh_of(), rules=ON_X)
        x = np.arange(24, dtype=np.float32).reshape(3, 8)
        same(jax.vmap(f)(x), x**3, tolerance=1e-4)
        assert spec_of(jax.vmap(f)(x)) == (None, "data")

    def test_rematerialised_and_inside_loops(self):
        f = shardpass.jit(lambda x: jnp.sin(x) * 2, mesh=mesh_of(), rules=ON_X)
        x = np.arange(8, dtype=np.float32)
        same(jax.grad(lambda x: jax.checkpoint(f)(x).sum())(x), 2 * np.cos(x))
        same(
            jax.jit(lambda x: jax.lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0])(x),
            2 * np.sin(2 * np.sin(x)),
        )

    def test_shapes_alone(self):
        f = shardpass.jit(train_step, mesh=mesh_of(), rules=RULES)
        for new, loss in (
            jax.eval_shape(f, parameters(), batch()),
            f.eval_shape(parameters(), batch()),
        ):
            assert new["up"].shape == (16, 32)
            assert (loss.shape, loss.dtype) == ((), np.float32)

    def test_inside_jit_the_plan_holds(self):
        inner = shardpass.jit(cubed, mesh=mesh_of(), rules=[("^x$", PartitionSpec("model"))])
        outer = jax.jit(lambda x: inner(x) + 1)
        found = outer(np.arange(8, dtype=np.float32))
        same(found, np.arange(8, dtype=np.float32) ** 3 + 1)
        assert spec_of(found) == ("model",)


class TestInsideEachOther:
    def test_rules_of_the_inner_one_become_constraints(self):
        inner = shardpass.jit(
            lambda x: x @ x.T, mesh=mesh_of(), rules=[("^x$", PartitionSpec(None, "model"))]
        )
        outer = shardpass.jit(lambda x: inner(x * 2), mesh=mesh_of(), rules=ON_X)
        x = np.arange(64, dtype=np.float32).reshape(8, 8)
        same(outer(x), (2 * x) @ (2 * x).T)
        inside = constraints(outer.trace(x).jaxpr.jaxpr)
        assert inside == [("argument", PartitionSpec(None, "model"))]

    def test_what_the_inner_one_was_called_with_before_is_nothing_to_the_outer_one(self):
        """By itself it has a whole plan; inside, its rules alone."""
        inner = shardpass.jit(
            lambda x: x @ x.T, mesh=mesh_of(), rules=[("^x$", PartitionSpec(None, "model"))]
        )
        outer = shardpass.jit(lambda x: inner(x * 2), mesh=mesh_of(), rules=ON_X)
        x = np.arange(64, dtype=np.float32).reshape(8, 8)
        for _ in range(2):
            same(inner(x), x @ x.T)
            inside = constraints(outer.trace(x).jaxpr.jaxpr)
            assert inside == [("argument", PartitionSpec(None, "model"))]
            jax.clear_caches()

    def test_a_pipeline_of_its_own_is_said_not_to_run_once(self):
        inner = shardpass.jit(
            cubed, mesh=mesh_of(), rules=ON_X, pipeline="sp-annotate,sp-propagate"
        )
        outer = shardpass.jit(lambda x: inner(x) + inner(x * 2), mesh=mesh_of(), rules=ON_X)
        with pytest.warns(UserWarning, match="pipeline of cubed is not run inside another") as said:
            outer(np.ones(8, np.float32))
        assert len(said) == 1
        with warnings.catch_warnings(action="error"):
            same(inner(np.ones(8, np.float32)), np.ones(8))  # By itself it is the outermost.


class TestWhatRunsHowOften:
    def test_no_more_than_under_jit_with_the_same_shardings(self):
        ran = {"ours": 0, "theirs": 0}

        def counting(name: str) -> Any:
            def step(params: Any, batch: Any) -> Any:
                ran[name] += 1
                return train_step(params, batch)

            return step

        up, down, rows = placed(None, "model"), placed("model"), placed("data")
        weights = {"up": up, "down": down}
        theirs = jax.jit(
            counting("theirs"),
            in_shardings=(weights, rows),
            out_shardings=(weights, placed()),
            donate_argnums=0,
        )
        ours = shardpass.jit(counting("ours"), mesh=mesh_of(), rules=RULES, donate_argnums=0)
        counts: dict[str, list[tuple[int, int]]] = {}
        for name, step in (("theirs", theirs), ("ours", ours)):
            state: Any = parameters()
            counts[name] = []
            for rows_of_batch in (8, 8, 8, 4, 4, 8):
                with events() as counted:
                    state, _ = step(state, batch(rows_of_batch))
                counts[name].append((ran[name], counted["compiled"]))
        assert counts["theirs"] == [(1, 1), (2, 1), (2, 0), (3, 1), (3, 0), (3, 0)]
        assert counts["ours"] == [(1, 1), (1, 1), (1, 0), (2, 1), (2, 0), (2, 0)]

    def test_cleared_caches_are_filled_again(self):
        f = shardpass.jit(cubed, mesh=mesh_of(), rules=ON_X)
        x = jax.device_put(np.ones(8, np.float32), placed("data"))
        f(x)
        jax.clear_caches()
        with events() as counted:
            f(x)
        assert counted["compiled"] == 1
        f.clear_cache()
        with events() as counted:
            f(x)
        assert counted["compiled"] == 1

    def test_the_compilation_cache_on_disk_serves_another_process(self, tmp_path: Path):
        program = f"""
import shardpass
shardpass.request_cpu_devices(8)
import jax, jax.monitoring, numpy as np
from jax.sharding import PartitionSpec as P
jax.config.update("jax_compilation_cache_dir", {str(tmp_path)!r})
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
hits = []
jax.monitoring.register_event_listener(
    lambda event, **_: hits.append(event) if event.endswith("cache_hits") else None)
f = shardpass.jit(lambda x: x @ x.T, mesh={{"data": 8}}, rules=[("^x$", P("data"))])
f(np.ones((8, 8), np.float32)).block_until_ready()
print(len(hits))
"""

        def run() -> str:
            return subprocess.run(
                [sys.executable, "-c", program], capture_output=True, text=True, check=True
            ).stdout

        assert [run(), run()] == ["0\n", "1\n"]


class TestChecks:
    def test_leaks_are_looked_for(self):
        f = shardpass.jit(cubed, mesh=mesh_of(), rules=ON_X)
        with jax.checking_leaks():
            same(f(np.ones(8, np.float32)), np.ones(8))
        kept: list[Any] = []
        leaking = shardpass.jit(lambda x: kept.append(x) or x, mesh=mesh_of(), rules=ON_X)
        with jax.checking_leaks(), pytest.raises(Exception, match=r"[Ll]eak"):
            leaking(np.ones(8, np.float32))

    def test_nans_are_found(self):
        f = shardpass.jit(lambda x: jnp.log(x), mesh=mesh_of(), rules=ON_X)
        with jax.debug_nans(True), pytest.raises(FloatingPointError):
            f(np.full(8, -1, np.float32)).block_until_ready()


class TestTheProgram:
    """Optimized HLO, without metadata and names."""

    weights: ClassVar[Any] = {"up": placed(None, "model"), "down": placed("model")}

    @pytest.mark.parametrize("rows", [8, 32])
    def test_it_is_that_of_jit_with_the_same_shardings(self, rows: int):
        theirs = jax.jit(
            train_step,
            in_shardings=(self.weights, placed("data")),
            out_shardings=(self.weights, placed()),
        )
        ours = shardpass.jit(train_step, mesh=mesh_of(), rules=RULES)
        texts = [bare(f.lower(parameters(), batch(rows)).compile()) for f in (ours, theirs)]
        assert texts[0] == texts[1]
        assert "all-reduce" in texts[0]

    def test_it_is_that_of_jit_with_the_same_shardings_and_constraints(self):
        def constrained(params: Any, batch: Any) -> Any:
            params = jax.lax.with_sharding_constraint(params, self.weights)
            batch = jax.lax.with_sharding_constraint(batch, placed("data"))
            return jax.lax.with_sharding_constraint(
                train_step(params, batch), (self.weights, placed())
            )

        theirs = jax.jit(
            constrained,
            in_shardings=(self.weights, placed("data")),
            out_shardings=(self.weights, placed()),
        )
        ours = shardpass.jit(train_step, mesh=mesh_of(), rules=RULES)
        texts = [bare(f.lower(parameters(), batch()).compile()) for f in (ours, theirs)]
        assert texts[0] == texts[1]


def test_a_named_sharding_of_the_users_mesh_comes_back():
    mesh = jax.make_mesh((4, 2), ("rows", "columns"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    f = shardpass.jit(lambda x: x + 1, mesh=mesh, rules=[("^x$", PartitionSpec("rows", "columns"))])
    found = f(np.ones((8, 8), np.float32))
    assert found.sharding == NamedSharding(mesh, PartitionSpec("rows", "columns"))
