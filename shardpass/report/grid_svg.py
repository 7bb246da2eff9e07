"""A device grid as SVG, for notebooks and pages.

The picture brings its own white ground, since a notebook shows SVG in a frame of its own in which
the colors of the page are not known. It is built as a tree of elements, so that whatever stands in
a name is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from xml.etree import ElementTree

from rich.cells import cell_len

from shardpass.report.device_grid import DeviceGrid
from shardpass.report.grid_picture import Picture, Place, Shown, color_of, wrapped

# All in pixels, for a monospaced font of that size.
_FONT = 12
_CHARACTER = 7.3
_LINE = 16
_MARGIN = 10
_GAP = 24
_LEAST_CELL = 34
_WIDEST = 960
# Blocks are drawn as wide and as high as they are, within reason.
_FLATTEST, _STEEPEST = 3.0, 0.75
# In characters; a lone column may be wider.
_WIDEST_CELL = 14
_WIDEST_LONE_CELL = 56
_WIDEST_TEXT = 96

_INK, _FAINT, _GROUND, _EDGE = "#1f2328", "#59636e", "#ffffff", "#8c959f"


def grid_svg(grid: DeviceGrid) -> str:
    """An ``<svg>`` element with a picture of ``grid``.

    Every block is a ``<g class="block">`` with its place along the drawn value in ``data-block``
    (``0,1``) and a ``<title>`` that says it in words, which browsers show under the pointer.
    """
    return ElementTree.tostring(_Drawing(Picture.of(grid)).draw(), encoding="unicode")


class _Drawing:
    """One picture in the making: sizes first, then elements from top to bottom."""

    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        self._lines: dict[Place, list[str]] = {}
        self._heading_width = self._width_of_headings()
        self._cell_height = self._height_of_cells()
        self.columns: Shown = picture.columns_that_fit(self._grid_width, _WIDEST)
        self._cell_width = self._width_of_cells(self.columns)

    def draw(self) -> ElementTree.Element:
        """The whole ``<svg>``."""
        picture = self.picture
        grid_width = self._grid_width(self.columns)
        longest = max(map(cell_len, picture.headlines()))
        characters = max(_WIDEST_TEXT, int(grid_width / _CHARACTER))
        width = max(grid_width, min(longest, characters) * _CHARACTER)
        root = ElementTree.Element("svg", xmlns="http://www.w3.org/2000/svg")
        root.set("class", "shardpass-grid")
        ground = _child(root, "rect", x=0.5, y=0.5, rx=6, fill=_GROUND, stroke=_EDGE)
        top = float(_MARGIN)
        for number, headline in enumerate(picture.headlines()):
            for line in wrapped(headline, characters):
                _text(root, _MARGIN, top + _FONT, line, bold=number == 0)
                top += _LINE
        top += _LINE / 2
        top, right = self._draw_grids(root, top, grid_width)
        width = max(width, right - _MARGIN) + 2 * _MARGIN
        footer = picture.footer(self.columns)
        if footer is not None:
            _text(root, _MARGIN, top + _FONT, footer, fill=_FAINT)
            top += _LINE
        height = top + _MARGIN
        _set(root, width=width, height=height)
        _set(ground, width=width - 1, height=height - 1)
        root.set("viewBox", f"0 0 {_number(width)} {_number(height)}")
        root.set("font-family", "ui-monospace, Menlo, Consolas, monospace")
        root.set("font-size", str(_FONT))
        root.set("style", "max-width: 100%; height: auto")
        return root

    def _draw_grids(
        self, root: ElementTree.Element, top: float, grid_width: float
    ) -> tuple[float, float]:
        """All grids, side by side as long as there is room; how far down and right they go."""
        left, right, line_height = float(_MARGIN), 0.0, 0.0
        for outer in self.picture.grids:
            wide, high = (_CHARACTER, _LINE) if outer is None else (grid_width, self._grid_height())
            if left > _MARGIN and left + wide > _WIDEST:
                left, top, line_height = float(_MARGIN), top + line_height + _LINE, 0.0
            line_height = max(line_height, high)
            if outer is None:
                _text(root, left, top + line_height / 2, self.picture.signs.dots)
            else:
                self._draw_grid(root, left, top, outer)
            right = max(right, left + wide)
            left += wide + _GAP
        return top + line_height + _LINE / 2, right

    def _draw_grid(self, root: ElementTree.Element, left: float, top: float, outer: Place) -> None:
        picture = self.picture
        group = _child(root, "g")
        if picture.outer:
            _text(group, left, top + _FONT, picture.title(outer), bold=True)
            top += _LINE
        corner = picture.corner()
        for number, line in enumerate(corner):
            _text(group, left, top + _FONT + number * _LINE, line, fill=_FAINT)
        top += _LINE * len(corner)
        first = left + self._heading_width
        if corner:
            for x, _, column in self._along(first):
                heading = picture.heading(picture.column, column)
                _text(group, x, top - _LINE + _FONT, heading, anchor="middle")
        for row in picture.rows:
            height = self._row_height(row)
            middle = top + height / 2
            heading = picture.heading(picture.row, row)
            _text(group, first - _CHARACTER, middle + _FONT / 3, heading, anchor="end")
            for x, wide, column in self._along(first):
                if row is None or column is None:
                    _text(group, x, middle + _FONT / 3, picture.signs.dots, anchor="middle")
                else:
                    block = picture.block(outer, row, column)
                    self._draw_block(group, block, x - wide / 2, top, wide, height)
            top += height

    def _draw_block(
        self,
        root: ElementTree.Element,
        block: Place,
        left: float,
        top: float,
        width: float,
        height: float,
    ) -> None:
        group = _child(root, "g")
        group.set("class", "block")
        group.set("data-block", ",".join(map(str, block)))
        _child(group, "title").text = self.picture.block_text(block)
        box = _child(group, "rect", x=left, y=top, width=width, height=height, stroke=_EDGE)
        box.set("fill", color_of(self.picture, block))
        lines = self._cell_lines(block)
        line_top = top + (height - len(lines) * _LINE) / 2
        for number, line in enumerate(lines):
            baseline = line_top + number * _LINE + _FONT
            _text(group, left + width / 2, baseline, line, anchor="middle", fill="#000000")

    # Sizes ----------------------------------------------------------------------------------------

    def _along(self, left: float) -> Iterator[tuple[float, float, int | None]]:
        """Middle and width of each column, from ``left`` on."""
        for column in self.columns:
            width = self._cell_width if column is not None else 3 * _CHARACTER
            yield left + width / 2, width, column
            left += width

    def _row_height(self, row: int | None) -> float:
        return self._cell_height if row is not None else _LINE

    def _cell_lines(self, block: Place) -> list[str]:
        if block not in self._lines:
            widest = _WIDEST_CELL if len(self.picture.columns()) > 1 else _WIDEST_LONE_CELL
            self._lines[block] = wrapped(self.picture.devices_text(block), widest)
        return self._lines[block]

    def _blocks(self, columns: Shown) -> Iterator[Place]:
        for outer in self.picture.grids:
            for row in self.picture.rows:
                for column in columns:
                    if outer is not None and row is not None and column is not None:
                        yield self.picture.block(outer, row, column)

    def _width_of_headings(self) -> float:
        picture = self.picture
        rows = [picture.heading(picture.row, row) for row in picture.rows]
        return max(map(cell_len, (*picture.corner(), *rows))) * _CHARACTER + _CHARACTER

    def _height_of_cells(self) -> float:
        blocks = self._blocks(self.picture.columns())
        return max(_LEAST_CELL, *(len(self._cell_lines(b)) * _LINE + 8 for b in blocks))

    def _width_of_cells(self, columns: Shown) -> float:
        picture = self.picture
        headings = [cell_len(picture.heading(picture.column, column)) for column in columns]
        texts = [cell_len(line) for b in self._blocks(columns) for line in self._cell_lines(b)]
        return max(max((*headings, *texts)) * _CHARACTER + 10, self._cell_height * self._aspect())

    def _aspect(self) -> float:
        """Width of a block by its height."""
        picture, shape = self.picture, self.picture.grid.block_shape
        if not shape or picture.column is None:
            return 1.0
        high = shape[picture.row] if picture.row is not None else 1
        ratio = shape[picture.column] / high if high else _FLATTEST
        # A long block is drawn longer, not as much longer as it is.
        return min(max(math.sqrt(ratio), _STEEPEST), _FLATTEST) if ratio else 1.0

    def _grid_width(self, columns: Shown) -> float:
        shown = len(columns) - (None in columns)
        gap = 3 * _CHARACTER if None in columns else 0.0
        return self._heading_width + shown * self._width_of_cells(columns) + gap

    def _grid_height(self) -> float:
        rows = sum(self._row_height(row) for row in self.picture.rows)
        lines = len(self.picture.corner()) + (1 if self.picture.outer else 0)
        return rows + lines * _LINE


def _child(parent: ElementTree.Element, tag: str, **attributes: float | str) -> ElementTree.Element:
    child = ElementTree.SubElement(parent, tag)
    _set(child, **attributes)
    return child


def _set(element: ElementTree.Element, **attributes: float | str) -> None:
    for name, value in attributes.items():
        element.set(name, value if isinstance(value, str) else _number(value))


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _text(
    parent: ElementTree.Element,
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    fill: str = _INK,
    bold: bool = False,
) -> None:
    """``text`` with its baseline at ``y``; spaces in a row are kept."""
    element = _child(parent, "text", x=x, y=y, fill=fill)
    if anchor != "start":
        element.set("text-anchor", anchor)
    if bold:
        element.set("font-weight", "bold")
    element.text = text
