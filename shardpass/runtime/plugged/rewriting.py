"""From a program that JAX has lowered for the mesh to the same program with a plan in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy
from jax.sharding import PartitionSpec

from shardpass.canon import TensorSharding
from shardpass.compat import jit_lowering
from shardpass.diagnostics import Diagnostic, Severity, ShardingError
from shardpass.mlir import (
    SDY_SHARDING,
    EntryValue,
    Module,
    Shardings,
    Writer,
    argument_attributes,
    collect,
    load,
    meshes_of,
    prepare_for_xla,
    result_attributes,
    set_argument_attributes,
    set_result_attributes,
    with_entry,
)
from shardpass.passes import run_pipeline
from shardpass.passes.propagate import Propagate
from shardpass.runtime.jitted.axis_types import said_by
from shardpass.runtime.jitted.planning import SETTLE, Placed
from shardpass.runtime.jitted.policy import Policy, spec_text
from shardpass.runtime.lowering.binding import with_bindings
from shardpass.runtime.lowering.calls import Call
from shardpass.runtime.lowering.notation import refuse_gspmd
from shardpass.runtime.plugged.arrivals import (
    Moved,
    is_cut,
    is_equivalent,
    layout_of,
    move_inside,
    with_arrivals,
)
from shardpass.runtime.plugged.border import Border
from shardpass.runtime.plugged.exempt import is_bound, is_on_one_device, on_one_device


@dataclass(frozen=True, eq=False)
class Planned:
    """A program with its plan.

    Attributes:
      program: what JAX is to compile.
      module: its module.
      arguments: its arguments, by the names that rules see.
      places: where they lie; ``None`` where that is left to XLA.
      moved: which of them arrive elsewhere, by their places.
      results: its results.
      result_places: where they lie.
      diagnostics: what the passes reported.
    """

    program: Any
    module: Module
    arguments: tuple[EntryValue, ...]
    places: tuple[Placed, ...]
    moved: frozenset[int]
    results: tuple[EntryValue, ...]
    result_places: tuple[Placed, ...]
    diagnostics: tuple[Diagnostic, ...]

    @property
    def says_nothing(self) -> bool:
        """Whether nothing is laid out, at the border or inside, and nothing was meant to be."""
        if any(one.slug == "replicated" for one in self.diagnostics):
            return False
        if any(is_cut(place) for place in (*self.places, *self.result_places)):
            return False
        return not any(True for _ in collect(self.module.root, sdy.ShardingConstraintOp))


def opened(call: Call) -> list[Any]:
    """The arguments for the lowering: those that the user says nothing of lie nowhere yet.

    What the type of an argument says stays.
    """
    return [
        argument
        if call.explicit(place) or said_by(argument.aval)
        else jit_lowering.open_argument(argument)
        for place, argument in enumerate(call.arguments)
    ]


def arrivals(call: Call, program: Any) -> tuple[Any, ...]:
    """How each argument of a lowered program arrives, where it is bound to the whole mesh."""
    kept, constants = kept_places(program)
    found: list[Any] = [None] * constants
    for place in kept:
        argument = call.arguments[place]
        bound = is_bound(argument) and not is_on_one_device(argument.sharding)
        settled = call.explicit(place) or said_by(argument.aval) is not None
        found.append(argument.sharding if bound and not settled else None)
    return tuple(found)


def brought(call: Call, program: Any) -> list[int]:
    """The places among a program's arguments of those that come from a single device.

    JAX brings them to the mesh at each call.
    """
    alone = set(on_one_device(call))
    kept, constants = kept_places(program)
    return [index for index, place in enumerate(kept, constants) if place in alone]


def kept_places(program: Any) -> tuple[list[int], int]:
    """Which of a function's arguments its program takes, and how many constants stand in front."""
    constants = len(program.const_args)
    kept = sorted(jit_lowering.compile_arguments(program)["kept_var_idx"])
    return [place - constants for place in kept if place >= constants], constants


def with_plan(
    program: Any,
    call: Call,
    policy: Policy,
    arrive: Sequence[Any],
    names: Mapping[str, str],
) -> Planned:
    """Run the pipeline over a lowered program, and have JAX compile what becomes of it.

    Args:
      program: what JAX lowered from :func:`opened` arguments, which stays as it is.
      call: the call that it is lowered for.
      policy: what to run.
      arrive: from :func:`arrivals`.
      names: the user's names for arguments that go by others.

    Raises:
      ShardingError: what the pipeline reports; ``rule-conflict`` for a rule that contradicts a
        type; ``not-supported`` for a pipeline that changes what the function takes or gives;
        ``bad-pipeline`` for one that ends in GSPMD's notation, ``mesh-mismatch`` for one that ends
        on a mesh of its own.
    """
    compiling = jit_lowering.compile_arguments(program)
    module = load(jit_lowering.module_of(program)).clone()
    _rename(module, names)
    signature = module.main.type
    meshes = meshes_of(module.root).values()
    holds = _types_hold(module)
    if not holds:
        _drop_types(module, call)
    kept, constants = kept_places(program)
    settled = _settled(call, compiling, kept, constants)
    ranks = [len(aval.shape) for aval in compiling["global_in_avals"]]
    result_ranks = [len(aval.shape) for aval in compiling["global_out_avals"]]
    results_given = _results_given(call, compiling, holds)
    layouts = {
        place: layout_of(sharding, ranks[place], policy.shape)
        for place, sharding in enumerate(arrive)
        if sharding is not None
    }
    steps = with_arrivals(with_bindings(policy.pipeline), layouts)
    diagnostics = list(run_pipeline(module, steps, in_place=True, **policy.given).diagnostics)
    main = module.main
    if main.type != signature:
        raise ShardingError(
            "not-supported",
            f"the pipeline makes {main.type} of {call.name}, which was {signature}",
            help="a pipeline for plugin mode may rewrite what a function does, not what it takes "
            "and gives",
        )
    refuse_gspmd(module)
    arguments, results = module.arguments, module.results
    _refuse_conflicts(diagnostics, call, arguments, kept, constants)
    shardings = Shardings(module.root)
    for place in _kept(shardings, argument_attributes(main), layouts):
        settled[place] = settled[place] or arrive[place]
    known = {*meshes, *(layout.mesh for layout in layouts.values())}
    reader = Border(policy, shardings, known)
    found = reader.boundary(arguments, argument_attributes(main), settled, ranks)
    places = _closed(found, arrive, policy)
    result_places = reader.boundary(results, result_attributes(main), results_given, result_ranks)
    write = Writer(module.root)
    _say(module, write, policy, (places, settled), (result_places, results_given))
    moved = [
        Moved(place, sharding, layouts[place])
        for place, sharding in enumerate(arrive)
        if sharding is not None and not is_equivalent(sharding, places[place], ranks[place])
    ]
    move_inside(module.root, moved)
    prepare_for_xla(module.root)
    entering = list(places)
    for one in moved:
        entering[one.place] = one.arrives
    changed = _changed(compiling, entering, result_places)
    rewritten = jit_lowering.with_module(program, module.ir, **changed)
    return Planned(
        rewritten,
        module,
        tuple(arguments),
        places,
        frozenset(one.place for one in moved),
        tuple(results),
        result_places,
        (*diagnostics, *reader.diagnostics),
    )


def _kept(
    shardings: Shardings, entries: Sequence[ir.DictAttr], layouts: Mapping[int, TensorSharding]
) -> list[int]:
    """The places of arguments for which the plan has what they arrive with."""
    found: list[int] = []
    for place, layout in layouts.items():
        if SDY_SHARDING in entries[place]:
            planned = shardings.read(entries[place][SDY_SHARDING])
            same = planned.mesh == layout.mesh and planned.dims[: layout.rank] == layout.dims
            found += [place] if same else []
    return found


def _rename(module: Module, names: Mapping[str, str]) -> None:
    for value in module.arguments if names else ():
        if value.raw in names:
            argument = module.main.arguments[value.index]
            location = ir.Location.name(names[value.raw], argument.location, module.ir.context)
            argument.set_location(location)


def _closed(found: Sequence[Placed], arrive: Sequence[Any], policy: Policy) -> tuple[Placed, ...]:
    """Where arguments lie, with an answer for those that nobody has anything to say about.

    Behind propagation they are whole on every device, which is said, so that they come to the same
    program however they arrive. Without it, XLA decides, unless they lie somewhere already.
    """
    propagates = any(isinstance(step, Propagate) for step in policy.pipeline)
    whole = policy.sharding(PartitionSpec())
    return tuple(
        place or (whole if propagates else arrives)
        for place, arrives in zip(found, arrive, strict=True)
    )


def _settled(
    call: Call, compiling: Mapping[str, Any], kept: Sequence[int], constants: int
) -> list[Any]:
    """What is settled of the program's arguments, before any plan."""
    said = compiling["in_shardings"]
    found: list[Any] = [None if jit_lowering.is_open(s) else s for s in said[:constants]]
    for index, place in enumerate(kept, constants):
        is_settled = call.explicit(place) or said_by(call.arguments[place].aval) is not None
        found.append(said[index] if is_settled else None)
    return found


def _results_given(call: Call, compiling: Mapping[str, Any], holds: bool) -> list[Any]:
    """What is settled of the program's results: by the user, or by their types."""
    found: list[Any] = []
    for asked, said, aval in zip(
        call.out_shardings,
        compiling["out_shardings"],
        compiling["global_out_avals"],
        strict=True,
    ):
        settled = not jit_lowering.is_open(asked) or (holds and jit_lowering.is_explicit_type(aval))
        found.append(said if settled and not jit_lowering.is_open(said) else None)
    return found


def _types_hold(module: Module) -> bool:
    """Whether the types of the function's values, or constraints of its author's, cut anything.

    On ``Explicit`` axes JAX writes the type of each value down as a constraint.
    """
    shardings = Shardings(module.root)
    distinct = {op.attributes["sharding"] for op in collect(module.root, sdy.ShardingConstraintOp)}
    return any(any(dim.axes for dim in shardings.read(each).dims) for each in distinct)


def _drop_types(module: Module, call: Call) -> None:
    """Take away what types say that cut nothing: they are open."""
    if not any(jit_lowering.is_explicit_type(aval) for aval in _avals(call)):
        return
    for op in collect(module.root, sdy.ShardingConstraintOp):
        op.results[0].replace_all_uses_with(op.operands[0])
        op.erase()
    main = module.main
    asked = [not jit_lowering.is_open(sharding) for sharding in call.out_shardings]
    entries = [
        own if keep else _without_sharding(own)
        for own, keep in zip(result_attributes(main), asked, strict=True)
    ]
    set_result_attributes(main, entries)


def _avals(call: Call) -> list[Any]:
    return [*call.jaxpr.in_avals, *call.jaxpr.out_avals]


def _without_sharding(entries: ir.DictAttr) -> ir.DictAttr:
    kept = {each.name: each.attr for each in entries if each.name != SDY_SHARDING}
    return ir.DictAttr.get(kept, entries.context)


def _refuse_conflicts(
    diagnostics: Sequence[Diagnostic],
    call: Call,
    arguments: Sequence[EntryValue],
    kept: Sequence[int],
    constants: int,
) -> None:
    """Refuse rules that contradict the type of an argument."""
    types = {
        arguments[index].path: sharding
        for index, place in enumerate(kept, constants)
        if (sharding := said_by(call.arguments[place].aval)) and not call.explicit(place)
    }
    found = [
        replace(
            diagnostic,
            severity=Severity.ERROR,
            slug="rule-conflict",
            message=f"{diagnostic.message} "
            f"(its type says {spec_text(types[diagnostic.path].spec)})",
            help=SETTLE,
        )
        for diagnostic in diagnostics
        if diagnostic.slug == "already-annotated"
        and diagnostic.severity is Severity.WARNING
        and diagnostic.path in types
    ]
    if found:
        raise ShardingError.of(found)


def _say(
    module: Module,
    write: Writer,
    policy: Policy,
    arguments: tuple[Sequence[Placed], Sequence[Any]],
    results: tuple[Sequence[Placed], Sequence[Any]],
) -> None:
    """Write the border of the plan as JAX is told it, whole axes alone, without open dimensions."""
    main = module.main
    for (places, given), read, put, kinds in (
        (arguments, argument_attributes, set_argument_attributes, main.type.inputs),
        (results, result_attributes, set_result_attributes, main.type.results),
    ):
        entries = read(main)
        for index, (place, own) in enumerate(zip(places, given, strict=True)):
            kind = kinds[index]
            if own is None and place is not None and isinstance(kind, ir.RankedTensorType):
                attribute = write(layout_of(place, kind.rank, policy.shape))
                entries[index] = with_entry(entries[index], SDY_SHARDING, attribute)
        put(main, entries)


def _changed(
    compiling: Mapping[str, Any], entering: Sequence[Placed], leaving: Sequence[Placed]
) -> dict[str, Any]:
    """What JAX is to know of a program beside its module."""
    ins = [new or old for new, old in zip(entering, compiling["in_shardings"], strict=True)]
    outs: list[Any] = []
    avals: list[Any] = []
    for new, old, aval in zip(
        leaving, compiling["out_shardings"], compiling["global_out_avals"], strict=True
    ):
        outs.append(new or old)
        is_typed = new is not None and new is not old and jit_lowering.is_explicit_type(aval)
        avals.append(jit_lowering.with_sharding(aval, new) if is_typed else aval)
    return {
        "in_shardings": tuple(ins),
        "out_shardings": tuple(outs),
        "global_out_avals": avals,
    }
