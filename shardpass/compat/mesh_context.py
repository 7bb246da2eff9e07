"""JAX's ``with mesh:`` context, entered without its deprecation warning.

The context is a stack per thread that ``Mesh.__enter__`` pushes onto. Warnings cannot be silenced
from outside without touching the filters of every thread, so the very code of ``Mesh.__enter__``
is run with ``warnings`` replaced in its globals, and with nothing else changed. ``Mesh.__exit__``
does not warn. Source: ``jax/_src/mesh.py``.
"""

from __future__ import annotations

import types
from typing import Any

import jax
from jax._src.mesh import thread_resources


class _SilentWarnings:
    @staticmethod
    def warn(*_args: Any, **_kwargs: Any) -> None:
        """Say nothing."""


_jax_enter: types.FunctionType = jax.sharding.Mesh.__enter__  # pyright: ignore[reportAssignmentType]

enter_mesh = types.FunctionType(
    _jax_enter.__code__,
    {**_jax_enter.__globals__, "warnings": _SilentWarnings},
    "enter_mesh",
    _jax_enter.__defaults__,
    _jax_enter.__closure__,
)
"""``enter_mesh(jax_mesh)`` does what ``jax_mesh.__enter__()`` does, quietly."""


def exit_mesh(mesh: jax.sharding.Mesh) -> None:
    """Leave the context that :data:`enter_mesh` entered last in this thread."""
    mesh.__exit__(None, None, None)


def entered_mesh() -> jax.sharding.Mesh:
    """The mesh of the innermost ``with mesh:`` of this thread; an empty one outside of any."""
    return thread_resources.env.physical_mesh
