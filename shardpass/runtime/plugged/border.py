"""Where the arguments and results of a function lie, once a pipeline has been over it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import jax
import numpy as np
from jax.extend.mlir import ir
from jax.sharding import AxisType, PartitionSpec

from shardpass.canon import MeshShape, TensorSharding
from shardpass.canon.respelling import Respelling
from shardpass.diagnostics import Diagnostic, ShardingError
from shardpass.mlir import SDY_SHARDING, EntryValue, Shardings
from shardpass.runtime.jitted.planning import Placed, Reader
from shardpass.runtime.jitted.policy import Policy


class Border:
    """Reads the layouts of arguments and results, on whatever mesh of the devices they lie.

    Code that nobody edits has meshes of its own, and propagation carries their axes on. A mesh that
    only the pipeline knows is another matter: what lies on it is said over the axes of the policy's
    mesh, or refused.
    """

    def __init__(self, policy: Policy, shardings: Shardings, known: Collection[MeshShape]) -> None:
        """Read layouts on the policy's mesh and those that are ``known`` without the pipeline."""
        self._policy = policy
        self._shardings = shardings
        self._known = {policy.shape, *known}
        self._readers: dict[MeshShape, Reader] = {}

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """What could not be read as it is."""
        return [one for reader in self._readers.values() for one in reader.diagnostics]

    def boundary(
        self,
        values: Sequence[EntryValue],
        attributes: Sequence[ir.DictAttr],
        given: Sequence[Placed],
        ranks: Sequence[int],
    ) -> tuple[Placed, ...]:
        """As that of :class:`Reader`.

        Raises:
          ShardingError: ``mesh-mismatch``.
        """
        found: list[Placed] = []
        for value, entries, own, rank in zip(values, attributes, given, ranks, strict=True):
            said = own or self._said_anew(value, entries, rank)
            reader = self._reader(entries)
            found += reader.boundary([value], [entries], [said], [rank])
        return tuple(found)

    def _said_anew(self, value: EntryValue, entries: ir.DictAttr, rank: int) -> Placed:
        """Where a value lies that the pipeline has on a mesh of its own; ``None`` for any other."""
        if SDY_SHARDING not in entries:
            return None
        layout = self._shardings.read(entries[SDY_SHARDING])
        if not layout.mesh.axes or layout.mesh in self._known:
            return None
        spec = _spec_on(layout, self._policy.shape)
        if spec is None:
            raise ShardingError(
                "mesh-mismatch",
                f"the pipeline has {value} as {layout.dims_text()} on mesh "
                f"{layout.mesh.describe()}, and the mesh of plugin mode is "
                f"{self._policy.shape.describe()}",
                path=value.path,
                help="give plugin mode the mesh that the pipeline ends on, or leave out the pass "
                "that changes it (sp-retarget)",
            )
        return self._policy.sharding(PartitionSpec(*spec[:rank]))

    def _reader(self, entries: ir.DictAttr) -> Reader:
        mesh = self._policy.shape
        if SDY_SHARDING in entries:
            mesh = self._shardings.read(entries[SDY_SHARDING]).mesh
        found = self._readers.get(mesh)
        if found is None:
            policy = self._policy_on(mesh)
            found = self._readers[mesh] = Reader(policy, self._shardings, with_types=False)
        return found

    def _policy_on(self, mesh: MeshShape) -> Policy:
        if mesh.axes == self._policy.shape.axes or mesh.size != self._policy.shape.size:
            return self._policy
        held = self._policy.mesh
        assert isinstance(held, jax.sharding.Mesh)
        devices = np.ravel(held.devices)
        ordered = devices if mesh.device_ids is None else devices[list(mesh.device_ids)]
        kinds = (AxisType.Auto,) * len(mesh.axes)
        other = jax.sharding.Mesh(ordered.reshape(mesh.sizes), mesh.names, kinds)
        return replace(self._policy, mesh=other)


def _spec_on(layout: TensorSharding, mesh: MeshShape) -> list[tuple[str, ...] | None] | None:
    """The same layout in whole axes of ``mesh``; ``None`` where they cannot say it."""
    try:
        said = Respelling.between(layout.mesh, mesh).sharding(layout)
    except ShardingError:
        return None
    if not all(axis.is_full for dim in said.dims for axis in dim.axes):
        return None
    spec = [tuple(axis.name for axis in dim.axes) or None for dim in said.dims]
    while spec and spec[-1] is None:
        spec.pop()
    return spec
