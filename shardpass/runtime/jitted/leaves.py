"""Values and shardings, leaf by leaf."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp

from shardpass.diagnostics import ShardingError
from shardpass.runtime.jitted.axis_types import open_sharding, resharded, typed
from shardpass.runtime.jitted.planning import Boundary, Placed
from shardpass.runtime.jitted.policy import is_sharding_leaf

#: Stands for ``None`` among shardings.
_OPEN: Final = object()


def shape_of(leaf: Any, place: Placed) -> jax.ShapeDtypeStruct:
    """A leaf without a value or a mesh, where the user has fixed it if he has."""
    aval = jax.typeof(leaf)
    return jax.ShapeDtypeStruct(
        aval.shape, aval.dtype, sharding=place, weak_type=getattr(aval, "weak_type", False)
    )


def some_value(kind: Any) -> Any:
    """Some value of that kind."""
    if jnp.issubdtype(kind.dtype, jax.dtypes.prng_key):
        data: Any = jax.eval_shape(jax.random.key_data, kind)
        return jax.random.wrap_key_data(
            jnp.zeros(data.shape, data.dtype), impl=jax.random.key_impl(kind)
        )
    return jnp.zeros(kind.shape, kind.dtype)


def at_places(boundary: Boundary, places: frozenset[int]) -> Boundary:
    """What ``boundary`` says of the arguments at ``places``, and nothing else."""
    arguments = (a if n in places else None for n, a in enumerate(boundary.arguments))
    return Boundary(tuple(arguments), (None,) * len(boundary.results))


def placed_at(leaves: Sequence[Any], places: Sequence[Placed]) -> list[Any]:
    """``leaves`` with constraints to those places."""
    return [
        leaf if place is None else jax.lax.with_sharding_constraint(leaf, open_sharding(place))
        for leaf, place in zip(leaves, places, strict=True)
    ]


def with_types(leaves: Sequence[Any], types: Sequence[Placed]) -> list[Any]:
    """``leaves`` with those types; what arrived without one is resharded to it."""
    return [
        leaf if place is None or typed(leaf) else resharded(leaf, place)
        for leaf, place in zip(leaves, types, strict=True)
    ]


def broadcast(prefix: Any, tree: Any, what: str) -> tuple[Placed, ...]:
    """A tree of shardings, leaf by leaf of ``tree``.

    Raises:
      ShardingError: ``bad-argument`` where it is no prefix of it.
    """
    # In the tree of values `None` is a branch without leaves, in a prefix it is one.
    prefix = jax.tree.map(
        lambda leaf: _OPEN if leaf is None else leaf, prefix, is_leaf=is_sharding_leaf
    )
    try:
        full = jax.tree.broadcast(prefix, tree)
    except ValueError as error:
        said = str(error).replace("broadcast_prefix prefix_tree", what)
        raise ShardingError(
            "bad-argument",
            f"{what} does not fit the function: {said}",
            help="give a tree of shardings like the values, or one sharding for a branch of them",
        ) from error
    return tuple(None if leaf is _OPEN else leaf for leaf in jax.tree.leaves(full))
