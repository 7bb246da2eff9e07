"""One arrangement of a function's arguments, and the programs that it is compiled to."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import jax
import numpy as np
from jax.extend.core import jaxpr_as_fun

from shardpass.diagnostics import ShardingError
from shardpass.runtime.jitted.axis_types import open_sharding, typed
from shardpass.runtime.jitted.placing import Misplaced, misplaced
from shardpass.runtime.jitted.planning import (
    Boundary,
    Given,
    Placed,
    Plan,
    Plans,
    derive,
    settled_types,
)
from shardpass.runtime.jitted.policy import Policy, is_sharding_leaf
from shardpass.runtime.jitted.signature import Chosen
from shardpass.runtime.jitted.telling import warn

#: Whether a function of ``shardpass.jit`` is being traced: those inside it run no passes.
_inside: Final = jax.make_user_context(False)

#: The plan for the arguments at hand differs from a program's, then from that plan's, ...
_MOST_CHANGES: Final = 4


@dataclass(frozen=True, eq=False)
class Settings:
    """What holds for every call of one function.

    Attributes:
      function: the user's.
      policy: what he asks for.
      plans: its plans, where it is the outermost one.
      plans_inside: its plans inside another function of ``shardpass.jit``.
      in_shardings: what the user has fixed: a tree, ``None`` where the plan decides.
      out_shardings: the same for the results.
      static: which arguments are static.
      donated: which are donated.
      own_pipeline: whether the user gave a pipeline.
      options: what else ``jax.jit`` is given.
      on_plan: is told each plan when it is first used.
    """

    function: Callable[..., Any]
    policy: Policy
    plans: Plans
    plans_inside: Plans
    in_shardings: Any
    out_shardings: Any
    static: Chosen
    donated: Chosen
    own_pipeline: bool
    options: dict[str, Any]
    on_plan: Callable[[Plan], None]
    said: set[Any] = field(default_factory=set)

    def say_once(self, key: Any, text: Callable[[], str]) -> None:
        """Warn the user of something, if he has not been."""
        if key not in self.said:
            self.said.add(key)
            warn(text())


@dataclass(frozen=True)
class _Program:
    """A ``jax.jit`` for one boundary.

    Attributes:
      call: it.
      boundary: where its arguments and results lie.
      paths: the names of its arguments, leaf by leaf; none before there is a plan.
    """

    call: Any
    boundary: Boundary
    paths: tuple[str, ...] = ()


class _AnotherBoundaryError(ValueError):
    """In the middle of a trace: the plan for these arguments has another boundary."""

    def __init__(self, plan: Plan, trees: tuple[Any, Any]) -> None:
        super().__init__()
        self.plan = plan
        self.trees = trees


class Form:
    """Calls with so many arguments by position, and others by these names.

    ``jax.jit`` takes no arguments by name beside shardings for its arguments. So its functions take
    all by position, those with a name behind the others and in alphabetical order, which is that of
    the leaves in JAX's own trees.
    """

    def __init__(self, settings: Settings, count: int, names: tuple[str, ...]) -> None:
        self._settings = settings
        self._count = count
        self._names = names
        self._static = settings.static.places(count, names)
        self._donated = settings.donated.places(count, names)
        self._programs: dict[Any, _Program] = {}
        #: Takes arguments wherever they lie, and ends in the plan for them.
        self._open = _Program(self._jit(None, Boundary()), Boundary())
        self._program = self._open
        self.current: Callable[..., Any] = self._open.call

    def go_on(self, stopped: ValueError, *args: Any) -> Any:
        """Do what has to be done for a call at which ``current`` stopped, and call.

        Raises:
          ValueError: ``stopped``, where it is no matter of where arguments lie.
        """
        return self._apply(_call, args, stopped)

    def trace(self, *args: Any) -> Any:
        """The ``jax.stages.Traced`` of a call, whose arguments may be shapes."""
        # On several processes JAX lowers for no array of numpy's that is to be cut.
        shapes = tuple(
            arg if place in self._static else jax.tree.map(_shape_of_numpy, arg)
            for place, arg in enumerate(args)
        )
        return self._apply(lambda program, given: program.call.trace(*given), shapes)

    def _apply(
        self,
        do: Callable[[_Program, tuple[Any, ...]], Any],
        args: tuple[Any, ...],
        stopped: ValueError | None = None,
    ) -> Any:
        program = self._program
        for _ in range(_MOST_CHANGES):
            if stopped is None:
                try:
                    return do(program, args)
                except ShardingError:
                    raise
                except ValueError as error:
                    stopped = error
            if isinstance(stopped, _AnotherBoundaryError):
                program = self._switch(stopped)
            elif not (elsewhere := self._misplaced(program, args)):
                raise stopped
            elif any(typed(one.array) for one in elsewhere):
                program = self._open
            else:
                args = self._placed(program, args, elsewhere)
            stopped = None
        raise AssertionError("a plan does not hold still")

    def _switch(self, found: _AnotherBoundaryError) -> _Program:
        key = (found.plan.boundary, found.trees)
        program = self._programs.get(key)
        if program is None:
            call = self._jit(found.trees, found.plan.boundary)
            program = self._programs[key] = _Program(call, found.plan.boundary, found.plan.paths)
            self._settings.on_plan(found.plan)
        self._program = program
        self.current = program.call
        return program

    def _jit(self, trees: tuple[Any, Any] | None, boundary: Boundary) -> Any:
        options = dict(self._settings.options)
        if trees is not None:
            options["in_shardings"] = jax.tree.unflatten(trees[0], boundary.arguments)
            options["out_shardings"] = jax.tree.unflatten(trees[1], boundary.results)

        @functools.wraps(self._settings.function)
        def program(*args: Any) -> Any:
            return self._trace(boundary, args)

        return jax.jit(
            program,
            static_argnums=tuple(sorted(self._static)),
            donate_argnums=tuple(sorted(self._donated)),
            **options,
        )

    def _trace(self, boundary: Boundary, args: tuple[Any, ...]) -> Any:
        """What ``jax.jit`` traces: the plan for ``args``, and the user's program inside it."""
        settings = self._settings
        leaves, in_tree = jax.tree.flatten(self._dynamic(args))
        fixed = self._fixed(args)
        is_nested = _inside.value
        with _inside(True):
            types = self._types(args, leaves, fixed)
            traced = self._traced(self._planner, args, leaves, types or fixed)
            results = _broadcast(settings.out_shardings, traced.out_info)
            given = Given(Boundary(fixed, results), types)

            def relower(program: Any) -> Any:
                return self._relowered(program, traced, args, types or fixed)

            plans = settings.plans_inside if is_nested else settings.plans
            plan = plans.plan(traced, given, relower)
            if is_nested:
                self._say_that_nothing_is_run()
            elif plan.boundary != boundary:
                raise _AnotherBoundaryError(plan, (in_tree, traced.out_tree))
            if types:
                results = jaxpr_as_fun(plan.program)(*_with_types(leaves, types))
            else:
                # Under other transformations the shardings of `jax.jit` may not be all there is.
                leaves = _constrained(leaves, plan.boundary.arguments)
                results = jaxpr_as_fun(plan.program)(*leaves)
                results = _constrained(results, plan.boundary.results)
        return jax.tree.unflatten(traced.out_tree, results)

    def _types(
        self, args: tuple[Any, ...], leaves: Sequence[Any], fixed: Sequence[Placed]
    ) -> tuple[Placed, ...]:
        """The types to trace the function with, leaf by leaf; none at all where none has one.

        Beside arguments that have a type, those that the user or a rule speaks of get theirs.
        """
        found = [typed(leaf) for leaf in leaves]
        if not any(found):
            return ()
        traced = self._traced(self._nothing, args, leaves, [None] * len(leaves))
        open_to_all = Given(Boundary((None,) * len(leaves)))
        by_rules = derive(traced, self._settings.policy.by_rules_alone(), open_to_all)
        return settled_types(fixed, found, by_rules, self._settings.policy)

    def _traced(
        self,
        planner: Any,
        args: tuple[Any, ...],
        leaves: Sequence[Any],
        places: Sequence[Placed],
    ) -> Any:
        shapes = iter([_shape(leaf, place) for leaf, place in zip(leaves, places, strict=True)])
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

    @functools.cached_property
    def _nothing(self) -> Any:
        """A function of the same arguments, whose names are what matters of it."""

        @functools.wraps(self._settings.function)
        def nothing(*_args: Any, **_kwargs: Any) -> tuple[()]:
            return ()

        return self._tracing(nothing)

    def _relowered(
        self, program: Any, traced: Any, args: tuple[Any, ...], places: Sequence[Placed]
    ) -> Any:
        """``program`` lowered in the place of the user's function, for a call with ``args``."""

        @functools.wraps(self._settings.function)
        def instead(*positional: Any, **named: Any) -> Any:
            given = (*positional, *(named[name] for name in self._names))
            results = jaxpr_as_fun(program)(*jax.tree.leaves(self._dynamic(given)))
            return jax.tree.unflatten(traced.out_tree, results)

        leaves = jax.tree.leaves(self._dynamic(args))
        return self._traced(self._tracing(instead, **self._planned), args, leaves, places).lower()

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
        by_place = tuple(
            arg for place, arg in enumerate(args[: self._count]) if place not in self._static
        )
        by_name = [
            arg
            for place, arg in enumerate(args[self._count :], self._count)
            if place not in self._static
        ]
        return (
            *_broadcast(self._settings.in_shardings, by_place),
            *[None] * len(jax.tree.leaves(by_name)),
        )

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

    def _call_placed(self, *args: Any) -> Any:
        """``current`` where arguments lay elsewhere before: what JAX says of them costs time."""
        elsewhere = self._misplaced(self._program, args)
        if any(typed(one.array) for one in elsewhere):
            return self._apply(_call, args)
        return self._program.call(*self._placed(self._program, args, elsewhere))

    def _misplaced(self, program: _Program, args: tuple[Any, ...]) -> list[Misplaced]:
        leaves = jax.tree.leaves(self._dynamic(args))
        targets = program.boundary.arguments
        return list(misplaced(leaves, targets)) if len(leaves) == len(targets) else []

    def _dynamic(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(arg for place, arg in enumerate(args) if place not in self._static)

    def _placed(
        self, program: _Program, args: tuple[Any, ...], elsewhere: Sequence[Misplaced]
    ) -> tuple[Any, ...]:
        """``args`` with those ``elsewhere`` where ``program`` takes them."""
        if not elsewhere:
            return args
        self.current = self._call_placed
        dynamic = [place for place in range(len(args)) if place not in self._static]
        leaves, tree = jax.tree.flatten(self._dynamic(args))
        donated = [
            place in self._donated for place in dynamic for _ in jax.tree.leaves(args[place])
        ]
        for one in elsewhere:
            path = program.paths[one.place]
            leaves[one.place] = one.placed(path, donated=donated[one.place])
            if one.moves:
                say = self._settings.say_once
                say(("moved", path), lambda one=one, path=path: one.warning(path))
        placed = list(args)
        for place, arg in zip(dynamic, jax.tree.unflatten(tree, leaves), strict=True):
            placed[place] = arg
        return tuple(placed)


def _call(program: _Program, args: tuple[Any, ...]) -> Any:
    return program.call(*args)


def _shape_of_numpy(leaf: Any) -> Any:
    return _shape(leaf, None) if isinstance(leaf, np.ndarray) else leaf


def _shape(leaf: Any, place: Placed) -> jax.ShapeDtypeStruct:
    """A leaf without a value or a mesh, where the user has fixed it if he has."""
    aval = jax.typeof(leaf)
    return jax.ShapeDtypeStruct(
        aval.shape, aval.dtype, sharding=place, weak_type=getattr(aval, "weak_type", False)
    )


def _constrained(leaves: Sequence[Any], places: Sequence[Placed]) -> list[Any]:
    return [
        leaf if place is None else jax.lax.with_sharding_constraint(leaf, open_sharding(place))
        for leaf, place in zip(leaves, places, strict=True)
    ]


def _with_types(leaves: Sequence[Any], types: Sequence[Placed]) -> list[Any]:
    """``leaves`` with those types; what arrived without one is resharded to it."""
    return [
        leaf if place is None or typed(leaf) else jax.sharding.reshard(leaf, place)
        for leaf, place in zip(leaves, types, strict=True)
    ]


def _broadcast(prefix: Any, tree: Any) -> tuple[Placed, ...]:
    """A tree of shardings, leaf by leaf of ``tree``.

    Raises:
      ShardingError: ``bad-argument`` where it is no prefix of it.
    """
    try:
        full = jax.tree.broadcast(prefix, tree, is_leaf=is_sharding_leaf)
    except ValueError as error:
        raise ShardingError(
            "bad-argument", f"the given shardings do not fit the values: {error}"
        ) from error
    return tuple(jax.tree.leaves(full, is_leaf=is_sharding_leaf))
