"""Where values lie, against Shardy's own pass and against executables."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpass.canon import HloSharding, MeshShape, TensorSharding
from shardpass.diagnostics import Severity
from shardpass.mlir import Module, Shardings, argument_attributes, load
from shardpass.passes import run_pipeline
from shardpass.report import Report, Totals, build_report, compiled_figures
from shardpass.report.layouts import evenly_cut, is_applied, layouts_not_applied
from shardpass.runtime import Executable, compile_module
from tests import strategies

MESH = MeshShape.of(data=2, model=4)


def add(argument: str, result: str = "", other: str = "", shape: str = "16x24") -> Module:
    """The sum of two arguments, with the attributes given."""
    return load(f"""module attributes {{mhlo.num_partitions = 8 : i32}} {{
  sdy.mesh @mesh = <["data"=2, "model"=4]>
  func.func @main(%x: tensor<{shape}xf32>{said(argument)}, %y: tensor<{shape}xf32>{said(other)})
      -> (tensor<{shape}xf32>{said(result)}) {{
    %0 = stablehlo.add %x, %y : tensor<{shape}xf32>
    return %0 : tensor<{shape}xf32>
  }}
}}""")


def said(text: str) -> str:
    if text.startswith("{"):
        return f' {{mhlo.sharding = "{text}"}}'
    return f" {{sdy.sharding = #sdy.sharding<@mesh, {text}>}}" if text else ""


def shardings_of(executable: Executable) -> tuple[list[HloSharding], list[HloSharding]]:
    return (
        [layout.sharding for layout in executable.argument_layouts],
        [layout.sharding for layout in executable.result_layouts],
    )


def compiled_report(module: Module) -> Report:
    executable = compile_module(module, devices=8)
    stats = executable.memory_stats
    figures = compiled_figures(executable.hlo_text, stats, *shardings_of(executable))
    report = build_report(module, figures)
    # The oracle: the buffers that XLA allots to one device.
    assert report.argument_totals.bytes_per_device == stats.argument_size_in_bytes
    assert report.result_totals.bytes_per_device == stats.output_size_in_bytes
    return report


def seen(report: Report) -> list[tuple[Any, ...]]:
    return [
        (row.spec, row.shard_shape, row.bytes_per_device, row.decided_by)
        for row in [*report.arguments, *report.results]
    ]


class TestUnevenAnnotations:
    UNEVEN = add('[{"model"}, {}]', '[{"model"}, {}]', '[{"model"}, {}]', shape="19x1000")

    @pytest.mark.parametrize("make", [build_report, compiled_report])
    def test_what_xla_holds_whole_counts_whole_and_is_warned_of(self, make: Any):
        report = make(self.UNEVEN)
        assert seen(report) == [("[{}, {}]", (19, 1000), 76000, "xla")] * 3
        assert report.argument_totals == Totals(152000, 152000)
        assert report.result_totals.ratio == 1.0
        assert [d.slug for d in report.diagnostics] == ["layout-not-applied"] * 3
        assert [d.severity for d in report.diagnostics] == [Severity.WARNING] * 3
        assert report.diagnostics[0].message == (
            'argument 0 ("arg0") is annotated as [{"model"}, {}], 5x1000 (19.5 KiB) on each '
            "device; XLA makes it [{}, {}], 19x1000 (74.2 KiB)"
        )
        assert "19 elements into 4 pieces" in report.diagnostics[0].notes[0]
        record = report.to_json()["diagnostics"]
        assert [one["path"] for one in record] == ["arg0", "arg1", "result"]

    @pytest.mark.parametrize("shape", ["20x6", "6x6", "12x2", "19x24"])
    @pytest.mark.parametrize("spec", ['[{"model", "data"}, {}]', '[{"model"}, {"data"}]'])
    def test_what_is_foretold_is_what_the_executable_does(self, spec: str, shape: str):
        module = add(spec, spec, spec, shape)
        foretold, compiled = build_report(module), compiled_report(module)
        assert [row.shard_shape for row in foretold.arguments] == [
            row.shard_shape for row in compiled.arguments
        ]
        assert seen(foretold) == seen(compiled)
        assert len(foretold.diagnostics) == len(compiled.diagnostics)

    def test_gspmd_pads_instead(self):
        module = load(add("").text().replace('sdy.mesh @mesh = <["data"=2, "model"=4]>', ""))
        text = module.text().replace("16x24", "19x6")
        tiles = "{devices=[4,2]<=[8]}"
        text = text.replace("%arg0: tensor<19x6xf32>", f"%arg0: tensor<19x6xf32>{said(tiles)}")
        for make in (build_report, compiled_report):
            report = make(load(text))
            assert seen(report)[:2] == [
                (tiles, (5, 3), 60, "module"),
                (None, (19, 6), 456, "module" if make is build_report else "xla"),
            ]
            assert report.diagnostics == ()

    @settings(max_examples=100, deadline=None)
    @given(st.data())
    def test_agrees_with_shardys_pass(self, data: st.DataObject):
        meshes = strategies.mesh_shapes(max_devices=16, permuted=False)
        sharding = data.draw(
            strategies.tensor_shardings(
                meshes, min_rank=1, replicated=False, unreduced=False, hints=False
            )
        )
        shape = data.draw(strategies.uneven_shapes(sharding.rank))
        kind = f"tensor<{'x'.join(map(str, shape))}xf32>"
        module = load(
            f"sdy.mesh @mesh = {sharding.mesh}\n"
            f"func.func @main(%x: {kind} {{sdy.sharding = {sharding.to_sdy('mesh')}}}) -> {kind} "
            f"{{\n  return %x : {kind}\n}}"
        )
        changed = run_pipeline(module, "sdy-update-non-divisible-input-output-shardings").module
        attribute = argument_attributes(changed.main)[0]["sdy.sharding"]
        assert Shardings(changed.root).read(attribute) == evenly_cut(sharding, shape)


class TestUnannotated:
    def test_what_xla_decides_is_not_known_before_it_compiles(self):
        report = build_report(add('[{"model"}, {}]'))
        assert seen(report) == [
            ('[{"model"}, {}]', (4, 24), 384, "module"),
            (None, None, None, "unknown"),
            (None, None, None, "unknown"),
        ]
        assert report.argument_totals == Totals(3072, None, 1)
        assert report.result_totals == Totals(1536, None, 1)
        assert report.result_totals.ratio is None
        record = report.to_json()
        assert record["results"][0]["shard_shape"] is None
        assert record["results"][0]["bytes_per_device"] is None
        assert record["totals"]["results"] == {
            "bytes": 1536, "bytes_per_device": None, "ratio": None, "unknown": 1, "at_most": False
        }  # fmt: skip

    def test_what_xla_decided_is_what_the_executable_has(self):
        assert seen(compiled_report(add('[{"model"}, {}]'))) == [
            ('[{"model"}, {}]', (4, 24), 384, "module"),
            ('[{"model"}, {}]', (4, 24), 384, "xla"),
            ('[{"model"}, {}]', (4, 24), 384, "xla"),
        ]

    def test_an_open_dimension_may_be_cut_further(self):
        module = add('[{"data", ?}, {?}]', other='[{?}, {"model"}]')
        before = build_report(module)
        assert seen(before)[0] == ('[{"data", ?}, {?}]', (8, 24), 768, "open")
        assert before.argument_totals == Totals(3072, 768 + 384, at_most=True)
        after = compiled_report(module)
        assert seen(after) == [('[{"data"}, {"model"}]', (8, 6), 192, "xla")] * 3
        assert after.diagnostics == ()
        assert after.argument_totals.at_most is False

    def test_unknown_says_nothing(self):
        tiles = "{devices=[2,4]<=[8]}"
        text = add(tiles, "{unknown}", "{unknown}").text()
        module = load(text.replace('sdy.mesh @mesh = <["data"=2, "model"=4]>', ""))
        assert seen(build_report(module)) == [
            (tiles, (8, 6), 192, "module"),
            (None, (16, 24), 1536, "module"),
            (None, None, None, "unknown"),
        ]

    def test_one_device_holds_everything(self):
        module = load("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : "
                      "tensor<4xf32> }")  # fmt: skip
        assert seen(build_report(module)) == [(None, (4,), 16, "module")] * 2


class TestApplied:
    ROWS = HloSharding.parse("{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}")
    OTHER = HloSharding.parse("{devices=[4,1,2]<=[8] last_tile_dim_replicate}")

    @pytest.mark.parametrize(
        ("dims", "actual", "applied"),
        [
            ([["model"], []], ROWS, True),
            ([["model"], []], OTHER, False),
            ([["model"], []], HloSharding.replicated(), False),
            ([["model"], "?"], HloSharding.parse("{devices=[4,2]<=[2,4]T(1,0)}"), True),
            ([["model"], []], HloSharding.parse("{devices=[4,2]<=[2,4]T(1,0)}"), False),
            ([["model", "?"], []], HloSharding.parse("{devices=[8,1]<=[2,4]T(1,0)}"), True),
            ([["model", "?"], []], HloSharding.parse("{devices=[8,1]<=[8]}"), False),
            ([[], []], HloSharding.replicated(), True),
            ([[], []], ROWS, False),
        ],
    )
    def test_every_device_holds_what_was_asked_for(
        self, dims: list[Any], actual: HloSharding, applied: bool
    ):
        assert is_applied(TensorSharding.build(MESH, dims), actual, (16, 24), 8) is applied

    def test_scalars_and_arrays_without_elements(self):
        scalar = TensorSharding.build(MESH, [])
        assert is_applied(scalar, HloSharding.replicated(), (), 8)
        rows = TensorSharding.build(MESH, [["model"], []])
        assert is_applied(rows, HloSharding.replicated(), (0, 24), 8)

    def test_devices_in_another_order(self):
        mesh = MeshShape(MESH.axes, tuple(range(7, -1, -1)))
        asked = TensorSharding.build(mesh, [["model"], []])
        assert not is_applied(asked, self.ROWS, (16, 24), 8)

    @pytest.mark.parametrize("annotation", ['[{"model"}, {"data"}]', "{devices=[4,2]<=[8]}"])
    def test_either_notation_against_an_executable(self, annotation: str):
        module = add(annotation, annotation)
        if annotation.startswith("{"):
            mesh = 'sdy.mesh @mesh = <["data"=2, "model"=4]>'
            module = load(module.text().replace(mesh, ""))
        arguments, results = shardings_of(compile_module(module, devices=8))
        assert layouts_not_applied(module, arguments, results, 8) == []
        swapped = [HloSharding.replicated(), *arguments[1:]]
        (told,) = layouts_not_applied(module, swapped, results, 8, Severity.ERROR)
        assert (told.slug, told.path, told.severity) == (
            "layout-not-applied", "arg0", Severity.ERROR
        )  # fmt: skip
        assert "XLA makes it {replicated}, 16x24 (1.5 KiB)" in told.message
