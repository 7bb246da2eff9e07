"""A function of ``shardpass.jit`` as a file that plain JAX loads, plan and all."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.export

from shardpass.diagnostics import ShardingError
from shardpass.runtime.jitted.function import JitFunction


def export(
    function: JitFunction,
    /,
    *,
    platforms: Sequence[str] | None = None,
    disabled_checks: Sequence[Any] = (),
) -> Callable[..., jax.export.Exported]:
    """``jax.export.export`` of a function of :func:`shardpass.jit`.

    What comes out holds the plan: the shardings of arguments and results by the names of the mesh's
    axes, and the constraints inside. A process without shardpass loads it and calls it on a mesh of
    as many devices with those names; ``sp-retarget`` makes it one for another number of devices.

    Args:
      function: what ``shardpass.jit`` gave. Its mesh may be without devices.
      platforms: as in ``jax.export.export``; JAX's default platform by default.
      disabled_checks: as there.

    Returns:
      A function of arguments, or of their shapes, that gives the ``jax.export.Exported``, which is
      called in the same way.

    Raises:
      ShardingError: ``abstract-type`` for a function that is not of ``shardpass.jit``; when called,
        as that one.
    """
    if not isinstance(function, JitFunction):
        raise ShardingError(
            "abstract-type",
            f"export takes a function of shardpass.jit, not {type(function).__name__}",
            help="shardpass.export(shardpass.jit(f, mesh=mesh, rules=rules))(*args); for one of "
            "jax.jit there is jax.export.export",
        )

    def exported(*args: Any, **kwargs: Any) -> jax.export.Exported:
        options = {"platforms": platforms, "disabled_checks": disabled_checks}
        found = function.apply(
            lambda program, given: jax.export.export(program, **options)(*given), args, kwargs
        )
        in_tree = function.arranged(args, kwargs).tree(found.in_tree)
        return dataclasses.replace(found, in_tree=in_tree)

    return exported
