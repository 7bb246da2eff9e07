"""Arguments that lie elsewhere than a program takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.core import Tracer
from jax.sharding import NamedSharding

from shardpass.diagnostics import Diagnostic, Severity
from shardpass.runtime.jitted.planning import Placed


@dataclass(frozen=True)
class Misplaced:
    """An argument on its way to where a plan has it.

    Attributes:
      place: its place among the leaves.
      array: the array as it arrived.
      target: where it goes.
    """

    place: int
    array: jax.Array
    target: jax.sharding.Sharding

    @property
    def bytes_moved(self) -> int:
        """How many bytes devices get that they did not hold before, in all."""
        shape = self.array.shape
        held = self.array.sharding.devices_indices_map(shape)
        wanted = self.target.devices_indices_map(shape)
        size = self.array.dtype.itemsize
        for extent in self.target.shard_shape(shape):
            size *= extent
        return size * sum(held.get(device) != index for device, index in wanted.items())

    def warning(self, path: str) -> str:
        """What to say of it, where ``path`` is the argument's."""
        return str(
            Diagnostic(
                Severity.WARNING,
                "moved",
                f'argument {self.place} ("{path}") arrives as {_said(self.array.sharding)} and is '
                f"placed as {_said(self.target)}: {self.bytes_moved:,} bytes move with each call",
                path=path,
                help="hand it over as the function's results have it, or place it once before the "
                "loop",
            )
        )

    def placed(self, *, donated: bool) -> jax.Array:
        """The array where it belongs."""
        return jax.device_put(self.array, self.target, donate=donated)


def _said(sharding: jax.sharding.Sharding) -> str:
    if isinstance(sharding, NamedSharding):
        mesh = ", ".join(f"{name}={size}" for name, size in sharding.mesh.shape.items())
        return f"{sharding.spec} on mesh {mesh}"
    return str(sharding)


def misplaced(leaves: Sequence[Any], targets: Sequence[Placed]) -> Iterator[Misplaced]:
    """Those of ``leaves`` that have been put somewhere, and not where the target is."""
    for place, (leaf, target) in enumerate(zip(leaves, targets, strict=True)):
        if target is None or not isinstance(leaf, jax.Array):
            continue
        if isinstance(leaf, Tracer):
            continue  # It lies nowhere yet.
        if leaf.committed and not leaf.sharding.is_equivalent_to(target, leaf.ndim):
            yield Misplaced(place, leaf, target)
