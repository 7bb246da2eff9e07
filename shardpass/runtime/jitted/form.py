"""One arrangement of a function's arguments, and the programs that it is compiled to."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import jax
from jax.extend.core import jaxpr_as_fun

from shardpass.diagnostics import Diagnostic, Severity, ShardingError
from shardpass.runtime.jitted.placing import misplaced
from shardpass.runtime.jitted.planning import Boundary, Placed, Plan, Plans
from shardpass.runtime.jitted.policy import is_sharding_leaf
from shardpass.runtime.jitted.signature import Chosen

#: Whether a function of ``shardpass.jit`` is being traced: those inside it run no passes.
_inside: Final = jax.make_user_context(False)

#: The plan for the arguments at hand differs from a program's, then from that plan's, ...
_MOST_CHANGES: Final = 4


@dataclass(frozen=True, eq=False)
class Settings:
    """What holds for every call of one function.

    Attributes:
      function: the user's.
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
            warnings.warn(text(), stacklevel=2)


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
        self._program = _Program(self._jit(None, Boundary()), Boundary())
        self.current: Callable[..., Any] = self._program.call

    def call(self, *args: Any) -> Any:
        """Call the function, whatever has to be done for it.

        ``current`` does so, too, where nothing has to be done, at JAX's own speed. It raises a
        ``ValueError`` where something has.
        """
        return self._apply(lambda program, given: program.call(*given), args)

    def lower(self, *args: Any, **options: Any) -> Any:
        """The ``jax.stages.Lowered`` of a call."""
        return self._apply(lambda program, given: program.call.lower(*given, **options), args)

    def trace(self, *args: Any) -> Any:
        """The ``jax.stages.Traced`` of a call."""
        return self._apply(lambda program, given: program.call.trace(*given), args)

    def _apply(self, do: Callable[[_Program, tuple[Any, ...]], Any], args: tuple[Any, ...]) -> Any:
        for _ in range(_MOST_CHANGES):
            program = self._program
            try:
                return do(program, args)
            except _AnotherBoundaryError as error:
                found = error
            except ValueError:
                # JAX says it of arguments that lie elsewhere; the user's function may say it, too.
                placed = self._placed(program, args)
                if placed is args:
                    raise
                args = placed
                continue
            self._switch(found)
        raise AssertionError("a plan does not hold still")

    def _switch(self, found: _AnotherBoundaryError) -> None:
        key = (found.plan.boundary, found.trees)
        program = self._programs.get(key)
        if program is None:
            call = self._jit(found.trees, found.plan.boundary)
            program = self._programs[key] = _Program(call, found.plan.boundary, found.plan.paths)
            self._settings.on_plan(found.plan)
        self._program = program
        self.current = program.call

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
        dynamic = tuple(arg for place, arg in enumerate(args) if place not in self._static)
        leaves, in_tree = jax.tree.flatten(dynamic)
        fixed = self._fixed(args)
        is_nested = _inside.value
        with _inside(True):
            traced = self._traced(args, leaves, fixed)
            given = Boundary(fixed, _broadcast(settings.out_shardings, traced.out_info))
            plans = settings.plans_inside if is_nested else settings.plans
            plan = plans.plan(traced, given)
            if is_nested:
                self._say_that_nothing_is_run()
            elif plan.boundary != boundary:
                raise _AnotherBoundaryError(plan, (in_tree, traced.out_tree))
            # Under another transformation the shardings of `jax.jit` are all that is left of it.
            leaves = _constrained(leaves, plan.boundary.arguments)
            results = jaxpr_as_fun(traced.jaxpr)(*leaves)
        return jax.tree.unflatten(traced.out_tree, _constrained(results, plan.boundary.results))

    def _traced(
        self, args: tuple[Any, ...], leaves: Sequence[Any], fixed: Sequence[Placed]
    ) -> Any:
        shapes = iter([_shape(leaf, place) for leaf, place in zip(leaves, fixed, strict=True)])
        given = [
            arg if place in self._static else jax.tree.map(lambda _: next(shapes), arg)
            for place, arg in enumerate(args)
        ]
        by_name = dict(zip(self._names, given[self._count :], strict=True))
        return self._planner.trace(*given[: self._count], **by_name)

    @functools.cached_property
    def _planner(self) -> Any:
        settings = self._settings
        options: dict[str, Any] = {}
        if any(leaf is not None for leaf in jax.tree.leaves(settings.out_shardings)):
            options["out_shardings"] = settings.out_shardings
        static_names = [name for name in self._names if name in settings.static.names]
        return jax.jit(
            settings.function,
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
                lambda: f"the pipeline of {name} is not run inside another function of "
                "shardpass.jit: its rules alone hold there, as constraints",
            )

    def _placed(self, program: _Program, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """``args`` where ``program`` takes them; ``args`` itself where they are."""
        dynamic = [place for place in range(len(args)) if place not in self._static]
        leaves, tree = jax.tree.flatten(tuple(args[place] for place in dynamic))
        targets = program.boundary.arguments
        if len(leaves) != len(targets):
            return args
        found = list(misplaced(leaves, targets))
        if not found:
            return args
        donated = self._donated_leaves(args, dynamic)
        for one in found:
            self._settings.say_once(
                ("moved", program.paths[one.place]), lambda one=one: _moved(one, program.paths)
            )
            leaves[one.place] = one.placed(donated=donated[one.place])
        # With the next call they will lie there again: what JAX says of them costs time.
        self.current = self._call_placed
        placed = list(args)
        for place, arg in zip(dynamic, jax.tree.unflatten(tree, leaves), strict=True):
            placed[place] = arg
        return tuple(placed)

    def _call_placed(self, *args: Any) -> Any:
        return self._program.call(*self._placed(self._program, args))

    def _donated_leaves(self, args: tuple[Any, ...], dynamic: Sequence[int]) -> list[bool]:
        return [
            place in self._donated for place in dynamic for _ in jax.tree.leaves(args[place])
        ]


def _moved(one: Any, paths: Sequence[str]) -> str:
    return str(
        Diagnostic(
            Severity.WARNING,
            "moved",
            f'argument {one.place} ("{paths[one.place]}") arrives as {one.array.sharding} and is '
            f"placed as {one.target}, {one.bytes_moved:,} bytes to other devices with each call",
            path=paths[one.place],
            help="hand it over as a result of the function has it, or fix it by in_shardings",
        )
    )


def _shape(leaf: Any, place: Placed) -> jax.ShapeDtypeStruct:
    """A leaf without a value or a mesh, where the user has fixed it if he has."""
    aval = jax.typeof(leaf)
    return jax.ShapeDtypeStruct(
        aval.shape, aval.dtype, sharding=place, weak_type=getattr(aval, "weak_type", False)
    )


def _constrained(leaves: Sequence[Any], places: Sequence[Placed]) -> list[Any]:
    return [
        leaf if place is None else jax.lax.with_sharding_constraint(leaf, place)
        for leaf, place in zip(leaves, places, strict=True)
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
