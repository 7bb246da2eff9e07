"""What every picture of a device grid shows, whatever it is drawn with.

**Which way round.** Two dimensions fit on a page. A value of one or two dimensions is drawn as it
is. Of more dimensions, those that are cut are drawn, since the others have one block each: the last
two of them as rows and columns, and the blocks of the ones before as a grid each, labelled like an
index into the array, ``[0:4, :, 8:16, :]``. So a 5-d activation that is cut over batch and heads is
still one grid.

**How much.** Beyond a handful, rows, columns and grids are left out in the middle, as numpy prints
arrays, and a line says how many there are. What is left out is never worked out.

**Colors.** A color is of a block: everything in it is the same data, wherever it is held. It
depends on the block's place alone, so that it is the same in each picture of a grid, and it is
light, with black text on it, so that it can be read on light and dark pages.
"""

from __future__ import annotations

import colorsys
import itertools
import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from shardpass.report.device_grid import DeviceGrid, GridDimension

#: The rows, columns or grids that are shown; ``None`` stands for those left out.
Shown: TypeAlias = tuple[int | None, ...]
Place: TypeAlias = tuple[int, ...]

# A page of a terminal has some 50 lines: one grid, or a few low ones.
_MOST_ROWS: Final = 12
_MOST_ROWS_OF_SEVERAL: Final = 6
_MOST_GRIDS: Final = 4
_MOST_LOW_GRIDS: Final = 8
_LOW: Final = 4
_MOST_COLUMNS: Final = 32
# Of the devices of one block, so many are looked at (to find that they are 0-4095, say) ...
_MOST_COPIES: Final = 4096
_MOST_PARTS: Final = 9
# ... and so many runs of them are named.
_MOST_RUNS: Final = 8
_MOST_PART_RUNS: Final = 4


@dataclass(frozen=True, slots=True)
class Signs:
    """The characters that are not in every terminal's alphabet."""

    dots: str = "…"
    right: str = "→"
    down: str = "↓"


UNICODE_SIGNS: Final = Signs()
ASCII_SIGNS: Final = Signs("...", "->", "v")


@dataclass(frozen=True, slots=True)
class Picture:
    """What of ``grid`` is drawn, and where; made by :meth:`of`.

    Attributes:
      grid: what is drawn.
      signs: what to write for what is left out.
      column: the dimension from left to right, ``None`` for a scalar.
      row: the dimension downwards, ``None`` for less than two dimensions.
      outer: the dimensions that have a grid for each of their blocks.
      rows: the rows shown.
      grids: the places along ``outer`` of the grids shown, in order.
    """

    grid: DeviceGrid
    signs: Signs
    column: int | None
    row: int | None
    outer: tuple[int, ...]
    rows: Shown
    grids: tuple[Place | None, ...]

    @classmethod
    def of(cls, grid: DeviceGrid, signs: Signs = UNICODE_SIGNS) -> Picture:
        """Arrange ``grid``."""
        drawn = _drawn_dimensions(grid.pieces)
        column = drawn[-1] if drawn else None
        row = drawn[-2] if len(drawn) > 1 else None
        outer = drawn[:-2]
        sizes = [grid.pieces[d] for d in outer]
        height = 1 if row is None else grid.pieces[row]
        most = _MOST_LOW_GRIDS if height <= _LOW else _MOST_GRIDS
        numbers = _shown(math.prod(sizes), most)
        grids = tuple(None if n is None else _unraveled(n, sizes) for n in numbers)
        rows = _shown(height, _MOST_ROWS if len(grids) == 1 else _MOST_ROWS_OF_SEVERAL)
        return cls(grid, signs, column, row, outer, rows, grids)

    # What there is to draw ------------------------------------------------------------------------

    def columns(self, most: int = _MOST_COLUMNS) -> Shown:
        """The columns to show, if there is room for no more than ``most``."""
        return left_out_in_the_middle(self._pieces(self.column), min(most, _MOST_COLUMNS))

    def columns_that_fit(self, width_of: Callable[[Shown], float], room: float) -> Shown:
        """As many columns as ``width_of`` says there is ``room`` for; one at least."""
        most = len(self.columns())
        while most > 1 and width_of(self.columns(most)) > room:
            most -= 1
        return self.columns(most)

    def block(self, outer: Place, row: int, column: int) -> Place:
        """The place of a block in the grid, from where it is drawn."""
        place = [0] * len(self.grid.dimensions)
        pairs = zip((*self.outer, self.row, self.column), (*outer, row, column), strict=True)
        for dimension, piece in pairs:
            if dimension is not None:
                place[dimension] = piece
        return tuple(place)

    # Words ----------------------------------------------------------------------------------------

    def headlines(self) -> list[str]:
        """What stands above the picture, a line each."""
        grid = self.grid
        on_mesh = f"on mesh {grid.mesh}" if grid.mesh else ""
        lines = [" ".join(filter(None, (grid.value, grid.layout, on_mesh))), self._counts()]
        if grid.parts_kind == "manual":
            over = f" over {_listed(grid.part_axes)}" if grid.part_axes else ""
            lines.append(f"manual{over}: the devices of a block hold values of their own, a | b")
        elif grid.parts_kind is not None:
            over = f" over {_listed(grid.part_axes)}" if grid.part_axes else ""
            combined = {"sum": "summed, a + b"}.get(
                grid.parts_kind, f"combined by {grid.parts_kind}, a {grid.parts_kind} b"
            )
            lines.append(f"unreduced{over}: partial results, still to be {combined}")
        if any(dimension.is_open for dimension in grid.dimensions):
            lines.append("? is a dimension that propagation may cut further")
        lines.extend(grid.notes)
        return [printable(line) for line in lines]

    def footer(self, columns: Shown) -> str | None:
        """How much was left out; ``None`` where nothing was."""
        counted = (
            ("grids", self.grids, math.prod(self.grid.pieces[d] for d in self.outer)),
            ("rows", self.rows, self._pieces(self.row)),
            ("columns", columns, self._pieces(self.column)),
        )
        pieces = [
            f"{len(shown) - 1} of {total} {what}" for what, shown, total in counted if None in shown
        ]
        return f"shown: {', '.join(pieces)}" if pieces else None

    def corner(self) -> tuple[str, ...]:
        """Which dimensions the columns and the rows are, and what cuts them."""
        return tuple(
            self._dimension_text(dimension, sign)
            for dimension, sign in ((self.column, self.signs.right), (self.row, self.signs.down))
            if dimension is not None
        )

    def heading(self, dimension: int | None, piece: int | None) -> str:
        """What stands at a column or row: the elements there, ``0:4``, or just its number."""
        if piece is None:
            return self.signs.dots
        if dimension is None:
            return ""
        bounds = self.grid.dimensions[dimension].bounds(piece)
        return str(piece) if bounds is None else f"{bounds[0]}:{bounds[1]}"

    def title(self, outer: Place | None) -> str:
        """What stands above one of several grids: ``[0:4, :, :]``; empty where there is one."""
        if not self.outer:
            return ""
        if outer is None:
            return self.signs.dots
        entries = [":"] * len(self.grid.dimensions)
        for dimension, piece in zip(self.outer, outer, strict=True):
            entries[dimension] = self.heading(dimension, piece)
        return f"[{', '.join(entries)}]"

    def devices_text(self, block: Place) -> str:
        """The devices of a block: ``0, 4``, ``0-255``, ``0, 64, … 4032 (64)``.

        Parts are joined by what is to be done with them: ``0 + 1``, ``(0,4) + (1,5)``.
        """
        grid, dots = self.grid, self.signs.dots
        if grid.order is None:
            return "every device"
        parts = grid.devices_of(block, most_parts=_MOST_PARTS, most_copies=_MOST_COPIES)
        if grid.parts == 1:
            return numbers_text(parts[0], grid.copies, _MOST_RUNS, dots)
        sign = {"sum": "+", "manual": "|"}.get(grid.parts_kind or "sum", grid.parts_kind)
        texts = [numbers_text(part, grid.copies, _MOST_PART_RUNS, dots) for part in parts]
        if grid.copies > 1:
            # Lines break at spaces, which are better between the parts.
            texts = [f"({text.replace(', ', ',')})" for text in texts]
        if grid.parts >= _MOST_PARTS:
            texts = [*texts[:2], f"{dots} ({grid.parts})"]
        return f" {sign} ".join(texts)

    def block_text(self, block: Place) -> str:
        """A block in words: ``[0:4, 8:16] on devices 0, 4``."""
        entries = [self.heading(dimension, piece) for dimension, piece in enumerate(block)]
        plural = "" if self.grid.parts * self.grid.copies == 1 else "s"
        return f"[{', '.join(entries)}] on device{plural} {self.devices_text(block)}"

    def _pieces(self, dimension: int | None) -> int:
        return 1 if dimension is None else self.grid.dimensions[dimension].pieces

    def _dimension_text(self, number: int, sign: str) -> str:
        dimension = self.grid.dimensions[number]
        return printable(f"dim {number} {sign} {_cut_text(dimension)}")

    def _counts(self) -> str:
        grid = self.grid
        platform = f"{grid.platform} " if grid.platform else ""
        if grid.num_devices is None:
            devices = "any number of devices"
        else:
            devices = _counted(grid.num_devices, f"{platform}device")
        if grid.is_mesh:
            return devices
        shape = grid.block_shape
        size = f" of {'x'.join(map(str, shape))}" if shape else ""
        held = grid.parts * grid.copies
        copied = grid.copies > 1 and grid.copy_axes
        copies = f", copies over {_listed(grid.copy_axes)}" if copied else ""
        if grid.num_blocks > 1:
            each = "each on one device" if held == 1 else f"each on {held} devices"
            return f"{devices}: {grid.num_blocks} blocks{size}, {each}{copies}"
        whole = f"the whole {'x'.join(map(str, shape))}" if shape else "the whole"
        if grid.num_devices == 1:
            return f"{devices}, with {whole}"
        return f"{devices}, {whole} on each{copies}"


def left_out_in_the_middle(count: int, most: int) -> Shown:
    """``0 .. count - 1``, or its two ends with ``None`` between, ``most`` numbers in all."""
    if count <= most:
        return tuple(range(count))
    tail = most // 2
    return (*range(most - tail), None, *range(count - tail, count))


def numbers_text(numbers: Sequence[int], count: int, most: int, dots: str) -> str:
    """Ascending numbers, runs of three and more as ``4-7``; both ends where that is too long.

    Args:
      numbers: all ``count`` of them, or the first few of many.
      count: how many there are.
      most: beyond so many runs, only the first two and the last are written.
      dots: what stands for the rest.
    """
    runs = _runs(numbers)
    if len(numbers) == count and len(runs) <= most:
        return ", ".join(runs)
    last = [str(numbers[-1])] if len(numbers) == count else []
    return f"{', '.join([*map(str, numbers[:2]), ' '.join([dots, *last])])} ({count})"


def wrapped(text: str, width: int) -> list[str]:
    """``text`` in lines of no more than ``width`` characters, where it has spaces to break at."""
    return textwrap.wrap(text, max(width, 1), break_long_words=False, break_on_hyphens=False) or [
        ""
    ]


def printable(text: str) -> str:
    """``text`` with everything escaped that is no visible character: the names in it are a user's.

    What is left may stand in a terminal, and in XML, which has no way to write a control character.
    """
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def color_of(picture: Picture, block: Place) -> str:
    """The background of a block, ``#rrggbb``: light enough for black text.

    Neighbours in a row are a golden section of the circle of hues apart, neighbours in a column
    differ in lightness as well.
    """
    number = 0
    for place, pieces in zip(block, picture.grid.pieces, strict=True):
        number = number * pieces + place
    hue = (number * (math.sqrt(5) - 1) / 2 + 0.58) % 1
    row = 0 if picture.row is None else block[picture.row]
    channels = colorsys.hls_to_rgb(hue, 0.86 if row % 2 else 0.76, 0.65)
    return "#" + "".join(f"{round(channel * 255):02x}" for channel in channels)


def _drawn_dimensions(pieces: Sequence[int]) -> tuple[int, ...]:
    """The dimensions that a picture has to show, the last two of which are rows and columns."""
    rank = len(pieces)
    if rank <= 2:
        return tuple(range(rank))
    drawn = {d for d in range(rank) if pieces[d] > 1}
    # Of those that are not cut, as many of the last as make a grid.
    uncut = [d for d in range(rank) if d not in drawn]
    while len(drawn) < 2:
        drawn.add(uncut.pop())
    return tuple(sorted(drawn))


def _shown(count: int, most: int) -> Shown:
    # A gap takes as much room as the one thing that it might stand for.
    return left_out_in_the_middle(count, count if count == most + 1 else most)


def _unraveled(number: int, sizes: Sequence[int]) -> Place:
    place: list[int] = []
    for size in reversed(sizes):
        number, digit = divmod(number, size)
        place.append(digit)
    return tuple(reversed(place))


def _runs(numbers: Sequence[int]) -> list[str]:
    runs: list[str] = []
    steps = itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    for _, pairs in steps:
        run = [number for _, number in pairs]
        runs += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run)
    return runs


def _cut_text(dimension: GridDimension) -> str:
    if dimension.axes is not None:
        return dimension.axes
    return f"in {dimension.pieces}" if dimension.pieces > 1 else "whole"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _listed(axes: Sequence[str]) -> str:
    return ", ".join(axes)
