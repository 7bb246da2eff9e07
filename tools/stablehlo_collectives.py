"""StableHLO's collective ops, one process of a grid at a time.

What each op does is the StableHLO specification's; the values are put together by the reference
interpreter, so that every element type works.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from device_grid import Grid, Process
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo
from native_evaluation import evaluate_built, evaluate_text

from shardpass.canon import AxisRef, MeshShape
from shardpass.passes.meshes.replica_groups import groups_along


class InterpretError(Exception):
    """What the interpreter cannot or must not run, with where it stands."""

    def __init__(self, op: ir.Operation | ir.OpView, message: str) -> None:
        super().__init__(f"{_place(op.location)}: {op.operation.name}: {message}")


@dataclass(frozen=True)
class Place:
    """The process that runs a program, and the grid that it is part of."""

    grid: Grid
    process: Process


def replica_id(op: ir.OpView, operands: Sequence[ir.Attribute], at: Place) -> list[ir.Attribute]:
    """The number of the process's replica."""
    return [ir.Attribute.parse(f"dense<{at.process[0]}> : tensor<ui32>", op.context)]


def partition_id(op: ir.OpView, operands: Sequence[ir.Attribute], at: Place) -> list[ir.Attribute]:
    """The number of the process's partition."""
    return [ir.Attribute.parse(f"dense<{at.process[1]}> : tensor<ui32>", op.context)]


def all_gather(op: ir.OpView, operands: Sequence[ir.Attribute], at: Place) -> list[ir.Attribute]:
    """Each operand of all processes of the group, side by side along ``all_gather_dim``."""
    group, given = _exchange(op, operands, at, _reduction_groups)
    dimension = _integer(op, "all_gather_dim")
    return [
        _concatenate([given[member][place] for member in group], dimension, result.type)
        for place, result in enumerate(op.results)
    ]


def all_reduce(op: ir.OpView, operands: Sequence[ir.Attribute], at: Place) -> list[ir.Attribute]:
    """Each operand of all processes of the group, put together elementwise by the op's region."""
    group, given = _exchange(op, operands, at, _reduction_groups)
    return [
        _reduce(op, [given[member][place] for member in group]) for place in range(len(operands))
    ]


def reduce_scatter(
    op: ir.OpView, operands: Sequence[ir.Attribute], at: Place
) -> list[ir.Attribute]:
    """As :func:`all_reduce`; then the process's own piece along ``scatter_dimension``."""
    group, given = _exchange(op, operands, at, _reduction_groups)
    whole = _reduce(op, [given[member][0] for member in group])
    pieces = _split(whole, _integer(op, "scatter_dimension"), len(group), op.results[0].type)
    return [pieces[group.index(at.process)]]


def all_to_all(op: ir.OpView, operands: Sequence[ir.Attribute], at: Place) -> list[ir.Attribute]:
    """The process's own piece of each operand of the group, put together another way."""
    group, given = _exchange(op, operands, at, _exchange_groups)
    count, mine = _integer(op, "split_count"), group.index(at.process)
    if count != len(group):
        raise InterpretError(op, f"split_count is {count}, and {len(group)} are in the group")
    split_at, concat_at = _integer(op, "split_dimension"), _integer(op, "concat_dimension")
    results: list[ir.Attribute] = []
    for place, result in enumerate(op.results):
        whole = ir.RankedTensorType(_type(operands[place]))
        shape = list(whole.shape)
        shape[split_at] //= count
        written = "x".join(map(str, [*shape, whole.element_type]))
        piece = ir.Type.parse(f"tensor<{written}>", op.context)
        pieces = [_split(given[member][place], split_at, count, piece)[mine] for member in group]
        results.append(_concatenate(pieces, concat_at, result.type))
    return results


def collective_broadcast(
    op: ir.OpView, operands: Sequence[ir.Attribute], at: Place
) -> list[ir.Attribute]:
    """The operand of the first process of the group; zeros where no group has the process."""
    groups = _exchange_groups(op, at.grid, _rows(op, "replica_groups"))
    group = _group_of(at.process, groups)
    if group is None:
        return [_zeros(result.type) for result in op.results]
    given = at.grid.exchange(_key(op), group, at.process, list(operands))
    return given[group[0]]


def collective_permute(
    op: ir.OpView, operands: Sequence[ir.Attribute], at: Place
) -> list[ir.Attribute]:
    """The operand of the process that sends to this one; zeros where none does."""
    pairs = _exchange_groups(op, at.grid, _rows(op, "source_target_pairs"))
    # All processes come, since one may send to another and hear from a third.
    given = at.grid.exchange(_key(op), at.grid.processes, at.process, list(operands))
    for source, target in pairs:
        if target == at.process:
            return given[source]
    return [_zeros(result.type) for result in op.results]


#: What an op of this name gives a process, from its operands.
COLLECTIVES: dict[str, Callable[[ir.OpView, Sequence[ir.Attribute], Place], list[ir.Attribute]]] = {
    f"stablehlo.{function.__name__}": function
    for function in (
        all_gather,
        all_reduce,
        all_to_all,
        collective_broadcast,
        collective_permute,
        partition_id,
        reduce_scatter,
        replica_id,
    )
}

#: How jaxlib 0.12 and newer write groups, the mesh of which sdy-inline-meshes puts into them.
_MESH = re.compile(
    r"#stablehlo\.mesh<axes ?= ?\[(?P<axes>.*?)\](?:, device_ids ?= ?dense<\[(?P<ids>[\d, ]*)\]>)?"
)
_MESH_AXIS = re.compile(r'<name = "(?P<name>[^"]*)", size = (?P<size>\d+)>')
_AXIS = re.compile(
    r'#stablehlo\.axis_ref<name = "(?P<name>[^"]*)"'
    r"(?:, sub_axis_info = \((?P<pre_size>\d+)\)(?P<size>\d+))?>"
)

_Grouping = Callable[[ir.OpView, Grid, list[list[int]]], list[list[Process]]]


def _reduction_groups(op: ir.OpView, grid: Grid, rows: list[list[int]]) -> list[list[Process]]:
    """How all-gather, all-reduce and reduce-scatter read their replica groups."""
    if _channel(op) <= 0:
        return grid.cross_replica(rows)
    if "use_global_device_ids" in op.attributes:
        return grid.flattened(rows)
    return grid.cross_replica_and_partition(rows)


def _exchange_groups(op: ir.OpView, grid: Grid, rows: list[list[int]]) -> list[list[Process]]:
    """How all-to-all, broadcast and permute read their groups or pairs."""
    return grid.cross_replica(rows) if _channel(op) <= 0 else grid.cross_partition(rows)


def _exchange(
    op: ir.OpView, operands: Sequence[ir.Attribute], at: Place, grouping: _Grouping
) -> tuple[list[Process], dict[Process, list[ir.Attribute]]]:
    rows = _rows(op, "replica_groups")
    if not rows and grouping is _reduction_groups:
        # No groups: one, of all.
        everyone = range(at.grid.replicas * at.grid.partitions)
        is_flat = "use_global_device_ids" in op.attributes
        rows = [list(everyone if is_flat else range(at.grid.replicas))]
    group = _group_of(at.process, grouping(op, at.grid, rows))
    if group is None:
        raise InterpretError(op, f"no group has process {at.process}")
    return group, at.grid.exchange(_key(op), group, at.process, list(operands))


def _group_of(process: Process, groups: list[list[Process]]) -> list[Process] | None:
    return next((group for group in groups if process in group), None)


def _key(op: ir.OpView) -> str:
    return f"{op.operation.name} of channel {_channel(op)}"


def _channel(op: ir.OpView) -> int:
    if "channel_handle" not in op.attributes:
        return 0
    return stablehlo.ChannelHandle(op.attributes["channel_handle"]).handle


def _rows(op: ir.OpView, name: str) -> list[list[int]]:
    """Rows of ids; rows shorter than others are filled up with -1."""
    groups = op.attributes[name]
    if isinstance(groups, ir.DenseIntElementsAttr):
        rows = np.array(groups)
    else:
        rows = _along_axes(str(groups))
    if rows is None:
        raise InterpretError(op, f"{name} are neither ids nor axes of a mesh: {groups}")
    return [[int(number) for number in row if number >= 0] for row in rows]


def _along_axes(text: str) -> np.ndarray | None:
    """The groups of ``#stablehlo.replica_group_mesh_axes`` with a mesh written out in it."""
    mesh = _MESH.search(text)
    if mesh is None:
        return None
    sizes = [(axis["name"], int(axis["size"])) for axis in _MESH_AXIS.finditer(mesh["axes"])]
    ids = [int(number) for number in (mesh["ids"] or "").split(",") if number.strip()]
    axes = [
        AxisRef(axis["name"], *(int(number) if number else None for number in axis.groups()[1:]))
        for axis in _AXIS.finditer(text)
    ]
    return groups_along(MeshShape(tuple(sizes), tuple(ids) if ids else None), axes)


def _integer(op: ir.OpView, name: str) -> int:
    return ir.IntegerAttr(op.attributes[name]).value


def _type(value: ir.Attribute) -> ir.Type:
    return ir.DenseElementsAttr(value).type


def _zeros(wanted: ir.Type) -> ir.Attribute:
    element = ir.RankedTensorType(wanted).element_type
    body = (
        f"%0 = stablehlo.convert %a0 : (tensor<i1>) -> tensor<{element}>\n"
        f"%1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<{element}>) -> {wanted}\n"
        f"return %1 : {wanted}"
    )
    false = ir.Attribute.parse("dense<false> : tensor<i1>", wanted.context)
    return evaluate_text(body, [false], [str(wanted)])[0]


def _concatenate(parts: Sequence[ir.Attribute], dimension: int, wanted: ir.Type) -> ir.Attribute:
    names = ", ".join(f"%a{place}" for place in range(len(parts)))
    types = ", ".join(str(_type(part)) for part in parts)
    body = (
        f"%0 = stablehlo.concatenate {names}, dim = {dimension} : ({types}) -> {wanted}\n"
        f"return %0 : {wanted}"
    )
    return evaluate_text(body, parts, [str(wanted)])[0]


def _split(whole: ir.Attribute, dimension: int, count: int, piece: ir.Type) -> list[ir.Attribute]:
    """``count`` pieces of one type along a dimension."""
    kind = _type(whole)
    size = ir.RankedTensorType(piece).shape[dimension]
    lines: list[str] = []
    for number in range(count):
        bounds = [f"0:{extent}" for extent in ir.RankedTensorType(kind).shape]
        bounds[dimension] = f"{number * size}:{(number + 1) * size}"
        lines.append(f"%{number} = stablehlo.slice %a0 [{', '.join(bounds)}] : ({kind}) -> {piece}")
    types = [str(piece)] * count
    names = ", ".join(f"%{number}" for number in range(count))
    body = "\n".join([*lines, f"return {names} : {', '.join(types)}"])
    return evaluate_text(body, [whole], types)


def _reduce(op: ir.OpView, parts: Sequence[ir.Attribute]) -> ir.Attribute:
    """All parts, one after the other, through the op's region at each element."""
    kind = ir.RankedTensorType(_type(parts[0]))

    def build(values: Sequence[ir.Value]) -> list[ir.Value]:
        so_far = values[0]
        for value in values[1:]:
            step = ir.Operation.create(
                "stablehlo.map",
                [kind],
                [so_far, value],
                {"dimensions": ir.DenseI64ArrayAttr.get(range(kind.rank))},
                regions=1,
            )
            copy = op.operation.clone(ir.InsertionPoint(step))
            copy.regions[0].blocks[0].append_to(step.regions[0])
            copy.erase()
            so_far = step.results[0]
        return [so_far]

    return evaluate_built(build, parts, [kind], op.context)[0]


def _place(location: ir.Location) -> str:
    return str(location).removeprefix("loc(").removesuffix(")").replace('"', "")
