"""What a person sees."""

import io

from rich.console import Console

from shardpass.mlir import load
from shardpass.report import (
    CompiledFigures,
    MeshRow,
    Report,
    ValueRow,
    build_report,
    compiled_figures,
    render_terminal,
)
from tests.report.programs import ASYNC, counted_loop
from tests.report.test_build import SDY


def lines(report: Report, *, show_all: bool = False) -> list[str]:
    file = io.StringIO()
    render_terminal(report, Console(file=file, width=120), show_all=show_all)
    return [" ".join(line.split()) for line in file.getvalue().splitlines()]


def layers(count: int) -> Report:
    rows = tuple(
        ValueRow(
            i, f"h.{i}.w", "f32", (1024, 8), '[{"x"}, {}]', "mesh", (512, 8), 32768, 16384, True
        )
        for i in range(count)
    )
    return Report("m.mlir", "sdy", 2, (MeshRow("mesh", (("x", 2),), 2),), rows, ())


def test_a_report() -> None:
    shown = lines(build_report(load(SDY, name="step.mlir")))
    assert shown[:2] == [
        "step.mlir: sdy shardings, 8 devices",
        "mesh @mesh: data=2, model=4 (8 devices)",
    ]
    assert 'x 8x16xf32 [{"data"}, {}] 4x16 512 B 256 B' in shown
    assert 'params.w 16x64xbf16* [{?}, {"model"}] <= 16x16 2.0 KiB <= 512 B' in shown
    assert 'ids 6xi32 [{"model":(1)2}] (XLA) 3 24 B 12 B' in shown
    assert "small 10xi4 ? ? 5 B ?" in shown
    assert "count f32* - scalar 4 B 4 B" in shown
    assert "result.1 f32* - scalar 4 B 4 B" in shown
    assert "total 2.5 KiB <= ?" in shown
    assert "5 arguments: XLA lays out 1 of them, and --compile shows how" in shown
    assert "2 results: each device holds 0.504 of the bytes" in shown
    assert "* donated" in shown
    assert "* in the buffer of a donated argument" in shown


def test_layers_are_folded_unless_all_are_asked_for() -> None:
    report = layers(12)
    folded = lines(report)
    assert 'h.{0..11}.w x12 1024x8xf32* [{"x"}, {}] 512x8 384.0 KiB 192.0 KiB' in folded
    assert "total 384.0 KiB 192.0 KiB" in folded
    everything = lines(report, show_all=True)
    assert sum(line.startswith("h.") for line in everything) == 12
    assert 'h.11.w 1024x8xf32* [{"x"}, {}] 512x8 32.0 KiB 16.0 KiB' in everything


def test_brackets_are_not_taken_for_markup() -> None:
    row = ValueRow(0, "a[bold]", "f32", (1,), "[red]", None, (1,), 4, 4)
    shown = lines(Report("m[/]", "sdy", 1, (), (row,), ()))
    assert shown[0] == "m[/]: sdy shardings, 1 device"
    assert "a[bold] 1xf32 [red] 1 4 B 4 B" in shown
    assert "1 argument: each device holds 1.000 of the bytes" in shown


def test_compiled_figures() -> None:
    figures = compiled_figures(
        ASYNC,
        {
            "argument_size_in_bytes": 2048,
            "output_size_in_bytes": 1024,
            "alias_size_in_bytes": 512,
            "temp_size_in_bytes": 100,
        },
    )
    shown = lines(build_report(load(SDY), figures))
    assert "all-gather 2 2.1 KiB 2" in shown
    assert "total 5 4.6 KiB" in shown
    assert "memory per device" in shown
    assert "of these in arguments' buffers 512 B" in shown
    assert "peak 2.6 KiB" in shown


def test_loops_of_unknown_length_are_marked() -> None:
    text = counted_loop(0, 12, 1).replace("compare(i, n)", "compare(n, n)")
    shown = lines(build_report(load(SDY), compiled_figures(text)))
    assert "all-reduce 1+ 16 B+ 1" in shown
    assert "total 1+ 16 B+" in shown
    assert "+ counted once in loops of unknown length: loop" in shown


def test_no_collectives() -> None:
    shown = lines(build_report(load(SDY), CompiledFigures(compiled_figures("").collectives)))
    assert shown[-1] == "no collectives"


def test_a_narrow_terminal_wraps_rather_than_cuts() -> None:
    file = io.StringIO()
    render_terminal(layers(1), Console(file=file, width=60))
    assert "…" not in file.getvalue()
