"""The sharding of a tensor over named mesh axes: Shardy's view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from shardpass.canon.axes import AxisRef, DimSharding, check_axes
from shardpass.canon.mesh import MeshShape
from shardpass.canon.mlir_string import for_people, symbol
from shardpass.canon.shapes import divide, divide_up
from shardpass.diagnostics import ShardingError

# What an unreduced axis can still have to be reduced by. "sum" is what no kind means.
REDUCTIONS: Final = ("sum", "max", "min")


@dataclass(frozen=True, slots=True)
class TensorSharding:
    """Which mesh axes cut which dimension of a tensor.

    Attributes:
      mesh: where the axes live.
      dims: one entry per dimension of the tensor.
      replicated: axes that propagation must leave unused, in mesh order.
      unreduced: axes along which the devices hold partial results, in mesh order.
      reduction: how the partial results are to be combined: ``None`` for the sum, ``"max"`` or
        ``"min"`` (Shardy of jaxlib 0.12 and newer; ``"sum"`` becomes ``None``).

    Equality compares all of that. Whether two shardings put the same data on the same devices is
    what :func:`shardpass.canon.is_equivalent` answers. ``str()`` is Shardy's text with the mesh
    inlined.

    Raises:
      ShardingError: ``unknown-axis``, ``bad-sub-axis``, ``duplicate-axis``, ``axis-order`` as
        :func:`shardpass.canon.axes.check_axes` says; ``bad-reduction``; ``rank-mismatch`` for
        dimensions or axes on a maximal mesh. The rules are those of Shardy's own verifier.
    """

    mesh: MeshShape
    dims: tuple[DimSharding, ...]
    replicated: tuple[AxisRef, ...] = ()
    unreduced: tuple[AxisRef, ...] = ()
    reduction: str | None = None

    def __post_init__(self) -> None:
        if self.mesh.is_maximal and (self.dims or self.replicated or self.unreduced):
            raise ShardingError(
                "rank-mismatch",
                f"a sharding on the single {self.mesh.describe()} has no dimensions and no axes, "
                f"not {self.dims_text()}",
                help="write []",
            )
        check_axes(
            self.mesh,
            self.dims,
            (("the replicated axes", self.replicated), ("the unreduced axes", self.unreduced)),
        )
        self._check_reduction()

    def _check_reduction(self) -> None:
        if self.reduction is None:
            return
        if self.reduction not in REDUCTIONS:
            raise ShardingError(
                "bad-reduction", f'"{self.reduction}" is none of {", ".join(REDUCTIONS)}'
            )
        if not self.unreduced:
            raise ShardingError(
                "bad-reduction", f'reduction "{self.reduction}" without unreduced axes'
            )
        if self.reduction == "sum":
            object.__setattr__(self, "reduction", None)

    @classmethod
    def build(
        cls, mesh: MeshShape, dims: Sequence[str | Sequence[str]], *, unreduced: Sequence[str] = ()
    ) -> TensorSharding:
        """``TensorSharding.build(mesh, [["x"], [], "?", ["y", "?"]])``.

        Args:
          mesh: where the axes live.
          dims: one entry per dimension: the axis names from major to minor, or one name; ``"?"``
            among them opens the dimension.
          unreduced: names of unreduced axes, in any order.
        """
        return cls(
            mesh,
            tuple(_dim_of_names(entry) for entry in dims),
            unreduced=tuple(AxisRef(name) for name in sorted(unreduced, key=mesh.axis_index)),
        )

    @classmethod
    def replicated_on(cls, mesh: MeshShape, rank: int) -> TensorSharding:
        """The whole tensor on every device; on a maximal mesh, on that one."""
        return cls(mesh, () if mesh.is_maximal else (DimSharding(),) * rank)

    @classmethod
    def parse(cls, text: str, meshes: Mapping[str, MeshShape] | None = None) -> TensorSharding:
        """Read Shardy's text.

        Args:
          text: ``#sdy.sharding<@mesh, [{"x"}, {?}]>``, with or without ``#sdy.sharding``, the mesh
            by name or inlined as ``mesh<["x"=2]>``.
          meshes: the meshes of the module, by name.

        Raises:
          ShardingError: ``syntax``, ``trailing-text``, ``bad-mesh``, or any of the constructor's,
            with the place in ``text``.
        """
        from shardpass.canon.sdy_parser import parse_tensor_sharding

        return parse_tensor_sharding(text, meshes or {})

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every device holds the whole, finished tensor; false on a maximal mesh."""
        if self.mesh.is_maximal or self.unreduced:
            return False
        return all(pieces == 1 for pieces in self.tiles())

    def tiles(self) -> tuple[int, ...]:
        """Into how many pieces each dimension is cut."""
        return tuple(dim.tiles(self.mesh) for dim in self.dims)

    def used_axes(self) -> tuple[AxisRef, ...]:
        """The axes that cut dimensions, dimension by dimension."""
        return tuple(axis for dim in self.dims for axis in dim.axes)

    def closed(self) -> TensorSharding:
        """The same placement with nothing left to propagation: all closed, no priorities."""
        return replace(self, dims=tuple(DimSharding(dim.axes) for dim in self.dims))

    def opened(self) -> TensorSharding:
        """The same placement with every dimension open."""
        return replace(self, dims=tuple(replace(dim, open=True) for dim in self.dims))

    def shard_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape, in elements, of the block that each device holds.

        Raises:
          ShardingError: ``rank-mismatch``; ``indivisible``, if a size is not a multiple of its
            tiles (all such dimensions are listed).
        """
        if self.mesh.is_maximal:
            return tuple(shape)
        return divide(shape, self.tiles(), f"{self.dims_text()} on mesh {self.mesh.describe()}")

    def padded_shard_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """As :meth:`shard_shape`, uneven dimensions rounded up, as XLA pads them.

        Raises:
          ShardingError: ``rank-mismatch``.
        """
        if self.mesh.is_maximal:
            return tuple(shape)
        return divide_up(shape, self.tiles(), self.dims_text())

    def dims_text(self) -> str:
        """``[{"x"}, {}]``: the dimensions alone, for messages; names as they were given."""
        return for_people(self._dims_in_mlir())

    def _dims_in_mlir(self) -> str:
        return f"[{', '.join(map(str, self.dims))}]"

    def to_sdy(self, mesh_name: str | None = None) -> str:
        """Shardy's text: ``#sdy.sharding<@mesh, [{"x"}, {}]>``, the mesh inlined without a name."""
        mesh = f"mesh{self.mesh}" if mesh_name is None else symbol(mesh_name)
        parts = [mesh, self._dims_in_mlir()]
        if self.replicated:
            parts.append(f"replicated={{{', '.join(map(str, self.replicated))}}}")
        if self.unreduced:
            parts.append(
                f"unreduced={self.reduction or ''}{{{', '.join(map(str, self.unreduced))}}}"
            )
        return f"#sdy.sharding<{', '.join(parts)}>"

    def __str__(self) -> str:
        return self.to_sdy()


def _dim_of_names(entry: str | Sequence[str]) -> DimSharding:
    names = (entry,) if isinstance(entry, str) else tuple(entry)
    return DimSharding(tuple(AxisRef(name) for name in names if name != "?"), "?" in names)
