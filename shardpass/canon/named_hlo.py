"""XLA's named notation (V3): Shardy's axes in HLO text, and how it becomes tiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shardpass.canon.axes import AxisRef, DimSharding, check_axes
from shardpass.canon.metadata import Metadata, metadata_text
from shardpass.canon.tensor_sharding import TensorSharding
from shardpass.canon.tile_assignment import TileAssignment


@dataclass(frozen=True, slots=True)
class NamedHlo:
    """``{mesh['x'=2,'y'=4], [{'x'}, {?}], manual={'y'}}``, as jaxlib 0.12 prints shardings in HLO.

    Attributes:
      sharding: mesh, dimensions, replicated and unreduced axes. Without dimensions it stands for a
        value of any rank: ``{mesh['x'=2], replicated}``.
      manual: axes inside whose manual region the value lives, in mesh order.
      order: the order of the mesh's devices where it was written as an iota,
        ``device_ids=([4,2]T(1,0))``; the mesh itself then has no ids.
      single_device: the word that was read for a maximal mesh: ``single_device`` (jaxlib 0.12) or
        ``maximal_mesh`` (0.10, which does not know the other).

    Raises:
      ShardingError: as for :class:`TensorSharding`, with the manual axes among the others.
    """

    sharding: TensorSharding
    manual: tuple[AxisRef, ...] = ()
    order: TileAssignment | None = None
    single_device: str = "single_device"

    def __post_init__(self) -> None:
        if not self.manual:
            return
        sharding = self.sharding
        lists = (
            ("the replicated axes", sharding.replicated),
            ("the unreduced axes", sharding.unreduced),
            ("the manual axes", self.manual),
        )
        check_axes(sharding.mesh, sharding.dims, lists)

    def to_text(self, metadata: Sequence[Metadata] = ()) -> str:
        """XLA's text."""
        sharding = self.sharding
        if sharding.mesh.is_maximal:
            parts = [f"{self.single_device}[device_id={sharding.mesh.device_id}]"]
        else:
            parts = [*self._mesh_parts(), *self._axis_parts()]
        if metadata:
            parts.append(metadata_text(metadata, always_list=True))
        return f"{{{', '.join(parts)}}}"

    def _mesh_parts(self) -> list[str]:
        mesh = self.sharding.mesh
        axes = ",".join(f"'{name}'={size}" for name, size in mesh.axes)
        parts = [f"mesh[{axes}]"]
        if self.order is not None:
            parts.append(f"device_ids=({self.order.order_text()})")
        elif mesh.device_ids is not None:
            parts.append(f"device_ids=({','.join(map(str, mesh.device_ids))})")
        return parts

    @property
    def is_manual(self) -> bool:
        """Whether the manual axes are the whole mesh, axes of size 1 aside."""
        return self._is_whole_mesh(self.manual)

    @property
    def is_unreduced(self) -> bool:
        """Whether the unreduced axes are the whole mesh, axes of size 1 aside."""
        return self._is_whole_mesh(self.sharding.unreduced)

    def _is_whole_mesh(self, axes: Sequence[AxisRef]) -> bool:
        mesh = self.sharding.mesh
        return bool(axes) and math.prod(axis.size_in(mesh) for axis in axes) == mesh.size

    def _axis_parts(self) -> list[str]:
        sharding = self.sharding
        if not sharding.dims:
            if self.is_manual:
                return ["manual"]
            if self.is_unreduced:
                kind = f"={sharding.reduction}" if sharding.reduction else ""
                listed = len(sharding.unreduced) < len(sharding.mesh.axes)
                return [f"unreduced{kind}{_axes_text(sharding.unreduced) if listed else ''}"]
            if not (sharding.replicated or sharding.unreduced or self.manual):
                return ["replicated"]
        parts = [f"[{', '.join(map(_dim_text, sharding.dims))}]"]
        if sharding.replicated:
            parts.append(f"replicated={_axes_text(sharding.replicated)}")
        if sharding.unreduced:
            parts.append(f"unreduced={sharding.reduction or ''}{_axes_text(sharding.unreduced)}")
        if self.manual:
            parts.append(f"manual={_axes_text(self.manual)}")
        return parts


def _dim_text(dim: DimSharding) -> str:
    return "{" + ", ".join([*map(_axis_text, dim.axes), *["?"] * dim.open]) + "}"


def _axes_text(axes: Sequence[AxisRef]) -> str:
    return "{" + ", ".join(map(_axis_text, axes)) + "}"


def _axis_text(axis: AxisRef) -> str:
    return f"'{axis.name}'" if axis.is_full else f"'{axis.name}':({axis.pre_size}){axis.size}"
