"""Reports of modules: rows, totals, and agreement with the compiler."""

import json
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from shardpass.diagnostics import ShardingError
from shardpass.mlir import Module, load
from shardpass.report import (
    CompiledFigures,
    MemoryFigures,
    MeshRow,
    Report,
    Totals,
    ValueRow,
    build_report,
    compiled_figures,
)
from tests.report.programs import MESH, compiled_text, sharded

SDY = """\
module @step attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @mesh = <["data"=2, "model"=4]>
  func.func public @main(
      %arg0: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>} loc("x"),
      %arg1: tensor<16x64xbf16> {jax.buffer_donor = true,
        sdy.sharding = #sdy.sharding<@mesh, [{?}, {"model"}]>} loc("params['w'].value"),
      %arg2: tensor<6xi32> {sdy.sharding = #sdy.sharding<@mesh, [{"model"}]>} loc("ids"),
      %arg3: tensor<f32> {tf.aliasing_output = 1 : i32} loc("count"),
      %arg4: tensor<10xi4> loc("small"))
      -> (tensor<8x16xf32> {jax.result_info = "result[0]",
            sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}], replicated={"model"}>},
          tensor<f32> {jax.result_info = "result[1]"}) {
    return %arg0, %arg3 : tensor<8x16xf32>, tensor<f32>
  }
}
"""

MHLO = """\
module @step attributes {mhlo.num_partitions = 8 : i32} {
  func.func public @main(
      %arg0: tensor<8x16xf32> {mhlo.sharding = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"},
      %arg1: tensor<16xf32> {mhlo.sharding = "{replicated}"})
      -> tensor<8x16xf32> {
    return %arg0 : tensor<8x16xf32>
  }
}
"""


def test_an_annotated_module() -> None:
    report = build_report(load(SDY, name="step.mlir"))
    assert report == Report(
        "step.mlir",
        "sdy",
        8,
        (MeshRow("mesh", (("data", 2), ("model", 4)), 8),),
        (
            ValueRow(0, "x", "f32", (8, 16), '[{"data"}, {}]', "mesh", (4, 16), 512, 256),
            ValueRow(
                1,
                "params.w",
                "bf16",
                (16, 64),
                '[{?}, {"model"}]',
                "mesh",
                (16, 16),
                2048,
                512,
                donated=True,
                decided_by="open",
            ),
            # Six over four: Shardy keeps the half of the axis that divides.
            ValueRow(
                2, "ids", "i32", (6,), '[{"model":(1)2}]', "mesh", (3,), 24, 12, decided_by="xla"
            ),
            ValueRow(3, "count", "f32", (), None, None, (), 4, 4, donated=True),
            ValueRow(4, "small", "i4", (10,), None, None, None, 5, None, decided_by="unknown"),
        ),
        (
            ValueRow(
                0,
                "result.0",
                "f32",
                (8, 16),
                '[{"data"}, {}], replicated={"model"}',
                "mesh",
                (4, 16),
                512,
                256,
            ),
            ValueRow(1, "result.1", "f32", (), None, None, (), 4, 4, alias_of=3),
        ),
        diagnostics=report.diagnostics,
    )
    assert [(d.slug, d.path) for d in report.diagnostics] == [("layout-not-applied", "ids")]
    assert report.argument_totals == Totals(2593, None, 1, at_most=True)
    assert report.argument_totals.ratio is None
    assert report.result_totals == Totals(516, 260)
    assert report.result_totals.ratio == pytest.approx(260 / 516)
    assert [row.is_sharded for row in report.arguments] == [True, True, True, False, False]


def test_the_other_notation() -> None:
    report = build_report(load(MHLO))
    assert (report.notation, report.devices, report.meshes) == ("mhlo", 8, ())
    first, second = report.arguments
    assert (first.spec, first.shard_shape, first.bytes_per_device) == (
        "{devices=[2,1,4]<=[8] last_tile_dim_replicate}",
        (4, 16),
        256,
    )
    assert (second.spec, second.shard_shape) == ("{replicated}", (16,))


def test_both_notations_in_one_module() -> None:
    text = MHLO.replace(
        '{mhlo.sharding = "{replicated}"}',
        '{sdy.sharding = #sdy.sharding<mesh<["x"=8]>, [{"x"}]>}',
    )
    report = build_report(load(text))
    assert report.notation == "both"
    assert (report.arguments[1].spec, report.arguments[1].mesh) == ('[{"x"}]', None)


def test_a_plain_module() -> None:
    report = build_report(load(jax.jit(jnp.tanh).lower(jnp.ones((4, 4))), name="tanh"))
    assert (report.notation, report.devices, report.meshes) == ("none", 1, ())
    assert report.arguments[0].shard_shape == (4, 4)
    assert report.argument_totals == Totals(64, 64)
    assert report.argument_totals.ratio == 1.0
    assert Totals(0, 0).ratio == 1.0


def test_a_value_on_one_device() -> None:
    text = SDY.replace('#sdy.sharding<@mesh, [{"model"}]>', "#sdy.sharding<@one, []>").replace(
        "  sdy.mesh @mesh", "  sdy.mesh @one = <[], device_ids=[3]>\n  sdy.mesh @mesh"
    )
    report = build_report(load(text))
    row = report.arguments[2]
    assert (row.spec, row.mesh, row.shard_shape) == ("device 3", "one", (6,))
    assert report.meshes[0] == MeshRow("one", (), 1, (3,))


def test_devices_come_from_the_meshes_where_the_module_does_not_say() -> None:
    text = SDY.replace(" attributes {mhlo.num_partitions = 8 : i32}", "")
    assert build_report(load(text)).devices == 8


def test_garbage_in_an_attribute_is_told_with_the_path() -> None:
    with pytest.raises(ShardingError) as caught:
        build_report(load(MHLO.replace("{replicated}", "{replicatd}")))
    shown = caught.value.diagnostic
    assert (shown.slug, shown.path) == ("syntax", "arg1")
    assert shown.message.startswith('argument 1 ("arg1"): ')


def test_a_sharding_of_another_rank() -> None:
    with pytest.raises(ShardingError) as caught:
        build_report(load(MHLO.replace('"{replicated}"', '"{devices=[2,4]<=[8]}"')))
    assert (caught.value.slug, caught.value.diagnostic.path) == ("rank-mismatch", "arg1")


def test_a_dynamic_shape() -> None:
    with pytest.raises(ShardingError) as caught:
        build_report(load(SDY.replace("tensor<10xi4>", "tensor<?xi4>")))
    assert (caught.value.slug, caught.value.diagnostic.path) == ("dynamic-shape", "small")


def lowered(dtype: str) -> Any:
    def program(x: jax.Array, w: jax.Array) -> jax.Array:
        return x @ w

    return jax.jit(program, donate_argnums=0).lower(
        sharded((16, 32), "x", None, dtype=dtype), sharded((32, 32), None, ("y", "x"), dtype=dtype)
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "complex64"])
def test_bytes_per_device_are_what_the_compiler_allots(dtype: str) -> None:
    """The oracle is XLA's own ``argument_size_in_bytes``."""
    low = lowered(dtype)
    report = build_report(load(low))
    stats = low.compile().memory_analysis()
    assert report.argument_totals.bytes_per_device == stats.argument_size_in_bytes
    assert report.arguments[0].donated


def test_figures_of_a_compiled_program() -> None:
    compiled = (
        jax.jit(lambda x, w: x @ w)
        .lower(sharded((16, 32), "x", "y"), sharded((32, 32), "y", None))
        .compile()
    )
    stats = compiled.memory_analysis()
    figures = compiled_figures(compiled.as_text(), stats)
    assert [(r.kind, r.count, r.bytes) for r in figures.collectives.rows] == [
        ("all-reduce", 1, 1024)
    ]
    memory = figures.memory
    assert memory is not None
    assert (memory.argument, memory.output, memory.temp, memory.alias) == (
        1280,
        stats.output_size_in_bytes,
        stats.temp_size_in_bytes,
        0,
    )
    assert memory.peak == memory.argument + memory.output + memory.temp


def test_the_peak_is_all_that_is_allocated() -> None:
    """Whatever XLA says, which leaves the scratch out on CPU."""
    sizes = {
        "argument_size_in_bytes": 100,
        "output_size_in_bytes": 50,
        "alias_size_in_bytes": 40,
        "temp_size_in_bytes": 7,
        "generated_code_size_in_bytes": 3,
    }
    expected = MemoryFigures(100, 50, 7, 40, 3)
    assert expected.peak == 117
    assert compiled_figures("", sizes).memory == expected
    reported = compiled_figures("", SimpleNamespace(**sizes, peak_memory_in_bytes=100)).memory
    assert reported == expected
    assert compiled_figures("").memory is None


def test_json_has_stable_keys() -> None:
    figures = compiled_figures(
        compiled_text(lambda x: x.sum(), sharded((16,), "x")), {"argument_size_in_bytes": 32}
    )
    record = json.loads(json.dumps(build_report(load(SDY, name="m"), figures).to_json()))
    assert list(record) == [
        "version",
        "module",
        "notation",
        "devices",
        "meshes",
        "arguments",
        "results",
        "totals",
        "compiled",
        "diagnostics",
    ]
    assert record["version"] == 1
    assert record["meshes"] == [
        {"name": "mesh", "axes": {"data": 2, "model": 4}, "devices": 8, "device_ids": None}
    ]
    assert record["arguments"][1] == {
        "index": 1,
        "path": "params.w",
        "dtype": "bf16",
        "shape": [16, 64],
        "spec": '[{?}, {"model"}]',
        "mesh": "mesh",
        "shard_shape": [16, 16],
        "bytes": 2048,
        "bytes_per_device": 512,
        "donated": True,
        "alias_of": None,
        "decided_by": "open",
    }
    assert record["totals"]["results"] == {
        "bytes": 516,
        "bytes_per_device": 260,
        "ratio": 260 / 516,
        "unknown": 0,
        "at_most": False,
    }
    assert record["compiled"] == {
        "collectives": [
            {"kind": "all-reduce", "count": 1, "bytes": 4, "instructions": 1, "at_least": False}
        ],
        "unknown_loops": [],
        "memory": {
            "argument": 32,
            "output": 0,
            "temp": 0,
            "alias": 0,
            "generated_code": 0,
            "peak": 32,
        },
    }
    assert build_report(load(SDY)).to_json()["compiled"] is None


def test_a_report_takes_no_compiled_figures_by_default() -> None:
    module: Module = load(SDY)
    assert build_report(module).compiled is None
    figures = CompiledFigures(compiled_figures("").collectives)
    assert build_report(module, figures).compiled == figures
    assert MESH.size == 8
