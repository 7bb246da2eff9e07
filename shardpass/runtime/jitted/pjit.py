"""``pjit`` as scripts of an older JAX call it."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, Final

import jax
from jax.sharding import PartitionSpec

from shardpass.compat.mesh_context import entered_mesh
from shardpass.diagnostics import ShardingError
from shardpass.runtime.jitted.ahead import Lowered, Traced
from shardpass.runtime.jitted.function import JitFunction, jit
from shardpass.runtime.jitted.policy import is_sharding_leaf, jax_mesh


class _NotGiven:
    def __repr__(self) -> str:
        return "the plan decides"


_NOT_GIVEN: Final = _NotGiven()


class PjitFunction:
    """A :class:`JitFunction` for each mesh in whose ``with`` block it is called."""

    def __init__(self, function: Callable[..., Any], mesh: Any, options: dict[str, Any]) -> None:
        self._function = function
        self._mesh = mesh
        self._options = options
        self._on_mesh: dict[Any, JitFunction] = {}
        functools.update_wrapper(self, function)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call it on the mesh of the ``with`` block.

        Raises:
          ShardingError: ``bad-mesh`` outside of any.
        """
        return self._here()(*args, **kwargs)

    def trace(self, /, *args: Any, **kwargs: Any) -> Traced:
        """As :meth:`JitFunction.trace`."""
        return self._here().trace(*args, **kwargs)

    def lower(self, /, *args: Any, **kwargs: Any) -> Lowered:
        """As :meth:`JitFunction.lower`."""
        return self._here().lower(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """As a method: with the instance for the first argument."""
        return self if instance is None else types.MethodType(self, instance)

    def _here(self) -> JitFunction:
        mesh = self._mesh or _current_mesh()
        found = self._on_mesh.get(mesh)
        if found is None:
            found = self._on_mesh[mesh] = jit(self._function, mesh=mesh, **self._options)
        return found


def pjit(
    function: Callable[..., Any] | None = None,
    /,
    in_shardings: Any = _NOT_GIVEN,
    out_shardings: Any = _NOT_GIVEN,
    static_argnums: Any = None,
    static_argnames: Any = None,
    donate_argnums: Any = None,
    donate_argnames: Any = None,
    keep_unused: bool = False,
    *,
    in_axis_resources: Any = _NOT_GIVEN,
    out_axis_resources: Any = _NOT_GIVEN,
    mesh: Any = None,
    **options: Any,
) -> Any:
    """:func:`shardpass.jit` under the name and with the parameters that ``pjit`` had.

    The mesh is that of the ``with mesh:`` block, or of ``jax.set_mesh``, in which the function is
    *called*. As then, ``None`` in a tree of shardings means whole on every device; what is not
    given is left to the plan.

    Args:
      function: the function; without it, a decorator is returned.
      in_shardings: shardings, or ``PartitionSpec`` on the mesh, of the arguments by position.
      out_shardings: the same of the results.
      static_argnums: as for ``jax.jit``; the others of this kind alike.
      static_argnames: see there.
      donate_argnums: see there.
      donate_argnames: see there.
      keep_unused: see there.
      in_axis_resources: what ``in_shardings`` was called first.
      out_axis_resources: what ``out_shardings`` was called first.
      mesh: instead of the block's.
      options: ``rules``, ``pipeline``, ``report``, ``inline``, ``compiler_options``, as for
        :func:`shardpass.jit`.

    Raises:
      ShardingError: ``bad-argument``, where one thing is given under both its names;
        ``bad-mesh``, when it is called outside of any block; and as :func:`shardpass.jit`.
    """
    if function is None:
        given = {name: value for name, value in locals().items() if name not in _OF_ITS_OWN}
        return functools.partial(pjit, **given, **options)
    options |= {
        "in_shardings": _one_of(in_shardings, in_axis_resources, "in_shardings"),
        "out_shardings": _one_of(out_shardings, out_axis_resources, "out_shardings"),
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
        "keep_unused": keep_unused,
    }
    return PjitFunction(function, None if mesh is None else jax_mesh(mesh), options)


_OF_ITS_OWN: Final = ("function", "options")


def _one_of(new: Any, old: Any, name: str) -> Any:
    if new is not _NOT_GIVEN and old is not _NOT_GIVEN:
        was = name.replace("shardings", "axis_resources")
        raise ShardingError(
            "bad-argument", f"{was} is what {name} was called: both are given", help="give one"
        )
    given = old if new is _NOT_GIVEN else new
    if given is _NOT_GIVEN:
        return None
    return jax.tree.map(
        lambda leaf: PartitionSpec() if leaf is None else leaf, given, is_leaf=is_sharding_leaf
    )


def _current_mesh() -> jax.sharding.Mesh:
    entered = entered_mesh()
    mesh = jax.sharding.get_mesh() if entered.empty else entered
    if mesh.empty:
        raise ShardingError(
            "bad-mesh",
            "a function of pjit is called, and there is no mesh",
            help="call it inside `with mesh:`, or hand the mesh over: pjit(f, mesh=mesh)",
        )
    return mesh
