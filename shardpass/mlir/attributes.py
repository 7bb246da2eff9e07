"""Sharding attributes to and from the canonical form: one road in and one road out.

Both roads go through text, which ``canon`` reads and prints exactly and which MLIR's own parser
checks again: jaxlib's typed getters differ by version, text does not. Attributes are uniqued by
MLIR and a module holds few distinct ones (15 on the 10,346 ops of a sharded GPT-2 step), so each is
converted once and looked up afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, lru_cache

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from shardpass.canon import HloSharding, MeshShape, TensorSharding
from shardpass.diagnostics import Diagnostic, ShardingError
from shardpass.mlir.errors import hearing
from shardpass.mlir.locations import locate
from shardpass.sharding.op_sharding import from_proto_bytes

#: The attribute of Shardy's notation, on values of functions and on ops.
SDY_SHARDING = "sdy.sharding"
#: The attribute of GSPMD's notation.
MHLO_SHARDING = "mhlo.sharding"
#: How many devices the module is for.
NUM_PARTITIONS = "mhlo.num_partitions"


def mesh_ops(root: ir.Operation) -> list[sdy.MeshOp]:
    """The ``sdy.mesh`` ops of a module, in order."""
    return [op for op in root.regions[0].blocks[0].operations if isinstance(op, sdy.MeshOp)]


def meshes_of(root: ir.Operation) -> dict[str, MeshShape]:
    """Symbol name -> mesh, for the meshes that a module declares."""
    return {
        ir.StringAttr(op.attributes["sym_name"]).value: MeshShape.parse(str(op.attributes["mesh"]))
        for op in mesh_ops(root)
    }


def free_mesh_name(root: ir.Operation, wanted: str = "mesh") -> str:
    """``wanted``, or ``wanted_0`` and so on where a mesh or a function is called that already."""
    symbols = (op.attributes for op in root.regions[0].blocks[0].operations)
    taken = {ir.StringAttr(a["sym_name"]).value for a in symbols if "sym_name" in a}
    if wanted not in taken:
        return wanted
    return next(name for i in range(len(taken) + 1) if (name := f"{wanted}_{i}") not in taken)


def declare_mesh(root: ir.Operation, name: str, mesh: MeshShape) -> sdy.MeshOp:
    """Put ``sdy.mesh @name`` in front of a module's body."""
    block = root.regions[0].blocks[0]
    with root.context, ir.Location.unknown(), ir.InsertionPoint.at_block_begin(block):
        return sdy.MeshOp(
            ir.StringAttr.get(name), sdy.MeshAttr(ir.Attribute.parse(f"#sdy.mesh{mesh}"))
        )


@lru_cache(1024)
def _parse(text: str, meshes: tuple[tuple[str, MeshShape], ...]) -> TensorSharding:
    """Remembered beyond one pass: those of a pipeline read the same few texts one after another."""
    return TensorSharding.parse(text, dict(meshes))


class Shardings:
    """Reads and writes the sharding attributes of one module.

    Made once per pass: it knows the module's meshes and remembers what it has converted. ``meshes``
    stands in for those, where an attribute is from before they changed.
    """

    def __init__(self, root: ir.Operation, meshes: dict[str, MeshShape] | None = None) -> None:
        self._root = root
        self._given_meshes = meshes
        self._context = root.context
        self._read: dict[ir.Attribute, TensorSharding] = {}
        self._read_per_value: dict[ir.Attribute, tuple[TensorSharding, ...]] = {}
        self._written: dict[tuple[str, TensorSharding], ir.Attribute] = {}

    @cached_property
    def meshes(self) -> dict[str, MeshShape]:
        """Symbol name -> mesh, as they were when first asked for."""
        return meshes_of(self._root) if self._given_meshes is None else self._given_meshes

    def read(self, attribute: ir.Attribute) -> TensorSharding:
        """The sharding of an argument, a result or a constraint (``#sdy.sharding``)."""
        found = self._read.get(attribute)
        if found is None:
            found = self._read[attribute] = _parse(str(attribute), tuple(self.meshes.items()))
        return found

    def read_per_value(self, attribute: ir.Attribute) -> tuple[TensorSharding, ...]:
        """The shardings of an op's results (``#sdy.sharding_per_value``)."""
        found = self._read_per_value.get(attribute)
        if found is None:
            parts = sdy.TensorShardingPerValueAttr(attribute).shardings
            found = self._read_per_value[attribute] = tuple(self.read(part) for part in parts)
        return found

    def write(self, sharding: TensorSharding, mesh_name: str) -> ir.Attribute:
        """``sharding`` as ``#sdy.sharding<@mesh_name, …>``."""
        key = (mesh_name, sharding)
        found = self._written.get(key)
        if found is None:
            found = self._written[key] = self._attribute(sharding.to_sdy(mesh_name))
        return found

    def write_per_value(self, shardings: Iterable[tuple[TensorSharding, str]]) -> ir.Attribute:
        """Shardings, each with the name of its mesh, as ``#sdy.sharding_per_value<[…]>``."""
        parts = ", ".join(s.to_sdy(name).removeprefix("#sdy.sharding") for s, name in shardings)
        return self._attribute(f"#sdy.sharding_per_value<[{parts}]>")

    def _attribute(self, text: str) -> ir.Attribute:
        heard: list[Diagnostic] = []
        try:
            with hearing(self._context, heard.append):
                return ir.Attribute.parse(text, self._context)
        except ir.MLIRError:
            why = heard[0].message if heard else "no reason given"
            raise ShardingError(
                "not-supported",
                f"the installed Shardy does not take {text}: {why}",
                help="a newer jaxlib may: kinds of reductions came with 0.12",
            ) from None

    def name_of(self, mesh: MeshShape) -> str | None:
        """The symbol of a declared mesh that equals ``mesh``."""
        return next((name for name, declared in self.meshes.items() if declared == mesh), None)


def read_mhlo(attribute: ir.Attribute) -> HloSharding:
    """An ``mhlo.sharding`` attribute: a string that holds XLA's text, or a serialized OpSharding.

    Raises:
      ShardingError: what the grammar has against it, or the reader of protos; ``syntax`` for what
        is no string.
    """
    if not isinstance(attribute, ir.StringAttr):
        raise ShardingError(
            "syntax", f"a sharding is a string, not {attribute}", help='write "{devices=...}"'
        )
    return _parse_mhlo(attribute.value_bytes)


def _is_text(data: bytes) -> bool:
    """Whether this is meant as text.

    A proto holds bytes that no text has, since it has small numbers for keys and lengths; only that
    of ``{replicated}`` holds none at all.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return bool(text) and all(character >= " " or character in "\t\r\n" for character in text)


@lru_cache(1024)
def _parse_mhlo(data: bytes) -> HloSharding:
    """Remembered, as :func:`_parse` does."""
    return HloSharding.parse(data.decode()) if _is_text(data) else from_proto_bytes(data)


def write_mhlo(sharding: HloSharding, context: ir.Context) -> ir.StringAttr:
    """``sharding`` as an ``mhlo.sharding`` attribute."""
    return ir.StringAttr.get(str(sharding), context=context)


def num_partitions(root: ir.Operation) -> int | None:
    """The device count that a module states, or ``None``; see :func:`count_of`."""
    return count_of(root, NUM_PARTITIONS)


def count_of(root: ir.Operation, name: str) -> int | None:
    """What a module states under ``name``, which MLIR does not check, or ``None``.

    Raises:
      ShardingError: ``device-count`` for what is no number, or below zero.
    """
    attribute = root.attributes.get(name)
    if attribute is None:
        return None
    if isinstance(attribute, ir.IntegerAttr) and attribute.value >= 0:
        return attribute.value
    raise ShardingError(
        "device-count",
        f"the module says {name} = {attribute}, which is no count",
        location=locate(root.opview),
        help=f"write {name} = 1 : i32, or remove it",
    )


def set_num_partitions(root: ir.Operation, count: int) -> None:
    """State that a module is for ``count`` devices."""
    root.attributes[NUM_PARTITIONS] = ir.IntegerAttr.get(
        ir.IntegerType.get_signless(32, context=root.context), count
    )
