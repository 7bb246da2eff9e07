"""Calls of functions of ``shardpass.jit``: numbers, layouts, and all that ``jax.jit`` takes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

import shardpass
from tests.runtime.counting import events
from tests.runtime.jitted.steps import (
    RULES,
    batch,
    mesh_of,
    parameters,
    placed,
    same,
    spec_of,
    train_step,
)


class TestTrainingStep:
    @pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
    def test_steps_equal_the_unsharded_ones(self, kind: AxisType):
        step = shardpass.jit(train_step, mesh=mesh_of(kind), rules=RULES, donate_argnums=0)
        plain = jax.jit(train_step)
        ours, theirs = parameters(), parameters()
        for _ in range(4):
            ours, loss = step(ours, batch())
            theirs, expected = plain(theirs, batch())
            same((ours, loss), (theirs, expected))
            assert spec_of(ours["up"]) == (None, "model")
            assert spec_of(ours["down"]) == ("model",)
            assert spec_of(loss) == ()

    def test_a_donated_state_is_gone_and_lives_on_in_the_result(self):
        step = shardpass.jit(train_step, mesh=mesh_of(), rules=RULES, donate_argnames="params")
        first, _ = step(parameters(), batch())
        places = {s.device: s.data.unsafe_buffer_pointer() for s in first["up"].addressable_shards}
        second, _ = step(first, batch())
        assert first["up"].is_deleted()
        assert first["down"].is_deleted()
        assert places == {
            s.device: s.data.unsafe_buffer_pointer() for s in second["up"].addressable_shards
        }

    def test_results_lie_as_the_rules_for_results_say(self):
        step = shardpass.jit(
            train_step,
            mesh=mesh_of(),
            rules=[*RULES[:1], (r"^result\.0\.up$", PartitionSpec("model", "data"))],
        )
        new, _ = step(parameters(), batch())
        assert spec_of(new["up"]) == ("model", "data")

    def test_propagation_alone_starts_from_what_the_user_fixes(self):
        step = shardpass.jit(train_step, mesh=mesh_of(), in_shardings=(None, PartitionSpec("data")))
        (new, _), (expected, _) = step(parameters(), batch()), train_step(parameters(), batch())
        same(new, expected)
        lowered = step.lower(parameters(), batch())
        assert [row.spec for row in lowered.report().arguments] == [
            "[{}, {}]", "[{}, {}]", '[{"data"}, {}]', '[{"data"}, {}]',
        ]  # fmt: skip


class TestArguments:
    def test_by_name_and_static_and_with_defaults(self):
        ran: list[str] = []

        @shardpass.jit(
            mesh=mesh_of(), rules=[("^x$", PartitionSpec("data"))], static_argnames="how"
        )
        def scaled(x: Any, by: Any = 2.0, *, how: str = "times") -> Any:
            ran.append(how)
            return x * by if how == "times" else x + by

        x = np.arange(8, dtype=np.float32)
        same(scaled(x), x * 2)
        same(scaled(x, 3.0), x * 3)
        same(scaled(x, by=4.0), x * 4)
        same(scaled(by=4.0, x=x), x * 4)
        same(scaled(x, 4.0, how="plus"), x + 4)
        same(scaled(x, how="plus", by=5.0), x + 5)
        assert spec_of(scaled(x, how="plus", by=5.0)) == ("data",)
        # A number without a type of its own is one kind, whatever its value; by place or by name
        # are two, as for jax.jit.
        assert ran == ["times", "times", "times", "times", "plus", "plus"]

    @pytest.mark.parametrize("choice", [{"static_argnums": 0}, {"static_argnames": ["power"]}])
    def test_static_by_number_and_by_name_are_one_thing(self, choice: dict[str, Any]):
        @shardpass.jit(mesh=mesh_of(), rules=[("^x$", PartitionSpec("data"))], **choice)
        def to_the(power: int, x: Any) -> Any:
            assert isinstance(power, int)
            return x**power

        x = np.arange(8, dtype=np.float32)
        same(to_the(2, x), x**2)
        same(to_the(power=3, x=x), x**3)

    def test_negative_numbers_count_from_the_end(self):
        sum_of = shardpass.jit(
            lambda x, y, scale: (x + y) * scale, mesh=mesh_of(), static_argnums=-1
        )
        same(sum_of(np.ones(4), np.ones(4), 3), np.full(4, 6.0))

    def test_any_tree_with_paths_as_modules_spell_them(self):
        @partial(jax.tree_util.register_dataclass, data_fields=["weight", "rest"], meta_fields=[])
        @dataclass
        class Layer:
            weight: Any
            rest: list[Any]

        rules = [
            (r"^layers\.1\.weight$", PartitionSpec("model")),
            (r"rest\.0$", PartitionSpec("data")),
        ]
        double = shardpass.jit(
            lambda layers: jax.tree.map(lambda x: x * 2, layers), mesh=mesh_of(), rules=rules
        )
        ones = np.ones(8, np.float32)
        found = double([Layer(ones, [ones, None]), Layer(ones, [])])
        assert spec_of(found[0].weight) == ()
        assert spec_of(found[1].weight) == ("model",)
        assert spec_of(found[0].rest[0]) == ("data",)
        assert found[0].rest[1] is None

    def test_closures_over_arrays_wherever_they_lie(self):
        weight = jax.device_put(parameters()["up"], placed("data", "model"))
        table = np.arange(32, dtype=np.float32)
        f = shardpass.jit(
            lambda x: x @ weight + table, mesh=mesh_of(), rules=[("^x$", PartitionSpec("data"))]
        )
        same(f(batch()["x"]), batch()["x"] @ parameters()["up"] + table)
        assert spec_of(f(batch()["x"]))[0] == "data"

    def test_typed_random_keys_in_and_out(self):
        @shardpass.jit(mesh=mesh_of(), rules=[("^keys$", PartitionSpec("data"))])
        def draw(key: Any, keys: Any) -> Any:
            key, used = jax.random.split(key)
            return key, jax.vmap(lambda k: jax.random.normal(k, (4,)))(keys), used

        key, keys = jax.random.key(0), jax.random.split(jax.random.key(1), 8)
        found, expected = draw(key, keys), draw.__wrapped__(key, keys)
        same(found[1], expected[1])
        same(jax.random.key_data(found[0]), jax.random.key_data(expected[0]))
        assert spec_of(found[1])[0] == "data"
        assert found[0].dtype == key.dtype

    def test_unused_arguments_are_dropped_as_jax_drops_them(self):
        f = shardpass.jit(
            lambda x, unused: x + 1, mesh=mesh_of(), rules=[("^x$", PartitionSpec("data"))]
        )
        same(f(np.ones(8), np.ones((3, 3))), np.full(8, 2.0))
        kept = shardpass.jit(
            lambda x, unused: x + 1,
            mesh=mesh_of(),
            rules=[("^x$", PartitionSpec("data"))],
            keep_unused=True,
        )
        lowered = f.lower(np.ones(8), np.ones((3, 3))), kept.lower(np.ones(8), np.ones((3, 3)))
        assert ["tensor<3x3xf32>" in text.as_text() for text in lowered] == [False, True]

    def test_no_arguments_and_no_results(self):
        assert shardpass.jit(lambda: (), mesh=mesh_of())() == ()
        same(shardpass.jit(lambda: jnp.ones(4), mesh=mesh_of())(), np.ones(4))

    def test_methods(self):
        class Model:
            def __init__(self) -> None:
                self.scale = 3.0

            @partial(
                shardpass.jit,
                mesh=mesh_of(),
                rules=[("^x$", PartitionSpec("data"))],
                static_argnums=0,
            )
            def __call__(self, x: Any) -> Any:
                return x * self.scale

        same(Model()(np.ones(8, np.float32)), np.full(8, 3.0))
        assert spec_of(Model()(np.ones(8, np.float32))) == ("data",)


class TestProgramsOfAllKinds:
    def test_loops_branches_and_rematerialisation(self):
        def f(x: Any, w: Any) -> Any:
            def body(carry: Any, _: Any) -> Any:
                return jax.checkpoint(jnp.tanh)(carry @ w), carry.sum()

            y, sums = jax.lax.scan(body, x, None, length=3)
            y = jax.lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] * 1.5), (0, y))[1]
            return jax.lax.cond(sums[0] > 0, lambda a: a + 1, lambda a: a - 1, y)

        x, w = batch()["x"], parameters()["up"][:, :16] * 0.1
        rules = [("^x$", PartitionSpec("data")), ("^w$", PartitionSpec(None, "model"))]
        same(shardpass.jit(f, mesh=mesh_of(), rules=rules)(x, w), f(x, w))

    def test_a_custom_derivative(self):
        @jax.custom_vjp
        def clipped(x: Any) -> Any:
            return x * 2

        clipped.defvjp(lambda x: (clipped(x), None), lambda _, g: (jnp.clip(g, -1, 1),))
        f = shardpass.jit(
            jax.grad(lambda x: (clipped(x) * 7).sum()),
            mesh=mesh_of(),
            rules=[("^x$", PartitionSpec("data"))],
        )
        same(f(np.ones(8, np.float32)), np.ones(8))

    def test_shard_map_inside(self):
        mesh = mesh_of()

        def f(x: Any) -> Any:
            total = jax.shard_map(
                lambda block: jax.lax.psum(block.sum(), "data"),
                mesh=mesh,
                in_specs=PartitionSpec("data"),
                out_specs=PartitionSpec(),
            )
            return x * total(x)

        x = np.arange(8, dtype=np.float32)
        found = shardpass.jit(f, mesh=mesh, rules=[("^x$", PartitionSpec("data"))])(x)
        same(found, x * x.sum())
        assert spec_of(found) == ("data",)

    def test_callbacks_and_prints(self, capfd: pytest.CaptureFixture[str]):
        seen: list[float] = []

        def f(x: Any) -> Any:
            jax.debug.print("total {t}", t=x.sum())
            jax.debug.callback(lambda total: seen.append(float(total)), x.sum())
            shape = jax.ShapeDtypeStruct((), jnp.float32)
            return x + jax.pure_callback(lambda t: np.float32(t * 2), shape, x.sum())

        x = np.arange(8, dtype=np.float32)
        same(shardpass.jit(f, mesh=mesh_of(), rules=[("^x$", PartitionSpec("data"))])(x), x + 56)
        jax.effects_barrier()
        assert seen == [28.0]
        assert "total 28.0" in capfd.readouterr().out

    def test_custom_calls(self):
        a = np.random.default_rng(0).normal(size=(8, 4, 4)).astype(np.float32)
        f = shardpass.jit(jnp.linalg.qr, mesh=mesh_of(), rules=[("^a$", PartitionSpec("data"))])
        found, expected = f(a), jnp.linalg.qr(a)
        same(found[0] @ found[1], a)
        same(found[1], expected[1])


class TestWhereArgumentsLie:
    def test_another_layout_is_placed_and_said_once(self):
        f = shardpass.jit(lambda x: x * 2, mesh=mesh_of(), rules=[("^x$", PartitionSpec("data"))])
        elsewhere = jax.device_put(np.arange(8, dtype=np.float32), placed("model"))
        with pytest.warns(UserWarning, match=r'argument 0 \("x"\) arrives as .*model.*128 bytes'):
            found = f(elsewhere)
        same(found, np.arange(8) * 2)
        assert spec_of(found) == ("data",)
        with warnings.catch_warnings(action="error"):
            same(f(elsewhere), np.arange(8) * 2)
            same(f(np.arange(8, dtype=np.float32)), np.arange(8) * 2)
            same(
                f(jax.device_put(np.arange(8, dtype=np.float32), placed("data"))), np.arange(8) * 2
            )

    def test_what_is_moved_each_time_is_moved_by_a_program_of_its_own(self):
        ran: list[int] = []
        f = shardpass.jit(
            lambda x, y: (ran.append(1), x * 2 + y)[1],
            mesh=mesh_of(),
            rules=[("^x|y$", PartitionSpec("data"))],
        )
        x = np.arange(8, dtype=np.float32)
        elsewhere, at_home = (jax.device_put(x, placed(axis)) for axis in ("model", "data"))
        with warnings.catch_warnings(action="ignore"), events() as counted:
            for arguments in [(elsewhere, at_home), (elsewhere, at_home), (elsewhere, x)] * 2:
                same(f(*arguments), x * 3)
            same(f(at_home, elsewhere), x * 3)
            same(f(at_home, at_home), x * 3)
        assert (len(ran), counted["compiled"]) == (1, 4)

    def test_from_one_device_and_from_some(self):
        f = shardpass.jit(lambda x: x * 2, mesh=mesh_of(), rules=[("^x$", PartitionSpec("data"))])
        x = np.arange(8, dtype=np.float32)
        four = jax.sharding.Mesh(np.array(jax.devices()[4:]), ("rows",))
        with pytest.warns(UserWarning, match=r'argument 0 \("x"\) arrives as'):
            same(f(jax.device_put(x, jax.devices()[3])), x * 2)
        same(f(jax.device_put(x, jax.sharding.NamedSharding(four, PartitionSpec("rows")))), x * 2)
        same(f(jnp.asarray(x)), x * 2)


class TestKindsOfArguments:
    def test_the_plan_follows_the_shapes_and_nothing_is_traced_twice(self):
        ran: list[tuple[int, ...]] = []

        def f(x: Any) -> Any:
            ran.append(x.shape)
            return x * 2

        rules = shardpass.PartitionRules(
            [("^x$", PartitionSpec("data"))], mesh_of(), indivisible="replicate"
        )
        double = shardpass.jit(f, mesh=mesh_of(), rules=rules)
        with warnings.catch_warnings(action="ignore"):
            for _ in range(3):
                assert spec_of(double(np.ones(8, np.float32))) == ("data",)
                assert spec_of(double(np.ones(7, np.float32))) == ()
        assert ran == [(8,), (7,)]

    def test_contexts_that_change_the_program_are_noticed(self):
        f = shardpass.jit(lambda x: x + 1, mesh=mesh_of())
        assert f(np.ones(4)).dtype == np.float32
        with jax.enable_x64(True):
            assert f(np.ones(4)).dtype == np.float64
        assert f(np.ones(4)).dtype == np.float32


class TestOtherRules:
    def test_they_may_change_from_step_to_step_and_back(self):
        ran: list[int] = []

        def f(x: Any) -> Any:
            ran.append(1)
            return x * 2

        on_data = [("^x$", PartitionSpec("data"))]
        first = shardpass.jit(f, mesh=mesh_of(), rules=on_data)
        second = first.with_rules([("^x$", PartitionSpec("model"))])
        assert second.with_rules(on_data) is first
        x = np.arange(8, dtype=np.float32)
        for function, axis in ((first, "data"), (second, "model"), (first, "data")):
            assert spec_of(function(x)) == (axis,)
        with events() as counted:
            assert spec_of(second.with_rules(on_data)(x)) == ("data",)
        assert (counted["compiled"], len(ran)) == (0, 2)
        assert first.with_rules(None)(x).sharding.is_fully_replicated
        with pytest.raises(shardpass.ShardingError, match='"nope" is not an axis'):
            first.with_rules([("^x$", PartitionSpec("nope"))])


def test_arrays_in_the_hosts_memory_are_said_to_come_from_there():
    f = shardpass.jit(lambda x: 2 * x, mesh=mesh_of(), rules=[("^x$", PartitionSpec("data"))])
    pinned = placed("data").with_memory_kind("pinned_host")
    on_host = jax.device_put(np.ones((8, 4), np.float32), pinned)
    with pytest.warns(UserWarning, match=r"model=4 in pinned_host memory .*: 512 bytes move"):
        same(f(on_host), 2 * np.ones((8, 4)))
