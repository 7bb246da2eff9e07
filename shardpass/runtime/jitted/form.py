"""One arrangement of a function's arguments, and the programs that it is compiled to."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import jax
import numpy as np
from jax.core import Tracer

from shardpass.compat.jit_cache import known_calls
from shardpass.diagnostics import ShardingError
from shardpass.runtime.jitted.axis_types import typed_on
from shardpass.runtime.jitted.placing import Misplaced, misplaced
from shardpass.runtime.jitted.rewritten import Rewriting
from shardpass.runtime.jitted.settings import Settings
from shardpass.runtime.jitted.signature import Arrangement, by_position
from shardpass.runtime.jitted.told import AnotherBoundaryError, Told
from shardpass.runtime.jitted.tracing import Tracing

#: The plan for the arguments at hand differs from a program's, then from that plan's, ...
_MOST_CHANGES: Final = 6
#: More kinds of calls than most functions have.
_MOST_KINDS: Final = 256

#: Marks what comes out of the user's function or its plan, and would come again.
_INSIDE: Final = "_shardpass_raised_inside"


@dataclass(frozen=True)
class _Program:
    """A ``jax.jit`` for one boundary.

    Attributes:
      call: it.
      told: what it knows of the plan. Arguments that it takes wherever they lie on its devices, and
        moves itself, are cheaper than those that are moved first.
      trees: of its arguments and results; none before there is a plan.
      paths: the names of its arguments, leaf by leaf.
      rewriting: what its module goes through.
    """

    call: Any
    told: Told
    trees: tuple[Any, Any] | None = None
    paths: tuple[str, ...] = ()
    rewriting: Rewriting | None = None

    def active(self) -> contextlib.AbstractContextManager[None]:
        """Where it is called, and lowered."""
        return self.rewriting.active() if self.rewriting else contextlib.nullcontext()


class Form:
    """Calls with so many arguments by position, and others by these names.

    ``jax.jit`` takes no arguments by name beside shardings for its arguments. So its functions take
    all by position, those with a name behind the others and in alphabetical order, which is that of
    the leaves in JAX's own trees.
    """

    def __init__(self, settings: Settings, count: int, names: tuple[str, ...]) -> None:
        self._settings = settings
        self._tracing = Tracing(settings, count, names)
        self._count = count
        self._names = names
        self._signature = by_position(settings.function, count, names)
        self._static = settings.static.places(count, names)
        self._donated = settings.donated.places(count, names)
        self._programs: dict[Any, _Program] = {}
        self._by_kind: dict[Any, _Program] = {}
        #: Takes arguments wherever they lie, and ends in the plan for them.
        self._open = self._made(Told(), None, ())
        self._program = self._open
        #: Calls the function where nothing has to be done for it, at JAX's own speed. A
        #: ``ValueError`` may say that something has.
        self.current: Callable[..., Any] = self._open.call
        #: The ``jax.jit`` that this goes to, and how many kinds of calls to it were checked.
        self.program: Any = self._open.call
        self.checked_calls = 0

    def go_on(self, stopped: ValueError, *args: Any) -> Any:
        """Do what has to be done for a call at which ``current`` stopped, and call.

        Raises:
          ValueError: ``stopped``, where it is no matter of where arguments lie.
        """
        if self._is_inside(args):
            # The arrays under the tracers may lie anywhere, and `jax.jit` would refuse them.
            return self._inside.call(*args)
        try:
            found = self._apply(self._call, args, stopped)
        except RuntimeError as error:
            self.refuse_deleted(error, args)
            raise
        self.check(args)
        return found

    def _is_inside(self, args: tuple[Any, ...]) -> bool:
        """Whether ``args`` belong to another transformation."""
        if self._settings.is_inside:
            return False
        leaves = jax.tree.leaves(self._tracing.dynamic(args))
        return any(isinstance(leaf, Tracer) for leaf in leaves)

    def check(self, args: tuple[Any, ...]) -> None:
        """Refuse a new kind of call that JAX would not bear a second time.

        JAX places arguments on the devices of a mesh in another order when it first meets them. Its
        C++ code does not when it meets them again: jaxlib 0.10 crashes, 0.12 has XLA refuse them.

        Raises:
          ShardingError: ``device-order``.
        """
        for one in self._misplaced(self._program, args):
            try:
                one.refuse(self._program.paths[one.place])
            except ShardingError:
                self.program.clear_cache()
                self.checked_calls = 0
                raise
        self.checked_calls = known_calls(self.program)

    def refuse_deleted(self, error: RuntimeError, args: tuple[Any, ...]) -> None:
        """Say which argument it is where ``error`` is about one that was donated before.

        Raises:
          ShardingError: ``deleted``.
        """
        leaves = jax.tree.leaves(self._tracing.dynamic(args)) if _is_of_deleted(error) else ()
        for place, leaf in enumerate(leaves):
            if isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer) and leaf.is_deleted():
                paths = self._program.paths
                path = paths[place] if place < len(paths) else f"leaf {place}"
                raise ShardingError(
                    "deleted",
                    f'argument {place} ("{path}") was donated to an earlier call, and is gone',
                    path=path,
                    help="go on with the result that took its place, or do not donate it",
                ) from error

    def apply(self, do: Callable[[Any, tuple[Any, ...]], Any], args: tuple[Any, ...]) -> Any:
        """What ``do`` makes of the ``jax.jit`` of the right plan, and of ``args`` in their places.

        The arguments may be shapes.
        """
        shapes = self._tracing.shapes(args)

        def of_program(program: _Program, given: tuple[Any, ...]) -> Any:
            with program.active():
                return do(program.call, given)

        return self._apply(of_program, shapes)

    @property
    def arranged(self) -> Arrangement:
        """How its arguments come, static ones apart."""
        count = sum(place not in self._static for place in range(self._count))
        names = enumerate(self._names, self._count)
        return Arrangement(count, tuple(n for place, n in names if place not in self._static))

    @property
    def active(self) -> Callable[[], contextlib.AbstractContextManager[None]]:
        """Where that is lowered which :meth:`apply` was last asked for."""
        return self._program.active

    def call(self, *args: Any) -> Any:
        """Call the function."""
        try:
            return self.current(*args)
        except ShardingError:
            raise
        except ValueError as error:
            stopped = error
        return self.go_on(stopped, *args)

    def _apply(
        self,
        do: Callable[[_Program, tuple[Any, ...]], Any],
        args: tuple[Any, ...],
        stopped: ValueError | None = None,
    ) -> Any:
        program = self._program
        refusal: ValueError | None = None
        for _ in range(_MOST_CHANGES):
            if stopped is None:
                try:
                    found = do(program, args)
                    if self._has_several:
                        self._note(program, args)
                    return found
                except ShardingError:
                    raise
                except ValueError as error:
                    stopped = error
            if isinstance(stopped, AnotherBoundaryError):
                program, refusal = self._switch(stopped), None
            elif hasattr(stopped, _INSIDE) or program is self._open or refusal is not None:
                raise stopped
            elif not (elsewhere := self._misplaced(program, args)) or self._may_differ(elsewhere):
                program, refusal = self._open, stopped
            else:
                program, args = self._placed(program, args, elsewhere)
            stopped = None
        raise AssertionError("a plan does not hold still")

    def _switch(self, found: AnotherBoundaryError) -> _Program:
        plan = found.plan
        if plan is None:
            return self._use(self._open)
        told = Told(plan.boundary, rewritten=found.rewritten)
        key = (told, found.trees)
        if key not in self._programs:
            self._programs[key] = self._made(told, found.trees, plan.paths)
            self._settings.tell(plan)
        return self._use(self._programs[key])

    def _loosened(self, program: _Program, places: Iterable[int]) -> _Program:
        """``program`` for arguments that lie elsewhere on its devices at ``places``."""
        told = replace(program.told, loose=program.told.loose.union(places))
        key = (told, program.trees)
        if key not in self._programs:
            self._programs[key] = self._made(told, program.trees, program.paths)
        return self._use(self._programs[key])

    def _use(self, program: _Program) -> _Program:
        self._program = program
        self.program = program.call
        self.checked_calls = known_calls(program.call)
        if self._has_several:
            self.current = self._call_by_kind
        elif program.rewriting:
            self.current = functools.partial(_with, self._call, program)
        else:
            self.current = program.call
        return program

    @property
    def _has_several(self) -> bool:
        """Whether there are several plans."""
        return len({program.told.boundary for program in self._programs.values()}) > 1

    def _note(self, program: _Program, args: tuple[Any, ...]) -> None:
        """Remember where calls of this kind go."""
        if len(self._by_kind) >= _MOST_KINDS:
            self._by_kind.clear()
        self._by_kind[self._kind(args)] = program

    def _call_by_kind(self, *args: Any) -> Any:
        """``current`` where there are several plans: JAX would trace to find out which it is."""
        program = self._by_kind.get(self._kind(args))
        if program is None:
            self._program = self._open
            return self._apply(self._call, args)
        self._program, self.program = program, program.call
        self.checked_calls = known_calls(program.call)
        if elsewhere := self._misplaced(program, args):
            if self._may_differ(elsewhere):
                return self._apply(self._call, args)
            program, args = self._placed(program, args, elsewhere)
        return self._call(program, args)

    def _kind(self, args: tuple[Any, ...]) -> Any:
        """What a plan is made for: shapes, and static arguments."""
        leaves, tree = jax.tree.flatten(self._tracing.dynamic(args))
        mesh = self._settings.policy.mesh
        return (
            tree,
            tuple((np.shape(x), getattr(x, "dtype", type(x)), typed_on(x, mesh)) for x in leaves),
            tuple(args[place] for place in sorted(self._static)),
        )

    def _made(self, told: Told, trees: tuple[Any, Any] | None, paths: tuple[str, ...]) -> _Program:
        options = dict(self._settings.options)
        if trees is not None:
            options["in_shardings"] = jax.tree.unflatten(trees[0], told.arguments)
            options["out_shardings"] = jax.tree.unflatten(trees[1], told.boundary.results)

        @functools.wraps(self._settings.function)
        def program(*args: Any) -> Any:
            try:
                return self._tracing.run(told, args)
            except AnotherBoundaryError:
                raise
            except ValueError as error:
                setattr(error, _INSIDE, True)
                raise

        if self._signature is not None:
            vars(program)["__signature__"] = self._signature
        call = jax.jit(
            program,
            static_argnums=tuple(sorted(self._static)),
            donate_argnums=tuple(sorted(self._donated)),
            **options,
        )
        rewriting = None
        if told.rewritten:
            rewriting = Rewriting(self._settings.policy, program.__name__, told.arguments)
        return _Program(call, told, trees, paths, rewriting)

    def _call(self, program: _Program, args: tuple[Any, ...]) -> Any:
        if not (self._settings.policy.has_devices or self._settings.is_inside):
            raise ShardingError(
                "device-free",
                "the function's mesh has no devices, and it is called",
                help="call it on a mesh of devices (jax.make_mesh), or look at what it comes to: "
                ".lower(...).report()",
            )
        if program.rewriting is None:
            return program.call(*args)
        if self._is_inside(args):
            return self._inside.call(*args)
        with program.active():
            return program.call(*args)

    @functools.cached_property
    def _inside(self) -> Form:
        """The same calls inside other transformations, whose module is not this function's."""
        settings = replace(self._settings, rewrites=False, is_inside=True)
        return Form(settings, self._count, self._names)

    def _call_placed(self, program: _Program, *args: Any) -> Any:
        """``current`` where arguments lay elsewhere before: what JAX says of them costs time."""
        elsewhere = self._misplaced(program, args)
        if self._may_differ(elsewhere):
            return self._apply(self._call, args)
        program, args = self._placed(program, args, elsewhere)
        return self._call(program, args)

    def _may_differ(self, elsewhere: Sequence[Misplaced]) -> bool:
        """Whether shapes or types of arguments may ask for another plan than that of a program."""
        mesh = self._settings.policy.mesh
        return any(typed_on(one.array, mesh) or not one.divides for one in elsewhere)

    def _misplaced(self, program: _Program, args: tuple[Any, ...]) -> list[Misplaced]:
        leaves = jax.tree.leaves(self._tracing.dynamic(args))
        targets = program.told.boundary.arguments
        found = misplaced(leaves, targets) if len(leaves) == len(targets) else ()
        return [one for one in found if one.place not in program.told.loose or not one.is_near]

    def _placed(
        self, program: _Program, args: tuple[Any, ...], elsewhere: Sequence[Misplaced]
    ) -> tuple[_Program, tuple[Any, ...]]:
        """A program and ``args`` where it takes them, which are not where ``program`` does."""
        if not elsewhere:
            return program, args
        dynamic = [place for place in range(len(args)) if place not in self._static]
        leaves, tree = jax.tree.flatten(self._tracing.dynamic(args))
        donated = [
            place in self._donated for place in dynamic for _ in jax.tree.leaves(args[place])
        ]
        near: list[int] = []
        for one in elsewhere:
            path = program.paths[one.place]
            one.refuse(path)
            if one.moves:
                say = self._settings.say_once
                say(("moved", path), lambda one=one, path=path: one.warning(path))
            if one.is_near and not donated[one.place]:
                near.append(one.place)
            else:
                leaves[one.place] = one.placed(donated=donated[one.place])
        if near:
            program = self._loosened(program, near)
        if len(near) < len(elsewhere):
            self.current = functools.partial(self._call_placed, program)
        placed = list(args)
        for place, arg in zip(dynamic, jax.tree.unflatten(tree, leaves), strict=True):
            placed[place] = arg
        return program, tuple(placed)


def _with(call: Callable[[_Program, tuple[Any, ...]], Any], program: _Program, *args: Any) -> Any:
    return call(program, args)


def _is_of_deleted(error: RuntimeError) -> bool:
    return "deleted" in str(error) or "donated" in str(error)
