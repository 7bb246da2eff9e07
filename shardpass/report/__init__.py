"""What happened, for people and programs: one typed model, several renderings.

A :class:`Report` is built from a module in hand (:func:`build_report`), and from the text and the
figures of its compiled program where there is one (:func:`compiled_figures`). Nothing here compiles
or runs anything, so that a report of a module for a thousand devices costs what reading it costs.
:func:`render_terminal` and :meth:`Report.to_json` show the same value.

The collectives come from XLA's optimized HLO, which :mod:`shardpass.report.hlo_text` reads line by
line: XLA's own cost analysis counts the body of a loop once, however often it runs.

A :class:`DeviceGrid` says which devices hold which block of one value. It is built from a sharding
of any kind (:func:`visualize`), and drawn in a terminal (:func:`render_grid_terminal`) and as SVG
(:func:`grid_svg`).
"""

from shardpass.report.build import build_report, compiled_figures, memory_figures
from shardpass.report.collectives import CollectiveRow, Collectives, read_collectives
from shardpass.report.device_grid import (
    DeviceGrid,
    GridDimension,
    grid_of_hlo_sharding,
    grid_of_mesh,
    grid_of_tensor_sharding,
)
from shardpass.report.fold import FoldedRow, fold
from shardpass.report.grid_svg import grid_svg
from shardpass.report.grid_terminal import render_grid_terminal
from shardpass.report.model import (
    CompiledFigures,
    MemoryFigures,
    MeshRow,
    Report,
    Totals,
    ValueRow,
)
from shardpass.report.terminal import render_terminal
from shardpass.report.visualize import Visualization, visualize

__all__ = [
    "CollectiveRow",
    "Collectives",
    "CompiledFigures",
    "DeviceGrid",
    "FoldedRow",
    "GridDimension",
    "MemoryFigures",
    "MeshRow",
    "Report",
    "Totals",
    "ValueRow",
    "Visualization",
    "build_report",
    "compiled_figures",
    "fold",
    "grid_of_hlo_sharding",
    "grid_of_mesh",
    "grid_of_tensor_sharding",
    "grid_svg",
    "memory_figures",
    "read_collectives",
    "render_grid_terminal",
    "render_terminal",
    "visualize",
]
