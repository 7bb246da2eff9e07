"""Functions traced, lowered, compiled and reported ahead of their calls."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

import shardpass
from shardpass import ShardingError
from tests.runtime.jitted.steps import RULES, batch, mesh_of, parameters, same, train_step


def shapes(tree: object) -> object:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)


class TestOnDevices:
    def test_a_compiled_function_gives_the_numbers(self):
        step = shardpass.jit(train_step, mesh=mesh_of(), rules=RULES)
        compiled = step.lower(shapes(parameters()), shapes(batch())).compile()
        same(compiled(parameters(), batch()), train_step(parameters(), batch()))

    def test_the_report_says_what_devices_hold_and_send(self):
        step = shardpass.jit(train_step, mesh=mesh_of(), rules=RULES)
        lowered = step.lower(parameters(), batch())
        report = lowered.report()
        assert [(row.path, row.spec, row.shard_shape) for row in report.arguments] == [
            ("params.down", '[{"model"}, {}]', (8, 4)),
            ("params.up", '[{}, {"model"}]', (16, 8)),
            ("batch.x", '[{"data"}, {}]', (4, 16)),
            ("batch.y", '[{"data"}, {}]', (4, 4)),
        ]
        assert ' params.up    16x32xf32  [{}, {"model"}]  16x8   2.0 KiB       512 B' in str(report)
        compiled = lowered.compile().report().compiled
        assert compiled is not None
        assert {row.kind for row in compiled.collectives.rows} == {"all-reduce"}

    def test_text_in_either_notation(self):
        step = shardpass.jit(train_step, mesh=mesh_of(), rules=RULES)
        lowered = step.lower(parameters(), batch())
        assert "sdy.sharding" in lowered.as_text(notation="sdy")
        assert "mhlo.sharding" in lowered.as_text(notation="mhlo")
        assert "sdy." not in lowered.as_text(notation="mhlo")
        assert lowered.as_text() == lowered.jax.as_text()
        with pytest.raises(ShardingError, match='notation is "sdy" or "mhlo", not \'gspmd\''):
            lowered.as_text(notation="gspmd")

    def test_a_report_is_printed_once_for_each_plan(self, capfd: pytest.CaptureFixture[str]):
        step = shardpass.jit(train_step, mesh=mesh_of(), rules=RULES, report=True)
        state, _ = step(parameters(), batch())
        step(state, batch())
        said = capfd.readouterr()
        assert said.err.count("4 arguments: each device holds 0.300 of the bytes") == 1
        assert said.out == ""

    def test_the_stages_answer_for_jaxs_own(self):
        step = shardpass.jit(train_step, mesh=mesh_of(), rules=RULES)
        traced = step.trace(parameters(), batch())
        assert traced.fun_name == "train_step"
        lowered = traced.lower()
        assert lowered.out_tree == jax.tree.structure(train_step(parameters(), batch()))
        assert lowered.compile().input_shardings[0][1]["x"].spec == PartitionSpec("data")


class TestWithoutDevices:
    @pytest.mark.parametrize("platform", ["cpu", "tpu", "cuda"])
    def test_hundreds_of_devices_of_another_platform(self, platform: str):
        mesh = AbstractMesh((16, 32), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
        step = shardpass.jit(train_step, mesh=mesh, rules=RULES)
        params = {
            "up": jax.ShapeDtypeStruct((64, 128), np.float32),
            "down": jax.ShapeDtypeStruct((128, 64), np.float32),
        }
        rows = {
            "x": jax.ShapeDtypeStruct((32, 64), np.float32),
            "y": jax.ShapeDtypeStruct((32, 64), np.float32),
        }
        lowered = step.trace(params, rows).lower(lowering_platforms=(platform,))
        assert "mhlo.num_partitions = 512 : i32" in lowered.as_text()
        assert [row.shard_shape for row in lowered.report().arguments] == [
            (4, 64), (64, 4), (2, 64), (2, 64),
        ]  # fmt: skip
        with pytest.raises(ShardingError, match="lowered for a mesh without devices") as caught:
            lowered.compile()
        assert caught.value.slug == "device-free"

    def test_with_shardings_of_the_users(self):
        mesh = AbstractMesh((16, 32), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
        rules = shardpass.PartitionRules.loads(
            '[[rule]]\nop = "stablehlo.tanh"\nspec = [[], "model"]'
        )
        f = shardpass.jit(
            lambda x: jax.numpy.tanh(x) * 2,
            mesh=mesh,
            rules=rules,
            in_shardings=PartitionSpec("data"),
        )
        traced = f.trace(jax.ShapeDtypeStruct((64, 128), np.float32))
        text = traced.lower(lowering_platforms=("tpu",)).as_text()
        assert "mhlo.num_partitions = 512 : i32" in text
        assert '<@mesh, [{}, {"model"}]>' in text

    def test_our_own_meshes_without_devices(self):
        step = shardpass.jit(train_step, mesh=shardpass.Mesh.of(data=2, model=4), rules=RULES)
        assert '"data"=2, "model"=4' in step.lower(parameters(), batch()).as_text()

    def test_they_are_not_called(self):
        step = shardpass.jit(lambda x: x, mesh=shardpass.Mesh.of(data=2, model=4))
        with pytest.raises(ShardingError, match="mesh has no devices, and it is called"):
            step(np.ones(8, np.float32))


class TestArgumentsByName:
    """Every stage has them as they were handed over."""

    f: ClassVar[Any] = staticmethod(
        shardpass.jit(
            lambda n, x, *, k, w: n * x - k * w,
            mesh=mesh_of(),
            rules=[("^x$", PartitionSpec("data"))],
            static_argnums=0,
            static_argnames="k",
        )
    )

    def test_calls_of_what_was_compiled(self):
        x, w = np.ones(8, np.float32), np.full(8, 5, np.float32)
        compiled = self.f.lower(3, x, w=w, k=2).compile()
        same(compiled(x, w=w), 3 * x - 2 * w)
        for args, kwargs in (((x, w), {}), ((), {"x": x, "w": w}), ((x,), {"v": w})):
            with pytest.raises(TypeError, match="lowered for 1 by position and w by name"):
                compiled(*args, **kwargs)

    def test_what_is_said_of_them(self):
        x = np.ones(8, np.float32)
        traced = self.f.trace(3, x, k=2, w=x)
        lowered = traced.lower()
        wanted = jax.tree.structure(((x,), {"w": x}))
        for stage in (traced, lowered, lowered.compile()):
            assert stage.in_tree == wanted
            assert jax.tree.structure(stage.args_info) == wanted
        (place,), by_name = lowered.compile().input_shardings
        assert (place.spec, by_name["w"].spec) == (PartitionSpec("data"),) * 2

    def test_messages_name_the_function(self):
        def step(x: Any) -> Any:
            return x

        lowered = shardpass.jit(step, mesh=mesh_of()).lower(np.ones(8, np.float32))
        assert str(lowered.report()).startswith("step: sdy shardings, 8 devices")
