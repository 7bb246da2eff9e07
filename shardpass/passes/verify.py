"""``sp-verify``: every fault of the annotations, in one run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, sdy, stablehlo

from shardpass.canon import HloSharding, TensorSharding
from shardpass.diagnostics import Note, ShardingError, Sink, SourceLocation
from shardpass.mlir import (
    MHLO_SHARDING,
    SDY_SHARDING,
    EntryValue,
    Shardings,
    argument_attributes,
    arguments_of,
    at_place,
    locate,
    mesh_ops,
    mhlo_shardings,
    num_partitions,
    operations,
    read_mhlo,
    result_attributes,
    results_of,
    where_written,
)
from shardpass.mlir.element_types import static_shape
from shardpass.passes.aliases import check_aliases
from shardpass.passes.base import Look, Pass, Stage
from shardpass.passes.gspmd.frontend_attributes import SHARDING, sdy_entries
from shardpass.passes.gspmd.holders import holders_of
from shardpass.passes.identities import (
    CONSTRAINTS,
    MANUAL_CALLS,
    SHARDING_CALL,
    call_target,
)
from shardpass.passes.manual_regions import check_manual_regions
from shardpass.passes.uneven import report_uneven, uneven_dimensions

#: Ops that declare something, or end a body.
_WITHOUT_VALUES = (sdy.MeshOp, sdy.ReturnOp, func.ReturnOp, stablehlo.ReturnOp)


@dataclass(frozen=True, kw_only=True)
class Verify(Pass):
    """Check every sharding annotation, and change nothing.

    Errors: ``mhlo.sharding`` text that XLA would ignore or abort on (grammar, rank, device count,
    repeated ids), both notations on one value, a dimension of an argument or result that its pieces
    do not divide, a donated argument whose result has another shard shape, ``@Sharding`` calls
    without a sharding, shardings on what is no value, manual regions that are entered and not left.
    Warnings: uneven dimensions inside the program, a donated argument whose result lies otherwise.

    Leaves alone: what Shardy's own verifier checks whenever a module is parsed.
    Order: anywhere; in front of a compile of a module that somebody else wrote.
    """

    name: ClassVar[str] = "sp-verify"

    def stages(self) -> Sequence[Stage]:
        """A look: nothing changes."""
        return (Look(self.run),)

    def run(self, root: ir.Operation, sink: Sink) -> None:
        """Check ``root``."""
        check_annotations(root, sink)


def check_annotations(
    root: ir.Operation, sink: Sink, *, uneven_entries: bool = False, otherwise: str = ""
) -> None:
    """What :class:`Verify` does.

    Args:
      root: the module.
      sink: where to report to.
      uneven_entries: pass over arguments and results that do not divide, and over what donated
        arguments lie like, which the caller checks when he has mended them.
      otherwise: how else than by padding and dropping axes to make them divide, for the help.
    """
    check = _Check(root, sink, uneven_entries=uneven_entries, otherwise=otherwise)
    check.meshes()
    check.misplaced(root)
    for op in operations(root):
        if isinstance(op, func.FuncOp):
            check.function(op)
        else:
            check.op(op)


def _check_device_count(root: ir.Operation, sink: Sink) -> None:
    _Check(root, sink, uneven_entries=False, otherwise="").meshes()


#: Errors: a mesh of another size than the module has partitions, a device that is not there.
REFUSE_OTHER_COUNT = Look(_check_device_count)


@dataclass(frozen=True)
class _Subject:
    """What a message speaks of: ``argument 0 ("w")`` or ``result of stablehlo.add``."""

    text: str
    type: ir.Type
    location: SourceLocation | None
    path: str | None = None


class _Check:
    def __init__(
        self, root: ir.Operation, sink: Sink, *, uneven_entries: bool, otherwise: str
    ) -> None:
        self.root = root
        self.sink = sink
        self.uneven_entries = uneven_entries
        self.otherwise = otherwise
        self.shardings = Shardings(root)
        self.stated_devices = num_partitions(root)
        self._parsed: dict[ir.Attribute, HloSharding | ShardingError] = {}

    @cached_property
    def devices(self) -> int:
        """What the module states, else the most devices that a mesh or a sharding in it is over.

        Single devices count where there is nothing else.
        """
        if self.stated_devices not in (None, 1):
            return self.stated_devices
        meshes = (m.size for m in self.shardings.meshes.values() if not m.is_maximal)
        tiles = [s.tile.size for s in self._mhlo_shardings() if s.tile]
        most = max((*meshes, *tiles), default=1)
        if most > 1:
            return most
        single = (m.device_id for m in self.shardings.meshes.values() if m.is_maximal)
        named = (s.device for s in self._mhlo_shardings())
        return max((d + 1 for d in (*single, *named) if d is not None), default=1)

    def _mhlo_shardings(self) -> Iterator[HloSharding]:
        for attribute in self._mhlo_attributes():
            with contextlib.suppress(ShardingError):  # Reported where its value is checked.
                whole = read_mhlo(attribute)
                yield from whole.elements if whole.is_tuple else (whole,)

    def _mhlo_attributes(self) -> dict[ir.Attribute, None]:
        found: dict[ir.Attribute, None] = {}
        for op in operations(self.root):
            found.update(dict.fromkeys(mhlo_shardings(op)))
            if MHLO_SHARDING in op.attributes:  # Of a function itself, too.
                found[op.attributes[MHLO_SHARDING]] = None
        return found

    def _who_says(self) -> Note | None:
        """Where the number of devices comes from."""
        count = self.devices
        if count == self.stated_devices:
            return Note(f"the module is for {count} devices (mhlo.num_partitions)")
        for op, (name, mesh) in zip(
            mesh_ops(self.root), self.shardings.meshes.items(), strict=True
        ):
            if mesh.size == count and not mesh.is_maximal:
                return Note(f"mesh @{name} ({mesh.describe()}) has {count} devices", locate(op))
        for sharding, holder in holders_of(self.root).items():
            if sharding.tile is not None and sharding.tile.size == count:
                return holder.note(sharding)
        return None

    def meshes(self) -> None:
        """Meshes of another size than the module has partitions, of devices that are not there."""
        for op, mesh in zip(mesh_ops(self.root), self.shardings.meshes.values(), strict=True):
            if mesh.device_id is not None and mesh.device_id >= self.devices:
                told = ShardingError(
                    "device-count",
                    f"{mesh.describe()} is beyond the {self.devices} that there are",
                    location=locate(op),
                    help="put what is on it elsewhere, or make the mesh larger",
                )
                self._report(told, self._who_says())
        if self.stated_devices in (None, 1):
            return
        for op, (name, mesh) in zip(
            mesh_ops(self.root), self.shardings.meshes.items(), strict=True
        ):
            if mesh.size not in (self.stated_devices, 1) and not mesh.is_maximal:
                self.sink.error(
                    "device-count",
                    f"mesh @{name} ({mesh.describe()}) has {mesh.size} devices, and the module is "
                    f"for {self.stated_devices} (mhlo.num_partitions)",
                    location=locate(op),
                    help="make both the same",
                )

    def misplaced(self, op: ir.Operation | ir.OpView) -> None:
        """``mhlo.sharding`` on what has no value to lay out."""
        if MHLO_SHARDING in op.attributes:
            self.sink.error(
                "misplaced-sharding",
                f"{op.operation.name} carries an mhlo.sharding, and has no value that it could lay "
                "out",
                location=locate(op),
                help="put it on an argument, a result or an op that makes a value",
            )

    def function(self, function: func.FuncOp) -> None:
        self.misplaced(function)
        arguments, results = arguments_of(function), results_of(function)
        for value, entries in zip(arguments, argument_attributes(function), strict=True):
            self._entry_value(value, entries, where_written(function, value))
        for value, entries in zip(results, result_attributes(function), strict=True):
            self._entry_value(value, entries, where_written(function, value))
        if not self.uneven_entries:
            check_aliases(function, self._sharding_of_entry, self.sink)
        check_manual_regions(function, self.sink)

    def op(self, op: ir.OpView) -> None:
        attributes = op.attributes
        if isinstance(op, _WITHOUT_VALUES):
            self.misplaced(op)
            return
        if SDY_SHARDING in attributes and MHLO_SHARDING in attributes:
            self._mixed(f"{op.operation.name}", locate(op))
        if MHLO_SHARDING in attributes:
            self._mhlo_of_op(op, attributes[MHLO_SHARDING])
        elif SHARDING not in sdy_entries(attributes) and (
            (target := call_target(op)) == SHARDING_CALL or target in MANUAL_CALLS
        ):
            self.sink.error(
                "missing-sharding",
                f"the custom call @{target} carries no mhlo.sharding",
                location=locate(op),
                help='add mhlo.sharding = "{…}", or remove the call',
            )
        if SDY_SHARDING in attributes:
            placed = self.shardings.read_per_value(attributes[SDY_SHARDING])
            for result, sharding in zip(op.results, placed, strict=False):
                self._inner_divisibility(op, result, sharding)
        elif isinstance(op, CONSTRAINTS):
            sharding = self.shardings.read(attributes["sharding"])
            self._inner_divisibility(op, op.results[0], sharding)

    def _entry_value(
        self, value: EntryValue, entries: ir.DictAttr, place: SourceLocation | None
    ) -> None:
        subject = _Subject(str(value), value.type, place, value.path)
        if SDY_SHARDING in entries and MHLO_SHARDING in entries:
            self._mixed(str(value), place, value.path)
        if SDY_SHARDING in entries:
            self._divides(value, self.shardings.read(entries[SDY_SHARDING]), place)
        if MHLO_SHARDING in entries:
            sharding = self._parse(entries[MHLO_SHARDING], subject)
            if sharding and self._fits(sharding, subject):
                self._divides(value, sharding, place)

    def _mhlo_of_op(self, op: ir.OpView, attribute: ir.Attribute) -> None:
        whole = _Subject(f"{op.operation.name}", ir.NoneType.get(op.context), locate(op))
        sharding = self._parse(attribute, whole)
        if sharding is None:
            return
        parts: Sequence[HloSharding]
        if sharding.is_tuple and len(op.results) != 1:
            parts = sharding.elements
            if len(parts) != len(op.results):
                self.sink.error(
                    "rank-mismatch",
                    f"{op.operation.name} has {len(op.results)} results, and its sharding "
                    f"{sharding} has {len(parts)} elements",
                    location=locate(op),
                    help="give one sharding for each result",
                )
                return
        else:
            parts = [sharding] * max(len(op.results), 1)
        for result, part in zip(op.results, parts, strict=False):
            subject = _Subject(f"the result of {op.operation.name}", result.type, locate(op))
            if self._fits(part, subject):
                self._inner_divisibility(op, result, part)

    def _parse(self, attribute: ir.Attribute, subject: _Subject) -> HloSharding | None:
        found = self._parsed.get(attribute)
        if found is None:
            try:
                found = read_mhlo(attribute)
            except ShardingError as error:
                found = error
            self._parsed[attribute] = found
        if isinstance(found, HloSharding):
            return found
        self.sink.report_error(
            found.about(
                f"{subject.text}: mhlo.sharding cannot be read",
                path=subject.path,
                location=subject.location,
                notes=["XLA would ignore it and run the value unsharded"],
            )
        )
        return None

    def _fits(self, sharding: HloSharding, subject: _Subject) -> bool:
        """Whether rank and device count fit; reports where they do not."""
        rank = subject.type.rank if isinstance(subject.type, ir.RankedTensorType) else None
        if rank is None:
            return True
        try:
            sharding.validate(rank, self.devices)
        except ShardingError as error:
            told = error.about(
                subject.text,
                path=subject.path,
                location=subject.location,
                notes=[f"sharding is {sharding.describe()} on {subject.type}"],
            )
            self._report(told, self._who_says() if error.slug == "device-count" else None)
            return False
        return True

    def _report(self, error: ShardingError, why: Note | None) -> None:
        """Report ``error``, with a note that may have a place of its own."""
        told = error.diagnostic
        if why is not None:
            notes = (at_place(why.message, why.location), *told.notes)
            told = replace(told, notes=notes, attached=(why,) * bool(why.location))
        self.sink.report(told)

    def _divides(
        self,
        value: EntryValue,
        sharding: TensorSharding | HloSharding,
        place: SourceLocation | None,
    ) -> None:
        """Report each dimension of an argument or result that its pieces do not divide."""
        tiles = _tiles(sharding)
        if static_shape(value.type) is None:
            if isinstance(value.type, ir.RankedTensorType) and any(n > 1 for n in tiles):
                self.sink.error(
                    "dynamic-shape",
                    f"{value} is {value.type}: a dimension without a static size cannot be cut",
                    location=place,
                    path=value.path,
                    help="refine the module's shapes first (stablehlo-refine-shapes)",
                )
            return
        if not self.uneven_entries:
            report_uneven(
                value, tiles, _describe(sharding), place, self.sink, otherwise=self.otherwise
            )

    def _inner_divisibility(
        self, op: ir.OpView, result: ir.Value, sharding: TensorSharding | HloSharding
    ) -> None:
        shape = static_shape(result.type)
        if shape is None:
            return
        for dimension, size, pieces in uneven_dimensions(shape, _tiles(sharding)):
            self.sink.warning(
                "indivisible",
                f"the result of {op.operation.name}, dimension {dimension}: {size} elements into "
                f"{pieces} pieces, so XLA pads each device's piece",
                location=locate(op),
                notes=[f"sharding is {_describe(sharding)}"],
                help=f"a size of {size + -size % pieces} needs no padding",
            )

    def _sharding_of_entry(
        self, value: EntryValue, entries: ir.DictAttr
    ) -> TensorSharding | HloSharding | None:
        """The sharding of an argument or result that can be read and fits, or ``None``."""
        if SDY_SHARDING in entries:
            return self.shardings.read(entries[SDY_SHARDING])
        if MHLO_SHARDING not in entries or not value.is_tensor:
            return None
        found = self._parsed.get(entries[MHLO_SHARDING])
        if not isinstance(found, HloSharding) or found.rank not in (None, len(value.sizes)):
            return None
        return found

    def _mixed(self, what: str, place: SourceLocation | None, path: str | None = None) -> None:
        self.sink.error(
            "mixed-notations",
            f"{what} carries both sdy.sharding and mhlo.sharding",
            location=place,
            path=path,
            help="remove one; XLA would take sdy.sharding and ignore the other",
        )


def _tiles(sharding: TensorSharding | HloSharding) -> tuple[int, ...]:
    return sharding.tiles() if isinstance(sharding, TensorSharding) else sharding.data_tiles


def _describe(sharding: TensorSharding | HloSharding) -> str:
    if isinstance(sharding, TensorSharding):
        return f"{sharding.dims_text()} on mesh {sharding.mesh.describe()}"
    return str(sharding)
