"""Meshes with ``Explicit`` axes: what a value's type says, and how the rest is laid out.

On ``Explicit`` axes a layout is part of a value's type, and JAX refuses a function whose types do
not settle it. That is for the function's author to want, and most functions have none: their
arguments arrive without types, or whole on every device, which is what ``jax.set_mesh`` makes of
all that was never placed. So

* a value whose type is cut over an ``Explicit`` axis keeps its type, and the function is traced
  with it. Where it cannot be, since it does not say how its values follow from such types, their
  layouts alone are kept, which is said once;
* all else is open. The plan lays it out, on the same devices under the same names, with ``Auto``
  axes, so that what comes back is as open as what went in. Under ``jax.set_mesh`` results have
  types, as everything has there.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import jax
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from shardpass.diagnostics import ShardingError
from shardpass.sharding.partition_spec import axes_of

JaxMesh = jax.sharding.Mesh | AbstractMesh
_AnyMesh = TypeVar("_AnyMesh", jax.sharding.Mesh, AbstractMesh)


@functools.lru_cache(maxsize=64)
def with_auto_axes(mesh: _AnyMesh) -> _AnyMesh:
    """``mesh`` with ``Auto`` in the place of ``Explicit`` axes."""
    if not _has_explicit(mesh):
        return mesh
    types = tuple(AxisType.Auto if kind is AxisType.Explicit else kind for kind in mesh.axis_types)
    return mesh.update(axis_types=types)


def open_sharding(sharding: jax.sharding.Sharding) -> jax.sharding.Sharding:
    """``sharding`` as a constraint may say it."""
    if not isinstance(sharding, NamedSharding) or not _has_explicit(sharding.mesh):
        return sharding
    return NamedSharding(
        with_auto_axes(sharding.mesh), sharding.spec, memory_kind=sharding.memory_kind
    )


def typed(value: Any) -> NamedSharding | None:
    """What the type of ``value`` says of its layout; ``None`` where it is open."""
    return said_by(jax.typeof(value))


def typed_on(value: Any, mesh: JaxMesh) -> NamedSharding | None:
    """What the type of ``value`` says of its layout on ``mesh``; on another one it says nothing."""
    found = typed(value)
    if found is None or (mesh.axis_names, mesh.axis_types) != (
        found.mesh.axis_names,
        found.mesh.axis_types,
    ):
        return None
    return found if found.mesh.axis_sizes == mesh.axis_sizes else None


def said_by(kind: Any) -> NamedSharding | None:
    """What a type says of the layout of its values; ``None`` where it is open."""
    sharding = _of_type(kind)
    if sharding is None:
        return None
    cut = {name for entry in sharding.spec for name in axes_of(entry)}
    return sharding if cut.intersection(_explicit_axes(sharding.mesh)) else None


def constrained(value: Any, place: jax.sharding.Sharding) -> Any:
    """``value`` laid out as ``place`` says: by its type over ``Explicit`` axes."""
    if isinstance(place, NamedSharding) and _has_explicit(place.mesh):
        return resharded(value, place)
    return jax.lax.with_sharding_constraint(value, place)


def resharded(value: Any, place: jax.sharding.Sharding) -> Any:
    """``value`` with what ``place`` says over ``Explicit`` axes in its type."""
    if not isinstance(place, NamedSharding):
        return jax.sharding.reshard(value, place)
    kind = _type_of(place, place.mesh)
    return jax.sharding.reshard(value, kind) if _explicit_axes(place.mesh) else value


def opened(
    program: Callable[..., list[Any]],
    leaves: Sequence[Any],
    results: Sequence[jax.sharding.Sharding | None],
) -> list[Any]:
    """``program(*leaves)``, with the types of whole values taken from ``leaves`` first.

    Its results get types again where the leaves had some: that of their place in ``results``.
    """
    meshes = [found.mesh for leaf in leaves if (found := _explicit(leaf))]
    meshes += [mesh for mesh in (jax.sharding.get_abstract_mesh(),) if _has_explicit(mesh)]
    if not meshes:
        return program(*leaves)
    mesh = meshes[0]
    names = _explicit_axes(mesh)
    types = [_type_of(place, mesh) for place in results]
    run: Any = jax.sharding.auto_axes(program, axes=names, out_sharding=types)
    return run(*leaves)


@contextlib.contextmanager
def open_context() -> Iterator[None]:
    """Let what is made without a sharding have no type, whatever mesh has been set."""
    mesh = jax.sharding.get_abstract_mesh()
    if not _has_explicit(mesh):
        yield
        return
    with jax.sharding.use_abstract_mesh(with_auto_axes(mesh)):
        yield


def is_set(mesh: JaxMesh) -> bool:
    """Whether ``mesh`` has ``Explicit`` axes and is the one of ``jax.set_mesh``."""
    found = jax.sharding.get_abstract_mesh()
    return _has_explicit(mesh) and (found.axis_names, found.axis_sizes, found.axis_types) == (
        mesh.axis_names,
        mesh.axis_sizes,
        mesh.axis_types,
    )


def manual_axes(mesh: JaxMesh) -> frozenset[str]:
    """The axes of ``mesh`` over which a ``shard_map`` goes on around this."""
    return frozenset(jax.sharding.get_abstract_mesh().manual_axes) & frozenset(mesh.axis_names)


def inside_manual(
    place: jax.sharding.Sharding, mesh: AbstractMesh, manual: frozenset[str], subject: str
) -> jax.sharding.Sharding:
    """``place`` as a constraint inside a ``shard_map`` over ``manual``, on its mesh.

    Raises:
      ShardingError: ``not-supported``, where it speaks of those axes.
    """
    assert isinstance(place, NamedSharding)
    for entry in place.spec:
        if taken := manual.intersection(axes_of(entry)):
            raise ShardingError(
                "not-supported",
                f"{subject} is to be cut over {', '.join(sorted(taken))}, and the function is "
                "called inside a shard_map over it",
                help="inside, each device has its own block: call it outside, or cut over the "
                "other axes of the mesh",
            )
    return NamedSharding(mesh, place.spec)


def _type_of(place: jax.sharding.Sharding | None, mesh: JaxMesh) -> NamedSharding:
    """``place`` as a type on ``mesh``, over those of its axes that types speak of."""
    if not isinstance(place, NamedSharding):
        return NamedSharding(mesh, PartitionSpec())
    explicit = _explicit_axes(mesh)
    entries = (tuple(n for n in axes_of(entry) if n in explicit) for entry in place.spec)
    return NamedSharding(mesh, PartitionSpec(*(names or None for names in entries)))


def _explicit(value: Any) -> NamedSharding | None:
    return _of_type(jax.typeof(value))


def _of_type(kind: Any) -> NamedSharding | None:
    sharding = getattr(kind, "sharding", None)
    if isinstance(sharding, NamedSharding) and _has_explicit(sharding.mesh):
        return sharding
    return None


def _explicit_axes(mesh: JaxMesh) -> tuple[str, ...]:
    kinds = zip(mesh.axis_names, mesh.axis_types, strict=True)
    return tuple(name for name, kind in kinds if kind is AxisType.Explicit)


def _has_explicit(mesh: JaxMesh) -> bool:
    return AxisType.Explicit in mesh.axis_types
