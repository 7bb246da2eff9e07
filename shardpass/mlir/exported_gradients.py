"""The gradient of an exported function, which goes where the function's program went.

A gradient is a program of its own, behind that of the function in the file. What changes the meshes
or the notation of the one has to be done to the other as well: on a mesh of other sizes a call of
the gradient fails, or moves every array there and back. A gradient that says nothing of shardings
goes along with anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from jax import export
from jax.extend.mlir import ir
from jax.sharding import PartitionSpec

from shardpass.canon import AxisRef, DimSharding, HloSharding, MeshShape, TensorSharding, to_hlo
from shardpass.diagnostics import Diagnostic, Severity, ShardingError
from shardpass.mlir import portable
from shardpass.mlir.attributes import (
    MHLO_SHARDING,
    SDY_SHARDING,
    Shardings,
    meshes_of,
    num_partitions,
    set_num_partitions,
    write_mhlo,
)
from shardpass.mlir.context import load_quantized_types, make_context
from shardpass.mlir.entry import (
    argument_attributes,
    entry_function,
    mhlo_shardings,
    result_attributes,
    set_argument_attributes,
    set_result_attributes,
    with_entry,
)
from shardpass.mlir.exported_shardings import Named
from shardpass.mlir.for_xla import prepare_for_xla
from shardpass.mlir.walk import operations

#: What was done to a program: what it raises as a ``ShardingError`` is why it cannot be done.
Change = Callable[[ir.Module], None]
#: Writes a program in the form that JAX reads.
Write = Callable[[ir.Module], bytes]

_HELP: Final = "export the function anew where its gradient is needed"
_HELP_ON_MESH: Final = (
    "export the function anew on the mesh that it has now, where its gradient is needed"
)


class LostGradientError(ShardingError):
    """``not-supported``: a gradient cannot be brought to where its function is now."""


@dataclass(frozen=True)
class Speech:
    """How a program speaks of places.

    Attributes:
      meshes: those with axes, in Shardy's notation.
      is_gspmd: whether there are annotations in GSPMD's notation.
    """

    meshes: frozenset[MeshShape] = frozenset()
    is_gspmd: bool = False

    @classmethod
    def of(cls, root: ir.Operation) -> Speech:
        """That of the module ``root``."""
        meshes = frozenset(mesh for mesh in meshes_of(root).values() if mesh.axes)
        return cls(meshes, any(mhlo_shardings(op) for op in operations(root)))

    def __bool__(self) -> bool:
        return bool(self.meshes) or self.is_gspmd

    def contradiction(self, function: Speech) -> str | None:
        """Why a gradient that speaks so does not go with ``function``; ``None`` where it does."""
        if not self or not function:
            return None
        if (foreign := self.meshes - function.meshes) and function.meshes:
            mesh = min(foreign, key=str)
            now = min(function.meshes, key=str)
            return f"is for the mesh {mesh.describe()} and not for {now.describe()}"
        if bool(self.meshes) != bool(function.meshes):
            here, there = ("Shardy", "GSPMD") if self.meshes else ("GSPMD", "Shardy")
            return f"is in {here}'s notation and not in {there}'s"
        return None


@dataclass(frozen=True)
class Place:
    """Where a function's program is now, and how it came there.

    Attributes:
      name: what messages call the file.
      devices: for how many devices it is.
      speech: how it speaks of them.
      changes: what was done to it, of all that is to be done to its gradient too.
    """

    name: str
    devices: int
    speech: Speech
    changes: Sequence[Change]

    def program_for(
        self,
        gradient: export.Exported,
        taken: Sequence[Named],
        given: Sequence[Named],
        write: Write,
    ) -> bytes:
        """The program of ``gradient`` at this place.

        Args:
          gradient: as it was before.
          taken: the shardings of its arguments at this place.
          given: those of its results.
          write: makes an artifact of a program.

        Raises:
          LostGradientError: where it cannot be brought there.
        """
        program = gradient.mlir_module_serialized
        context = make_context()
        if b"quant" in program:
            load_quantized_types(context)
        module = portable.read(context, program, self.name)
        root = module.operation
        before = num_partitions(root)
        devices = gradient.nr_devices
        if self.changes and Speech.of(root):
            self._change(module)
            if num_partitions(root) != before:
                devices = num_partitions(root) or 1
        elif self.changes:
            # It is for any number of devices, whatever it says.
            devices = 1
            if before not in (None, 1):
                set_num_partitions(root, self.devices)
        self._check(Speech.of(root), devices)
        is_said_anew = _say(root, gradient, taken, given)
        return write(module) if self.changes or is_said_anew else program

    def _change(self, module: ir.Module) -> None:
        try:
            for change in self.changes:
                change(module)
            prepare_for_xla(module.operation)
        except ShardingError as error:
            first = error.diagnostics[0]
            raise self._lost(
                "cannot be brought to where the function is now", first.notes, str(first)
            ) from error

    def _check(self, speech: Speech, devices: int) -> None:
        if devices not in (1, self.devices):
            raise LostGradientError(
                "not-supported",
                f"{self.name} loses its gradient, whose program is for {devices} devices and not "
                f"for {self.devices}",
                help=_HELP,
            )
        if (why := speech.contradiction(self.speech)) is not None:
            raise self._lost(why)

    def _lost(self, why: str, notes: Sequence[str] = (), fault: str = "") -> LostGradientError:
        return LostGradientError(
            "not-supported",
            f"{self.name} loses its gradient, whose program {why}",
            notes=tuple(filter(None, (fault, *notes))),
            help=_HELP_ON_MESH,
        )


def as_warning(error: LostGradientError) -> Diagnostic:
    """What to say of a gradient that is left out."""
    fault = error.diagnostic
    return Diagnostic(
        Severity.WARNING, fault.slug, fault.message, notes=fault.notes, help=fault.help
    )


def _say(
    root: ir.Operation, gradient: export.Exported, taken: Sequence[Named], given: Sequence[Named]
) -> bool:
    """Have the entry function say what its caller heeds, where it says something else.

    What it says is not heeded in a call, but it is read by people and by passes.

    Returns:
      Whether anything changed.
    """
    function = entry_function(root)
    kept = [taken[index] for index in gradient.module_kept_var_idx]
    arguments = argument_attributes(function)
    results = result_attributes(function)
    sayer = _Sayer(root)
    new_arguments = sayer.anew(arguments, list(function.type.inputs), kept)
    new_results = sayer.anew(results, list(function.type.results), given)
    if new_arguments != arguments:
        set_argument_attributes(function, new_arguments)
    if new_results != results:
        set_result_attributes(function, new_results)
    return new_arguments != arguments or new_results != results


class _Sayer:
    """Writes named shardings onto values that have annotations of their own."""

    def __init__(self, root: ir.Operation) -> None:
        self._shardings = Shardings(root)
        self._context = root.context

    def anew(
        self, entries: list[ir.DictAttr], kinds: list[ir.Type], named: Sequence[Named]
    ) -> list[ir.DictAttr]:
        # In front there may be the index of a platform, and a token for each ordered effect.
        extra = len(entries) - len(named)
        if extra < 0:
            return entries
        return entries[:extra] + [
            self._entry(each, kind, wanted)
            for each, kind, wanted in zip(entries[extra:], kinds[extra:], named, strict=True)
        ]

    def _entry(self, entries: ir.DictAttr, kind: ir.Type, named: Named) -> ir.DictAttr:
        if not isinstance(kind, ir.RankedTensorType):
            return entries
        if SDY_SHARDING in entries:
            layout = None if named is None else _layout(named, kind.rank)
            if layout is not None and self._shardings.read(entries[SDY_SHARDING]) == layout:
                return entries
            symbol = None if layout is None else self._shardings.name_of(layout.mesh)
            said = (
                self._shardings.write(layout, symbol)
                if layout is not None and symbol is not None
                else None
            )
            return with_entry(entries, SDY_SHARDING, said)
        if MHLO_SHARDING in entries:
            tiles = _tiles(named, kind.rank)
            return with_entry(
                entries, MHLO_SHARDING, None if tiles is None else write_mhlo(tiles, self._context)
            )
        return entries


def _layout(named: Named, rank: int) -> TensorSharding:
    assert named is not None
    spec: PartitionSpec = named.spec
    dims = [
        DimSharding(tuple(AxisRef(name) for name in _names(entry)))
        for entry in (*spec, *[None] * (rank - len(spec)))
    ]
    return TensorSharding(MeshShape(tuple(named.mesh.shape.items())), tuple(dims))


def _names(entry: object) -> tuple[str, ...]:
    if entry is None:
        return ()
    return (entry,) if isinstance(entry, str) else tuple(map(str, entry))  # pyright: ignore


def _tiles(named: Named, rank: int) -> HloSharding | None:
    return None if named is None else to_hlo(_layout(named, rank))
