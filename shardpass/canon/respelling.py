"""The same placement, said on another mesh over the same devices.

Two meshes over the same devices in the same order are two ways to write one number, the position
of a device, in digits: ``x=8`` has one, ``a=2, b=4`` has two. An axis of the one is a range of
strides (:mod:`shardpass.canon.layout`), and that range is a row of axes and sub-axes of the other,
if the other can be cut there. Where the devices stand in another order, positions in the one are
positions in the other with their digits permuted, or the two have nothing to say to each other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shardpass.canon import layout
from shardpass.canon.axes import AxisRef, DimSharding
from shardpass.canon.lowering import to_hlo
from shardpass.canon.mesh import MeshShape
from shardpass.canon.naming import axes_of
from shardpass.canon.refinement import common_mesh
from shardpass.canon.tensor_sharding import TensorSharding
from shardpass.diagnostics import ShardingError


@dataclass(frozen=True)
class Respelling:
    """From the axes of one mesh to those of another, over the same devices.

    An axis of size 1 cuts nothing. It stays where the new mesh has one of that name, or has the
    same sizes in the same order; otherwise it goes.

    Attributes:
      old: the mesh that is spoken of; one without axes fits any other.
      new: the mesh that is to be spoken of.
    """

    old: MeshShape
    new: MeshShape
    _places: layout.Modes
    _ones: Mapping[str, str]

    @classmethod
    def between(cls, old: MeshShape, new: MeshShape) -> Respelling:
        """How to go from ``old`` to ``new``.

        Raises:
          ShardingError: ``device-count`` for meshes of different sizes; ``device-order`` where
            the devices of ``old`` stand in an order that no axes of ``new`` have;
            ``not-expressible`` for a single device (a maximal mesh) and another mesh.
        """
        if old == new:
            return cls(old, new, ((old.size, 1),), {n: n for n, size in old.axes if size == 1})
        if old.is_maximal or new.is_maximal:
            raise ShardingError(
                "not-expressible",
                f"{old.describe()} and {new.describe()} are not two grids of the same devices",
            )
        if not old.axes:
            return cls(old, new, (), {})
        if old.size != new.size:
            raise ShardingError(
                "device-count",
                f"the mesh {old.describe()} has {old.size} devices, {new.describe()} {new.size}",
            )
        ones = [name for name, size in old.axes if size == 1]
        if old.sizes == new.sizes:
            kept = {name: new.names[old.axis_index(name)] for name in ones}
        else:
            kept = {name: name for name in ones if (name, 1) in new.axes}
        return cls(old, new, _places(old, new), kept)

    def axes(self, axes: Sequence[AxisRef]) -> tuple[AxisRef, ...]:
        """What is cut by ``axes``, major to minor, by axes of the new mesh.

        Raises:
          ShardingError: ``not-expressible``, where the new mesh cannot be cut like that.
        """
        found: list[AxisRef] = []
        modes: list[tuple[int, int]] = []
        for axis in axes:
            if axis.name in self._ones:
                found += self._named(modes, axes)
                modes = []
                found.append(AxisRef(self._ones[axis.name]))
            else:
                modes += self._modes_of(axis, axes)
        return (*found, *self._named(modes, axes))

    def axis_set(self, axes: Sequence[AxisRef]) -> tuple[AxisRef, ...]:
        """As :meth:`axes`, where only it matters which they are: in the order of the new mesh."""
        modes = [
            m for axis in axes if axis.name not in self._ones for m in self._modes_of(axis, axes)
        ]
        found = list(self._named(list(layout.ascending(tuple(modes))), axes))
        found += [AxisRef(self._ones[axis.name]) for axis in axes if axis.name in self._ones]
        found.sort(key=lambda axis: (self.new.axis_index(axis.name), axis.bounds(self.new)[0]))
        return tuple(found)

    def whole_axes(self, names: Sequence[str]) -> tuple[str, ...]:
        """The axes that ``names`` are together, as manual computations name them.

        Raises:
          ShardingError: ``not-expressible``, also where they would be a part of an axis.
        """
        found = self.axis_set([AxisRef(name) for name in names])
        for axis in found:
            if not axis.is_full:
                shown = ", ".join(f'"{name}"' for name in names)
                raise ShardingError(
                    "not-expressible",
                    f"{shown} of {self.old.describe()} is {axis} of {self.new.describe()}, and "
                    "only whole axes can be manual",
                )
        return tuple(axis.name for axis in found)

    def sharding(self, sharding: TensorSharding) -> TensorSharding:
        """``sharding``, which is on the old mesh, on the new one: every device holds the same.

        Open dimensions and priorities stay as they are.

        Raises:
          ShardingError: ``not-expressible``.
        """
        if self.old == self.new:
            return sharding
        unreduced = self.axis_set(sharding.unreduced)
        return TensorSharding(
            self.new,
            tuple(_with_axes(dim, self.axes(dim.axes)) for dim in sharding.dims),
            self.axis_set(sharding.replicated),
            unreduced,
            sharding.reduction if unreduced else None,
        )

    def _modes_of(self, axis: AxisRef, axes: Sequence[AxisRef]) -> layout.Modes:
        start, end = axis.bounds(self.old)
        index = self.old.axis_index(axis.name)
        outer = math.prod(self.old.sizes[:index]) * start
        groups = layout.split(
            self._places, (outer, end // start, self.old.size // (outer * (end // start)))
        )
        if groups is None:
            raise ShardingError(
                "not-expressible",
                f"no cut of the axes {self.new.describe()} gives {self._describe(axes)}",
            )
        return groups[1]

    def _named(self, modes: list[tuple[int, int]], axes: Sequence[AxisRef]) -> tuple[AxisRef, ...]:
        return axes_of(layout.coalesce(tuple(modes)), self.new, lambda: self._describe(axes))

    def _describe(self, axes: Sequence[AxisRef]) -> str:
        return f"{', '.join(map(str, axes))} of {self.old.describe()}"


def refined_mesh(meshes: Sequence[MeshShape]) -> MeshShape:
    """The coarsest mesh on which the axes of all ``meshes`` are whole axes, or rows of them.

    Its axes keep the name of an axis that they are, of the earliest mesh that has one; the others
    are called ``_axis_0``, ``_axis_1``, ...

    Args:
      meshes: grids of the same number of devices, one or more, with axes.

    Raises:
      ShardingError: as :func:`shardpass.canon.common_mesh`.
    """
    tiled = [to_hlo(TensorSharding.build(mesh, [[name] for name in mesh.names])) for mesh in meshes]
    found = common_mesh(tiled)
    if found is None:  # Nothing is cut: all axes have size 1.
        return meshes[0]
    names: dict[str, str] = {}
    for mesh in meshes:
        spelling = Respelling.between(mesh, found)
        for name, size in mesh.axes:
            found_axes = spelling.axes([AxisRef(name)]) if size > 1 else ()
            if len(found_axes) == 1 and name not in names.values():
                names.setdefault(found_axes[0].name, name)
    taken = set(names.values())
    free = (name for index in itertools.count() if (name := f"_axis_{index}") not in taken)
    axes = tuple((names[name] if name in names else next(free), size) for name, size in found.axes)
    return MeshShape(axes, found.device_ids)


def _places(old: MeshShape, new: MeshShape) -> layout.Modes:
    """The positions in ``new`` of the devices of ``old``, in its order."""
    if old.device_ids == new.device_ids:
        return layout.coalesce(((old.size, 1),))
    place_of = np.empty(new.size, dtype=np.int64)
    place_of[new.device_array().ravel()] = np.arange(new.size, dtype=np.int64)
    found = layout.of_list(place_of[old.device_array().ravel()])
    if found is None:
        raise _other_order(old, new)
    return found


def _other_order(old: MeshShape, new: MeshShape) -> ShardingError:
    return ShardingError(
        "device-order",
        f"the devices of {old.describe()} stand in an order that no axes of {new.describe()} have",
        notes=tuple(f"{mesh.describe()} has the devices {_shown(mesh)}" for mesh in (old, new)),
        help="give both meshes the same order of devices",
    )


def _shown(mesh: MeshShape) -> str:
    if mesh.device_ids is None:
        return "in order"
    ids = [str(device) for device in mesh.device_ids[:16]]
    return ", ".join([*ids, "..."] if mesh.size > 16 else ids)


def _with_axes(dim: DimSharding, axes: tuple[AxisRef, ...]) -> DimSharding:
    """``dim`` cut by ``axes``; a closed dimension that nothing cuts has no priority."""
    idle = not axes and not dim.open
    return replace(dim, axes=axes, priority=None if idle else dim.priority)
