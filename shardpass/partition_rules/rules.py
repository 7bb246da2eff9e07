"""The rules of one plan, and everything the annotation pass asks of them."""

from __future__ import annotations

import copy
import os
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

from shardpass.canon import MeshShape
from shardpass.diagnostics import Diagnostic, Severity, ShardingError, Sink, did_you_mean
from shardpass.partition_rules.logical import LogicalAxes, Loss
from shardpass.partition_rules.matching import Match, Matcher
from shardpass.partition_rules.resolve import (
    OnIndivisible,
    Resolution,
    axes_on_mesh,
    check_logical,
    resolve_spec,
)
from shardpass.partition_rules.rule import Rule, placing

OnConflict: TypeAlias = Literal["first", "error"]


@dataclass(frozen=True, init=False)
class PartitionRules:
    """Which argument, result or op gets which sharding; the first rule that holds wins.

    Attributes:
      rules: best first.
      mesh: what the names in the specs cut over; may be given later, by :meth:`with_mesh`.
      logical: what logical names mean.
      conflicts: whether a later rule that would give another sharding is passed over (``first``)
        or refused (``error``).
      indivisible: whether a dimension that its axes do not divide is refused (``error``) or left
        whole and reported (``replicate``).
      written_mesh: the mesh that the rules were written with, where another took its place.
    """

    rules: tuple[Rule, ...]
    mesh: MeshShape | None
    logical: LogicalAxes
    conflicts: OnConflict
    indivisible: OnIndivisible
    written_mesh: MeshShape | None = field(compare=False, repr=False)

    def __init__(
        self,
        rules: Iterable[Rule | tuple[Any, Any]] | Mapping[str, Any],
        mesh: Any = None,
        logical: Any = None,
        conflicts: OnConflict = "first",
        indivisible: OnIndivisible = "error",
    ) -> None:
        """Check the rules, on the mesh as well where there is one.

        Args:
          rules: :class:`Rule` objects and ``(regex, PartitionSpec)`` pairs, or a mapping of such.
          mesh: a ``MeshShape``, a mapping from name to size, or a mesh of JAX or ours.
          logical: a mapping from logical names to mesh axes, or Flax's list of pairs.
          conflicts: see above.
          indivisible: see above.

        Raises:
          ShardingError: the faults of :class:`Rule`; ``bad-rules`` for something that is no rule
            and for an unknown option; ``unknown-axis``, ``duplicate-axis``, ``bad-sub-axis``,
            ``bad-mesh``.
        """
        settle = object.__setattr__
        settle(self, "rules", _as_rules(rules))
        settle(self, "mesh", None if mesh is None else as_mesh(mesh))
        settle(self, "written_mesh", None)
        settle(self, "logical", LogicalAxes.of(logical))
        settle(self, "conflicts", check_option("conflicts", conflicts, get_args(OnConflict)))
        settle(
            self, "indivisible", check_option("indivisible", indivisible, get_args(OnIndivisible))
        )
        self._check()

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, mesh: Any = None) -> PartitionRules:
        """Read a TOML file; ``mesh`` stands in for its ``[mesh]``.

        Raises:
          ShardingError: ``unreadable``, ``syntax``, and every fault of the rules, all in one error
            and each with its line.
        """
        from shardpass.partition_rules.toml_file import load

        return load(path, mesh=mesh)

    @classmethod
    def loads(cls, text: str, name: str = "<rules>", *, mesh: Any = None) -> PartitionRules:
        """As :meth:`load`, from the text itself; ``name`` is what messages call it."""
        from shardpass.partition_rules.toml_file import loads

        return loads(text, name, mesh=mesh)

    @classmethod
    def of(cls, source: Any, *, mesh: Any = None) -> PartitionRules:
        """Rules from whatever a function was given: rules, a path, or a list of pairs.

        A ``mesh`` takes the place of the one that the rules were written with, which
        :attr:`written_mesh` tells of where it is another.
        """
        if isinstance(source, PartitionRules):
            if mesh is None:
                return source
            return source.with_mesh(mesh).written_with(source.written_mesh or source.mesh)
        if isinstance(source, (str, os.PathLike)):
            return cls.load(source, mesh=mesh)
        return cls(source, mesh)

    def with_mesh(self, mesh: Any) -> PartitionRules:
        """The same rules over another mesh, checked on it."""
        return PartitionRules(
            self.rules, as_mesh(mesh), self.logical, self.conflicts, self.indivisible
        )

    def written_with(self, mesh: MeshShape | None) -> PartitionRules:
        """The same rules, as written with ``mesh``, in whose place is their own."""
        found = copy.copy(self)
        object.__setattr__(found, "written_mesh", mesh if mesh != self.mesh else None)
        return found

    def for_value(self, path: str, raw: str, shape: Sequence[int]) -> Match | None:
        """The rule for an argument or result; see :meth:`Matcher.for_value`."""
        return self._matcher.for_value(path, raw, shape)

    def for_op(
        self, op_name: str, location_names: Sequence[str], shape: Sequence[int]
    ) -> Match | None:
        """The rule for one result of an op; see :meth:`Matcher.for_op`."""
        return self._matcher.for_op(op_name, location_names, shape)

    @cached_property
    def has_op_rules(self) -> bool:
        """Whether any rule speaks of ops, so that ops have to be walked at all."""
        return any(rule.speaks_of_ops for rule in self.rules)

    def concerns_op(self, op_name: str) -> bool:
        """Whether any rule lets this op name through."""
        return bool(self._matcher.candidates(op_name))

    def reads_locations(self, op_name: str) -> bool:
        """Whether the rules for this op name look at locations."""
        return self._matcher.reads_locations(op_name)

    def resolve(
        self,
        match: Match,
        shape: Sequence[int],
        *,
        mesh: MeshShape | None = None,
        subject: str = "",
        path: str | None = None,
    ) -> Resolution:
        """The sharding that a matched value gets.

        Args:
          match: what :meth:`for_value` or :meth:`for_op` gave.
          shape: global shape.
          mesh: instead of the rules' own.
          subject: what messages call the value (``argument 0 ("params.wq")``).
          path: its dotted path.

        Raises:
          ShardingError: ``bad-rules`` without a mesh; ``rule-conflict``; what
            :func:`resolve_spec` raises. The rule stands in the notes, with its line.
        """
        mesh = mesh or self.mesh
        if mesh is None:
            raise ShardingError(
                "bad-rules",
                "the rules name mesh axes, but no mesh is given",
                help="add a [mesh] table with lines like data = 2, or pass a mesh",
            )
        key = (match.index, match.exact, match.others, tuple(shape), mesh)
        known = self._resolved.get(key)
        if known is not None:
            return known
        found = self._resolve_one(match.index, shape, mesh, match.exact, subject, path)
        if self.conflicts == "error":
            self._refuse_conflict(match, shape, mesh, found, subject, path)
        if not found.diagnostics:
            self._resolved[key] = found
        return found

    def unused(self, used: Container[int]) -> tuple[Diagnostic, ...]:
        """A warning for each rule whose place is not in ``used``."""
        return tuple(
            rule.place(
                Diagnostic(
                    Severity.WARNING,
                    "unused-rule",
                    f"{self.describe(index)} matched nothing",
                    help=_look_again(rule),
                )
            )
            for index, rule in enumerate(self.rules)
            if index not in used
        )

    def losses(self, used: Container[int]) -> tuple[Diagnostic, ...]:
        """Entries of the rules whose place is in ``used`` that cut nothing, their axis being taken.

        An axis cuts one dimension of a value. That a logical name finds all its axes taken is part
        of its meaning, and a remark; that an axis somebody wrote out is passed over is a warning.
        """
        return tuple(
            rule.place(self._lost(index, loss), "spec")
            for index, rule in enumerate(self.rules)
            if index in used
            for loss in self.logical.losses(rule.spec)
        )

    def _lost(self, index: int, loss: Loss) -> Diagnostic:
        is_axis = loss.name not in self.logical.names
        stands_for = "" if is_axis else f" (mesh axis {', '.join(loss.axes)})"
        return Diagnostic(
            Severity.WARNING if is_axis else Severity.REMARK,
            "axis-taken",
            f'rule {index + 1}, dimension {loss.dimension}: "{loss.name}"{stands_for} cuts '
            "nothing, another entry of the spec has the axis",
            excerpt=self.rules[index].spec.excerpt(loss.name),
            notes=(self.describe(index),),
            help="drop one of the two entries, or map the logical name to another axis",
        )

    def describe(self, index: int) -> str:
        """``rule 2 (rules.toml:9): match = "kernel", spec = ["x"]``; counted from 1 for people."""
        rule = self.rules[index]
        where = f" ({rule.origin.file}:{rule.origin.first_line})" if rule.origin else ""
        return f"rule {index + 1}{where}: {rule}"

    @cached_property
    def _matcher(self) -> Matcher:
        return Matcher(self.rules)

    @cached_property
    def _resolved(self) -> dict[object, Resolution]:
        return {}

    def _check(self) -> None:
        logical_names = self.logical.names
        if self.mesh is not None:
            for name, axes in self.logical.pairs:
                check_logical(name, axes, self.mesh)
        sink = Sink()
        for rule in self.rules:
            try:
                with placing(rule.origin, "spec"):
                    rule.spec.refuse_repeated(logical_names)
                    if self.mesh is not None:
                        axes_on_mesh(rule.spec, self.mesh, self.logical)
            except ShardingError as error:
                sink.report_error(error)
        sink.raise_errors()

    def _resolve_one(
        self,
        index: int,
        shape: Sequence[int],
        mesh: MeshShape,
        exact: bool,
        subject: str = "",
        path: str | None = None,
    ) -> Resolution:
        return resolve_spec(
            self.rules[index].spec,
            mesh,
            shape,
            logical=self.logical,
            indivisible=self.indivisible,
            exact=exact,
            subject=subject,
            path=path,
            notes=(self.describe(index),),
        )

    def _refuse_conflict(
        self,
        match: Match,
        shape: Sequence[int],
        mesh: MeshShape,
        found: Resolution,
        subject: str,
        path: str | None,
    ) -> None:
        for other in match.others:
            try:
                sharding = self._resolve_one(other, shape, mesh, False).sharding
            except ShardingError as error:
                said = f"none ({error.diagnostic.message})"
            else:
                if sharding == found.sharding:
                    continue
                said = sharding.dims_text()
            before = f"{subject}: " if subject else ""
            raise ShardingError(
                "rule-conflict",
                f"{before}rules {match.index + 1} and {other + 1} both hold and give "
                f"{found.sharding.dims_text()} and {said}",
                notes=(self.describe(match.index), self.describe(other)),
                path=path,
                help='narrow one of the two, or let the first win with conflicts = "first"',
            )


def as_mesh(mesh: Any) -> MeshShape:
    """A mesh from a ``MeshShape``, a mapping from name to size, or a mesh of JAX or ours."""
    if isinstance(mesh, MeshShape):
        return mesh
    if isinstance(mesh, Mapping):
        return MeshShape(tuple(mesh.items()))
    from shardpass.sharding import as_mesh_shape  # imports jax: only for an object that has it

    return as_mesh_shape(mesh)


def check_option(key: str, value: Any, allowed: Sequence[str]) -> Any:
    """``value``, if it is one of ``allowed``.

    Raises:
      ShardingError: ``bad-rules``.
    """
    if value in allowed:
        return value
    raise ShardingError(
        "bad-rules",
        f"{key} is {' or '.join(repr(a) for a in allowed)}, not {value!r}",
        help=did_you_mean(str(value), allowed),
    )


def _as_rules(given: Any) -> tuple[Rule, ...]:
    is_spec = hasattr(given, "partitions")
    if isinstance(given, (str, bytes)) or is_spec or not isinstance(given, Iterable):
        raise ShardingError(
            "bad-rules",
            f"rules are {given!r} of type {type(given).__name__}",
            help='give a list of pairs ("regex", PartitionSpec("x")), a PartitionRules, or the '
            "path of a TOML file",
        )
    items: Iterable[Any] = given.items() if isinstance(given, Mapping) else given
    sink = Sink()
    rules: list[Rule] = []
    for index, item in enumerate(items):
        try:
            rules.append(_as_rule(item, index))
        except ShardingError as error:
            sink.report_error(error)
    sink.raise_errors()
    return tuple(rules)


def _as_rule(item: Any, index: int) -> Rule:
    if isinstance(item, Rule):
        return item
    if isinstance(item, (tuple, list)) and len(item) == 2 and not hasattr(item, "partitions"):
        try:
            return Rule(item[0], item[1])
        except ShardingError as error:
            raise ShardingError.of(
                [replace(d, message=f"rule {index + 1}: {d.message}") for d in error.diagnostics]
            ) from error
    raise ShardingError(
        "bad-rules",
        f"rule {index + 1} is {item!r} of type {type(item).__name__}",
        help='write a Rule, or a pair ("regex", PartitionSpec("x"))',
    )


def _look_again(rule: Rule) -> str:
    if not rule.speaks_of_ops:
        return "look at the paths in `shardpass report`, or drop the rule"
    return "look at the op names and locations in the module's text, or drop the rule"
