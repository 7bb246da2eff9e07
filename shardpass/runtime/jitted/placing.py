"""Arguments that lie elsewhere than a program takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.core import Tracer
from jax.sharding import NamedSharding

from shardpass.compat.lowering import device_assignment
from shardpass.diagnostics import Diagnostic, Severity, ShardingError
from shardpass.runtime.jitted.planning import Placed
from shardpass.runtime.jitted.policy import ids_of


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

    @property
    def is_near(self) -> bool:
        """Whether it lies on the devices of the target, in their order."""
        return device_assignment(self.array.sharding) == device_assignment(self.target)

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

    def refuse(self, path: str) -> None:
        """Refuse an array that nobody means to move with each call.

        Raises:
          ShardingError: ``device-order`` for one on the same devices in another order, with both;
            ``mixed-backends`` for one on another backend.
        """
        own = list(device_assignment(self.target))
        other = list(device_assignment(self.array.sharding))
        subject = f'argument {self.place} ("{path}")'
        if own[0].platform != other[0].platform:
            raise ShardingError(
                "mixed-backends",
                f"{subject} is on {other[0].platform}, and the function runs on {own[0].platform}",
                path=path,
                help="place it there first: jax.device_put(x, sharding)",
            )
        if own != other and set(own) == set(other) and not self.array.is_fully_replicated:
            raise ShardingError(
                "device-order",
                f"{subject} is on the devices of the mesh in another order",
                path=path,
                notes=(f"the mesh has {ids_of(own)}", f"the array has {ids_of(other)}"),
                help="make both meshes in one order, or place it once: jax.device_put(x, sharding)",
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
