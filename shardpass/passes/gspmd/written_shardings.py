"""Shardings written on meshes that are declared when they are first needed."""

from __future__ import annotations

from collections.abc import Sequence

from jax.extend.mlir import ir

from shardpass.canon import MeshShape, TensorSharding
from shardpass.mlir import Shardings, declare_mesh, free_mesh_name

#: How jaxlib 0.10 and JAX call the mesh of one device.
_MAXIMAL = "maximal_mesh_{}"


class WrittenShardings:
    """Writes the shardings of one module, equal meshes under one name."""

    def __init__(self, root: ir.Operation) -> None:
        self._root = root
        self._shardings = Shardings(root)
        self._names: dict[MeshShape, str] = {}
        for name, mesh in self._shardings.meshes.items():
            self._names.setdefault(mesh, name)

    @property
    def meshes(self) -> tuple[MeshShape, ...]:
        """Those that are declared."""
        return tuple(self._names)

    def declare(self, mesh: MeshShape, name: str | None = None) -> str:
        """The name of ``mesh``; if it has none yet, ``name``, or what is free like it."""
        found = self._names.get(mesh)
        if found is None:
            usual = _MAXIMAL.format(mesh.device_id) if mesh.is_maximal else "mesh"
            found = self._names[mesh] = free_mesh_name(self._root, name or usual)
            declare_mesh(self._root, found, mesh)
        return found

    def one(self, sharding: TensorSharding) -> ir.Attribute:
        """``sharding`` as ``#sdy.sharding``."""
        return self._shardings.write(sharding, self.declare(sharding.mesh))

    def per_value(self, shardings: Sequence[TensorSharding]) -> ir.Attribute:
        """``shardings`` as ``#sdy.sharding_per_value``."""
        named = [(sharding, self.declare(sharding.mesh)) for sharding in shardings]
        return self._shardings.write_per_value(named)
