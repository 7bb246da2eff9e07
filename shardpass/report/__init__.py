"""What happened, for people and programs: one typed model, several renderings.

A :class:`Report` is built from a module in hand (:func:`build_report`), and from the text and the
figures of its compiled program where there is one (:func:`compiled_figures`). Nothing here compiles
or runs anything, so that a report of a module for a thousand devices costs what reading it costs.
:func:`render_terminal` and :meth:`Report.to_json` show the same value.

The collectives come from XLA's optimized HLO, which :mod:`shardpass.report.hlo_text` reads line by
line: XLA's own cost analysis counts the body of a loop once, however often it runs.
"""

from shardpass.report.build import build_report, compiled_figures, memory_figures
from shardpass.report.collectives import CollectiveRow, Collectives, read_collectives
from shardpass.report.fold import FoldedRow, fold
from shardpass.report.model import (
    CompiledFigures,
    MemoryFigures,
    MeshRow,
    Report,
    Totals,
    ValueRow,
)
from shardpass.report.terminal import render_terminal

__all__ = [
    "CollectiveRow",
    "Collectives",
    "CompiledFigures",
    "FoldedRow",
    "MemoryFigures",
    "MeshRow",
    "Report",
    "Totals",
    "ValueRow",
    "build_report",
    "compiled_figures",
    "fold",
    "memory_figures",
    "read_collectives",
    "render_terminal",
]
