"""``sp-annotate``: partition rules onto arguments, results and ops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, sdy, stablehlo

from shardpass.canon import MeshShape, TensorSharding
from shardpass.diagnostics import ShardingError, Sink, SourceLocation
from shardpass.mlir import (
    MHLO_SHARDING,
    SDY_SHARDING,
    EntryValue,
    Shardings,
    aliases_of,
    argument_attributes,
    arguments_of,
    collect,
    declare_mesh,
    entry_function,
    file_positions,
    free_mesh_name,
    locate,
    location_names,
    mesh_ops,
    operations,
    result_attributes,
    results_of,
    set_argument_attributes,
    set_num_partitions,
    set_result_attributes,
    static_sizes,
    where_written,
    with_entry,
)
from shardpass.partition_rules import PartitionRules
from shardpass.partition_rules.mesh_text import parse_mesh
from shardpass.passes.aliases import check_aliases
from shardpass.passes.base import Pass, Stage, option
from shardpass.passes.inlining import functions_of
from shardpass.passes.option_text import one_of
from shardpass.passes.shardy.survey import REFUSE_GSPMD

_MOST_NAMES = 8
#: Ops whose regions hold ordinary values. Other regions (of a reduction, a sort, a scatter) are
#: functions of scalars, and a manual computation's values are local.
_OPEN_REGIONS = (stablehlo.WhileOp, stablehlo.CaseOp, stablehlo.IfOp)


@dataclass(frozen=True, kw_only=True)
class Annotate(Pass):
    """Write the shardings that partition rules ask for.

    Arguments and results of the entry function whose path a rule matches get ``sdy.sharding``; the
    results of ops that an ``op`` or ``loc`` rule matches, in functions that it calls as well, get
    an ``sdy.sharding_constraint``. A result that takes over a donated argument's buffer takes its
    sharding too, unless a rule matches the result. The mesh is declared and ``mhlo.num_partitions``
    set to its size.

    Reported: rules that matched nothing, arguments that no rule matched, dimensions left whole
    because they do not divide, entries of a spec whose axis another entry has, values that keep a
    sharding although a rule wants another, another mesh in the place of the rules' own.
    An error: a donated argument and the result in its buffer with shards of different sizes, and a
    module that is annotated in GSPMD's notation.
    Leaves alone: values that carry a sharding already.
    Order: first; ``sp-propagate`` carries on from here.
    """

    name: ClassVar[str] = "sp-annotate"

    rules: Any = option(None, help="the partition rules: a TOML file")
    mesh: Any = option(
        None, help="the mesh, as data=2,model=4; instead of the one in the file", parse=parse_mesh
    )
    conflicts: str | None = option(
        None,
        help="first: the first rule that matches wins; error: refuse values on which rules differ",
        parse=one_of("first", "error"),
    )
    indivisible: str | None = option(
        None,
        help="error: refuse a dimension that does not divide; replicate: leave it whole",
        parse=one_of("error", "replicate"),
    )

    def stages(self) -> Sequence[Stage]:
        """The rules, and then a look for GSPMD's notation on what they do not concern."""
        return (self.run, REFUSE_GSPMD)

    def run(self, root: ir.Operation, sink: Sink) -> None:
        """Annotate the entry function of ``root``."""
        rules = self.resolved_rules()
        mesh = rules.mesh
        if mesh is None:
            raise ShardingError(
                "bad-rules",
                "no mesh to annotate on",
                help="give one (--mesh data=2,model=4), or put a [mesh] table into the rules",
            )
        if rules.written_mesh is not None:
            sink.warning(
                "mesh-mismatch",
                f"the rules were written with the mesh {rules.written_mesh.describe()}, and "
                f"{mesh.describe()} takes its place",
                help="make both the same, or take the mesh out of the rules",
            )
        function = entry_function(root)
        annotation = _Annotation(root, function, rules, mesh, sink)
        annotation.arguments_and_results()
        if rules.has_op_rules:
            annotation.ops()
        annotation.finish()

    def resolved_rules(self) -> PartitionRules:
        """The rules with this pass's options taken into account.

        Raises:
          ShardingError: ``bad-rules``, and every fault of the rules.
        """
        if self.rules is None:
            raise ShardingError(
                "bad-rules",
                "sp-annotate has no rules",
                help="name a file, sp-annotate{rules=rules.toml}, or pass rules=",
            )
        rules = PartitionRules.of(self.rules, mesh=self.mesh)
        if self.conflicts is None and self.indivisible is None:
            return rules
        return PartitionRules(
            rules.rules,
            rules.mesh,
            rules.logical,
            self.conflicts or rules.conflicts,  # pyright: ignore[reportArgumentType]
            self.indivisible or rules.indivisible,  # pyright: ignore[reportArgumentType]
        ).written_with(rules.written_mesh)


class _Annotation:
    """One run of the pass over one entry function."""

    def __init__(
        self,
        root: ir.Operation,
        function: func.FuncOp,
        rules: PartitionRules,
        mesh: MeshShape,
        sink: Sink,
    ) -> None:
        self.root = root
        self.function = function
        self.rules = rules
        self.mesh = mesh
        self.sink = sink
        self.shardings = Shardings(root)
        self.mesh_name = self.shardings.name_of(mesh) or free_mesh_name(root)
        if self.mesh_name not in self.shardings.meshes:
            self._warn_of_other_meshes()
            declare_mesh(root, self.mesh_name, mesh)
        self._used: set[int] = set()
        self._applied: set[int] = set()
        self._unmatched: list[EntryValue] = []

    def arguments_and_results(self) -> None:
        arguments, results = arguments_of(self.function), results_of(self.function)
        given = argument_attributes(self.function)
        returned = result_attributes(self.function)
        for value in arguments:
            if not value.is_tensor:
                continue
            if self._is_annotated(value, given[value.index]):
                continue
            sharding, matched = self._sharding_for(value)
            if not matched:
                self._unmatched.append(value)
            if sharding:
                given[value.index] = self._annotated(given[value.index], sharding)
        for value in results:
            if not value.is_tensor:
                continue
            if self._is_annotated(value, returned[value.index]):
                continue
            sharding, matched = self._sharding_for(value)
            if sharding:
                returned[value.index] = self._annotated(returned[value.index], sharding)
            elif not matched and value.index in self._aliases:
                donated = self._aliases[value.index]
                own = given[donated]
                if SDY_SHARDING in own and arguments[donated].type == value.type:
                    returned[value.index] = with_entry(
                        returned[value.index], SDY_SHARDING, own[SDY_SHARDING]
                    )
        set_argument_attributes(self.function, given)
        set_result_attributes(self.function, returned)

    def _warn_of_other_meshes(self) -> None:
        for op, (name, other) in zip(
            mesh_ops(self.root), self.shardings.meshes.items(), strict=True
        ):
            if other.size > 1:
                self.sink.warning(
                    "mesh-mismatch",
                    f"the module has a mesh already, @{name} ({other.describe()}), and the rules "
                    f"are for ({self.mesh.describe()}): propagation stops between the two",
                    location=locate(op),
                    help="remove the old annotations first (sp-strip), or take the module's mesh",
                )

    @cached_property
    def _aliases(self) -> dict[int, int]:
        return aliases_of(self.function)

    def ops(self) -> None:
        for op in [op for f in _called(self.root, self.function) for op in _ordinary_ops(f)]:
            name = op.operation.name
            if not self.rules.concerns_op(name):
                continue
            places = _location_texts(op) if self.rules.reads_locations(name) else ()
            for result in op.results:
                kind = result.type
                if isinstance(kind, ir.RankedTensorType):
                    self._constrain(op, result, places)

    def finish(self) -> None:
        # Read anew: the mesh that the shardings are on has been declared meanwhile.
        shardings = Shardings(self.root)

        def sharding_of(value: EntryValue, entries: ir.DictAttr) -> TensorSharding | None:
            return shardings.read(entries[SDY_SHARDING]) if SDY_SHARDING in entries else None

        check_aliases(self.function, sharding_of, self.sink)
        set_num_partitions(self.root, self.mesh.size)
        for diagnostic in (*self.rules.unused(self._used), *self.rules.losses(self._applied)):
            self.sink.report(diagnostic)
        if self._unmatched:
            shown = [value.path for value in self._unmatched[:_MOST_NAMES]]
            more = len(self._unmatched) - len(shown)
            count = len(self._unmatched)
            self.sink.warning(
                "unmatched",
                f"no rule matches {count} argument{'s' if count > 1 else ''}: "
                + ", ".join(shown)
                + (f" and {more} more" if more else ""),
                location=self._place(self._unmatched[0]),
                path=self._unmatched[0].path,
                help="propagation decides about them; add a rule to say otherwise",
            )

    def _keep(self, value: EntryValue, sharding: TensorSharding) -> None:
        """Say that ``value`` keeps the sharding it has; aloud where a rule wants another."""
        message = f"{value} keeps the sharding that it has, {sharding.dims_text()}"
        match = self.rules.for_value(value.path, value.raw, value.sizes)
        if match:
            self._used |= {match.index, *match.others}
            try:
                wanted = self.rules.resolve(match, value.sizes, mesh=self.mesh).sharding
            except ShardingError:
                wanted = None  # The rule does not fit the value, which does not need it.
            if wanted and wanted.closed() != sharding.closed():
                self.sink.warning(
                    "already-annotated",
                    message,
                    location=self._place(value),
                    path=value.path,
                    notes=[
                        f"it is on mesh {sharding.mesh.describe()}",
                        f"{self.rules.describe(match.index)} asks for {wanted.dims_text()} on mesh "
                        f"{wanted.mesh.describe()}",
                    ],
                    help="to start afresh, remove the old annotations first: sp-strip,sp-annotate",
                )
                return
        self.sink.remark("already-annotated", message, location=self._place(value), path=value.path)

    def _sharding_for(self, value: EntryValue) -> tuple[TensorSharding | None, bool]:
        """The sharding that the rules give ``value``, and whether any rule matches it."""
        match = self.rules.for_value(value.path, value.raw, value.sizes)
        if match is None:
            return None, False
        self._used |= {match.index, *match.others}
        try:
            found = self.rules.resolve(
                match, value.sizes, mesh=self.mesh, subject=str(value), path=value.path
            )
        except ShardingError as error:
            for diagnostic in error.diagnostics:
                self.sink.report(diagnostic.at(self._place(value)))
            return None, True
        for diagnostic in found.diagnostics:
            self.sink.report(diagnostic.at(self._place(value)))
        if value.sizes:
            self._applied.add(match.index)
        return found.sharding, True

    def _place(self, value: EntryValue) -> SourceLocation | None:
        return where_written(self.function, value)

    def _annotated(self, entries: ir.DictAttr, sharding: TensorSharding) -> ir.DictAttr:
        return with_entry(entries, SDY_SHARDING, self.shardings.write(sharding, self.mesh_name))

    def _is_annotated(self, value: EntryValue, entries: ir.DictAttr) -> bool:
        if MHLO_SHARDING in entries:
            self.sink.error(
                "already-annotated",
                f"{value} carries an mhlo.sharding, and sp-annotate writes sdy.sharding",
                location=self._place(value),
                path=value.path,
                help="remove the old annotations first: sp-strip,sp-annotate",
            )
            return True
        if SDY_SHARDING not in entries:
            return False
        # JAX marks typed PRNG keys with a sharding on a mesh without axes; it says nothing.
        sharding = self.shardings.read(entries[SDY_SHARDING])
        if not sharding.mesh.axes and not sharding.mesh.is_maximal:
            return False
        self._keep(value, sharding)
        return True

    def _constrain(self, op: ir.OpView, result: ir.OpResult, places: tuple[str, ...]) -> None:
        sizes = static_sizes(ir.RankedTensorType(result.type))
        match = self.rules.for_op(op.operation.name, places, sizes)
        if match is None:
            return
        self._used |= {match.index, *match.others}
        subject = f"the result of {op.operation.name}"
        place = locate(op)
        try:
            found = self.rules.resolve(match, sizes, mesh=self.mesh, subject=subject)
        except ShardingError as error:
            for diagnostic in error.diagnostics:
                self.sink.report(diagnostic.at(place))
            return
        for diagnostic in found.diagnostics:
            self.sink.report(diagnostic.at(place))
        if not sizes:
            return  # A scalar is whole as it is, and loop counters had better be left alone.
        self._applied.add(match.index)
        attribute = self.shardings.write(found.sharding, self.mesh_name)
        with op.context, op.location, ir.InsertionPoint.after(op):
            constraint = sdy.ShardingConstraintOp(result, attribute)
        result.replace_all_uses_except(constraint.results[0], constraint.operation)


def _called(root: ir.Operation, entry: func.FuncOp) -> list[func.FuncOp]:
    """The entry function and those that it calls on whole values, directly or not.

    JAX puts the body of a scan, a rematerialised layer or an inner ``jit`` into a function. What is
    called from a manual computation works on local values.
    """
    functions = functions_of(root)
    local = {
        name
        for manual in collect(root, sdy.ManualComputationOp)
        for name in _reached(functions, _callees(operations(manual)), operations)
    }
    names = _reached(functions, _callees(_ordinary_ops(entry)), _ordinary_ops)
    return [entry, *(functions[name] for name in names if name not in local)]


def _reached(
    functions: dict[str, func.FuncOp],
    names: list[str],
    ops_in: Callable[[func.FuncOp], Iterable[ir.OpView]],
) -> list[str]:
    """``names`` and the functions that those call, each once, in order of the calls."""
    found: dict[str, None] = {}
    waiting = list(reversed(names))
    while waiting:
        name = waiting.pop()
        if name not in found and name in functions:
            found[name] = None
            waiting += reversed(_callees(ops_in(functions[name])))
    return list(found)


def _callees(ops: Iterable[ir.OpView]) -> list[str]:
    return [op.callee.value for op in ops if isinstance(op, func.CallOp)]


def _ordinary_ops(op: func.FuncOp | ir.OpView) -> Iterator[ir.OpView]:
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner
                if isinstance(inner, _OPEN_REGIONS):
                    yield from _ordinary_ops(inner)


def _location_texts(op: ir.OpView) -> tuple[str, ...]:
    """What a ``loc`` rule is searched in: the name stack, and ``file:line`` of each frame."""
    places = (str(replace(place, column=0)) for place in file_positions(op.location))
    return (*location_names(op.location), *places)
