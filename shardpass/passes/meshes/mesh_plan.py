"""Which meshes of a module become which, and the meshes' own ops.

A :class:`MeshPlan` says for some of the meshes of a module, each over the same devices as before,
what they become; :meth:`MeshPlan.carry_out` does that to the whole module. ``sp-merge-meshes`` and
``sp-name-axes`` differ in their plans alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from shardpass.canon import AxisRef, MeshShape, Respelling, TensorSharding
from shardpass.diagnostics import Diagnostic, ShardingError, Sink, SourceLocation
from shardpass.mlir import declare_mesh, free_mesh_name, locate, mesh_ops, meshes_of
from shardpass.passes.meshes.respell import Respell, Role, Said, Subject
from shardpass.sharding import as_mesh_shape

#: The same mesh again, as JAX writes it beside Shardy's for StableHLO's collectives.
_STABLEHLO_MESH: Final = "stablehlo.mesh"

#: The meshes that anything in a module speaks of, and whether a sharding has it inlined.
Spoken: TypeAlias = Mapping[MeshShape, bool]


@dataclass(frozen=True)
class MeshPlan:
    """What becomes of meshes, each over the devices that it is over already.

    Attributes:
      symbols: mesh -> the symbol under which the new one is declared.
      spellings: mesh -> how to say on the new one what is on it.
    """

    symbols: Mapping[MeshShape, str]
    spellings: Mapping[MeshShape, Respelling]

    @property
    def by_type(self) -> bool:
        """Placement has nothing to do with types."""
        return False

    @classmethod
    def of(
        cls,
        root: ir.Operation,
        targets: Mapping[MeshShape, MeshShape],
        spoken: Spoken,
        keep: str | None = None,
    ) -> MeshPlan:
        """The plan for what ``targets`` says, old mesh -> new mesh.

        A new mesh takes a symbol under which it is declared already, that of the first old one
        that is, or one of its own.

        Args:
          root: the module.
          targets: over as many devices each; the order says which symbol comes first.
          spoken: the meshes that anything is on; others need have nothing to do with the target.
          keep: a symbol to take where it declares one of the new meshes.

        Raises:
          ShardingError: as :meth:`Respelling.between`, with the place of the mesh.
        """
        declared = meshes_of(root)
        by_target: dict[MeshShape, str] = {}
        if keep is not None and declared[keep] in targets.values():
            by_target[declared[keep]] = keep
        for name, mesh in declared.items():
            if mesh in targets.values():
                by_target.setdefault(mesh, name)
        spellings: dict[MeshShape, Respelling] = {}
        for old, target in targets.items():
            names = [name for name, mesh in declared.items() if mesh == old]
            if names:
                by_target.setdefault(target, names[0])
            try:
                spellings[old] = Respelling.between(old if old in spoken else target, target)
            except ShardingError as error:
                if not names:
                    raise
                place = locate(place_of(root, names[0]))
                raise error.about(f"@{names[0]}", location=place) from error
        for index, target in enumerate(dict.fromkeys(targets.values())):
            if target not in by_target:
                by_target[target] = free_mesh_name(root, f"mesh_{index}" if index else "mesh")
        return cls({old: by_target[target] for old, target in targets.items()}, spellings)

    @property
    def renames(self) -> bool:
        """Whether any axis changes its name or its size."""
        return any(s.old.axes and s.old.axes != s.new.axes for s in self.spellings.values())

    def symbol(self, mesh: MeshShape) -> str | None:
        """The symbol of what ``mesh`` becomes, if it is in the plan."""
        return self.symbols.get(mesh)

    def value(self, sharding: TensorSharding, kind: ir.Type | None, role: Role) -> Said:
        """The same placement on the new mesh."""
        return self.spellings[sharding.mesh].sharding(sharding), ()

    def axes(self, mesh: MeshShape, axes: Sequence[AxisRef]) -> tuple[AxisRef, ...]:
        """The same axes, by those of the new mesh."""
        return self.spellings[mesh].axes(axes)

    def axis_set(self, mesh: MeshShape, axes: Sequence[AxisRef]) -> tuple[AxisRef, ...]:
        """The same axes, in the order of the new mesh."""
        return self.spellings[mesh].axis_set(axes)

    def manual_axes(self, mesh: MeshShape, names: Sequence[str]) -> tuple[str, ...]:
        """The same axes, which must be whole ones of the new mesh."""
        return self.spellings[mesh].whole_axes(names)

    def faults(self, root: ir.Operation) -> tuple[Respell, list[Diagnostic]]:
        """The rewriting that is ready to be applied, and what stands against it."""
        found: dict[Diagnostic, None] = {}

        def report(role: Role, subject: Subject, fault: Diagnostic) -> None:
            found[subject.has(fault)] = None

        respell = Respell(root, self, report)
        respell.collect()
        return respell, list(found)

    def carry_out(self, root: ir.Operation, respell: Respell, sink: Sink) -> None:
        """Write what was collected, and let the ops of the meshes follow."""
        respell.apply()
        new = {self.symbols[old]: spelling.new for old, spelling in self.spellings.items()}
        replace_meshes(root, self.symbols, new)
        tell_of_dropped_notes(respell.dropped_notes, sink)


def spoken_of(root: ir.Operation) -> Spoken:
    """The meshes that anything in ``root`` speaks of, and whether a sharding has it inlined.

    Raises:
      ShardingError: for shardings that cannot be read, all of them.
    """
    found, faults = MeshPlan({}, {}).faults(root)
    if faults:
        raise ShardingError.of(faults)
    return found.spoken


def replace_meshes(
    root: ir.Operation, symbols: Mapping[MeshShape, str], new: Mapping[str, MeshShape]
) -> None:
    """Let the ``sdy.mesh`` ops of ``root`` say ``new``.

    Args:
      root: the module, whose shardings have been rewritten.
      symbols: old mesh -> the symbol that has taken it over.
      new: symbol -> the mesh that it is to declare.
    """
    declared = meshes_of(root)
    for op in mesh_ops(root):
        name = ir.StringAttr(op.attributes["sym_name"]).value
        symbol = symbols.get(declared[name])
        if symbol is None:
            continue
        if name == symbol:
            _set_mesh(op, declared[name], new[name])
            continue
        # What else there is that names it, in attributes that we do not know.
        ir.SymbolTable.replace_all_symbol_uses(name, symbol, root)
        op.operation.erase()
    for name, mesh in new.items():
        if name not in declared:
            declare_mesh(root, name, mesh)


def _set_mesh(op: sdy.MeshOp, old: MeshShape, new: MeshShape) -> None:
    if old == new:
        return
    op.attributes["mesh"] = ir.Attribute.parse(f"#sdy.mesh{new}", op.context)
    if _STABLEHLO_MESH in op.attributes:
        del op.attributes[_STABLEHLO_MESH]


def tell_of_dropped_notes(count: int, sink: Sink) -> None:
    """Remark on what propagation noted under the names of axes that are gone."""
    if count:
        sink.remark(
            "not-supported",
            f"{count} notes of propagation (origins and edges of shardings) are dropped: they name "
            "axes that are no more",
            help="propagate again to have them under the new names",
        )


def mesh_option(mesh: Any, pass_name: str) -> MeshShape:
    """The option ``mesh`` of a pass that cannot do without.

    Raises:
      ShardingError: ``bad-option``, if it was not given or has no axes, and as
        :func:`shardpass.sharding.as_mesh_shape`.
    """
    if mesh is None:
        raise ShardingError(
            "bad-option",
            f"{pass_name} has no mesh",
            help=f"give one, as {pass_name}{{mesh=data=2,model=4}}",
        )
    shape = as_mesh_shape(mesh)
    if not shape.axes:
        raise ShardingError(
            "bad-option",
            f"{pass_name}: the mesh {shape.describe()} has no axes",
            help=f"give some, as {pass_name}{{mesh=data=2,model=4}}",
        )
    return shape


def place_of(root: ir.Operation, name: str) -> sdy.MeshOp:
    """The op that declares mesh ``name``."""
    return next(
        op for op in mesh_ops(root) if ir.StringAttr(op.attributes["sym_name"]).value == name
    )


def symbol_of(declared: Mapping[str, MeshShape], mesh: MeshShape) -> str | None:
    """The first symbol under which ``mesh`` is declared, if it is and not only inlined."""
    return next((name for name, other in declared.items() if other == mesh), None)


def where_declared(
    root: ir.Operation, declared: Mapping[str, MeshShape], mesh: MeshShape
) -> SourceLocation | None:
    """The place of the op that declares ``mesh``, if one does."""
    name = symbol_of(declared, mesh)
    return None if name is None else locate(place_of(root, name))


def try_all(
    candidates: Sequence[Callable[[], MeshPlan]], root: ir.Operation
) -> tuple[MeshPlan, Respell] | list[Diagnostic]:
    """The first plan of ``candidates`` against which nothing stands, or what does against each.

    A plan that cannot even be made raises :class:`ShardingError`, which counts as what stands
    against it. The faults are those of the first candidate.
    """
    first: list[Diagnostic] | None = None
    for candidate in candidates:
        try:
            plan = candidate()
            respell, faults = plan.faults(root)
        except ShardingError as error:
            faults = list(error.diagnostics)
        else:
            if not faults:
                return plan, respell
        first = faults if first is None else first
    return first or []
