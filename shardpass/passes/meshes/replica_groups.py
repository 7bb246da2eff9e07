"""Groups of devices that a StableHLO collective names by axes of a mesh, as lists of devices.

jax 0.12 writes ``#stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [...]>`` where older ones
wrote the lists, and so ties a program to a mesh that is Shardy's.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
from jax.extend.mlir import ir

from shardpass.canon import AxisRef, MeshShape
from shardpass.canon.mlir_string import quote, symbol, unquote
from shardpass.diagnostics import ShardingError
from shardpass.mlir import locate

REPLICA_GROUPS: Final = "replica_groups"
#: How the text of groups that are named by axes begins.
BY_AXES: Final = "#stablehlo.replica_group_mesh_axes"
_MESH: Final = re.compile(r'<mesh = @(?P<name>"(?:[^"\\]|\\.)*"|[\w$.-]+)')
_AXIS: Final = re.compile(
    r'#stablehlo\.axis_ref<name = (?P<name>"(?:[^"\\]|\\.)*")'
    r"(?:, sub_axis_info = \((?P<pre_size>\d+)\)(?P<size>\d+))?>"
)


def read_axes(text: str) -> tuple[str, list[AxisRef]] | None:
    """The mesh and the axes that groups are named by; ``None`` for groups that are listed.

    Args:
      text: of the attribute.

    Raises:
      ShardingError: ``not-supported`` for what is not understood.
    """
    if not text.startswith(BY_AXES):
        return None
    found = _MESH.search(text)
    axes = [
        AxisRef(_name(axis["name"]), *(int(n) if n else None for n in axis.groups()[1:]))
        for axis in _AXIS.finditer(text)
    ]
    if found is None or len(axes) != text.count("axis_ref<"):
        raise ShardingError("not-supported", f"its replica groups are not understood: {text}")
    return _name(found["name"]), axes


def write_axes(mesh_name: str, axes: Iterable[AxisRef], context: ir.Context) -> ir.Attribute:
    """The attribute that names groups by ``axes`` of a mesh."""
    refs: list[str] = []
    for axis in axes:
        part = "" if axis.is_full else f", sub_axis_info = ({axis.pre_size}){axis.size}"
        refs.append(f"#stablehlo.axis_ref<name = {quote(axis.name)}{part}>")
    return ir.Attribute.parse(
        f"{BY_AXES}<mesh = {symbol(mesh_name)}, axes = [{', '.join(refs)}]>", context
    )


def list_replica_groups(op: ir.Operation | ir.OpView, meshes: Mapping[str, MeshShape]) -> None:
    """Write the groups of ``op`` as lists, if it names them by axes of one of ``meshes``.

    Raises:
      ShardingError: ``not-supported`` for a mesh that is not there, and for what is not understood.
    """
    try:
        found = read_axes(str(op.attributes[REPLICA_GROUPS]))
        if found is None:
            return
        name, axes = found
        if name not in meshes:
            raise ShardingError(
                "not-supported", f"its replica groups are over @{name}, which is no mesh"
            )
    except ShardingError as error:
        raise ShardingError(
            "not-supported",
            f"{op.operation.name}: {error.diagnostic.message}",
            location=locate(op),
            help="write them as lists of devices",
        ) from error
    groups = groups_along(meshes[name], axes)
    with op.context:
        # jaxlib's stubs do not know of arrays.
        made: Any = ir.DenseElementsAttr.get(np.ascontiguousarray(groups))  # pyright: ignore
    op.attributes[REPLICA_GROUPS] = made


def _name(text: str) -> str:
    """A name as it is, without the quotes and escapes of its text."""
    return (unquote(text[1:-1]) or "") if text.startswith('"') else text


def groups_along(mesh: MeshShape, axes: list[AxisRef]) -> np.ndarray:
    """The devices that differ in ``axes`` alone: int64 ``[groups, devices of one]``.

    In a group the first axis is the most major; groups are in the order of the mesh.
    """
    # One dimension for each part of an axis that is named, or lies between two that are.
    parts: list[tuple[str, int, int]] = []
    for name, size in mesh.axes:
        bounds = {1, size}
        for axis in axes:
            if axis.name == name:
                bounds |= set(axis.bounds(mesh))
        cuts = sorted(bounds)
        parts += [(name, a, b) for a, b in itertools.pairwise(cuts)]
    ids = mesh.device_array().reshape([end // start for _, start, end in parts] or [1])
    named: list[int] = []
    for axis in axes:
        start, end = axis.bounds(mesh)
        named += [
            index
            for index, (name, a, b) in enumerate(parts)
            if name == axis.name and start <= a and b <= end
        ]
    others = [index for index in range(ids.ndim) if index not in named]
    size = int(np.prod([ids.shape[index] for index in named], dtype=np.int64))
    return ids.transpose(*others, *named).reshape(-1, size)
