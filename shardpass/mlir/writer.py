"""Layouts into a module, on whatever mesh they are."""

from __future__ import annotations

from jax.extend.mlir import ir

from shardpass.canon import MeshShape, TensorSharding
from shardpass.mlir.attributes import Shardings, declare_mesh, free_mesh_name


class Writer:
    """Writes layouts into a module, declaring meshes that it lacks."""

    def __init__(self, root: ir.Operation) -> None:
        self._root = root
        self._shardings = Shardings(root)
        self._names: dict[MeshShape, str] = {}

    def __call__(self, layout: TensorSharding) -> ir.Attribute:
        """The attribute."""
        mesh = layout.mesh
        name = self._names.get(mesh) or self._shardings.name_of(mesh)
        if name is None:
            name = free_mesh_name(self._root)
            declare_mesh(self._root, name, mesh)
        self._names[mesh] = name
        return self._shardings.write(layout, name)
