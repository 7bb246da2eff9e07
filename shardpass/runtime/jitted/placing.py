"""Arguments that lie elsewhere than a program takes them.

On several processes (``jax.distributed``) ``jax.jit`` refuses arrays of numpy for arguments that
are cut. Here they become global arrays: as everywhere in JAX, a value that every process makes by
itself is taken to be the same one in all of them. An array that a process has put on devices of its
own is another matter: whether it is the whole or this process's part nobody can tell, so it is
refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import AbstractMesh, NamedSharding, SingleDeviceSharding

from shardpass.compat.lowering import device_assignment
from shardpass.diagnostics import Diagnostic, Severity, ShardingError
from shardpass.runtime.jitted.planning import Placed
from shardpass.runtime.jitted.policy import ids_of, spec_text


@dataclass(frozen=True)
class Misplaced:
    """An argument on its way to where a plan has it.

    Attributes:
      place: its place among the leaves.
      array: the array as it arrived; one of numpy has been put nowhere yet.
      target: where it goes.
    """

    place: int
    array: jax.Array | np.ndarray
    target: jax.sharding.Sharding

    @property
    def moves(self) -> bool:
        """Whether it lies on devices already, only on others."""
        return isinstance(self.array, jax.Array)

    @property
    def bytes_moved(self) -> int:
        """How many bytes devices get that they did not hold before, in all."""
        if not isinstance(self.array, jax.Array):
            return 0
        shape = self.array.shape
        is_in_place = self.array.sharding.memory_kind == self.target.memory_kind
        held = self.array.sharding.devices_indices_map(shape) if is_in_place else {}
        wanted = self.target.devices_indices_map(shape)
        size = self.array.dtype.itemsize
        for extent in self.target.shard_shape(shape):
            size *= extent
        return size * sum(held.get(device) != index for device, index in wanted.items())

    @property
    def is_near(self) -> bool:
        """Whether it lies on the devices of the target, in their order."""
        if not isinstance(self.array, jax.Array):
            return False
        return device_assignment(self.array.sharding) == device_assignment(self.target)

    @property
    def divides(self) -> bool:
        """Whether the target cuts it into equal parts; if not, it is another program's target."""
        try:
            self.target.shard_shape(self.array.shape)
        except ValueError:
            return False
        return True

    def warning(self, path: str) -> str:
        """What to say of it if it moves, where ``path`` is the argument's."""
        return str(
            Diagnostic(
                Severity.WARNING,
                "moved",
                f'argument {self.place} ("{path}") arrives as {_said_of(self.array)} and is '
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
            ``mixed-backends`` for one on another backend; ``process-local`` for one on devices of
            this process alone that is to go on those of several.
        """
        if not isinstance(self.array, jax.Array):
            return
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
        if self.array.is_fully_addressable and not self.target.is_fully_addressable:
            raise ShardingError(
                "process-local",
                f"{subject} lies on devices of process {jax.process_index()} alone, as "
                f"{_said_of(self.array)}, and the plan has it on those of all "
                f"{jax.process_count()} processes, as {_said(self.target)}",
                path=path,
                help="make a global array: jax.make_array_from_process_local_data(sharding, data) "
                "of each process's part; or hand over numpy's array of the whole, the same in "
                "every process",
            )

    def placed(self, *, donated: bool) -> jax.Array:
        """The array where it belongs."""
        if isinstance(self.array, jax.Array):
            return jax.device_put(self.array, self.target, donate=donated)
        whole = self.array
        return jax.make_array_from_callback(whole.shape, self.target, whole.__getitem__)


def _said_of(array: Any) -> str:
    return _said(array.sharding)


def _said(sharding: jax.sharding.Sharding) -> str:
    if isinstance(sharding, NamedSharding):
        mesh = ", ".join(f"{name}={size}" for name, size in sharding.mesh.shape.items())
        return f"{spec_text(sharding.spec)} on mesh {mesh}{_memory(sharding)}"
    return str(sharding)


def _memory(sharding: NamedSharding) -> str:
    """Where it is not the devices' own, which goes without saying."""
    kind = sharding.memory_kind
    if kind is None or isinstance(sharding.mesh, AbstractMesh):
        return ""
    own = next(iter(sharding.device_set)).default_memory().kind
    return "" if kind == own else f" in {kind} memory"


def misplaced(leaves: Sequence[Any], targets: Sequence[Placed]) -> Iterator[Misplaced]:
    """Those of ``leaves`` that have to be put where the target is before ``jax.jit`` takes them."""
    for place, (leaf, target) in enumerate(zip(leaves, targets, strict=True)):
        if target is not None and _is_misplaced(leaf, target):
            yield Misplaced(place, leaf, target)


def _spans_processes(target: jax.sharding.Sharding) -> bool:
    if isinstance(target, NamedSharding) and isinstance(target.mesh, AbstractMesh):
        return False
    return not target.is_fully_addressable


def _is_put_on_own_devices(leaf: Any) -> bool:
    is_array = isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer)
    return is_array and leaf.committed and leaf.is_fully_addressable


def _is_misplaced(leaf: Any, target: jax.sharding.Sharding) -> bool:
    if isinstance(leaf, np.ndarray):
        return _spans_processes(target) and not target.is_fully_replicated
    if not isinstance(leaf, jax.Array) or isinstance(leaf, Tracer):
        return False  # A tracer lies nowhere yet.
    if not leaf.committed or leaf.sharding.is_equivalent_to(target, leaf.ndim):
        return False
    # On several processes `jax.jit` takes a local array for a replicated argument, as each has it.
    is_local = isinstance(leaf.sharding, SingleDeviceSharding) and _spans_processes(target)
    return not (is_local and target.is_fully_replicated)
