"""A spec on a mesh, for a shape: from names to a :class:`shardpass.canon.TensorSharding`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from shardpass.canon import AxisRef, DimSharding, MeshShape, TensorSharding
from shardpass.canon.shapes import sizes_that_fit
from shardpass.diagnostics import Diagnostic, Severity, ShardingError, did_you_mean
from shardpass.partition_rules.logical import LogicalAxes
from shardpass.partition_rules.rule import too_long
from shardpass.partition_rules.spec import Spec, SubAxis

OnIndivisible: TypeAlias = Literal["error", "replicate"]


@dataclass(frozen=True, slots=True)
class Resolution:
    """The sharding that a spec means, and a warning for each dimension it had to leave whole."""

    sharding: TensorSharding
    diagnostics: tuple[Diagnostic, ...] = ()


def resolve_spec(
    spec: Spec,
    mesh: MeshShape,
    shape: Sequence[int],
    *,
    logical: LogicalAxes | None = None,
    indivisible: OnIndivisible = "error",
    exact: bool = True,
    subject: str = "",
    path: str | None = None,
    notes: Sequence[str] = (),
) -> Resolution:
    """What ``spec`` means for a value of ``shape`` on ``mesh``.

    Args:
      spec: one entry per dimension; the dimensions after its last are not sharded.
      mesh: where the axes live.
      shape: global shape in elements; a negative size is one that is not static.
      logical: what logical names mean.
      indivisible: whether a dimension that its axes do not divide is an error, or is left whole.
      exact: whether the value was meant by name; if not, a scalar is replicated whatever the spec.
      subject: what messages call the value (``argument 0 ("params.wq")``).
      path: the value's dotted path, for diagnostics.
      notes: further lines for diagnostics, such as the rule.

    Raises:
      ShardingError: ``scalar-spec``, ``rank-mismatch``, ``indivisible`` (all such dimensions
        listed), ``dynamic-shape`` for an axis on a dimension without a static size, and what
        :func:`axes_on_mesh` raises.
    """
    if not shape and not exact:
        return Resolution(TensorSharding.replicated_on(mesh, 0))
    if len(spec.dims) > len(shape):
        shape_text = f"shape is {_shape_text(shape)}"
        raise _told(too_long(spec, len(shape), subject=subject), path, (shape_text, *notes))
    sharding = axes_on_mesh(spec, mesh, logical)
    missing = len(shape) - len(sharding.dims)
    dims = [*sharding.dims, *[DimSharding()] * missing]
    notes = (f"sharding is {sharding.dims_text()} on mesh {mesh.describe()}", *notes)
    before = f"{subject}, " if subject else ""
    faults: list[Diagnostic] = []
    for index, (dim, size) in enumerate(zip(dims, shape, strict=True)):
        pieces = dim.tiles(mesh)
        if pieces == 1 or (size >= 0 and size % pieces == 0):
            continue
        if size < 0:
            message = f"{before}dimension {index} has no static size to cut into {pieces} pieces"
            help = "export the module for concrete shapes, or leave this dimension whole"
            faults.append(
                Diagnostic(Severity.ERROR, "dynamic-shape", message, None, None, path, notes, help)
            )
            continue
        uneven = f"{before}dimension {index}: {size} elements into {pieces} pieces"
        if indivisible == "replicate":
            dims[index] = DimSharding(open=dim.open)
            message, help = f"{uneven}; left whole", sizes_that_fit(size, pieces)
            faults.append(
                Diagnostic(Severity.WARNING, "replicated", message, None, None, path, notes, help)
            )
        else:
            help = f'{sizes_that_fit(size, pieces)}, drop an axis, or set indivisible = "replicate"'
            faults.append(
                Diagnostic(Severity.ERROR, "indivisible", uneven, None, None, path, notes, help)
            )
    if any(fault.severity is Severity.ERROR for fault in faults):
        raise ShardingError.of(faults)
    return Resolution(
        TensorSharding(mesh, tuple(dims), unreduced=sharding.unreduced), tuple(faults)
    )


def axes_on_mesh(spec: Spec, mesh: MeshShape, logical: LogicalAxes | None = None) -> TensorSharding:
    """``spec`` with its names looked up on ``mesh``, for a value of just its rank.

    Raises:
      ShardingError: ``unknown-axis``, ``bad-sub-axis``; ``duplicate-axis`` for an axis that cuts
        twice by its own name (one that a logical name brings again is dropped).
    """
    logical = logical or LogicalAxes()
    spec.refuse_repeated(logical.names)
    unknown = [
        _unknown_axis(name, spec, mesh, logical)
        for name in dict.fromkeys(spec.names())
        if name not in logical.names and SubAxis.parse(name).name not in mesh.names
    ]
    if unknown:
        raise ShardingError.of(unknown)
    dims = tuple(
        DimSharding(tuple(_axis(name) for name in names), dim.open)
        for dim, names in zip(spec.dims, logical.assign(spec), strict=True)
    )
    unreduced = sorted((_axis(n) for n in spec.unreduced), key=lambda a: mesh.axis_index(a.name))
    return TensorSharding(mesh, dims, unreduced=tuple(unreduced))


def check_logical(name: str, axes: Sequence[str], mesh: MeshShape) -> None:
    """Raise unless every mesh axis behind the logical ``name`` is on ``mesh``.

    Raises:
      ShardingError: ``unknown-axis``, ``bad-sub-axis``.
    """
    for text in axes:
        axis = _axis(text)
        if axis.name not in mesh.names:
            raise ShardingError(
                "unknown-axis",
                f'logical name "{name}" maps to "{text}", which is not an axis of the mesh '
                f"{mesh.describe()}",
                help=did_you_mean(axis.name, mesh.names),
            )
        axis.check(mesh)


def _unknown_axis(name: str, spec: Spec, mesh: MeshShape, logical: LogicalAxes) -> Diagnostic:
    axis = SubAxis.parse(name).name
    also = f" and not a logical name ({', '.join(sorted(logical.names))})" if logical.names else ""
    return Diagnostic(
        Severity.ERROR,
        "unknown-axis",
        f'"{axis}" is not an axis of the mesh {mesh.describe()}{also}',
        help=did_you_mean(axis, [*mesh.names, *logical.names])
        or (
            f"the axes are {', '.join(mesh.names)}"
            if mesh.names
            else "give a mesh with axes, as data=2,model=4, or rules that cut nothing"
        ),
        excerpt=spec.excerpt(name),
    )


def _axis(text: str) -> AxisRef:
    part = SubAxis.parse(text)
    return AxisRef(part.name, part.pre_size, part.size)


def _shape_text(shape: Sequence[int]) -> str:
    return "x".join("?" if size < 0 else str(size) for size in shape) or "that of a scalar"


def _told(error: ShardingError, path: str | None, notes: Sequence[str]) -> ShardingError:
    shown = error.diagnostic
    return ShardingError(
        shown.slug, shown.message, help=shown.help, notes=notes, path=path, excerpt=shown.excerpt
    )
