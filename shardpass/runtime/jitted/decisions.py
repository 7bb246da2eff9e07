"""What a plan decides about values inside a function, from the module back into the program.

Rules on ops and passes of the user's constrain values between arguments and results. To bind such
a decision, the equation of the traced program has to be found that a module's op was lowered from.
So equations are numbered: a copy of the program carries the number of each in its name stack, the
module that it is lowered to has it in the locations, and :class:`Numbers` takes it from there into
an attribute before any pass sees it. A constraint on the result of an op with such an attribute,
and without one itself, is new, and becomes a constraint in the program.

Programs are rewritten as data: equations are replaced in a jaxpr, and in the jaxprs inside it, with
nothing traced again. The bodies of custom derivatives and manual computations stay whole.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, cast

import jax
from jax.extend.core import DropVar, Jaxpr, Var
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, sdy

from shardpass.canon import TensorSharding
from shardpass.diagnostics import Sink
from shardpass.mlir import MAIN, Module, Shardings, collect, operations
from shardpass.passes import Pass
from shardpass.passes.propagate import Propagate

#: The number of an equation, and which of its results, counted from the last, which is -1; or
#: ``ARGUMENT`` and the number of the argument.
Place = tuple[int, int]

ARGUMENT: Final = -1

_ATTRIBUTE: Final = "shardpass_equation"
_MARK: Final = re.compile(r"/?shardpass\.equation\.(?P<number>\d+)")
#: Primitives whose insides are no ordinary values of the program around them.
_WHOLE: Final = ("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "shard_map")

Rewrite = Callable[[int, Any], list[Any]]


def numbered(program: Any) -> Any:
    """``program``, a closed jaxpr, with the number of each equation in its name stack."""

    def mark(number: int, equation: Any) -> list[Any]:
        source = equation.source_info
        stack = source.name_stack.extend(f"shardpass.equation.{number}")
        return [equation.replace(source_info=source.replace(name_stack=stack))]

    return _Rewriting(mark).closed(program)


def bound(program: Any, decisions: Mapping[Place, jax.sharding.Sharding]) -> Any:
    """``program`` with constraints on the results of its equations."""

    def constrain(number: int, equation: Any) -> list[Any]:
        following: list[Any] = []
        results = list(equation.outvars)
        for index, result in enumerate(results):
            place = decisions.get((number, index - len(results)))
            if place is None or isinstance(result, DropVar):
                continue
            free = Var(result.aval)
            results[index] = free
            following.append(_constraint(free, result, place, equation.source_info))
        return [equation.replace(outvars=results), *following] if following else [equation]

    return _Rewriting(constrain).closed(program)


def _constraint(before: Any, behind: Any, place: Any, source_info: Any) -> Any:
    aval = before.aval
    equation = _constraint_on(aval.shape, aval.dtype, place)
    return equation.replace(invars=[before], outvars=[behind], source_info=source_info)


@functools.lru_cache(maxsize=256)
def _constraint_on(shape: tuple[int, ...], dtype: Any, place: Any) -> Any:
    """An equation that constrains a value of that kind."""
    made = jax.make_jaxpr(lambda x: jax.lax.with_sharding_constraint(x, place))(
        jax.ShapeDtypeStruct(shape, dtype)
    )
    return made.eqns[0]


class _Rewriting:
    """One walk over a program, each equation of each jaxpr in it once and in order."""

    def __init__(self, rewrite: Rewrite) -> None:
        self._rewrite = rewrite
        self._count = 0
        self._known: dict[int, Any] = {}

    def closed(self, program: Any) -> Any:
        """A jaxpr, closed or not."""
        known = self._known.get(id(program))
        if known is None:
            inner = getattr(program, "jaxpr", program)
            known = self._open(program) if inner is program else self._outer(program, inner)
            self._known[id(program)] = known
        return known

    def _outer(self, program: Any, inner: Any) -> Any:
        return program.replace(jaxpr=self._open(inner))

    def _open(self, jaxpr: Any) -> Any:
        equations: list[Any] = []
        for equation in jaxpr.eqns:
            number = self._count
            self._count += 1
            equations += self._rewrite(number, self._inside(equation))
        return jaxpr.replace(eqns=equations)

    def _inside(self, equation: Any) -> Any:
        if equation.primitive.name in _WHOLE:
            return equation
        changed = {
            name: new
            for name, value in equation.params.items()
            if (new := self._parameter(value)) is not value
        }
        return equation.replace(params={**equation.params, **changed}) if changed else equation

    def _parameter(self, value: Any) -> Any:
        if _is_program(value):
            return self.closed(value)
        if isinstance(value, tuple) and value and _is_program(value[0]):
            return tuple(self.closed(item) for item in value)
        return value


def _is_program(value: Any) -> bool:
    """Whether ``value`` is a jaxpr, closed or not; newer JAX has one class for both."""
    return isinstance(getattr(value, "jaxpr", value), Jaxpr)


def read_numbers(module: Module) -> None:
    """Take the numbers of equations from the locations of ``module`` into attributes."""
    context = module.root.context
    unmarked: dict[ir.Location, tuple[ir.Location, int | None]] = {}
    kind = ir.IntegerType.get_signless(64, context)
    for op in operations(module.root):
        location = op.location
        found = unmarked.get(location)
        if found is None:
            found = unmarked[location] = _unmarked(location)
        plain, number = found
        if number is not None:
            op.operation.location = plain  # pyright: ignore[reportAttributeAccessIssue]
            op.attributes[_ATTRIBUTE] = ir.IntegerAttr.get(kind, number)


def _unmarked(location: ir.Location) -> tuple[ir.Location, int | None]:
    """``location`` without numbers, and the innermost of them."""
    if isinstance(location, ir.NameLoc):
        name = location.name_str
        marks = _MARK.findall(name)
        child, _ = _unmarked(location.child_loc)
        if not marks:
            return location, None
        return ir.Location.name(_MARK.sub("", name), child, location.context), int(marks[-1])
    if isinstance(location, ir.CallSiteLoc):
        callee, number = _unmarked(location.callee)
        caller, outer = _unmarked(location.caller)
        if number is None and outer is None:
            return location, None
        plain = ir.Location.callsite(callee, [caller], location.context)
        return plain, outer if number is None else number
    if isinstance(location, ir.FusedLoc):
        parts = [_unmarked(part) for part in cast(list[ir.Location], location.locations)]
        numbers = [number for _, number in parts if number is not None]
        if not numbers:
            return location, None
        return ir.Location.fused([part for part, _ in parts], None, location.context), numbers[0]
    return location, None


@dataclass(frozen=True, kw_only=True)
class NoteConstraints(Pass):
    """Note which values have been constrained since the program was lowered."""

    name: ClassVar[str] = "shardpass-note-constraints"

    noted: dict[Place, TensorSharding] = field(default_factory=dict)
    """What was found, the last word on each value."""
    said_before: set[tuple[Place, TensorSharding]] = field(default_factory=set)
    lost: list[ir.Value] = field(default_factory=list)
    """Constrained values that no equation makes."""

    def run(self, root: ir.Operation, sink: Sink) -> None:
        """Look; nothing is changed."""
        shardings = Shardings(root)
        for op in collect(root, sdy.ShardingConstraintOp):
            place = _place(op.operands[0])
            layout = shardings.read(op.attributes["sharding"])
            if _ATTRIBUTE in op.attributes:
                if place:
                    self.said_before.add((place, layout))
            elif place is None:
                self.lost.append(op.operands[0])
            elif (place, layout) not in self.said_before:
                self.noted[place] = layout


def _place(value: ir.Value) -> Place | None:
    if isinstance(value, ir.BlockArgument):
        function = value.owner.owner
        is_entry = isinstance(function, func.FuncOp) and function.name.value == MAIN
        return (ARGUMENT, value.arg_number) if is_entry else None
    assert isinstance(value, ir.OpResult)
    owner = value.owner
    if _ATTRIBUTE not in owner.attributes:
        return None
    number = ir.IntegerAttr(owner.attributes[_ATTRIBUTE]).value
    # A loop has its counter and what it reads in front of what it makes.
    return number, value.result_number - len(owner.results)


def with_notes(steps: Sequence[Pass | str], notes: NoteConstraints) -> list[Pass | str]:
    """``steps`` with a look in front of all that may take constraints away, and at the end."""
    found: list[Pass | str] = [notes]
    for step in steps:
        if isinstance(step, (str, Propagate)):
            found.append(notes)
        found.append(step)
    return [*found, notes]
