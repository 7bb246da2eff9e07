"""What the grammars have in common: meshes, dimensions and axes, and the order of an iota.

Shardy's text and XLA's named text differ in how they quote names, in priorities, and in what stands
around these parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from shardpass.canon.axes import AxisRef, DimSharding
from shardpass.canon.scanner import Scanner
from shardpass.canon.tensor_sharding import REDUCTIONS

_PRIORITY: Final = re.compile(r"p(0|[1-9][0-9]*)")


class AxisReader:
    """Reads axes, however the grammar writes their names.

    Args:
      scanner: where to read.
      name: reads one name, quotes included.
      has_priorities: whether a dimension may end in ``p1``.
    """

    def __init__(
        self, scanner: Scanner, name: Callable[[Scanner], str], *, has_priorities: bool
    ) -> None:
        self._scanner = scanner
        self._name = name
        self._has_priorities = has_priorities

    def mesh_axes(self) -> tuple[tuple[str, int], ...]:
        """Read ``["x"=2, "y"=4]``."""
        scanner = self._scanner
        scanner.expect("[")
        axes: list[tuple[str, int]] = []
        while not scanner.accept("]"):
            if axes:
                scanner.expect(",", "an axis")
            name = self._name(scanner)
            scanner.expect("=", "an axis name")
            axes.append((name, scanner.integer("an axis size", least=1)))
        return tuple(axes)

    def dims(self) -> tuple[DimSharding, ...]:
        """Read ``[{"x"}, {?}]``."""
        scanner = self._scanner
        scanner.expect("[")
        dims: list[DimSharding] = []
        while not scanner.accept("]"):
            if dims:
                scanner.expect(",", "a dimension")
            dims.append(self._dim())
        return tuple(dims)

    def refs(self) -> tuple[AxisRef, ...]:
        """Read ``{"x", "y":(1)2}``, which is not empty."""
        scanner = self._scanner
        scanner.expect("{")
        refs = [self._ref()]
        while scanner.accept(","):
            refs.append(self._ref())
        scanner.expect("}")
        return tuple(refs)

    def reduction(self) -> str | None:
        """Read ``max`` where a word stands."""
        scanner = self._scanner
        scanner.skip_space()
        start = scanner.offset
        word = scanner.word()
        if word and word not in REDUCTIONS:
            message = f'"{word}" is none of {", ".join(REDUCTIONS)}'
            scanner.fail("bad-reduction", message, offset=start, length=len(word))
        return word or None

    def _dim(self) -> DimSharding:
        scanner = self._scanner
        scanner.skip_space()
        start = scanner.offset
        scanner.expect("{")
        axes: list[AxisRef] = []
        is_open = False
        while not scanner.accept("}"):
            if is_open:
                scanner.unexpected('"}" after "?"')
            if axes:
                scanner.expect(",", "an axis")
            if scanner.accept("?"):
                is_open = True
            else:
                axes.append(self._ref())
        priority = self._priority() if self._has_priorities else None
        with scanner.placing(start):
            return DimSharding(tuple(axes), is_open, priority)

    def _priority(self) -> int | None:
        scanner = self._scanner
        scanner.skip_space()
        start = scanner.offset
        word = scanner.word()
        if not word:
            return None
        if not _PRIORITY.fullmatch(word):
            message = f'expected a priority such as "p1", found "{word}"'
            scanner.fail("syntax", message, offset=start, length=len(word))
        scanner.offset = start + 1
        return scanner.integer("a priority")

    def _ref(self) -> AxisRef:
        scanner = self._scanner
        scanner.skip_space()
        start = scanner.offset
        name = self._name(scanner)
        if not scanner.accept(":"):
            return AxisRef(name)
        scanner.expect("(")
        pre_size = scanner.integer("a pre-size")
        scanner.expect(")")
        size = scanner.integer("a sub-axis size")
        with scanner.placing(start):
            return AxisRef(name, pre_size, size)


def read_order(scanner: Scanner) -> tuple[list[int], list[int]]:
    """Read ``[2,4]T(1,0)``: reshape sizes, and a permutation if there is more than one."""
    scanner.expect("[")
    reshape_dims = scanner.integers("a reshape size")
    scanner.expect("]")
    if len(reshape_dims) == 1:
        return reshape_dims, []
    scanner.expect("T", "more than one reshape size")
    scanner.expect("(")
    perm = scanner.integers("a dimension")
    scanner.expect(")")
    return reshape_dims, perm
