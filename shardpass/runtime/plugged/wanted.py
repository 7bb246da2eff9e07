"""What a user asks for with a block, and where JAX keeps it while the block lasts.

JAX has a place for settings that change what a function compiles to: a user context is a part of
the key of every cache between a call and its executable. So a policy goes there, and nothing has to
be cleared when a block begins or ends: what was compiled outside is found again outside, and what
was compiled under a policy is found again under one of the same content.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import jax

from shardpass.diagnostics import ShardingError
from shardpass.partition_rules import PartitionRules
from shardpass.runtime.jitted.policy import Policy


@dataclass(frozen=True)
class Content:
    """What two blocks have in common whose programs are the same.

    Attributes:
      policy: mesh, rules and pipeline.
      leave_alone: regexes for the whole names of functions that are none of the plugin's business.
    """

    policy: Policy
    leave_alone: tuple[str, ...]


class Wanted:
    """A content, known by its identity: JAX compares it at every call.

    Attributes:
      policy: mesh, rules and pipeline.
      leave_alone: as in :class:`Content`.
    """

    _known: Final[weakref.WeakValueDictionary[Content, Wanted]] = weakref.WeakValueDictionary()

    def __init__(self, content: Content) -> None:
        self.policy = content.policy
        self.leave_alone = [re.compile(pattern) for pattern in content.leave_alone]
        self._content = content

    @classmethod
    def of(cls, policy: Policy, leave_alone: Iterable[str | re.Pattern[str]] = ()) -> Wanted:
        """The one object for that policy and those names.

        Raises:
          ShardingError: ``bad-regex``.
        """
        content = Content(policy, tuple(_pattern(each) for each in _several(leave_alone)))
        try:
            found = cls._known.get(content)
        except TypeError:  # A pass with an option that has no hash is like no other.
            return cls(content)
        if found is None:
            found = cls._known[content] = cls(content)
        return found

    def leaves_alone(self, name: str) -> bool:
        """Whether the user wants the function of that name left alone."""
        return any(pattern.fullmatch(name) for pattern in self.leave_alone)


#: What holds in this thread, or everywhere; ``None`` outside of every block.
current: Final = jax.make_user_context(None)


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
    if mesh is None:
        mesh = None if found is None else found.mesh
    if mesh is None:
        raise ShardingError(
            "bad-mesh",
            "plugin mode has no mesh to compile for",
            help='give one (mesh={"data": 2, "model": 4}), or put a [mesh] table into the rules',
        )
    policy = Policy.of(mesh, found, pipeline)
    if not isinstance(policy.mesh, jax.sharding.Mesh):
        raise ShardingError(
            "bad-mesh",
            f"plugin mode compiles for devices, and {policy.shape.describe()} has none",
            help="give a mesh of this process's devices: jax.make_mesh((2, 4), ('data', 'model'))",
        )
    return Wanted.of(policy, leave_alone)


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
    # `<lambda>` and the like are names, too, and stand for themselves as regexes do.
    try:
        re.compile(text)
    except re.error as error:
        raise ShardingError(
            "bad-regex", f"leave_alone: {text!r} is no regular expression: {error}"
        ) from error
    return text
