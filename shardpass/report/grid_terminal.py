"""A device grid on a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from rich import box
from rich.cells import cell_len
from rich.columns import Columns
from rich.console import Console, ConsoleOptions, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from shardpass.report.device_grid import DeviceGrid
from shardpass.report.grid_picture import (
    ASCII_SIGNS,
    UNICODE_SIGNS,
    Picture,
    Place,
    Shown,
    color_of,
    wrapped,
)

# A cell of several devices is no wider than this, unless there is nothing beside it.
_WIDEST_CELL = 14
# Rows of one line each are told apart without rules where there are more than so many.
_MOST_RULED_ROWS = 8


def render_grid_terminal(grid: DeviceGrid, console: Console | None = None) -> None:
    """Print a picture of ``grid``, as wide as the terminal allows.

    Args:
      grid: what to print.
      console: where; standard output by default.
    """
    console = console or Console()
    for piece in grid_renderables(grid, console.options):
        console.print(piece)


def grid_text(grid: DeviceGrid, width: int = 80, *, ascii_only: bool = False) -> str:
    """The picture as plain text, in lines of no more than ``width`` characters."""
    file = io.StringIO()
    console = Console(file=file, width=width, color_system=None, force_terminal=False)
    options = console.options
    options.encoding = "ascii" if ascii_only else "utf-8"
    for piece in grid_renderables(grid, options):
        for line in console.render_lines(piece, options, pad=False):
            file.write("".join(segment.text for segment in line if not segment.control).rstrip())
            file.write("\n")
    return file.getvalue().removesuffix("\n")


def grid_renderables(grid: DeviceGrid, options: ConsoleOptions) -> Iterator[RenderableType]:
    """What rich prints for ``grid`` under ``options``: headlines, grids, and what was left out."""
    signs = ASCII_SIGNS if options.ascii_only else UNICODE_SIGNS
    picture = Picture.of(grid, signs)
    for number, line in enumerate(picture.headlines()):
        yield _text(line, options, style="bold" if number == 0 else "")
    layout = _Layout(picture, options)
    tables = [layout.table(outer) for outer in picture.grids]
    yield Columns(tables, padding=(0, 2)) if len(tables) > 1 else tables[0]
    footer = picture.footer(layout.columns)
    if footer is not None:
        yield _text(footer, options)


class _Layout:
    """Which columns of a picture there is room for, and the text of their cells."""

    def __init__(self, picture: Picture, options: ConsoleOptions) -> None:
        self.picture = picture
        self.options = options
        self._lines: dict[Place, list[str]] = {}
        room = options.max_width
        self._corner_width = max(8, room // 2 - 4)
        columns = picture.columns()
        beside = 3 * len(columns) + 1 + self._heading_width()
        # A lone column may be as wide as the page.
        self._cell_width = _WIDEST_CELL if len(columns) > 1 else max(_WIDEST_CELL, room - beside)
        self.columns: Shown = picture.columns_that_fit(self._width_of, room)
        self._widths = [self._column_width(column) for column in self.columns]

    def table(self, outer: Place | None) -> RenderableType:
        """One grid; where grids are left out, just the dots."""
        picture = self.picture
        if outer is None:
            return Text(picture.title(None))
        table = Table(
            box=box.SQUARE,
            padding=0,
            show_header=bool(picture.corner()),
            show_lines=self._is_ruled(),
            title=self._title(outer),
            title_justify="left",
        )
        if picture.corner():
            corner = "\n".join(f" {self._legible(line)} " for line in picture.corner())
            table.add_column(Text(corner), overflow="fold")
        for column, width in zip(self.columns, self._widths, strict=True):
            heading = picture.heading(picture.column, column)
            table.add_column(Text(f" {heading:^{width}} "), overflow="fold")
        for row in picture.rows:
            heading = [Text(f" {picture.heading(picture.row, row)} ")] if picture.corner() else []
            table.add_row(*heading, *self._cells(outer, row))
        return table

    def _cells(self, outer: Place, row: int | None) -> Iterator[Text]:
        picture = self.picture
        shown = [
            None if row is None or column is None else picture.block(outer, row, column)
            for column in self.columns
        ]
        height = max((len(self._cell_lines(block)) for block in shown if block), default=1)
        for block, width in zip(shown, self._widths, strict=True):
            if block is None:
                yield Text(f" {picture.signs.dots:^{width}} ")
                continue
            lines = [f" {line:^{width}} " for line in self._cell_lines(block)]
            lines += [" " * (width + 2)] * (height - len(lines))
            yield Text(
                "\n".join(lines), style=Style(color="#000000", bgcolor=color_of(picture, block))
            )

    # Widths and heights ---------------------------------------------------------------------------

    def _cell_lines(self, block: Place) -> list[str]:
        if block not in self._lines:
            self._lines[block] = wrapped(self.picture.devices_text(block), self._cell_width)
        return self._lines[block]

    def _blocks(self, column: int) -> Iterator[Place]:
        for outer in self.picture.grids:
            for row in self.picture.rows:
                if outer is not None and row is not None:
                    yield self.picture.block(outer, row, column)

    def _column_width(self, column: int | None) -> int:
        heading = cell_len(self.picture.heading(self.picture.column, column))
        if column is None:
            return heading
        lines = (line for block in self._blocks(column) for line in self._cell_lines(block))
        return max(heading, *map(cell_len, lines))

    def _heading_width(self) -> int:
        rows = [self.picture.heading(self.picture.row, row) for row in self.picture.rows]
        corner = [min(cell_len(line), self._corner_width) for line in self.picture.corner()]
        return max(*map(cell_len, rows), *corner, 0)

    def _width_of(self, columns: Sequence[int | None]) -> int:
        cells = sum(self._column_width(column) + 3 for column in columns)
        return cells + (self._heading_width() + 3 if self.picture.corner() else 0) + 1

    def _is_ruled(self) -> bool:
        if len(self.picture.rows) * len(self.picture.grids) <= _MOST_RULED_ROWS:
            return True
        shown = (column for column in self.columns if column is not None)
        return any(
            len(self._cell_lines(block)) > 1 for column in shown for block in self._blocks(column)
        )

    def _title(self, outer: Place) -> Text | None:
        title = self.picture.title(outer)
        return Text(title, style="bold") if title else None

    def _legible(self, text: str) -> str:
        return _legible(text, self.options)


def _text(line: str, options: ConsoleOptions, style: str = "") -> Text:
    return Text(_legible(line, options), style=style, overflow="fold")


def _legible(text: str, options: ConsoleOptions) -> str:
    if not options.ascii_only:
        return text
    return text.encode("ascii", "backslashreplace").decode("ascii")
