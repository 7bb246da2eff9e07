"""Plain tables on standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

#: Columns of a file or a pipe, where nobody says (``COLUMNS``): wide enough for paths and shapes.
_COLUMNS_OF_A_FILE = 140


def standard_output() -> Console:
    """Standard output as a place for tables."""
    from rich.console import Console

    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return Console()
    return Console(width=_COLUMNS_OF_A_FILE)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print ``rows`` under ``headings``, folded to the width of the terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        # Text and not markup: a path may hold square brackets.
        table.add_row(*(Text(cell) for cell in row))
    standard_output().print(table)
