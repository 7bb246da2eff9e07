"""What a user asks for with a block, and where JAX keeps it while the block lasts.

JAX has a place for settings that change what a function compiles to: a user context is a part of
the key of every cache between a call and its executable. So a policy goes there, and nothing has to
be cleared when a block begins or ends: what was compiled outside is found again outside, and what
was compiled under a policy is found again under one of the same content.
"""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import jax

from shardpass.canon import MeshShape
from shardpass.diagnostics import ShardingError
from shardpass.partition_rules import PartitionRules
from shardpass.passes import build
from shardpass.runtime.jitted.policy import Policy
from shardpass.runtime.lowering.calls import Call
from shardpass.runtime.plugged.qualified import names_of


@dataclass(frozen=True)
class Content:
    """What two blocks have in common whose programs, and what is said of them, are the same.

    Attributes:
      policy: mesh, rules and pipeline.
      leave_alone: regexes for the whole names of functions that are none of the plugin's business.
      written_mesh: the mesh that the rules were written with, where another took its place.
    """

    policy: Policy
    leave_alone: tuple[str, ...]
    written_mesh: MeshShape | None


class Wanted:
    """A content, known by its identity: JAX compares it at every call.

    Attributes:
      shape: the names and sizes of the mesh's axes.
      leave_alone: as in :class:`Content`.
      unused_names: those of ``leave_alone`` that no function has had so far. It is asked when it is
        lowered, which JAX does once for all blocks of one content.
      planned_elsewhere: functions of ``shardpass.jit``, by their places.
    """

    _known: Final[weakref.WeakValueDictionary[Content, Wanted]] = weakref.WeakValueDictionary()

    def __init__(
        self, shape: MeshShape, policy: Callable[[], Policy], leave_alone: Iterable[str]
    ) -> None:
        """Take a policy that may not be there yet: ``policy`` is called once, when it is needed."""
        self.shape = shape
        self.leave_alone = [re.compile(pattern) for pattern in leave_alone]
        self.unused_names = {pattern.pattern: None for pattern in self.leave_alone}
        self.planned_elsewhere: set[str] = set()
        self._make = policy

    @functools.cached_property
    def policy(self) -> Policy:
        """Mesh, rules and pipeline."""
        return self._make()

    @classmethod
    def of(cls, policy: Policy, leave_alone: Iterable[str | re.Pattern[str]] = ()) -> Wanted:
        """The one object for that policy and those names.

        Raises:
          ShardingError: ``bad-regex``.
        """
        names = _patterns(leave_alone)
        rules = policy.rules
        content = Content(policy, names, None if rules is None else rules.written_mesh)
        made = cls(policy.shape, lambda: content.policy, names)
        try:
            return cls._known.setdefault(content, made)
        except TypeError:  # A pass with an option that has no hash is like no other.
            return made

    @property
    def mesh(self) -> jax.sharding.Mesh:
        """The mesh, which has devices."""
        assert isinstance(self.policy.mesh, jax.sharding.Mesh)
        return self.policy.mesh

    def leaves_alone(self, call: Call) -> bool:
        """Whether the user wants the function of ``call`` left alone."""
        if not self.leave_alone:
            return False
        names = names_of(call)
        found = [p.pattern for p in self.leave_alone if any(map(p.fullmatch, names))]
        for pattern in found:
            self.unused_names.pop(pattern, None)
        return bool(found)


def read(mesh: Any, rules: Any, pipeline: Any, leave_alone: Any) -> Wanted:
    """What a user gave.

    Args:
      mesh: as for ``shardpass.jit``; that of the rules where it is ``None``.
      rules: as for ``shardpass.jit``.
      pipeline: as for ``shardpass.jit``.
      leave_alone: names of functions, or regexes for whole names.

    Raises:
      ShardingError: every fault of these; ``bad-mesh`` where there is no mesh at all, or one
        without devices.
    """
    found = None if rules is None else PartitionRules.of(rules)
    policy = Policy.of(_some_mesh(mesh, found), found, pipeline)
    if not isinstance(policy.mesh, jax.sharding.Mesh):
        raise ShardingError(
            "bad-mesh",
            f"plugin mode compiles for devices, and {policy.shape.describe()} has none",
            help="give a mesh of this process's devices: jax.make_mesh((2, 4), ('data', 'model'))",
        )
    return Wanted.of(policy, leave_alone)


def read_for_later(shape: MeshShape | None, rules: Any, pipeline: Any, leave_alone: Any) -> Wanted:
    """What a user gave, for a program that has yet to start JAX's backends, in its own way.

    Devices are taken when the first function is compiled.

    Raises:
      ShardingError: as :func:`read`; that there are too few devices is found later.
    """
    found = None if rules is None else PartitionRules.of(rules)
    shape = _some_mesh(shape, found)
    assert shape is not None
    found = None if found is None else found.with_mesh(shape)
    steps = None if pipeline is None else build(pipeline)
    return Wanted(shape, lambda: Policy.of(shape, found, steps), _patterns(leave_alone))


def _some_mesh(mesh: Any, rules: PartitionRules | None) -> Any:
    """``mesh``, or that of the rules.

    Raises:
      ShardingError: ``bad-mesh`` where there is none.
    """
    if mesh is None:
        mesh = None if rules is None else rules.mesh
    if mesh is None:
        raise ShardingError(
            "bad-mesh",
            "plugin mode has no mesh to compile for",
            help='give one (mesh={"data": 2, "model": 4}), or put a [mesh] table into the rules',
        )
    return mesh


def _patterns(given: Any) -> tuple[str, ...]:
    return tuple(_pattern(each) for each in _several(given))


def _several(given: Any) -> Iterable[Any]:
    return (given,) if isinstance(given, (str, re.Pattern)) else tuple(given or ())


def _pattern(given: Any) -> str:
    text = given.pattern if isinstance(given, re.Pattern) else given
    if not isinstance(text, str):
        raise ShardingError(
            "abstract-type",
            f"leave_alone holds {given!r} of type {type(given).__name__}",
            help="give names of functions, or regexes for whole names",
        )
    try:
        re.compile(text)
    except re.error as error:
        raise ShardingError(
            "bad-regex", f"leave_alone: {text!r} is no regular expression: {error}"
        ) from error
    return text
