"""What ``jax.jit`` traces in the place of the user's function."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import jax
import numpy as np
from jax.core import Tracer
from jax.extend.core import jaxpr_as_fun
from jax.sharding import NamedSharding, PartitionSpec

from shardpass.compat.program_calls import call_program
from shardpass.diagnostics import Diagnostic, Severity, ShardingError
from shardpass.runtime.jitted.axis_types import (
    constrained,
    inside_manual,
    is_set,
    manual_axes,
    open_context,
    opened,
    typed_on,
)
from shardpass.runtime.jitted.leaves import (
    at_places,
    broadcast,
    placed_at,
    shape_of,
    some_value,
    with_types,
)
from shardpass.runtime.jitted.planning import (
    Boundary,
    Given,
    Placed,
    Plan,
    derive,
    settled_types,
)
from shardpass.runtime.jitted.policy import current_policy
from shardpass.runtime.jitted.settings import Settings
from shardpass.runtime.jitted.told import Told, expect

_NO_MESH: Final = jax.sharding.AbstractMesh((), ())

#: Effects that say what is around a function.
_OF_THE_OUTSIDE: Final = ("NamedAxisEffect", "ErrorEffect", "JaxprCheckEffect")
#: The error of a function that leaves open how its values are laid out.
_NO_TYPES: Final = "ShardingTypeError"
#: In the error of an exported function's call that is lowered for another number of devices.
_FOR_DEVICES: Final = "was exported for"
_OF_STATE: Final = ("ReadEffect", "WriteEffect", "AccumEffect")


class Tracing:
    """The tracing of calls with so many arguments by position, and others by these names."""

    def __init__(self, settings: Settings, count: int, names: tuple[str, ...]) -> None:
        self._settings = settings
        self._count = count
        self._names = names
        self._static = settings.static.places(count, names)

    def dynamic(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Those of ``args`` that are not static."""
        return tuple(arg for place, arg in enumerate(args) if place not in self._static)

    def shapes(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """``args`` without values, and without places but for those that are in their types."""
        return tuple(
            arg
            if place in self._static
            else jax.tree.map(
                lambda leaf: shape_of(leaf, typed_on(leaf, self._settings.policy.mesh)), arg
            )
            for place, arg in enumerate(args)
        )

    def run(self, told: Told, args: tuple[Any, ...]) -> Any:
        """Find the plan for ``args``, and trace the user's program in its places.

        Args:
          told: what the ``jax.jit`` that asks knows.
          args: all arguments by position, static ones among them.

        Raises:
          AnotherBoundaryError: if it has to know something else.
        """
        leaves, in_tree = jax.tree.flatten(self.dynamic(args))
        if _is_eager(leaves):
            return self._called(args, leaves)
        if manual := manual_axes(self._settings.policy.mesh):
            expect(told, None)
            return self._in_manual_computation(args, leaves, manual)
        fixed = self._fixed(args)
        self._check(fixed, args, leaves)
        is_nested = current_policy.value is not None
        with current_policy(self._settings.policy):
            types = self._types(args, leaves, fixed)
            traced = self._with_types(args, leaves, types) if types else None
            if types and traced is None:
                types, fixed = (), self._as_layouts(leaves, fixed)
            with contextlib.nullcontext() if types else open_context():
                if traced is None:
                    traced = self._traced(self._planner, args, leaves, fixed)
                if not _is_closed(traced, len(leaves)):
                    expect(told, None)
                    return self._by_rules_alone(args, leaves)
                plan = self._plan(traced, args, leaves, fixed, types, is_nested=is_nested)
            if not types and is_set(self._settings.policy.mesh):
                # Around it, values on twins of the mesh that have no types are met with errors.
                plan = plan.with_typed_results(self._settings.policy)
            if is_nested or self._settings.is_inside:
                expect(told, None)
                untold = plan.boundary
                if is_nested:
                    self._say_that_nothing_is_run()
                else:
                    self._settings.tell(plan)
            else:
                rewritten = bool(plan.rewriting) and self._settings.rewrites
                expect(told, plan, (in_tree, traced.out_tree), rewritten=rewritten)
                untold = at_places(plan.boundary, told.loose)
            if types:
                program = plan.as_traced if told.rewritten else plan.program
                results = jaxpr_as_fun(program)(*with_types(leaves, types))
            else:
                called = self._program(plan, told, untold)
                results = opened(called, leaves, plan.boundary.results)
        return jax.tree.unflatten(traced.out_tree, results)

    def _with_types(
        self, args: tuple[Any, ...], leaves: Sequence[Any], types: Sequence[Placed]
    ) -> Any:
        """The function traced with types; ``None`` if it is none that JAX can find types in."""
        try:
            return self._traced(self._planner, args, leaves, types)
        except Exception as error:
            if type(error).__name__ != _NO_TYPES:
                raise
            first = str(error).partition(".")[0]
            self._settings.say_once("no types", lambda: _without_types(first))
            return None

    def _as_layouts(self, leaves: Sequence[Any], fixed: Sequence[Placed]) -> tuple[Placed, ...]:
        """``fixed``, with what types say of arguments as their layouts."""
        policy = self._settings.policy
        kinds = [typed_on(leaf, policy.mesh) for leaf in leaves]
        return tuple(
            own or (kind and policy.sharding(kind.spec))
            for own, kind in zip(fixed, kinds, strict=True)
        )

    def _by_rules_alone(self, args: tuple[Any, ...], leaves: Sequence[Any]) -> Any:
        """The function where its module is nobody's: it takes part in the trace around it.

        It reads values of that trace, or the axes that it maps over, so that no module can be made
        of it alone. Rules hold as constraints.
        """
        placed = placed_at(leaves, self._by_rules(args, leaves).boundary.arguments)
        results, tree = jax.tree.flatten(self._called(args, placed))
        places = self._by_rules(args, leaves, jax.tree.unflatten(tree, results)).boundary.results
        return jax.tree.unflatten(tree, placed_at(results, places))

    def _in_manual_computation(
        self, args: tuple[Any, ...], leaves: Sequence[Any], manual: frozenset[str]
    ) -> Any:
        """The function on blocks of its arguments, inside a ``shard_map`` over some of the axes.

        Modules of single blocks are nobody's plan: rules alone hold, over the other axes.
        """
        mesh = jax.sharding.get_abstract_mesh()
        by_rules = self._by_rules(args, leaves)
        told = zip(by_rules.boundary.arguments, by_rules.paths, strict=True)
        places = [
            place and inside_manual(place, mesh, manual, f'argument {number} ("{path}")')
            for number, (place, path) in enumerate(told)
        ]
        placed = [
            leaf if place is None else constrained(leaf, place)
            for leaf, place in zip(leaves, places, strict=True)
        ]
        with current_policy(self._settings.policy):
            return self._called(args, placed)

    def _called(self, args: tuple[Any, ...], leaves: Iterable[Any]) -> Any:
        """What the user's function makes of ``args`` with other ``leaves``."""
        given = iter(leaves)
        positional = [
            arg if n in self._static else jax.tree.map(lambda _: next(given), arg)
            for n, arg in enumerate(args)
        ]
        named = dict(zip(self._names, positional[self._count :], strict=True))
        return self._settings.function(*positional[: self._count], **named)

    def _by_rules(self, args: tuple[Any, ...], leaves: Sequence[Any], results: Any = ()) -> Plan:
        """What the rules alone say of the arguments, and of ``results``."""
        shapes = jax.tree.map(lambda leaf: shape_of(leaf, None), results)
        with jax.sharding.use_abstract_mesh(_NO_MESH):
            traced = self._traced(self._nothing(shapes), args, leaves, [None] * len(leaves))
            given = Given(Boundary((None,) * len(leaves), (None,) * len(jax.tree.leaves(shapes))))
            return derive(traced, self._settings.policy.by_rules_alone(), given)

    def _plan(
        self,
        traced: Any,
        args: tuple[Any, ...],
        leaves: Sequence[Any],
        fixed: tuple[Placed, ...],
        types: tuple[Placed, ...],
        *,
        is_nested: bool,
    ) -> Plan:
        results = broadcast(self._settings.out_shardings, traced.out_info, "out_shardings")

        def retrace(program: Any) -> Any:
            return self._retraced(program, traced, args, types or fixed)

        plans = self._settings.plans_inside if is_nested else self._settings.plans
        given = Given(Boundary(fixed, results), types)
        try:
            return plans.plan(traced, given, retrace)
        except ValueError as error:
            if types or not leaves or _FOR_DEVICES not in str(error):
                raise
        # A call of what `jax.export` wrote for several devices has to be lowered for as many.
        whole = self._settings.policy.sharding(PartitionSpec())
        places = [place or whole for place in fixed]
        on_mesh = self._traced(self._planner, args, leaves, places)
        return plans.plan(on_mesh, replace(given, is_on_mesh=True), retrace)

    def _types(
        self, args: tuple[Any, ...], leaves: Sequence[Any], fixed: Sequence[Placed]
    ) -> tuple[Placed, ...]:
        """The types to trace the function with, leaf by leaf; none at all where none has one.

        Beside arguments that have a type, those that the user or a rule speaks of get theirs.
        """
        mesh = self._settings.policy.mesh
        found = [typed_on(leaf, mesh) for leaf in leaves]
        if not any(found):
            return ()
        by_rules = self._by_rules(args, leaves)
        return settled_types(fixed, found, by_rules, self._settings.policy)

    def _program(self, plan: Plan, told: Told, untold: Boundary) -> Callable[..., list[Any]]:
        """The program of ``plan``, of leaves, with constraints for what no ``jax.jit`` is told."""
        name = getattr(self._settings.function, "__name__", "function")

        def program(*leaves: Any) -> list[Any]:
            placed = placed_at(leaves, untold.arguments)
            if told.rewritten:  # Passes of the user's may look for ops where he wrote them.
                return placed_at(jaxpr_as_fun(plan.as_traced)(*placed), untold.results)
            return placed_at(call_program(plan.program, placed, name), untold.results)

        return program

    def _traced(
        self,
        planner: Any,
        args: tuple[Any, ...],
        leaves: Sequence[Any],
        places: Sequence[Placed],
    ) -> Any:
        shapes = iter([shape_of(leaf, place) for leaf, place in zip(leaves, places, strict=True)])
        given = [
            arg if place in self._static else jax.tree.map(lambda _: next(shapes), arg)
            for place, arg in enumerate(args)
        ]
        by_name = dict(zip(self._names, given[self._count :], strict=True))
        return planner.trace(*given[: self._count], **by_name)

    @functools.cached_property
    def _planner(self) -> Any:
        return self._tracing(self._settings.function, **self._planned)

    @functools.cached_property
    def _planned(self) -> dict[str, Any]:
        """What a plan is made for, beside the arguments."""
        wanted = self._settings.out_shardings
        return {"out_shardings": wanted} if jax.tree.leaves(wanted) else {}

    def _nothing(self, results: Any) -> Any:
        """A function of the same arguments, of which their names and those of results matter."""

        @functools.wraps(self._settings.function)
        def nothing(*_args: Any, **_kwargs: Any) -> Any:
            return jax.tree.map(some_value, results)

        return self._tracing(nothing)

    def _retraced(
        self, program: Any, traced: Any, args: tuple[Any, ...], places: Sequence[Placed]
    ) -> Any:
        """``program`` traced in the place of the user's function, for a call with ``args``."""

        @functools.wraps(self._settings.function)
        def instead(*positional: Any, **named: Any) -> Any:
            given = (*positional, *(named[name] for name in self._names))
            results = jaxpr_as_fun(program)(*jax.tree.leaves(self.dynamic(given)))
            return jax.tree.unflatten(traced.out_tree, results)

        leaves = jax.tree.leaves(self.dynamic(args))
        return self._traced(self._tracing(instead, **self._planned), args, leaves, places)

    def _tracing(self, function: Callable[..., Any], **options: Any) -> Any:
        settings = self._settings
        static_names = [name for name in self._names if name in settings.static.names]
        return jax.jit(
            function,
            static_argnums=tuple(place for place in sorted(self._static) if place < self._count),
            static_argnames=static_names,
            keep_unused=True,
            **options,
        )

    def _fixed(self, args: tuple[Any, ...]) -> tuple[Placed, ...]:
        """What the user has fixed, for each leaf of the dynamic arguments."""
        by_place = self.dynamic(args[: self._count])
        fixed = broadcast(self._settings.in_shardings, by_place, "in_shardings")
        others = len(jax.tree.leaves(self.dynamic(args))) - len(fixed)
        return fixed + (None,) * others

    def _check(self, fixed: Sequence[Placed], args: tuple[Any, ...], leaves: Sequence[Any]) -> None:
        """Refuse what the user has fixed where it does not fit.

        Raises:
          ShardingError: ``indivisible``, ``rank-mismatch``, with the argument's path.
        """
        for number, (place, leaf) in enumerate(zip(fixed, leaves, strict=True)):
            try:
                if place is not None:
                    place.shard_shape(np.shape(leaf))
            except (ValueError, IndexError) as error:
                path = self._by_rules(args, leaves).paths[number]
                is_long = isinstance(place, NamedSharding) and len(place.spec) > np.ndim(leaf)
                raise ShardingError(
                    "rank-mismatch" if is_long else "indivisible",
                    f'argument {number} ("{path}") has the shape {np.shape(leaf)}, and '
                    f"in_shardings says {place}",
                    path=path,
                    notes=() if is_long else [str(error)],
                    help="give it a sharding that fits, or None, where the plan decides",
                ) from error

    def _say_that_nothing_is_run(self) -> None:
        settings = self._settings
        if settings.own_pipeline:
            name = getattr(settings.function, "__name__", "a function")
            settings.say_once(
                "inside",
                lambda: (
                    f"the pipeline of {name} is not run inside another function of "
                    "shardpass.jit: its rules alone hold there, as constraints"
                ),
            )


def _without_types(said: str) -> str:
    return str(
        Diagnostic(
            Severity.WARNING,
            "no-types",
            "arguments have types on Explicit axes, and the function does not say how values "
            f"follow from them, so that their layouts alone are kept ({said})",
            help="say out_sharding where JAX asks for it, or use a mesh of Auto axes: "
            "jax.make_mesh(..., axis_types=(jax.sharding.AxisType.Auto,) * n)",
        )
    )


def _is_eager(leaves: Sequence[Any]) -> bool:
    """Whether JAX calls for values: under ``jax.disable_jit``, or ``jax.debug_nans`` in search."""
    if jax.config.jax_disable_jit:  # pyright: ignore[reportAttributeAccessIssue]
        return True
    return bool(leaves) and not any(isinstance(leaf, Tracer) for leaf in leaves)


def _is_closed(traced: Any, count: int) -> bool:
    """Whether a traced function of ``count`` leaves stands by itself.

    One that reads values of a trace around it takes them for further arguments; one that speaks of
    the axes of a ``vmap``, or that has checks for ``checkify``, cannot be lowered alone.
    """
    program = traced.jaxpr
    if any(type(effect).__name__ in _OF_STATE for effect in program.effects):
        raise ShardingError(
            "not-supported",
            "the function reads or writes mutable references (jax.new_ref) of the program around "
            "it, or among its arguments",
            help="hand over their values, and give back the new ones",
        )
    if len(program.in_avals) != count or any(isinstance(c, Tracer) for c in program.consts):
        return False
    return not any(type(effect).__name__ in _OF_THE_OUTSIDE for effect in program.effects)
