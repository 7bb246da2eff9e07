"""Meshes with ``Explicit`` axes: what a value's type says, and how the rest is laid out.

On ``Explicit`` axes a layout is part of a value's type, and JAX refuses a function whose types do
not settle it. That is for the function's author to want, and most functions have none: their
arguments arrive without types, or whole on every device, which is what ``jax.set_mesh`` makes of
all that was never placed. So

* a value whose type is cut over an ``Explicit`` axis keeps its type, and the function is traced
  with it;
* all else is open. The plan lays it out, on the same devices under the same names, with ``Auto``
  axes, so that what comes back is as open as what went in.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType, NamedSharding

JaxMesh = jax.sharding.Mesh | AbstractMesh


@functools.lru_cache(maxsize=64)
def with_auto_axes(mesh: JaxMesh) -> JaxMesh:
    """``mesh`` with ``Auto`` in the place of ``Explicit`` axes."""
    if AxisType.Explicit not in mesh.axis_types:
        return mesh
    types = tuple(AxisType.Auto if kind is AxisType.Explicit else kind for kind in mesh.axis_types)
    return mesh.update(axis_types=types)


def open_sharding(sharding: jax.sharding.Sharding) -> jax.sharding.Sharding:
    """``sharding`` as a constraint may say it."""
    if not isinstance(sharding, NamedSharding) or AxisType.Explicit not in sharding.mesh.axis_types:
        return sharding
    return NamedSharding(
        with_auto_axes(sharding.mesh), sharding.spec, memory_kind=sharding.memory_kind
    )


def typed(value: Any) -> NamedSharding | None:
    """What the type of ``value`` says of its layout; ``None`` where it is open."""
    return said_by(jax.typeof(value))


def said_by(aval: Any) -> NamedSharding | None:
    """What a type says of the layout of its values; ``None`` where it is open."""
    sharding = getattr(aval, "sharding", None)
    if not isinstance(sharding, NamedSharding) or sharding.mesh.empty:
        return None
    kinds = dict(zip(sharding.mesh.axis_names, sharding.mesh.axis_types, strict=True))
    for entry in sharding.spec:
        for name in (entry,) if isinstance(entry, str) else entry or ():
            if kinds.get(name) is AxisType.Explicit:
                return sharding
    return None
