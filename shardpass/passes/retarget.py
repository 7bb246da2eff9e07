"""``sp-retarget``: the same program for another mesh, or another number of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func

from shardpass.canon import AxisRef, MeshShape, TensorSharding
from shardpass.canon.retargeting import axis_on, retargeted, uncut
from shardpass.canon.shapes import sizes_that_fit
from shardpass.diagnostics import Diagnostic, Severity, ShardingError, Sink
from shardpass.mlir import (
    SDY_SHARDING,
    EntryValue,
    Shardings,
    collect,
    free_mesh_name,
    locate,
    meshes_of,
    num_partitions,
    set_num_partitions,
)
from shardpass.partition_rules.mesh_text import parse_mesh
from shardpass.passes.aliases import check_aliases
from shardpass.passes.base import Pass, Stage, option
from shardpass.passes.identities import COLLECTIVES
from shardpass.passes.meshes.baked_devices import report_baked_devices
from shardpass.passes.meshes.mesh_plan import (
    mesh_option,
    replace_meshes,
    spoken_of,
    symbol_of,
    tell_of_dropped_notes,
    where_declared,
)
from shardpass.passes.meshes.respell import Respell, Role, Said, Subject
from shardpass.passes.option_text import one_of
from shardpass.passes.shardy.survey import REFUSE_GSPMD

#: Values that have to stay as they are cut, since ops around them rely on it.
_FIXED = (Role.REGION, Role.COLLECTIVE)


@dataclass(frozen=True, kw_only=True)
class Retarget(Pass):
    """Put the program on another mesh, and keep what its shardings mean by the names of axes.

    What was cut along ``data`` is cut along ``data``, into as many pieces as that now has. The mesh
    of the module becomes the one of the option, under its symbol, and ``mhlo.num_partitions`` its
    size, which is where ``jax.export`` keeps the number of devices that it never lets go.

    Leaves alone: the shapes and the ops; meshes of single devices and without axes; axes of the new
    mesh that no sharding uses, which cut nothing.
    Reported: a dimension without a static size that is cut, since nobody can say whether it
    divides; an order of devices that the old mesh had (``device_ids``), which goes.
    An error: dimensions that divided and do not any more, and axes in use that the new mesh has
    not, or not the parts of; both can be left whole instead (see the options). Always an error is
    what the old number of devices is baked into: a manual computation over an axis that changes
    its size, a list of devices in a collective, ``stablehlo.partition_id``; a device that is not
    there any more; a donated argument whose result has shards of another size now; meshes that are
    not one (``sp-merge-meshes`` is for that); a module in GSPMD's notation.
    Order: before ``sp-propagate``, or behind it, where what propagation found is carried over.
    """

    name: ClassVar[str] = "sp-retarget"
    is_for_gradients: ClassVar[bool] = True

    mesh: Any = option(None, help="the new mesh, as data=4,model=2", parse=parse_mesh)
    indivisible: str = option(
        "error",
        help="error: refuse a dimension that no longer divides; replicate: leave it whole",
        parse=one_of("error", "replicate"),
    )
    missing: str = option(
        "error",
        help="error: refuse an axis in use that the new mesh has not; replicate: leave whole what "
        "it cuts",
        parse=one_of("error", "replicate"),
    )

    def stages(self) -> Sequence[Stage]:
        """The retargeting, on modules in Shardy's notation."""
        return (REFUSE_GSPMD, self.run)

    def run(self, root: ir.Operation, sink: Sink) -> None:
        """Retarget ``root``."""
        new = mesh_option(self.mesh, self.name)
        declared = meshes_of(root)
        shapes = list(dict.fromkeys([*declared.values(), *spoken_of(root)]))
        grids = [mesh for mesh in shapes if mesh.axes]
        _check_one_mesh(root, declared, grids, sink)
        _check_single_devices(root, declared, shapes, new, sink)
        if sink.has_errors:
            return
        if not grids:
            sink.remark(
                "mesh-mismatch",
                f"the module has no mesh: it is now for {new.size} devices, each of which does all",
                help="say what is cut along which axis: sp-annotate",
            )
            set_num_partitions(root, new.size)
            return
        old = grids[0]
        _check_count(root, declared, old, sink)
        if sink.has_errors or old == new:
            return
        symbol = symbol_of(declared, old) or free_mesh_name(root)
        speller = _ByName(
            old,
            new,
            symbol,
            may_stay_whole=self.indivisible == "replicate",
            may_miss=self.missing == "replicate",
        )
        reports = _Reports(sink)
        respell = Respell(root, speller, reports.add)
        respell.collect()
        reports.finish()
        report_baked_devices(root, sink)
        if speller.left_whole:
            _refuse_collectives(root, sink)
        if sink.has_errors:
            return
        if old.device_ids is not None:
            sink.warning(
                "device-order",
                f"the mesh {old.describe()} lists its devices in an order of its own, which goes "
                "with it",
                location=where_declared(root, declared, old),
                help="give the new mesh device_ids (from Python), if that order matters",
            )
        respell.apply()
        replace_meshes(root, {old: symbol}, {symbol: new})
        tell_of_dropped_notes(respell.dropped_notes, sink)
        set_num_partitions(root, new.size)
        _check_aliases(root, sink)


class _ByName:
    """A speller that goes by the names of axes."""

    by_type = True
    renames = True

    def __init__(
        self, old: MeshShape, new: MeshShape, symbol: str, *, may_stay_whole: bool, may_miss: bool
    ) -> None:
        self._old = old
        self._new = new
        self._symbol = symbol
        self._may_stay_whole = may_stay_whole
        self._may_miss = may_miss
        #: Whether anything that was cut is not any more.
        self.left_whole = False

    def symbol(self, mesh: MeshShape) -> str | None:
        return self._symbol if mesh == self._old else None

    def value(self, sharding: TensorSharding, kind: ir.Type | None, role: Role) -> Said:
        may_miss = self._may_miss and role not in _FIXED
        anew, missing = retargeted(sharding, self._new, drop=may_miss)
        self.left_whole = self.left_whole or bool(missing)
        faults = [_as_warning(fault, f"{fault.message}, and cuts nothing now") for fault in missing]
        if isinstance(kind, ir.RankedTensorType):
            uneven = self._uneven(sharding, anew, kind, role)
            if uneven and self._may_stay_whole and role not in _FIXED:
                faults += [_as_warning(f, f"{f.message}, so it stays whole") for _, f in uneven]
                anew = uncut(anew, [dimension for dimension, _ in uneven])
                self.left_whole = True
            else:
                faults += [fault for _, fault in uneven]
            faults += _unknown(anew, kind)
        return anew, [] if role is Role.OP and not _is_error(faults) else faults

    def _uneven(
        self, before: TensorSharding, after: TensorSharding, kind: ir.RankedTensorType, role: Role
    ) -> list[tuple[int, Diagnostic]]:
        """The dimensions that the new pieces do not divide, and what that is as an error.

        XLA pads what is uneven inside a program; what was uneven there already may be.
        """
        found: list[tuple[int, Diagnostic]] = []
        for index, (old, new) in enumerate(zip(before.tiles(), after.tiles(), strict=True)):
            if kind.is_dynamic_dim(index):
                continue
            size = kind.get_dim_size(index)
            if size % new == 0 or (size % old and role is not Role.ENTRY):
                continue
            otherwise = "" if role in _FIXED else ", or leave it whole: indivisible=replicate"
            fault = Diagnostic(
                Severity.ERROR,
                "indivisible",
                f", dimension {index}: {size} elements into {new} pieces",
                notes=(f"sharding is {after.dims_text()} on mesh {after.mesh.describe()}",),
                help=sizes_that_fit(size, new) + otherwise,
            )
            found.append((index, fault))
        return found

    def axes(self, mesh: MeshShape, axes: Sequence[AxisRef]) -> tuple[AxisRef, ...]:
        return tuple(axis_on(axis, mesh, self._new) for axis in axes)

    def axis_set(self, mesh: MeshShape, axes: Sequence[AxisRef]) -> tuple[AxisRef, ...]:
        new = self._new
        found = self.axes(mesh, axes)
        return tuple(sorted(found, key=lambda a: (new.axis_index(a.name), a.bounds(new)[0])))

    def manual_axes(self, mesh: MeshShape, names: Sequence[str]) -> tuple[str, ...]:
        sizes = dict(self._new.axes)
        changed = [
            f'"{name}", whose size goes from {size} to {sizes.get(name, 1)}'
            for name in names
            if (size := mesh.axis_size(name)) != sizes.get(name, 1)
        ]
        if changed:
            raise ShardingError(
                "not-supported",
                f"the region is manual over {' and '.join(changed)}: its body is written for the "
                "shapes of one device",
                help="keep these sizes, or lower the program for the new mesh",
            )
        return tuple(sorted((name for name in names if name in sizes), key=self._new.axis_index))


class _Reports:
    """What is said of the results of ops once for each fault, with their number: there are many."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._of_ops: dict[Diagnostic, tuple[Diagnostic, int]] = {}

    def add(self, role: Role, subject: Subject, fault: Diagnostic) -> None:
        if role is not Role.OP:
            self._sink.report(subject.has(fault))
        elif fault in self._of_ops:
            first, more = self._of_ops[fault]
            self._of_ops[fault] = first, more + 1
        else:
            self._of_ops[fault] = subject.has(fault), 0

    def finish(self) -> None:
        for first, more in self._of_ops.values():
            note = f"and so for {more} more value{'s' if more > 1 else ''} inside"
            self._sink.report(replace(first, notes=(*first.notes, *[note] * bool(more))))


def _as_warning(fault: Diagnostic, message: str) -> Diagnostic:
    return replace(fault, severity=Severity.WARNING, message=message, help=None)


def _is_error(faults: Sequence[Diagnostic]) -> bool:
    return any(fault.severity is Severity.ERROR for fault in faults)


def _unknown(sharding: TensorSharding, kind: ir.RankedTensorType) -> list[Diagnostic]:
    """What cannot be checked, since its size is not known."""
    return [
        Diagnostic(
            Severity.WARNING,
            "dynamic-shape",
            f", dimension {index}: whether its size, which is not static, goes into {pieces} "
            "pieces is not known",
            help="refine the module's shapes first, to have it checked",
        )
        for index, pieces in enumerate(sharding.tiles())
        if pieces > 1 and kind.is_dynamic_dim(index)
    ]


def _check_one_mesh(
    root: ir.Operation, declared: Mapping[str, MeshShape], grids: Sequence[MeshShape], sink: Sink
) -> None:
    if len(grids) > 1:
        sink.error(
            "mesh-mismatch",
            f"the module has several meshes, {grids[0].describe()} and {grids[1].describe()} among "
            "them, and one is to take their place",
            location=where_declared(root, declared, grids[1]),
            help="make them one first: sp-merge-meshes",
        )


def _check_single_devices(
    root: ir.Operation,
    declared: Mapping[str, MeshShape],
    shapes: Sequence[MeshShape],
    new: MeshShape,
    sink: Sink,
) -> None:
    for mesh in shapes:
        if mesh.device_id is None or mesh.device_id < new.size:
            continue
        sink.error(
            "device-count",
            f"values are on device {mesh.device_id}, and {new.describe()} has {new.size} devices",
            location=where_declared(root, declared, mesh),
            help="put them elsewhere first",
        )


def _check_count(
    root: ir.Operation, declared: Mapping[str, MeshShape], mesh: MeshShape, sink: Sink
) -> None:
    stated = num_partitions(root)
    if stated in (None, 1, mesh.size):
        return
    sink.error(
        "device-count",
        f"the mesh {mesh.describe()} has {mesh.size} devices, and the module is for {stated} "
        "(mhlo.num_partitions)",
        location=where_declared(root, declared, mesh),
        help="make both the same",
    )


def _check_aliases(root: ir.Operation, sink: Sink) -> None:
    """Report donated buffers whose new owner has shards of another size now."""
    shardings = Shardings(root)

    def sharding_of(value: EntryValue, entries: ir.DictAttr) -> TensorSharding | None:
        return shardings.read(entries[SDY_SHARDING]) if SDY_SHARDING in entries else None

    for function in collect(root, func.FuncOp):
        check_aliases(function, sharding_of, sink)


def _refuse_collectives(root: ir.Operation, sink: Sink) -> None:
    for op in collect(root, *COLLECTIVES):
        sink.error(
            "not-supported",
            f"{op.operation.name} says how to go from one sharding to another, and some axes cut "
            "nothing now",
            location=locate(op),
            help="retarget what the collectives were made from",
        )
