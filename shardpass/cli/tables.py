"""Plain tables on standard output."""

from __future__ import annotations

from collections.abc import Sequence


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print ``rows`` under ``headings``, folded to the width of the terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        # Text and not markup: a path may hold square brackets.
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)
