"""What can be known to go wrong before XLA is asked, and which partitioner a module needs.

XLA answers bad input in three ways: with an error, with silence (a garbage ``mhlo.sharding`` string
compiles, unsharded), and by ending the process (``mhlo.sharding`` on arguments under Shardy). The
second and third are why this comes first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, sdy

from shardpass.canon import HloKind, HloSharding, SubgroupType
from shardpass.diagnostics import ShardingError, Sink, SourceLocation
from shardpass.mlir import (
    MHLO_SHARDING,
    NUM_PARTITIONS,
    SDY_SHARDING,
    CallGraph,
    EntryValue,
    Module,
    Shardings,
    argument_attributes,
    arguments_of,
    count_of,
    locate,
    meshes_of,
    num_partitions,
    operations,
    read_mhlo,
    result_attributes,
    results_of,
)
from shardpass.mlir.element_types import tensor_bytes
from shardpass.runtime.foreign_forms import ForeignForms

Partitioner = Literal["shardy", "gspmd"]
PartitionerChoice = Literal["auto", "shardy", "gspmd"]

_MOST_BYTES: Final = 2**63
_NUM_REPLICAS: Final = "mhlo.num_replicas"
#: Custom calls that hold a pointer into the process that lowered them.
_CALLBACK: Final = re.compile(r"python_(cpu|gpu)_callback")


@dataclass(frozen=True)
class Notations:
    """Where each notation is first met: the description of a value or an op, or ``None``."""

    sdy: str | None
    mhlo: str | None

    @classmethod
    def of(cls, root: ir.Operation) -> Notations:
        """Look through a whole module."""
        found: dict[str, str] = {}
        for op in operations(root):
            name = op.operation.name
            attributes = op.attributes
            if name == "func.func":
                for notation, where in _of_function(op):
                    found.setdefault(notation, where)
            if SDY_SHARDING in attributes:
                found.setdefault("sdy", f"{name} has {SDY_SHARDING}")
            elif name.startswith("sdy.") and not isinstance(op, _NEUTRAL):
                found.setdefault("sdy", f"there is an {name}")
            if MHLO_SHARDING in attributes:
                found.setdefault("mhlo", f"{name} has {MHLO_SHARDING}")
            if len(found) == 2:
                break
        return cls(found.get("sdy"), found.get("mhlo"))


#: Ops of the dialect that say nothing about where a value lies.
_NEUTRAL: Final = (sdy.MeshOp, sdy.ConstantOp, sdy.ReturnOp)


def _of_function(op: ir.OpView) -> Iterator[tuple[str, str]]:
    symbol = ir.StringAttr(op.attributes["sym_name"]).value
    for kind, attributes in (("argument", "arg_attrs"), ("result", "res_attrs")):
        if attributes not in op.attributes:
            continue
        for index, entries in enumerate(ir.ArrayAttr(op.attributes[attributes])):
            for notation, name in (("sdy", SDY_SHARDING), ("mhlo", MHLO_SHARDING)):
                if name in ir.DictAttr(entries):
                    yield notation, f"{kind} {index} of @{symbol} has {name}"


def choose_partitioner(module: Module, asked: PartitionerChoice) -> Partitioner:
    """The partitioner that understands what ``module`` says.

    ``auto`` takes Shardy for Shardy's notation and for none, GSPMD for ``mhlo.sharding``.

    Raises:
      ShardingError: ``partitioner``, if the module speaks both notations, or one that the
        partitioner asked for would ignore, refuse or die of, depending on the version.
    """
    if asked not in ("auto", "shardy", "gspmd"):
        raise ShardingError(
            "partitioner", f'there is no partitioner "{asked}"', help='"auto", "shardy" or "gspmd"'
        )
    found = Notations.of(module.root)
    if found.sdy and found.mhlo:
        raise ShardingError(
            "partitioner",
            f"{module.name} speaks two notations, and no partitioner reads both",
            notes=[found.sdy, found.mhlo],
            help="sp-strip takes all of it away, to start afresh; where no value carries both, "
            "sp-export-mhlo writes all of it as mhlo.sharding",
        )
    if found.mhlo and asked == "shardy":
        raise ShardingError(
            "partitioner",
            f"Shardy cannot run {module.name}, which is annotated with mhlo.sharding",
            notes=[found.mhlo],
            help="use GSPMD: partitioner gspmd, or auto",
        )
    if found.sdy and asked == "gspmd":
        raise ShardingError(
            "partitioner",
            f"GSPMD cannot run {module.name}, which is annotated in Shardy's notation",
            notes=[found.sdy],
            help="rewrite it with sp-export-mhlo first, or use Shardy",
        )
    if asked == "auto":
        return "gspmd" if found.mhlo else "shardy"
    return asked


def device_count(module: Module) -> int:
    """How many devices the module was annotated for, 1 where it does not say."""
    root = module.root
    meshes = [mesh.size for mesh in meshes_of(root).values() if mesh.axes]
    stated = [num_partitions(root) or 1]
    if not meshes and stated == [1]:
        stated += [_devices_in(text) for text in _mhlo_attributes(root)]
    return max([*stated, *meshes])


def unevenly_annotated(module: Module) -> set[int]:
    """The arguments that are cut, in Shardy's notation, along a dimension that does not divide.

    XLA takes such an argument whole and cuts it inside the program.
    """
    shardings = Shardings(module.root)
    found: set[int] = set()
    for value, entries in zip(module.arguments, argument_attributes(module.main), strict=True):
        if SDY_SHARDING in entries:
            tiles = shardings.read(entries[SDY_SHARDING]).tiles()
            if any(size % tile for size, tile in zip(value.shape, tiles, strict=False)):
                found.add(value.index)
    return found


def _devices_in(attribute: ir.Attribute) -> int:
    try:
        return read_mhlo(attribute).num_devices or 1
    except ShardingError:
        return 1  # `check_before_compiling` speaks of it.


def _mhlo_attributes(root: ir.Operation) -> Iterator[ir.Attribute]:
    for op in operations(root):
        if MHLO_SHARDING in op.attributes:
            yield op.attributes[MHLO_SHARDING]
        if isinstance(op, func.FuncOp):
            for entries in [*argument_attributes(op), *result_attributes(op)]:
                if MHLO_SHARDING in entries:
                    yield entries[MHLO_SHARDING]


def check_before_compiling(module: Module, devices: int) -> None:
    """Report everything about ``module`` that would not compile, or silently not be heeded.

    Raises:
      ShardingError: ``dynamic-shape``, ``device-count``, ``not-supported``, or what
        :meth:`HloSharding.parse` and :meth:`HloSharding.validate` say about a text, all at once.
    """
    sink = Sink()
    try:
        CallGraph.of(module.root).check()
    except ShardingError as error:
        sink.report_error(error)
    _check_entry(module, sink)
    _check_entry_layouts(module, devices, sink)
    for name, mesh in meshes_of(module.root).items():
        if mesh.axes and mesh.size != devices:
            sink.error(
                "device-count",
                f"mesh @{name} ({mesh.describe()}) has {mesh.size} devices, the run has {devices}",
                help=f"run on {mesh.size} devices, or shard for a mesh of {devices}",
            )
    stated = num_partitions(module.root) or 1
    if stated not in (1, devices):
        sink.error(
            "device-count",
            f"the module says {NUM_PARTITIONS} = {stated}, the run has {devices} devices",
            help=f"run on {stated} devices, or shard the unannotated module for {devices}",
        )
    replicas = count_of(module.root, _NUM_REPLICAS) or 1
    if replicas != 1:
        sink.error(
            "not-supported",
            f"the module is for {replicas} replicas; only partitions of one replica are run",
            help="write data parallelism as a mesh axis instead of replicas",
        )
    _check_ops(module, devices, sink)
    if sink.has_errors:
        raise ShardingError.of([module.place(d) for d in sink])


def _check_entry(module: Module, sink: Sink) -> None:
    for value in [*module.arguments, *module.results]:
        if not value.is_tensor:
            sink.error(
                "not-supported",
                f"{value} is {value.type}, which cannot be handed in or out",
                path=value.path,
            )
        elif not ir.RankedTensorType(value.type).has_static_shape:
            sink.error(
                "dynamic-shape",
                f"{value} is {value.type}: it has a dimension without a static size",
                path=value.path,
                help="export the module for concrete shapes, or refine them first",
            )


def _check_entry_layouts(module: Module, devices: int, sink: Sink) -> None:
    """Report layouts that no array outside of a program has; XLA dies of some of them."""
    shardings = Shardings(module.root)
    for value, entries in _with_attributes(module.main):
        found: str | None = None
        if MHLO_SHARDING in entries:
            found = _outlandish_mhlo(entries[MHLO_SHARDING], devices)
        elif SDY_SHARDING in entries:
            sharding = shardings.read(entries[SDY_SHARDING])
            if sharding.unreduced or (sharding.mesh.is_maximal and devices > 1):
                found = str(sharding)
        if found is not None:
            sink.error(
                "not-supported",
                f"{value} is laid out as {found}",
                path=value.path,
                location=locate(module.main),
                help="lay it out tiled or replicated: only so can arrays be handed in and out",
            )


def _outlandish_mhlo(attribute: ir.Attribute, devices: int) -> str | None:
    """The text of a sharding that is manual, unreduced, or one device's among several."""
    try:
        sharding = read_mhlo(attribute)
    except ShardingError:
        return None  # `_check_ops` speaks of it.
    manual = sharding.kind is HloKind.MANUAL or SubgroupType.MANUAL in sharding.subgroup_types
    maximal = sharding.kind is HloKind.MAXIMAL and devices > 1
    return str(sharding) if manual or maximal or sharding.is_partial else None


def _check_ops(module: Module, devices: int, sink: Sink) -> None:
    checked = _MhloTexts(devices, sink)
    countable = _Countable(sink)
    foreign = ForeignForms()
    for op in operations(module.root):
        foreign.look(op)
        name = op.operation.name
        for result in op.results:
            countable.check(result.type, f"the result of {name}", locate(op))
        if name == "stablehlo.custom_call":
            target = ir.StringAttr(op.attributes["call_target_name"]).value
            if _CALLBACK.search(target):
                sink.error(
                    "not-supported",
                    f"@{target} calls back into the Python process that lowered the module",
                    location=locate(op),
                    help="export the module without jax.debug and host callbacks",
                )
        if MHLO_SHARDING in op.attributes:
            types = [result.type for result in op.results]
            checked.check(op.attributes[MHLO_SHARDING], types, name, locate(op))
        if isinstance(op, func.FuncOp):
            for value, entries in _with_attributes(op):
                if MHLO_SHARDING in entries:
                    text = entries[MHLO_SHARDING]
                    checked.check(text, [value.type], str(value), locate(op), value.path)
                countable.check(value.type, str(value), locate(op), value.path)
    foreign.report(module.root, sink)


class _Countable:
    """Checks that XLA can count the elements of a type; it counts in 64 bits and aborts else."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._seen: set[ir.Type] = set()

    def check(
        self, kind: ir.Type, what: str, location: SourceLocation | None, path: str | None = None
    ) -> None:
        """Report ``kind``, where it is first met and holds too much."""
        if kind in self._seen:
            return
        self._seen.add(kind)
        if not isinstance(kind, ir.RankedTensorType) or not kind.has_static_shape:
            return
        size = tensor_bytes(kind)
        if size >= _MOST_BYTES:
            self._sink.error(
                "not-supported",
                f"{what} is {kind}: {size} bytes, more than the {_MOST_BYTES - 1} that XLA counts",
                path=path,
                location=location,
                help="export the module for smaller shapes",
            )


def _with_attributes(function: func.FuncOp) -> Iterator[tuple[EntryValue, ir.DictAttr]]:
    yield from zip(arguments_of(function), argument_attributes(function), strict=True)
    yield from zip(results_of(function), result_attributes(function), strict=True)


class _MhloTexts:
    """Checks the texts of ``mhlo.sharding``, each distinct one with each rank once."""

    def __init__(self, devices: int, sink: Sink) -> None:
        self._devices = devices
        self._sink = sink
        self._good: set[tuple[ir.Attribute, tuple[ir.Type, ...]]] = set()

    def check(
        self,
        attribute: ir.Attribute,
        types: Sequence[ir.Type],
        what: str,
        location: SourceLocation | None,
        path: str | None = None,
    ) -> None:
        key = (attribute, tuple(types))
        if key in self._good:
            return
        try:
            self._validate(read_mhlo(attribute), types)
        except ShardingError as error:
            for found in error.diagnostics:
                named = replace(found, message=f"{what}: {found.message}", path=path)
                self._sink.report(named.at(location))
        else:
            self._good.add(key)

    def _validate(self, sharding: HloSharding, types: Sequence[ir.Type]) -> None:
        if sharding.is_tuple and len(sharding.elements) == len(types):
            for element, kind in zip(sharding.elements, types, strict=True):
                self._validate(element, [kind])
            return
        if sharding.is_tuple:
            raise ShardingError(
                "rank-mismatch",
                f"a tuple of {len(sharding.elements)} shardings for {len(types)} values",
            )
        for kind in types:
            if isinstance(kind, ir.RankedTensorType):
                sharding.validate(kind.rank, self._devices)
