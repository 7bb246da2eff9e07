"""The strings of XLA's round-trip form, as values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from shardpass.canon import MeshShape, TensorSharding
from shardpass.diagnostics import ShardingError
from shardpass.mlir import Shardings, locate, meshes_of
from shardpass.passes.gspmd.frontend_attributes import MESHES, read_entry

_OLD_MESH: Final = re.compile(r"#sdy\.mesh<(\".*)>")


class RoundTripReader:
    """Reads the entries of one module; each distinct one is parsed once."""

    def __init__(self, root: ir.Operation) -> None:
        self._root = root
        self._entries: dict[tuple[str, ir.Attribute], ir.Attribute] = {}
        self._shardings = Shardings(root)

    def declare(self, of_module: dict[str, ir.Attribute]) -> Sequence[tuple[str, MeshShape]]:
        """Learn the meshes that a module notes, and give them with their names.

        Raises:
          ShardingError: with the place of the module; ``syntax``, ``bad-mesh``.
        """
        if MESHES not in of_module:
            return ()
        found = read_entry(MESHES, of_module[MESHES], self._root)
        if not isinstance(found, ir.DictAttr):
            raise self._another_kind(MESHES, found, "a dictionary of meshes", self._root)
        noted: dict[str, MeshShape] = {}
        for entry in found:
            try:
                noted[entry.name] = _mesh(entry.attr)
            except ShardingError as error:
                place = locate(self._root)
                raise error.about(f"xla.sdy.{MESHES}, {entry.name}", location=place) from error
        self._shardings = Shardings(self._root, {**meshes_of(self._root), **noted})
        return tuple(noted.items())

    def entry(self, name: str, entry: ir.Attribute, op: ir.Operation | ir.OpView) -> ir.Attribute:
        """What ``entry``, found at ``op``, spells."""
        key = (name, entry)
        if key not in self._entries:
            self._entries[key] = read_entry(name, entry, op)
        return self._entries[key]

    def one(self, name: str, entry: ir.Attribute, op: ir.OpView) -> TensorSharding:
        """The one sharding that ``entry`` spells.

        Raises:
          ShardingError: with the place; ``syntax`` for what is something else, and what the
            algebra has against it.
        """
        found = self.entry(name, entry, op)
        if not sdy.TensorShardingAttr.isinstance(found):
            raise self._another_kind(name, found, "a sharding", op)
        return self._canonical(found, op)

    def per_value(
        self, name: str, entry: ir.Attribute, op: ir.OpView
    ) -> tuple[TensorSharding, ...]:
        """The shardings that ``entry`` spells, one a value; errors as for :meth:`one`."""
        found = self.entry(name, entry, op)
        if not sdy.TensorShardingPerValueAttr.isinstance(found):
            raise self._another_kind(name, found, "a list of shardings", op)
        parts = sdy.TensorShardingPerValueAttr(found).shardings
        return tuple(self._canonical(part, op) for part in parts)

    def axes(self, name: str, entry: ir.Attribute, op: ir.OpView) -> tuple[str, ...]:
        """The names of axes that ``entry`` spells; errors as for :meth:`one`."""
        found = self.entry(name, entry, op)
        if not sdy.ManualAxesAttr.isinstance(found):
            raise self._another_kind(name, found, "a list of axes", op)
        axes = sdy.ManualAxesAttr(found)
        return tuple(axes[index] for index in range(len(axes)))

    def number(self, name: str, noted: dict[str, ir.Attribute], op: ir.OpView) -> int:
        """The number under ``name`` among what ``op`` notes.

        Raises:
          ShardingError: with the place; ``missing-sharding``, or as for :meth:`one`.
        """
        if name not in noted:
            raise ShardingError(
                "missing-sharding",
                f"{op.operation.name} carries no xla.sdy.{name}",
                location=locate(op),
            )
        found = self.entry(name, noted[name], op)
        if not isinstance(found, ir.IntegerAttr):
            raise self._another_kind(name, found, "a number", op)
        return found.value

    def _canonical(self, attribute: ir.Attribute, op: ir.OpView) -> TensorSharding:
        try:
            return self._shardings.read(attribute)
        except ShardingError as error:
            raise error.about(op.operation.name, location=locate(op)) from error

    @staticmethod
    def _another_kind(
        name: str, found: ir.Attribute, wanted: str, op: ir.Operation | ir.OpView
    ) -> ShardingError:
        return ShardingError(
            "syntax",
            f"{op.operation.name}: xla.sdy.{name} is {found}, where {wanted} belongs",
            location=locate(op),
        )


def fits(sharding: TensorSharding, type_: ir.Type) -> bool:
    """Whether ``sharding`` has the rank of ``type_``."""
    rank = type_.rank if isinstance(type_, ir.RankedTensorType) else 0
    return sharding.mesh.is_maximal or sharding.rank == rank


def _mesh(attribute: ir.Attribute) -> MeshShape:
    if isinstance(attribute, ir.StringAttr):
        text = attribute.value
        old = _OLD_MESH.fullmatch(text)  # Of 2024, without the brackets.
        return MeshShape.parse(f"<[{old[1]}]>" if old else text)
    return MeshShape.parse(str(attribute))
