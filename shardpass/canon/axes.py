"""Axis references, and how one tensor dimension is cut."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shardpass.canon.mesh import MeshShape
from shardpass.canon.mlir_string import quote
from shardpass.canon.scanner import LARGEST_INTEGER
from shardpass.diagnostics import ShardingError


@dataclass(frozen=True, slots=True)
class AxisRef:
    """A mesh axis, or a contiguous part of one.

    A full axis has neither ``pre_size`` nor ``size``. The sub-axis ``"x":(pre_size)size`` is what
    is left of ``x`` after ``pre_size`` pieces were cut off on its major side and ``x`` was then cut
    into ``size``: with ``x=8``, ``"x":(2)2`` is the middle one of three binary digits. Source:
    Shardy's "Sub-axes" in its sharding representation.
    """

    name: str
    pre_size: int | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        if (self.pre_size is None) != (self.size is None):
            raise ShardingError(
                "bad-sub-axis", f'a sub-axis of "{self.name}" needs both a pre-size and a size'
            )
        if self.pre_size is not None and self.pre_size < 1:
            raise ShardingError("bad-sub-axis", f"the pre-size of {self} is below 1")
        if self.size is not None and self.size < 2:
            raise ShardingError("bad-sub-axis", f"the size of {self} is below 2")
        if (self.pre_size or 1) * (self.size or 1) > LARGEST_INTEGER:
            raise ShardingError("bad-sub-axis", f"{self} ends beyond 64 bits")

    @property
    def is_full(self) -> bool:
        """Whether this is the whole axis."""
        return self.size is None

    def bounds(self, mesh: MeshShape) -> tuple[int, int]:
        """``(pre_size, pre_size * size)``; a full axis goes from 1 to its size."""
        if self.pre_size is None or self.size is None:
            return 1, mesh.axis_size(self.name)
        return self.pre_size, self.pre_size * self.size

    def size_in(self, mesh: MeshShape) -> int:
        """Into how many pieces this cuts."""
        return self.size if self.size is not None else mesh.axis_size(self.name)

    def check(self, mesh: MeshShape) -> None:
        """Raise ``unknown-axis`` or ``bad-sub-axis`` unless this is a part of ``mesh``."""
        full = mesh.axis_size(self.name)
        if self.is_full:
            return
        _, end = self.bounds(mesh)
        if self.size == full:
            raise ShardingError(
                "bad-sub-axis", f"{self} is the whole of its axis", help=f'write "{self.name}"'
            )
        if full % end:
            raise ShardingError(
                "bad-sub-axis", f'{self} ends at {end}, which does not divide "{self.name}"={full}'
            )

    def merges_with(self, following: AxisRef, mesh: MeshShape) -> bool:
        """Whether ``following``, standing right behind, only continues this sub-axis."""
        return (
            self.name == following.name
            and self.bounds(mesh)[1] == following.bounds(mesh)[0]
            and not (self.is_full or following.is_full)
        )

    def conflicts_with(self, other: AxisRef, mesh: MeshShape) -> bool:
        """Whether both cannot be used at once: they overlap, or no split of the axis holds both."""
        if self.name != other.name:
            return False
        (start, end), (next_start, next_end) = sorted((self.bounds(mesh), other.bounds(mesh)))
        return next_start < end or next_start % end != 0 or (start, end) == (next_start, next_end)

    def __str__(self) -> str:
        name = quote(self.name)
        return name if self.is_full else f"{name}:({self.pre_size}){self.size}"


@dataclass(frozen=True, slots=True)
class DimSharding:
    """How one tensor dimension is cut: ``axes`` from major to minor.

    ``open`` leaves the dimension free for propagation to add axes. ``priority`` says in which round
    of propagation the dimension takes part, 0 being first and what no priority means. Neither
    changes where the data lies. ``str()`` is what Shardy prints: ``{"x", ?}p1``.
    """

    axes: tuple[AxisRef, ...] = ()
    open: bool = False
    priority: int | None = None

    def __post_init__(self) -> None:
        if self.priority is None:
            return
        if self.priority < 0:
            raise ShardingError("bad-priority", f"priority {self.priority} is negative")
        if not self.axes and not self.open:
            raise ShardingError(
                "bad-priority",
                f"priority {self.priority} on a closed dimension without axes",
                help="open the dimension ({?}), or drop the priority",
            )

    def tiles(self, mesh: MeshShape) -> int:
        """Into how many pieces the dimension is cut."""
        pieces = 1
        for axis in self.axes:
            pieces *= axis.size_in(mesh)
        return pieces

    def __str__(self) -> str:
        entries = [*map(str, self.axes), *["?"] * self.open]
        priority = "" if self.priority is None else f"p{self.priority}"
        return "{" + ", ".join(entries) + "}" + priority


def check_axes(
    mesh: MeshShape,
    dims: Sequence[DimSharding],
    ordered: Iterable[tuple[str, Sequence[AxisRef]]],
) -> None:
    """Raise unless all these axes can be used together, as Shardy's verifier sees it.

    Args:
      mesh: where the axes live.
      dims: the dimensions of a tensor.
      ordered: further ``(what, axes)`` lists whose axes must come in mesh order.

    Raises:
      ShardingError: ``unknown-axis``, ``bad-sub-axis``; ``duplicate-axis`` for axes that overlap;
        ``axis-order`` for neighbours that are one axis written as two, or a list out of mesh order.
    """
    ordered = tuple(ordered)
    lists = [(f"dimension {index}", dim.axes) for index, dim in enumerate(dims)] + list(ordered)
    used: dict[str, list[tuple[AxisRef, str]]] = {}
    for where, axes in lists:
        for axis in axes:
            axis.check(mesh)
            for other, there in used.setdefault(axis.name, []):
                if axis.conflicts_with(other, mesh):
                    raise ShardingError("duplicate-axis", _clash(axis, where, other, there))
            used[axis.name].append((axis, where))
        for axis, following in itertools.pairwise(axes):
            if axis.merges_with(following, mesh):
                raise ShardingError(
                    "axis-order",
                    f"{axis} and {following} in {where} are one sub-axis written as two",
                    help=f"write {merged(axis, following, mesh)}",
                )
    for where, axes in ordered:
        for axis, following in itertools.pairwise(axes):
            if _mesh_position(axis, mesh) > _mesh_position(following, mesh):
                raise ShardingError(
                    "axis-order", f"{axis} stands before {following} in {where}, against mesh order"
                )


def _clash(axis: AxisRef, where: str, other: AxisRef, there: str) -> str:
    place = f"twice in {where}" if where == there else f"in {there} and in {where}"
    if axis == other:
        return f"axis {axis} is used {place}"
    return f"axes {other} and {axis} overlap, {place}"


def merged(axis: AxisRef, following: AxisRef, mesh: MeshShape) -> AxisRef:
    """The one axis that ``axis`` and ``following``, which continues it, are together."""
    start, end = axis.bounds(mesh)[0], following.bounds(mesh)[1]
    if (start, end) == (1, mesh.axis_size(axis.name)):
        return AxisRef(axis.name)
    return AxisRef(axis.name, start, end // start)


def _mesh_position(axis: AxisRef, mesh: MeshShape) -> tuple[int, int]:
    return mesh.axis_index(axis.name), axis.bounds(mesh)[0]
