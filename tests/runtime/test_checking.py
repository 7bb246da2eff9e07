"""The comparison with the unsharded program: what passes, what fails, what proves nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardpass.diagnostics import ShardingError
from shardpass.mlir import Module, load
from shardpass.runtime import Executable, check, input_source
from tests.runtime.conftest import annotate
from tests.runtime.fresh import run_python


class TestRightPlans:
    @pytest.mark.parametrize("notation", ["sdy", "mhlo"])
    def test_training_step_with_donated_state(self, step: Callable[..., Module], notation: str):
        result = check(step(notation))
        assert result.ok
        assert result.partitioner == {"sdy": "shardy", "mhlo": "gspmd"}[notation]
        assert [row.path for row in result.rows] == [
            "result.0.momenta.b1",
            "result.0.momenta.w1",
            "result.0.momenta.w2",
            "result.0.weights.b1",
            "result.0.weights.w1",
            "result.0.weights.w2",
            "result.1",
        ]
        assert all(row.decided_by == "tolerance" for row in result.rows)
        # Another order of summation shows somewhere, or nothing was cut.
        assert 0 < max(row.error for row in result.rows) < 1e-5

    def test_bfloat16(self, step: Callable[..., Module]):
        result = check(step(dtype=jnp.bfloat16))
        assert result.ok
        assert [row.dtype for row in result.rows] == ["bfloat16"] * 6 + ["float32"]

    def test_the_callers_module_stays_as_it_was(self, step: Callable[..., Module]):
        module = step()
        before = module.text()
        check(module)
        assert module.text() == before

    def test_json_holds_every_row(self, layer: Callable[..., Module]):
        record = json.loads(json.dumps(check(layer()).to_json()))
        assert record["ok"] is True
        assert record["devices"] == 8
        (row,) = record["rows"]
        assert (row["path"], row["shape"], row["dtype"]) == ("result", [8, 32], "float32")
        assert row["error"] <= row["tolerance"]

    def test_steps_are_told_as_they_begin(self, layer: Callable[..., Module]):
        told: list[str] = []
        check(layer(), progress=told.append)
        assert told == [
            "compile unsharded",
            "run unsharded",
            "compile sharded",
            "run sharded",
            "run unsharded, shards rolled",
            "run unsharded, shards of one argument rolled at a time",
        ]


def rolled(argument: int) -> Callable[[Executable, int, np.ndarray], jax.Array]:
    """Places ``argument`` with every block one device further than it belongs."""

    def place(executable: Executable, index: int, array: np.ndarray) -> jax.Array:
        blocks = executable.argument_layouts[index].cut(array)
        if index == argument:
            blocks = blocks[1:] + blocks[:1]
        return executable.place_blocks(index, blocks)

    return place


def axes_swapped(executable: Executable, index: int, array: np.ndarray) -> jax.Array:
    """Places everything as if the mesh were y=4, x=2 in memory order."""
    blocks = executable.argument_layouts[index].cut(array)
    order = np.arange(8).reshape(2, 4).T.ravel()
    return executable.place_blocks(index, [blocks[device] for device in order])


class TestWrongLayouts:
    def test_any_one_argument_rolled_by_one_shard(self, step: Callable[..., Module]):
        """One weight, one moment or one part of the batch: each shows in some result."""
        module = step()
        by_path = {argument.path: argument.index for argument in module.arguments}
        for path in ("state.weights.w2", "state.momenta.w1", "batch.x", "batch.y"):
            result = check(module, place=rolled(by_path[path]))
            assert not result.ok, path
            assert {d.slug for d in result.diagnostics} == {"results-differ"}

    def test_two_mesh_axes_swapped(self, step: Callable[..., Module]):
        result = check(step(), place=axes_swapped)
        assert not result.ok
        failed = {row.path for row in result.rows if not row.ok}
        assert "result.0.weights.w1" in failed

    @pytest.mark.parametrize("notation", ["sdy", "mhlo"])
    def test_a_rolled_weight_spoils_everything_behind_it(
        self, step: Callable[..., Module], notation: str
    ):
        module = step(notation)
        (w1,) = [a.index for a in module.arguments if a.path.endswith("weights.w1")]
        result = check(module, place=rolled(w1))
        errors = {row.path: row.error for row in result.rows}
        assert errors["result.0.weights.w1"] > 0.1
        assert errors["result.1"] > 1e-4
        with pytest.raises(ShardingError, match="relative L2 error") as caught:
            result.raise_if_failed()
        assert caught.value.diagnostics == result.diagnostics
        assert "result.0.weights.w1" in {d.path for d in result.diagnostics}

    def test_one_copy_of_a_replicated_block_counts(self, layer: Callable[..., Module]):
        """Device 4 holds the same block as device 0; a fault on it alone is seen."""

        def place(executable: Executable, index: int, array: np.ndarray) -> jax.Array:
            blocks = executable.argument_layouts[index].cut(array)
            if index == 1:
                blocks[4] = blocks[4] + 1.0
            return executable.place_blocks(index, blocks)

        (row,) = check(layer(), place=place).rows
        assert not row.ok
        assert row.error > 0.1


def program(text: str) -> Module:
    return load(
        'module {\n  sdy.mesh @mesh = <["x"=2, "y"=4]>\n' + text.replace("CUT", CUT) + "\n}\n"
    )


CUT = 'sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>'


class TestNoProof:
    def only_row(self, module: Module):
        result = check(module)
        assert not result.ok
        assert {d.slug for d in result.diagnostics} == {"not-a-proof"}
        return next(row for row in result.rows if not row.ok)

    def test_a_result_that_is_not_finite(self):
        row = self.only_row(
            program(
                """
  func.func @main(%a: tensor<8x8xf32> {CUT}) -> tensor<8x8xf32> {
    %0 = stablehlo.exponential %a : tensor<8x8xf32>
    %1 = stablehlo.negate %0 : tensor<8x8xf32>
    %2 = stablehlo.sqrt %1 : tensor<8x8xf32>
    return %2 : tensor<8x8xf32>
  }"""
            )
        )
        assert row.reason == "it is not finite, sharded or not"

    def test_a_result_that_no_argument_reaches(self):
        row = self.only_row(
            program(
                """
  func.func @main(%a: tensor<8x8xf32> {CUT}) -> (tensor<8x8xf32>, tensor<8xi32>) {
    %0 = stablehlo.iota dim = 0 : tensor<8xi32>
    return %a, %0 : tensor<8x8xf32>, tensor<8xi32>
  }"""
            )
        )
        assert (row.index, row.reason) == (1, "no argument influences it")

    def test_a_result_that_cancels_out(self):
        row = self.only_row(
            program(
                """
  func.func @main(%a: tensor<8x8xf32> {CUT}) -> tensor<8x8xf32> {
    %0 = stablehlo.constant dense<0.0> : tensor<8x8xf32>
    %1 = stablehlo.multiply %a, %0 : tensor<8x8xf32>
    %2 = stablehlo.abs %1 : tensor<8x8xf32>
    return %2 : tensor<8x8xf32>
  }"""
            )
        )
        assert row.reason == "every element is 0.0, whatever the inputs"

    def test_a_result_of_equal_elements_that_inputs_do_change(self):
        """A sum that is spread out again: all elements alike, and still a proof."""
        result = check(
            program(
                """
  func.func @main(%a: tensor<8x8xf32> {CUT}) -> tensor<8xf32> {
    %0 = stablehlo.constant dense<0.0> : tensor<f32>
    %1 = stablehlo.reduce(%a init: %0) applies stablehlo.add across dimensions = [0, 1]
      : (tensor<8x8xf32>, tensor<f32>) -> tensor<f32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<f32>) -> tensor<8xf32>
    return %2 : tensor<8xf32>
  }"""
            )
        )
        assert result.ok
        assert "run unsharded, with other inputs" in result.seconds

    def test_a_plan_that_replicates_every_argument(self, layer: Callable[..., Module]):
        result = check(layer("[{}, {}]", "[{}, {}]"))
        assert [d.slug for d in result.diagnostics] == ["not-a-proof"]
        assert "every argument is replicated on all 8 devices" in result.diagnostics[0].message
        assert all(row.ok for row in result.rows)

    def test_a_program_without_arguments(self):
        text = "func.func @main() -> tensor<8xf32> {\n"
        text += "  %0 = stablehlo.constant dense<1.0> : tensor<8xf32>\n"
        text += "  return %0 : tensor<8xf32>\n}"
        told = check(load(text), devices=8).diagnostics[0]
        assert told.slug == "not-a-proof"
        assert "the program has no arguments: nothing could be sharded" in told.message

    def test_one_device(self):
        module = load("func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {\n"
                      "  return %a : tensor<8xf32>\n}")  # fmt: skip
        result = check(module, devices=1)
        assert [d.slug for d in result.diagnostics] == ["not-a-proof"]

    def test_a_result_without_elements(self):
        row = self.only_row(
            program(
                """
  func.func @main(%a: tensor<8x8xf32> {CUT}) -> (tensor<8x8xf32>, tensor<0x8xf32>) {
    %0 = stablehlo.slice %a [0:0, 0:8] : (tensor<8x8xf32>) -> tensor<0x8xf32>
    return %a, %0 : tensor<8x8xf32>, tensor<0x8xf32>
  }"""
            )
        )
        assert (row.index, row.reason) == (1, "it has no elements")


class TestNoise:
    #: Rounding in the sum is blown up by 1e4, as Adam's first step blows up a gradient's.
    STEEP = """
  func.func @main(
      %a: tensor<8x512xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x", "y"}]>},
      %b: tensor<512x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", "y"}, {}]>})
      -> tensor<8x8xf32> {
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
      : (tensor<8x512xf32>, tensor<512x8xf32>) -> tensor<8x8xf32>
    %1 = stablehlo.constant dense<1.0e4> : tensor<8x8xf32>
    %2 = stablehlo.multiply %0, %1 : tensor<8x8xf32>
    %3 = stablehlo.sine %2 : tensor<8x8xf32>
    return %3 : tensor<8x8xf32>
  }"""

    def test_noise_decides_where_the_tolerance_does_not(self):
        result = check(program(self.STEEP))
        (row,) = result.rows
        assert row.error > row.tolerance
        assert row.decided_by == "noise"
        assert row.noise is not None
        assert row.error <= 8 * row.noise < 1
        assert result.ok

    def test_a_wrong_layout_is_beyond_the_noise(self):
        result = check(program(self.STEEP), place=rolled(0))
        (row,) = result.rows
        assert row.decided_by == "noise"
        assert not row.ok
        assert "8 times the program's own noise" in (row.reason or "")

    def test_noise_that_would_pass_anything_proves_nothing(self):
        result = check(program(self.STEEP.replace("1.0e4", "1.0e9")))
        (row,) = result.rows
        assert row.decided_by == "not-a-proof"
        assert "rounding alone changes it by" in (row.reason or "")

    def test_a_tolerance_of_ones_own(self):
        result = check(program(self.STEEP), tolerance=0.5)
        assert result.ok
        assert [row.decided_by for row in result.rows] == ["tolerance"]


class TestSpecialPrograms:
    def test_scan_and_typed_keys_after_propagation(self):
        from shardpass.passes import run_pipeline

        module = load(_scanned_with_keys())
        propagated = run_pipeline(module, "sdy-propagation-pipeline").module
        for variant in (module, propagated):
            result = check(variant)
            assert result.ok
            assert [(row.dtype, row.error) for row in result.rows[2:]] == [
                ("uint32", 0.0),
                ("uint32", 0.0),
            ]

    @pytest.mark.parametrize("spec", ['[{"y"}, {}]', '[{"y"}, {"x"}]'])
    def test_uneven_shapes(self, spec: str):
        """The numbers are right, and the layout is not the one that was asked for."""
        result = check(
            load(
                f"""module {{
  sdy.mesh @mesh = <["x"=2, "y"=4]>
  func.func @main(%a: tensor<19x6xf32> {{sdy.sharding = #sdy.sharding<@mesh, {spec}>}},
                  %b: tensor<6x3xf32>) -> tensor<19x3xf32> {{
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
      : (tensor<19x6xf32>, tensor<6x3xf32>) -> tensor<19x3xf32>
    return %0 : tensor<19x3xf32>
  }}
}}"""
            )
        )
        assert [row.ok for row in result.rows] == [True]
        assert [(d.slug, d.path) for d in result.diagnostics] == [("layout-not-applied", "arg0")]

    def test_uneven_shapes_under_gspmd(self):
        tiles = "{devices=[4,1,2]<=[8] last_tile_dim_replicate}"
        text = f"""module {{
  func.func @main(%a: tensor<19x6xf32> {{mhlo.sharding = "{tiles}"}}) -> tensor<19x6xf32> {{
    %0 = stablehlo.sine %a : tensor<19x6xf32>
    return %0 : tensor<19x6xf32>
  }}
}}"""
        assert check(load(text)).ok
        assert not check(load(text), place=rolled(0)).ok

    @pytest.mark.parametrize("ids", ["7,6,5,4,3,2,1,0", "0,2,4,6,1,3,5,7"])
    def test_meshes_with_devices_in_another_order(self, layer: Callable[..., Module], ids: str):
        text = layer().text().replace('"y"=4]>', f'"y"=4], device_ids=[{ids}]>')
        assert check(load(text)).ok
        assert not check(load(text), place=rolled(0)).ok

    def test_mixed_precision_is_measured_by_the_narrow_types_unit(self):
        """Partial sums rounded to bfloat16 differ by far more than float32 allows, and rightly."""
        result = check(
            program(
                """
  func.func @main(
      %a: tensor<8x512xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x", "y"}]>},
      %b: tensor<512x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", "y"}, {}]>})
      -> tensor<8x8xf32> {
    %0 = stablehlo.convert %a : (tensor<8x512xf32>) -> tensor<8x512xbf16>
    %1 = stablehlo.convert %b : (tensor<512x8xf32>) -> tensor<512x8xbf16>
    %2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0]
      : (tensor<8x512xbf16>, tensor<512x8xbf16>) -> tensor<8x8xbf16>
    %3 = stablehlo.convert %2 : (tensor<8x8xbf16>) -> tensor<8x8xf32>
    return %3 : tensor<8x8xf32>
  }"""
            )
        )
        (row,) = result.rows
        assert (row.dtype, row.decided_by, row.ok) == ("float32", "noise", True)
        assert row.error > 1e-4

    def test_adams_first_step_from_zero_moments(self):
        """A gradient that is rounding alone, divided by its own size, moves a parameter by 1e-3."""

        def adam(weights, shift, mu, nu, x):
            # Softmax does not see a shift: its gradient is zero but for rounding.
            def loss(shift):
                return -jax.nn.log_softmax(x @ weights + shift[:, None])[:, 0].mean()

            gradient = jax.grad(loss)(shift)
            mu = 0.9 * mu + 0.1 * gradient
            nu = 0.999 * nu + 0.001 * gradient**2
            return shift - 1e-3 * (mu / 0.1) / (jnp.sqrt(nu / 0.001) + 1e-8)

        def array(*shape: int) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(shape, jnp.float32)

        lowered = jax.jit(adam).lower(array(64, 128), *[array(32)] * 3, array(32, 64))
        text = lowered.as_text(debug_info=True).replace(
            "{\n", '{\n  sdy.mesh @mesh = <["x"=2, "y"=4]>\n', 1
        )
        cuts = {"weights": '[{"x"}, {"y"}]', "shift": '[{"x"}]', "x": '[{}, {"x"}]'}
        said = {name: f"sdy.sharding = #sdy.sharding<@mesh, {cut}>" for name, cut in cuts.items()}
        module = load(annotate(text, said))
        seeded = input_source(module)
        inputs = [seeded.array(index) for index in range(5)]
        inputs[2] = inputs[3] = np.zeros(32, np.float32)
        result = check(module, inputs=inputs)
        (row,) = result.rows
        assert row.error > row.tolerance
        assert (row.decided_by, row.ok) == ("noise", True)
        assert not check(module, inputs=inputs, place=rolled(1)).ok

    def test_manual_computations_have_no_unsharded_program(self):
        from jax.sharding import AxisType, NamedSharding, PartitionSpec

        mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
        mapped = jax.shard_map(
            lambda x: jax.lax.psum(x, "x"),
            mesh=mesh,
            in_specs=PartitionSpec("x"),
            out_specs=PartitionSpec(),
        )
        sharding = NamedSharding(mesh, PartitionSpec("x"))
        lowered = jax.jit(mapped).lower(
            jax.ShapeDtypeStruct((8, 4), jnp.float32, sharding=sharding)
        )
        with pytest.raises(ShardingError) as caught:
            check(lowered)
        assert caught.value.slug == "not-supported"
        assert "export it without shard_map" in (caught.value.diagnostic.help or "")

    def test_double_precision(self):
        result = check(
            program(
                """
  func.func @main(%a: tensor<8x8xf64> {CUT}) -> tensor<8x8xf64> {
    %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0]
      : (tensor<8x8xf64>, tensor<8x8xf64>) -> tensor<8x8xf64>
    return %0 : tensor<8x8xf64>
  }"""
            )
        )
        (row,) = result.rows
        assert (row.dtype, row.ok) == ("float64", True)
        assert 0 < row.error < 1e-13


def _scanned_with_keys() -> str:
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    rows = NamedSharding(mesh, PartitionSpec("x"))

    def program(key, keys, x, w):
        def body(carry, weight):
            carry = jax.lax.with_sharding_constraint(jnp.tanh(carry @ weight), rows)
            return carry, carry[0]

        y, firsts = jax.lax.scan(body, x, w)
        drawn = jax.random.split(key)[0]
        return y + jax.random.normal(drawn, y.shape), firsts, drawn, keys

    array = jax.ShapeDtypeStruct
    return (
        jax.jit(program, in_shardings=(None, None, rows, None))
        .lower(
            jax.random.key(0),
            jax.random.split(jax.random.key(1), 8),
            array((8, 16), jnp.float32),
            array((3, 16, 16), jnp.float32),
        )
        .as_text(debug_info=True)
    )


def test_results_are_values(layer: Callable[..., Module]):
    result = check(layer())
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.devices = 4  # pyright: ignore[reportAttributeAccessIssue]
    assert result.worst == result.rows[0]


class TestMemory:
    def test_one_variant_at_a_time(self):
        """128 MiB of donated state: two more copies at the most, where keeping all makes four."""
        told = run_python(
            """
            from tests.runtime import child_tasks
            print(*child_tasks.growth_of_a_check())
            """,
            # A freed array goes back at once: glibc keeps more, the more threads happened to ask.
            MALLOC_MMAP_THRESHOLD_="131072",
        )
        ok, growth = told.split()
        assert ok == "True"
        assert 128 < float(growth) < 2.5 * 128

    def test_reference_results_leave_nothing_behind(
        self, layer: Callable[..., Module], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        during: list[int] = []

        def fail(executable: Executable, index: int, array: np.ndarray) -> jax.Array:
            during.append(len(list(tmp_path.iterdir())))
            raise RuntimeError("no more devices")

        with pytest.raises(RuntimeError):
            check(layer(), place=fail)
        assert during == [0]
        assert list(tmp_path.iterdir()) == []

    def test_a_full_disk(self, layer: Callable[..., Module], monkeypatch: pytest.MonkeyPatch):
        @contextlib.contextmanager
        def full(**options: str):
            with open("/dev/full", "r+b", buffering=0) as file:
                yield file

        monkeypatch.setattr("tempfile.TemporaryFile", full)
        with pytest.raises(ShardingError, match="No space left on device") as caught:
            check(layer())
        assert caught.value.slug == "unwritable"
