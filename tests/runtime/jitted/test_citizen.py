"""Functions of ``shardpass.jit`` under JAX's transformations, caches, checks and counters."""

from __future__ import annotations

import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import shardpass
from tests.runtime.counting import events
from tests.runtime.jitted.steps import (
    RULES,
    batch,
    constraints,
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

    def test_nans_are_found_where_they_are_made(self):
        f = shardpass.jit(lambda x: jnp.log(x) * 2, mesh=mesh_of(), rules=ON_X)
        with jax.debug_nans(True), pytest.raises(FloatingPointError, match="encountered in log"):
            f(np.full(8, -1, np.float32)).block_until_ready()

    def test_jit_can_be_disabled(self):
        f = shardpass.jit(lambda x: x if x.sum() > 0 else -x, mesh=mesh_of(), rules=ON_X)
        with jax.disable_jit():
            same(f(np.full(8, -1, np.float32)), np.ones(8))


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


class TestInsideEagerTransformations:
    """Arguments that are bound elsewhere than the plan has them are moved, as by constraints."""

    @staticmethod
    def loss() -> Any:
        return shardpass.jit(
            lambda w, x: jnp.sin(x @ w).sum(),
            mesh=mesh_of(),
            rules=[("^x$", PartitionSpec("data")), ("^w$", PartitionSpec(None, "model"))],
        )

    @pytest.mark.parametrize("is_called_before", [False, True])
    @pytest.mark.parametrize(
        "transform",
        [
            lambda f, w, x: jax.grad(f)(w, x),
            lambda f, w, x: jax.value_and_grad(f, (0, 1))(w, x),
            lambda f, w, x: jax.jvp(f, (w, x), (w, x)),
            lambda f, w, x: jax.vjp(f, w, x)[1](jnp.float32(1)),
            lambda f, w, x: jax.vmap(f, (None, 0))(w, jnp.stack([x, x])),
            lambda f, w, x: jax.grad(jax.checkpoint(f))(w, x),
            lambda f, w, x: jax.linearize(f, w, x)[0],
            lambda f, w, x: jax.hessian(f)(w, x),
        ],
    )
    def test_it_is_what_the_bare_function_gives(self, transform: Any, is_called_before: bool):
        f = self.loss()
        w = jax.device_put(parameters()["up"] / 8, placed())
        x = jax.device_put(batch()["x"], placed())
        if is_called_before:
            with pytest.warns(UserWarning, match="moved"):
                f(w, x)
        expected = transform(lambda w, x: jnp.sin(x @ w).sum(), w, x)
        same(transform(f, w, x), expected, tolerance=1e-4)

    def test_what_is_told_of_a_plan_is_told_here_too(self, capsys: pytest.CaptureFixture[str]):
        f = shardpass.jit(cubed, mesh=mesh_of(), rules=ON_X, report=True)
        for _ in range(2):
            jax.grad(lambda x: f(x).sum())(jnp.ones(8))
        assert capsys.readouterr().err.count("data=2, model=4") == 1


class TestPartsOfAnotherTrace:
    """What has no module of its own: rules hold as constraints."""

    @pytest.mark.parametrize(
        "transform",
        [
            lambda f: jax.jit(f)(2.0),
            lambda f: jax.grad(f)(2.0),
            lambda f: jax.vmap(f)(jnp.arange(3.0)),
            lambda f: jax.lax.scan(lambda c, _: (f(c) / 64, f(c)), 1.0, None, length=2),
        ],
    )
    def test_values_of_the_trace_around_it(self, transform: Any):
        x = jnp.arange(8.0)

        def outer(y: Any) -> Any:
            return shardpass.jit(lambda x: x * y, mesh=mesh_of(), rules=ON_X)(x).sum()

        same(transform(outer), transform(lambda y: (x * y).sum()))

    def test_rules_on_arguments_and_results(self):
        rules = [("^x$", PartitionSpec("data")), ("^result$", PartitionSpec("model"))]

        def outer(y: Any) -> Any:
            return shardpass.jit(lambda x: x * y, mesh=mesh_of(), rules=rules)(jnp.arange(8.0))

        found = constraints(jax.make_jaxpr(outer)(2.0).jaxpr)
        assert [spec for _, spec in found] == [PartitionSpec("data"), PartitionSpec("model")]
        assert spec_of(jax.jit(outer)(2.0)) == ("model",)

    def test_names_of_mapped_axes(self):
        x = np.arange(32, dtype=np.float32).reshape(4, 8)
        mean = shardpass.jit(lambda x: x - jax.lax.pmean(x, "b"), mesh=mesh_of(), rules=ON_X)
        index = shardpass.jit(lambda x: x * jax.lax.axis_index("b"), mesh=mesh_of(), rules=ON_X)
        for run in (jax.vmap, lambda f, axis_name: jax.jit(jax.vmap(f, axis_name=axis_name))):
            same(run(mean, axis_name="b")(x), x - x.mean(0))
            same(run(index, axis_name="b")(x), x * np.arange(4)[:, None])

    def test_checks(self):
        from jax.experimental import checkify

        def f(x: Any) -> Any:
            checkify.check((x > 0).all(), "there are negative ones")
            return 2 * x

        checked = checkify.checkify(shardpass.jit(f, mesh=mesh_of(), rules=ON_X))
        x = jnp.arange(1.0, 9.0)
        error, found = checked(x)
        assert error.get() is None
        same(found, 2 * x)
        assert "there are negative ones" in (checked(-x)[0].get() or "")

    def test_references_are_refused(self):
        total = jax.new_ref(jnp.zeros(()))

        def f(x: Any) -> Any:
            total[...] += x.sum()
            return x

        with pytest.raises(shardpass.ShardingError, match="mutable references"):
            shardpass.jit(f, mesh=mesh_of(), rules=ON_X)(jnp.arange(8.0))


@pytest.mark.filterwarnings("ignore:.*left whole", "ignore:.*moved")
class TestSeveralPlans:
    rules: ClassVar[Any] = shardpass.PartitionRules(
        [("^x$", PartitionSpec("data"))], indivisible="replicate"
    )

    def test_they_are_told_apart_without_a_trace(self):
        f = shardpass.jit(lambda x: x * 2, mesh=mesh_of(), rules=self.rules)
        whole, part = np.ones(8, np.float32), np.ones(7, np.float32)
        for x in (whole, part, whole, part):
            f(x)
        with events() as counted:
            assert [spec_of(f(x)) for x in (whole, part, whole, part)] == [("data",), ()] * 2
        assert counted["traced"] == counted["compiled"] == 0

    def test_a_last_batch_that_lies_elsewhere(self):
        f = shardpass.jit(lambda x: x * 2, mesh=mesh_of(), rules=self.rules)
        f(jax.device_put(np.ones(8, np.float32), placed("data")))
        last = jax.device_put(np.ones(7, np.float32), jax.devices()[0])
        same(f(last), 2 * np.ones(7))
        assert spec_of(f(last)) == ()

    def test_threads(self):
        f = shardpass.jit(lambda x: (x * 2).sum(), mesh=mesh_of(), rules=self.rules)
        values = [
            np.ones((8, 4), np.float32),
            np.ones((7, 4), np.float32),
            jax.device_put(np.ones((8, 4), np.float32), placed("model")),
            jax.device_put(np.ones((4, 4), np.float32), placed("model")),
        ]
        with warnings.catch_warnings(action="ignore"), ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda n: float(f(values[n % 4])), range(80)))
        assert found == [2.0 * values[n % 4].size for n in range(80)]
