"""From a traced function to the plan for it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import jax
from jax.extend.mlir import ir
from jax.sharding import NamedSharding, PartitionSpec

from shardpass.canon import TensorSharding
from shardpass.diagnostics import Diagnostic, Severity, ShardingError
from shardpass.mlir import (
    SDY_SHARDING,
    EntryValue,
    Module,
    Shardings,
    argument_attributes,
    load,
    result_attributes,
    set_argument_attributes,
    with_entry,
)
from shardpass.passes import run_pipeline
from shardpass.runtime.jitted.decisions import (
    NoteConstraints,
    Place,
    bound,
    numbered,
    read_numbers,
    with_notes,
)
from shardpass.runtime.jitted.policy import Policy, spec_text
from shardpass.runtime.jitted.rewrites import watched
from shardpass.runtime.lowering.binding import with_bindings
from shardpass.runtime.lowering.notation import refuse_gspmd
from shardpass.sharding.partition_spec import axes_of

#: A program as JAX traces it, with the user's names for its arguments.
Retrace = Callable[[Any], Any]
Placed = jax.sharding.Sharding | None

#: What to do about a rule that contradicts a type.
SETTLE: Final = "change the rule, or reshard the value, or place it on a mesh of Auto axes"


@dataclass(frozen=True)
class Boundary:
    """The shardings of a function's arguments and results, leaf by leaf; ``None`` is left open."""

    arguments: tuple[Placed, ...] = ()
    results: tuple[Placed, ...] = ()


@dataclass(frozen=True)
class Given:
    """What a plan finds settled.

    Attributes:
      fixed: what the user has fixed.
      types: what the types of the arguments say; see :mod:`shardpass.runtime.jitted.axis_types`.
      is_on_mesh: whether all other arguments are whole in the traced function, so that it is
        lowered for the devices of the mesh. That says nothing of where they belong.
    """

    fixed: Boundary
    types: tuple[Placed, ...] = ()
    is_on_mesh: bool = False

    @property
    def has_types(self) -> bool:
        """Whether the function is traced with types."""
        return any(self.types)

    @property
    def arguments(self) -> tuple[Placed, ...]:
        """What is settled of each argument."""
        if not self.types:
            return self.fixed.arguments
        return tuple(a or b for a, b in zip(self.fixed.arguments, self.types, strict=True))


@dataclass(frozen=True, eq=False)
class Plan:
    """What a pipeline made of a function.

    Attributes:
      boundary: where arguments and results lie.
      program: the traced function, with constraints on what the plan decides inside it.
      as_traced: the traced function without them.
      rewriting: the passes that change what it computes, which is in neither.
      paths: the arguments' names, dotted, as rules see them.
      module: the annotated module.
      diagnostics: what the passes reported.
    """

    boundary: Boundary
    program: Any
    as_traced: Any
    rewriting: tuple[str, ...]
    paths: tuple[str, ...]
    module: Module
    diagnostics: tuple[Diagnostic, ...]
    _typed: dict[Policy, Plan] = field(default_factory=dict)

    def with_typed_results(self, policy: Policy) -> Plan:
        """The same, with the layouts of results in their types."""
        found = self._typed.get(policy)
        if found is None:
            results = tuple(
                policy.sharding(place.spec, with_types=True)
                if isinstance(place, NamedSharding)
                else place
                for place in self.boundary.results
            )
            boundary = Boundary(self.boundary.arguments, results)
            found = self._typed[policy] = replace(self, boundary=boundary)
        return found


class Plans:
    """The plans of one function under one policy, each derived once for each trace.

    They are held as long as JAX holds the trace, so that ``jax.clear_caches`` lets go of them.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._known: weakref.WeakKeyDictionary[Any, dict[Any, Plan]] = weakref.WeakKeyDictionary()

    def plan(self, traced: Any, given: Given, retrace: Retrace) -> Plan:
        """The plan for ``traced``, a ``jax.stages.Traced``; see :func:`derive`.

        Raises:
          ShardingError: as there; ``unused-rule``, where no rule matches anything.
        """
        known = self._known.setdefault(traced.jaxpr, {})
        found = known.get(given)
        if found is None:
            found = derive(traced, self._policy, given, retrace)
            _refuse_useless(self._policy, found.diagnostics)
            known[given] = found
        return found


def derive(traced: Any, policy: Policy, given: Given, retrace: Retrace | None = None) -> Plan:
    """Run the pipeline of ``policy`` over a traced function, and read what became of it.

    Args:
      traced: a ``jax.stages.Traced`` that keeps unused arguments.
      policy: what to run.
      given: what is settled, and stays as it is.
      retrace: traces a copy of the traced program with the names of its arguments, for plans that
        decide about values inside; without it they are not looked for.

    Raises:
      ShardingError: what the pipeline reports; ``mesh-mismatch`` for a value that a pass put on
        another mesh; ``rule-conflict`` for a rule that contradicts a type; ``not-supported`` for
        ordered effects, which JAX has on one device alone; ``bad-pipeline`` for one that ends in
        GSPMD's notation.
    """
    notes = NoteConstraints()
    rewriting: dict[str, None] = {}
    steps: list[Any] = list(policy.pipeline)
    if policy.decides_inside and retrace is not None:
        lowered = _lowered(retrace(numbered(traced.jaxpr)), policy).clone()
        read_numbers(lowered)
        steps = watched(with_notes(with_bindings(steps), notes), rewriting)
    else:
        lowered = _lowered(traced, policy)
    if given.is_on_mesh:
        lowered = lowered.clone()
        _open_others(lowered, given)
    # MLIR's verifier takes as long as propagation itself. JAX has run it over what it lowered.
    verify_each = not policy.is_built_in
    result = run_pipeline(lowered, steps, verify_each=verify_each, **policy.given)
    module = result.module
    _check_arguments(module)
    # In front of the arguments that a caller sees JAX may put constants.
    arguments = module.arguments[len(module.arguments) - len(given.arguments) :]
    paths = tuple(value.path for value in arguments)
    diagnostics = _settled(_used(policy, result.diagnostics), given, paths)
    reader = Reader(policy, Shardings(module.root), with_types=given.has_types)
    main = module.main
    boundary = Boundary(
        reader.boundary(
            arguments,
            argument_attributes(main)[-len(arguments) :],
            given.arguments,
            _ranks(traced.in_avals),
        ),
        reader.boundary(
            module.results, result_attributes(main), given.fixed.results, _ranks(traced.out_avals)
        ),
    )
    program = traced.jaxpr
    if notes.noted:
        program = bound(program, reader.decisions(notes.noted))
    said = (*diagnostics, *reader.diagnostics)
    return Plan(boundary, program, traced.jaxpr, tuple(rewriting), paths, module, said)


def _lowered(traced: Any, policy: Policy) -> Module:
    """The module of a traced function; for any platform where there are no devices."""
    platforms = None if policy.has_devices else (jax.default_backend(),)
    return load(traced.lower(lowering_platforms=platforms), name=traced.fun_name)


def _open_others(module: Module, given: Given) -> None:
    """Take from arguments what stands on them for the devices alone."""
    entries = argument_attributes(module.main)
    first = len(entries) - len(given.arguments)
    for place, own in enumerate(given.arguments, first):
        if own is None:
            entries[place] = with_entry(entries[place], SDY_SHARDING, None)
    set_argument_attributes(module.main, entries)


def _check_arguments(module: Module) -> None:
    if not all(value.is_tensor for value in module.arguments):
        raise ShardingError(
            "not-supported",
            "the function has ordered effects, which JAX has on one device alone",
            help="leave out ordered=True of its prints and callbacks",
        )
    refuse_gspmd(module)


def settled_types(
    fixed: Sequence[Placed], types: Sequence[NamedSharding | None], by_rules: Plan, policy: Policy
) -> tuple[Placed, ...]:
    """The types that arguments are to have: what the user says, what they have, what rules say.

    Args:
      fixed: what the user says.
      types: what they have.
      by_rules: the plan of the rules alone for the same arguments, without types.
      policy: whose mesh is meant.

    Raises:
      ShardingError: ``rule-conflict``, where a rule contradicts a type.
    """
    found: list[Placed] = []
    conflicts: list[Diagnostic] = []
    arguments = zip(fixed, types, by_rules.boundary.arguments, by_rules.paths, strict=True)
    for place, (own, kind, ruled, path) in enumerate(arguments):
        spec = ruled.spec if isinstance(ruled, NamedSharding) else None
        if own is None and kind and spec is not None and _axes(kind.spec) != _axes(spec):
            conflicts.append(_contradiction(place, path, kind.spec, spec))
        spec = kind.spec if kind else spec
        found.append(own or (None if spec is None else policy.sharding(spec, with_types=True)))
    if conflicts:
        raise ShardingError.of(conflicts)
    return tuple(found)


def _axes(spec: PartitionSpec) -> list[tuple[str, ...]]:
    dims = [axes_of(entry) for entry in spec]
    while dims and not dims[-1]:
        dims.pop()
    return dims


def _contradiction(place: int, path: str, kind: Any, spec: Any) -> Diagnostic:
    return Diagnostic(
        Severity.ERROR,
        "rule-conflict",
        f'argument {place} ("{path}") has {spec_text(kind)} in its type, and a rule '
        f"says {spec_text(spec)}",
        path=path,
        notes=("on Explicit axes the type holds",),
        help=SETTLE,
    )


def _refuse_useless(policy: Policy, diagnostics: Iterable[Diagnostic]) -> None:
    unused = [d for d in diagnostics if d.slug == "unused-rule"]
    if policy.rules is not None and unused and len(unused) == len(policy.rules.rules):
        raise ShardingError(
            "unused-rule",
            "no rule matches any argument, result or op of the function",
            notes=[d.message for d in unused[:4]],
            help="a path is spelt like state.params.fc.kernel: the argument's name, then the keys; "
            "fn.lower(...).report() shows them all",
        )


def _used(policy: Policy, diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """``diagnostics`` without rules that were looked up by a name and match no path."""
    rules = policy.rules
    by_name = [] if rules is None else [rules.describe(place) for place in policy.used_by_name]
    return [
        one
        for one in diagnostics
        if one.slug != "unused-rule" or not any(one.message.startswith(r) for r in by_name)
    ]


def _settled(
    diagnostics: Iterable[Diagnostic], given: Given, paths: Sequence[str]
) -> list[Diagnostic]:
    """What is left to say, once it is known who settled the layout of a value that keeps it.

    Raises:
      ShardingError: ``rule-conflict`` where it was its type.
    """
    fixed = {p for p, place in zip(paths, given.fixed.arguments, strict=True) if place}
    found: list[Diagnostic] = []
    conflicts: list[Diagnostic] = []
    for diagnostic in diagnostics:
        is_kept = diagnostic.slug == "already-annotated"
        if not is_kept or diagnostic.severity is not Severity.WARNING:
            found.append(diagnostic)
        elif given.has_types and diagnostic.path not in fixed:
            conflicts.append(_conflict(diagnostic))
    if conflicts:
        raise ShardingError.of(conflicts)
    return found


def _conflict(kept: Diagnostic) -> Diagnostic:
    return replace(
        kept,
        severity=Severity.ERROR,
        slug="rule-conflict",
        message=kept.message.replace("keeps the sharding that it has,", "has a type that says"),
        help=SETTLE,
    )


class Reader:
    """The annotations of an entry function as named shardings on the policy's mesh."""

    def __init__(self, policy: Policy, shardings: Shardings, *, with_types: bool) -> None:
        self._policy = policy
        self._with_types = with_types
        self._shardings = shardings
        self.diagnostics: list[Diagnostic] = []

    def boundary(
        self,
        values: Sequence[EntryValue],
        attributes: Sequence[ir.DictAttr],
        given: Sequence[Placed],
        ranks: Sequence[int],
    ) -> tuple[Placed, ...]:
        """Where arguments or results lie, one by one; ``given`` is what is settled of them."""
        return tuple(
            own or self._named(value, entries, rank)
            for value, entries, own, rank in zip(values, attributes, given, ranks, strict=True)
        )

    def decisions(self, noted: Mapping[Place, TensorSharding]) -> dict[Place, NamedSharding]:
        """What was decided inside, as constraints say it."""
        found = {
            place: self._on_mesh(f"value {place}", layout, None, len(layout.dims))
            for place, layout in noted.items()
        }
        return {place: sharding for place, sharding in found.items() if sharding is not None}

    def _named(self, value: EntryValue, entries: ir.DictAttr, rank: int) -> NamedSharding | None:
        if SDY_SHARDING not in entries:
            # What propagation has been past and left alone is whole.
            spread = self._policy.propagates and value.is_tensor
            return self._sharding(PartitionSpec()) if spread else None
        layout = self._shardings.read(entries[SDY_SHARDING])
        return self._on_mesh(str(value), layout, value.path, rank)

    def _on_mesh(
        self, subject: str, layout: TensorSharding, path: str | None, rank: int
    ) -> NamedSharding | None:
        if not layout.mesh.axes:
            return None
        if layout.mesh.axes != self._policy.shape.axes:
            raise ShardingError(
                "mesh-mismatch",
                f"{subject} lies on mesh {layout.mesh.describe()}, and the function's mesh is "
                f"{self._policy.shape.describe()}",
                path=path,
                help="let the passes and the shardings inside the function use the mesh that "
                "shardpass.jit was given",
            )
        dims: list[tuple[str, ...]] = []
        # A random key is an array of numbers to the module, with a dimension more.
        for number, dim in enumerate(layout.dims[:rank]):
            full = [axis.name for axis in dim.axes if axis.is_full]
            if len(full) < len(dim.axes):
                # An axis behind a part of one would cut the rest of it in another order.
                full = full[: [axis.is_full for axis in dim.axes].index(False)]
                self.diagnostics.append(_in_parts(subject, path, number, layout, full))
            dims.append(tuple(full))
        while dims and not dims[-1]:
            dims.pop()
        spec = PartitionSpec(*(_entry(names) for names in dims))
        return self._sharding(spec)

    def _sharding(self, spec: PartitionSpec) -> NamedSharding:
        return self._policy.sharding(spec, with_types=self._with_types)


def _ranks(avals: Any) -> list[int]:
    return [len(aval.shape) for aval in jax.tree.leaves(avals)]


def _entry(names: tuple[str, ...]) -> Any:
    return names[0] if len(names) == 1 else names or None


def _in_parts(
    subject: str, path: str | None, number: int, layout: TensorSharding, kept: Iterable[str]
) -> Diagnostic:
    said = ", ".join(f'"{name}"' for name in kept) or "nothing"
    return Diagnostic(
        Severity.WARNING,
        "not-expressible",
        f"{subject}, dimension {number}: the plan cuts it by a part of an axis, which no "
        f"PartitionSpec says; it is cut by {said}",
        path=path,
        notes=(f"the plan is {layout.dims_text()} on mesh {layout.mesh.describe()}",),
        help="fix it by a rule or in_shardings, or split the axis of the mesh into two",
    )
