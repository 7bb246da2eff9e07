"""Every place of a module where a mesh and its axes are named, said on another mesh.

Axes are named by the shardings of arguments, results, ops, constraints, edges and regions; by the
axes that a manual computation makes manual; by the lists of axes of Shardy's collectives; and by
groups of replicas where StableHLO's collectives name those by axes. How a sharding becomes another
is for a :class:`Speller` to say; here is where they are, and what is written back.

It goes in two steps, so that one run shows every fault and a fault changes nothing:
:meth:`Respell.collect` reads, :meth:`Respell.apply` writes.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final, Protocol, TypeAlias

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, sdy

from shardpass.canon import AxisRef, MeshShape, TensorSharding
from shardpass.canon.mlir_string import quote, unquote
from shardpass.diagnostics import Diagnostic, ShardingError, SourceLocation
from shardpass.mlir import (
    ADVANCE,
    MAIN,
    SDY_SHARDING,
    Shardings,
    argument_attributes,
    arguments_of,
    entries_of,
    is_public,
    locate,
    result_attributes,
    results_of,
    set_argument_attributes,
    set_result_attributes,
    visit,
    where_written,
    with_entry,
)
from shardpass.passes.identities import CONSTRAINTS
from shardpass.passes.meshes.replica_groups import BY_AXES, read_axes, write_axes

_FUNCTION: Final = func.FuncOp.OPERATION_NAME
_CONSTRAINTS: Final = frozenset(kind.OPERATION_NAME for kind in CONSTRAINTS)
#: What propagation notes for reading, under the names of axes.
_NOTES: Final = frozenset(
    f"sdy.{of}{what}"
    for of in ("", "block_arg_", "result_")
    for what in ("sharding_origins", "propagation_edges")
)
#: Attributes of which a module has many, and none speaks of a mesh.
_PLAIN: Final = (
    ir.DenseElementsAttr,
    ir.TypeAttr,
    ir.IntegerAttr,
    ir.FloatAttr,
    ir.StringAttr,
    ir.BoolAttr,
)
_OF_FUNCTIONS: Final = frozenset({"arg_attrs", "res_attrs", "function_type", "sym_name"})

_REF: Final = r'"(?:[^"\\]|\\.)*"(?::\(\d+\)\d+)?'
_REFS: Final = re.compile(rf"\{{((?:{_REF}(?:, )?)*)\}}")
_ONE_REF: Final = re.compile(r'"((?:[^"\\]|\\.)*)"(?::\((\d+)\)(\d+))?')


class Role(Enum):
    """What a sharding is of."""

    ENTRY = auto()  #: an argument or a result of a function that the user calls
    CONSTRAINT = auto()  #: what a constraint or a reshard asks for
    REGION = auto()  #: what goes into a manual or named computation, or comes out
    COLLECTIVE = auto()  #: what comes out of one of Shardy's collectives
    OP = auto()  #: what propagation found: of the result of an op, an edge, an inner function


@dataclass(frozen=True)
class Subject:
    """What a message speaks of."""

    text: str
    location: SourceLocation | None = None
    path: str | None = None

    def has(self, fault: Diagnostic) -> Diagnostic:
        """``fault`` as told of this."""
        joint = "" if fault.message.startswith(",") else ": "
        return replace(
            fault,
            message=f"{self.text}{joint}{fault.message}",
            location=fault.location or self.location,
            path=fault.path if fault.path is not None else self.path,
        )


#: A sharding, and what there is to say about it. If any of that is an error it is not written.
Said: TypeAlias = tuple[TensorSharding, Sequence[Diagnostic]]


class Speller(Protocol):
    """How a mesh, and what is on it, is to be said; methods raise :class:`ShardingError`."""

    @property
    def by_type(self) -> bool:
        """Whether :meth:`value` looks at the type of the value."""
        ...

    @property
    def renames(self) -> bool:
        """Whether axes change at all."""
        ...

    def symbol(self, mesh: MeshShape) -> str | None:
        """The mesh to name in place of ``mesh``; ``None`` leaves alone what is on it."""
        ...

    def value(self, sharding: TensorSharding, kind: ir.Type | None, role: Role) -> Said:
        """The sharding of a value of type ``kind``, where that is known."""
        ...

    def axes(self, mesh: MeshShape, axes: Sequence[AxisRef]) -> tuple[AxisRef, ...]:
        """Axes of ``mesh`` in an order that counts."""
        ...

    def axis_set(self, mesh: MeshShape, axes: Sequence[AxisRef]) -> tuple[AxisRef, ...]:
        """Axes of ``mesh`` that come in the order of the mesh."""
        ...

    def manual_axes(self, mesh: MeshShape, names: Sequence[str]) -> tuple[str, ...]:
        """The axes of a manual computation."""
        ...


Report: TypeAlias = Callable[[Role, Subject, Diagnostic], None]
_Outcome: TypeAlias = tuple[ir.Attribute | None, Sequence[Diagnostic]]


class Respell:
    """One module on its way from mesh to mesh; each distinct attribute is converted once."""

    def __init__(self, root: ir.Operation, speller: Speller, report: Report) -> None:
        self._root = root
        self._speller = speller
        self._report = report
        self._shardings = Shardings(root)
        self._known: dict[tuple[ir.Attribute, ir.Type | None, Role], _Outcome] = {}
        self._speaks: dict[ir.Attribute, bool] = {}
        self._pending: list[tuple[ir.Operation, str, ir.Attribute | None]] = []
        self._entries: list[tuple[func.FuncOp, bool, list[ir.DictAttr]]] = []
        #: The meshes that anything speaks of, and whether a sharding has it inlined.
        self.spoken: dict[MeshShape, bool] = {}
        #: How many notes of propagation are to go, since they name axes that will not be there.
        self.dropped_notes = 0

    def collect(self) -> None:
        """Find what is to be written, and report every fault."""
        visit(self._root, self._look)

    def apply(self) -> None:
        """Write it."""
        for op, name, attribute in self._pending:
            if attribute is None:
                del op.attributes[name]
            else:
                op.attributes[name] = attribute
        for function, are_results, entries in self._entries:
            (set_result_attributes if are_results else set_argument_attributes)(function, entries)

    def _look(self, op: ir.Operation) -> ir.WalkResult:
        attributes = op.attributes
        if op.name == _FUNCTION:
            self._function(op.opview)
        placed = attributes.get(SDY_SHARDING)
        if placed is not None:
            kinds = self._kinds(op.results if len(op.results) else op.operands)
            self._put(op, SDY_SHARDING, self._per_value(placed, kinds, Role.OP, self._of_op(op)))
        # Most ops have this one or none, and going over the names takes longer than all the rest.
        if len(attributes) > (placed is not None):
            for name in list(attributes):
                if name != SDY_SHARDING and name not in _OF_FUNCTIONS:
                    self._attribute(op, name, attributes[name])
        return ADVANCE

    def _put(self, op: ir.Operation, name: str, attribute: ir.Attribute | None) -> None:
        if attribute is not None:
            self._pending.append((op, name, attribute))

    def _kinds(self, values: Iterable[ir.Value]) -> list[ir.Type]:
        return [value.type for value in values] if self._speller.by_type else []

    def _attribute(self, op: ir.Operation, name: str, attribute: ir.Attribute) -> None:
        if name in _NOTES:
            if self._speller.renames:
                self._pending.append((op, name, None))
                self.dropped_notes += 1
            return
        if not self._speaks_of_a_mesh(attribute):
            return
        text = str(attribute)
        if text.startswith("#sdy.sharding<"):
            role = _role(op, name)
            kind = op.results[0].type if self._speller.by_type and len(op.results) == 1 else None
            self._put(op, name, self._one(attribute, kind, role, self._of_op(op)))
        elif text.startswith("#sdy.sharding_per_value<"):
            kinds = self._kinds(op.operands if name == "in_shardings" else op.results)
            self._put(
                op, name, self._per_value(attribute, kinds, Role.REGION, self._of_op(op, name))
            )
        elif isinstance(attribute, (ir.ArrayAttr, ir.DictAttr)):
            self._put(op, name, self._nested(attribute, self._of_op(op, name)))
        else:
            with self._hearing(op, name):
                self._put(op, name, self._axes(op, attribute, text))

    @contextlib.contextmanager
    def _hearing(self, op: ir.Operation, name: str) -> Iterator[None]:
        try:
            yield
        except ShardingError as error:
            for fault in error.diagnostics:
                self._report(Role.REGION, self._of_op(op, name)(0), fault)

    def _axes(self, op: ir.Operation, attribute: ir.Attribute, text: str) -> ir.Attribute | None:
        speller = self._speller
        if (groups := read_axes(text)) is not None:
            name, axes = groups
            mesh = self._shardings.meshes.get(name)
            symbol = None if mesh is None else self._symbol(mesh)
            if mesh is None or symbol is None:
                return None
            return write_axes(symbol, speller.axes(mesh, axes), op.context)
        mesh = self._mesh_of(op, _names_in(text))
        if mesh is None or self._symbol(mesh) is None:
            return None
        if text.startswith("#sdy<manual_axes"):
            names = speller.manual_axes(mesh, _names_in(text))
            return ir.Attribute.parse(
                f"#sdy<manual_axes{{{', '.join(map(quote, names))}}}>", op.context
            )
        # Of a reduction, or of partial results, it is a set; what is gathered or sliced, a row.
        say = speller.axis_set if text.startswith("#sdy<axis_ref_list") else speller.axes

        def anew(found: re.Match[str]) -> str:
            return f"{{{', '.join(map(str, say(mesh, _refs(found[1]))))}}}"

        return ir.Attribute.parse(_REFS.sub(anew, text), op.context)

    def _mesh_of(self, op: ir.Operation, names: Sequence[str]) -> MeshShape | None:
        """The mesh of whose axes ``op`` speaks: that of its shardings."""
        for name in ("out_sharding", "in_shardings", "out_shardings"):
            if name not in op.attributes:
                continue
            attribute = op.attributes[name]
            if name == "out_sharding":
                return self._shardings.read(attribute).mesh
            for sharding in self._shardings.read_per_value(attribute):
                if sharding.mesh.axes:
                    return sharding.mesh
        # A region that nothing goes into or comes out of names no mesh.
        meshes = self._shardings.meshes.values()
        return next((mesh for mesh in meshes if {*names} <= {*mesh.names}), None)

    def _symbol(self, mesh: MeshShape, *, inlined: bool = False) -> str | None:
        self.spoken[mesh] = self.spoken.get(mesh, False) or inlined
        return self._speller.symbol(mesh)

    def _speaks_of_a_mesh(self, attribute: ir.Attribute) -> bool:
        if isinstance(attribute, _PLAIN):
            return False
        found = self._speaks.get(attribute)
        if found is None:
            text = str(attribute)
            found = "#sdy" in text and not text.startswith(("#sdy.mesh", "#sdy.op_sharding_rule"))
            found = self._speaks[attribute] = found or text.startswith(BY_AXES)
        return found

    def _one(
        self,
        attribute: ir.Attribute,
        kind: ir.Type | None,
        role: Role,
        subject: Callable[[int], Subject],
        index: int = 0,
    ) -> ir.Attribute | None:
        """The new ``#sdy.sharding``; ``None`` where it stays as it is."""
        key = (attribute, kind, role)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._converted(attribute, kind, role)
        for fault in found[1]:
            self._report(role, subject(index), fault)
        return found[0]

    def _converted(self, attribute: ir.Attribute, kind: ir.Type | None, role: Role) -> _Outcome:
        try:
            sharding = self._shardings.read(attribute)
            inlined = str(attribute).startswith("#sdy.sharding<mesh<")
            symbol = self._symbol(sharding.mesh, inlined=inlined)
            if symbol is None:
                return None, ()
            anew, faults = self._speller.value(sharding, kind, role)
        except ShardingError as error:
            return None, error.diagnostics
        written = self._shardings.write(anew, symbol)
        return None if written == attribute else written, faults

    def _per_value(
        self,
        attribute: ir.Attribute,
        kinds: Sequence[ir.Type],
        role: Role,
        subject: Callable[[int], Subject],
    ) -> ir.Attribute | None:
        before = [
            ir.Attribute(part) for part in sdy.TensorShardingPerValueAttr(attribute).shardings
        ]
        after: list[ir.Attribute] = []
        for index, part in enumerate(before):
            kind = kinds[index] if len(kinds) == len(before) else None
            after.append(self._one(part, kind, role, subject, index) or part)
        if after == before:
            return None
        parts = ", ".join(str(part).removeprefix("#sdy.sharding") for part in after)
        return ir.Attribute.parse(f"#sdy.sharding_per_value<[{parts}]>", attribute.context)

    def _nested(
        self, attribute: ir.Attribute, subject: Callable[[int], Subject]
    ) -> ir.Attribute | None:
        """An attribute of somebody else's that holds shardings."""
        if isinstance(attribute, ir.ArrayAttr):
            items = list(attribute)
            after = [self._nested(item, subject) or item for item in items]
            return None if after == items else ir.ArrayAttr.get(after, context=attribute.context)
        if isinstance(attribute, ir.DictAttr):
            entries = entries_of(attribute)
            new = {name: self._nested(a, subject) or a for name, a in entries.items()}
            return None if new == entries else ir.DictAttr.get(new, context=attribute.context)
        text = "" if isinstance(attribute, _PLAIN) else str(attribute)
        if text.startswith("#sdy.sharding<"):
            return self._one(attribute, None, Role.OP, subject)
        if text.startswith("#sdy.sharding_per_value<"):
            return self._per_value(attribute, (), Role.OP, subject)
        return None

    def _function(self, function: ir.OpView) -> None:
        assert isinstance(function, func.FuncOp)
        role = Role.ENTRY if _is_entry(function) else Role.OP
        for are_results, dictionaries, kinds in (
            (False, argument_attributes(function), function.type.inputs),
            (True, result_attributes(function), function.type.results),
        ):
            subject = _subject_of_entries(function, are_results=are_results)
            after = [
                self._dictionary(entries, kind, role, index, subject)
                for index, (entries, kind) in enumerate(zip(dictionaries, kinds, strict=True))
            ]
            if after != dictionaries:
                self._entries.append((function, are_results, after))

    def _dictionary(
        self,
        entries: ir.DictAttr,
        kind: ir.Type,
        role: Role,
        index: int,
        subject: Callable[[int], Subject],
    ) -> ir.DictAttr:
        for name, attribute in entries_of(entries).items():
            if name == SDY_SHARDING:
                by_type = kind if self._speller.by_type else None
                new = self._one(attribute, by_type, role, subject, index)
                entries = entries if new is None else with_entry(entries, name, new)
            elif name in _NOTES and self._speller.renames:
                entries = with_entry(entries, name, None)
                self.dropped_notes += 1
            elif self._speaks_of_a_mesh(attribute):
                new = self._nested(attribute, lambda _: subject(index))
                entries = entries if new is None else with_entry(entries, name, new)
        return entries

    def _of_op(self, op: ir.Operation, name: str = "") -> Callable[[int], Subject]:
        def subject(index: int) -> Subject:
            what = f"{name} of " if name else "" if op.name in _CONSTRAINTS else "the result of "
            which = f"{what}{op.name}"
            if name in ("in_shardings", "out_shardings") and index:
                which += f", value {index}"
            return Subject(which, locate(op))

        return subject


def _is_entry(function: func.FuncOp) -> bool:
    return is_public(function) or function.name.value == MAIN


def _role(op: ir.Operation, name: str) -> Role:
    if op.name in _CONSTRAINTS:
        return Role.CONSTRAINT
    return Role.COLLECTIVE if name == "out_sharding" else Role.OP


def _subject_of_entries(function: func.FuncOp, *, are_results: bool) -> Callable[[int], Subject]:
    def subject(index: int) -> Subject:
        value = (results_of if are_results else arguments_of)(function)[index]
        place = where_written(function, value)
        if _is_entry(function):
            return Subject(str(value), place, value.path)
        return Subject(f"{value} of @{function.name.value}", place)

    return subject


def _refs(text: str) -> list[AxisRef]:
    return [
        AxisRef(unquote(name) or "", *((int(a), int(b)) if a else ()))
        for name, a, b in _ONE_REF.findall(text)
    ]


def _names_in(text: str) -> list[str]:
    return [unquote(name) or "" for name, _, _ in _ONE_REF.findall(text)]
