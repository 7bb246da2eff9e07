"""A ``jax.export.Exported`` around a module: out of its file, and back with other shardings.

A call of an ``Exported`` merges its program into the caller's. What the program says of its own
arguments and results is not heeded there; the call constrains them to the named shardings that the
``Exported`` holds beside the program. So each annotation of the entry function is said again as
one of those, on a mesh without devices. What a named sharding in a file cannot say (parts of axes,
open dimensions, a mesh with an order of its own) becomes a constraint inside the program.

A program in GSPMD's notation stays in it: XLA, which JAX hands both notations then, falls back to
GSPMD. With Shardy switched off (``jax_use_shardy_partitioner``) JAX itself calls nothing that has
named shardings.

Everything else stays: pytrees, types, donation, effects, platforms, checks, versions. The gradient,
where there is one, takes the shardings of arguments and results as well, and goes through those
passes that change meshes or notation (see :mod:`shardpass.mlir.exported_gradients`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from jax import export
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from shardpass.compat import exporting
from shardpass.diagnostics import Diagnostic, ShardingError
from shardpass.mlir import exported_file, portable
from shardpass.mlir.attributes import num_partitions
from shardpass.mlir.collectives import COLLECTIVES
from shardpass.mlir.entry import (
    EntryValue,
    arguments_of,
    entry_function,
    present_as_main,
    results_of,
)
from shardpass.mlir.exported_gradients import (
    Change,
    LostGradientError,
    Place,
    Speech,
    as_warning,
)
from shardpass.mlir.exported_pytrees import deserialized, stand_ins
from shardpass.mlir.exported_shardings import Named, bind
from shardpass.mlir.for_xla import prepare_for_xla
from shardpass.mlir.locations import locate
from shardpass.mlir.walk import operations

#: What ``jax.export`` needs to read and write its files, and does not bring.
_FLATBUFFERS: Final = "flatbuffers"

Warn = Callable[[Diagnostic], None]


@dataclass(frozen=True, eq=False)
class Container:
    """The ``Exported`` that a module was taken out of.

    Attributes:
      source: the file's content, or the object.
      name: what messages call it.
    """

    source: bytes | export.Exported
    name: str

    @property
    def program(self) -> bytes:
        """The portable artifact inside.

        Raises:
          ShardingError: ``unreadable`` for a file that is cut short.
        """
        if isinstance(self.source, export.Exported):
            return self.source.mlir_module_serialized
        return exported_file.program_of(self.source, self.name)

    @property
    def exported(self) -> export.Exported:
        """The object.

        Raises:
          ShardingError: ``unreadable`` for what JAX cannot read, with its reason.
        """
        return self._read[0]

    def rewritten(
        self, program: ir.Module, warn: Warn, changes: Sequence[Change] = ()
    ) -> export.Exported:
        """The ``Exported`` of ``program``, with the shardings that it says.

        Args:
          program: with the signature of the exported function. It is used up.
          warn: told of what is lost.
          changes: what made ``program`` of what is in here, and is to be done to the gradient too.

        Raises:
          ShardingError: ``not-expressible`` for another signature, and as
            :func:`shardpass.mlir.portable.write`; ``unreadable`` as :attr:`exported`.
        """
        before = self.exported
        root = program.operation
        present_as_main(root)
        self._refuse_collectives(root)
        prepare_for_xla(root)
        function = entry_function(root)
        kept = before.module_kept_var_idx
        # In front there may be the index of a platform, and a token for each ordered effect.
        arguments = _last(arguments_of(function), len(kept), self.name)
        results = _last(results_of(function), len(before.out_avals), self.name)
        for value, index in zip(arguments, kept, strict=True):
            _check_type(value, before.in_avals[index], self.name)
        for value, kind in zip(results, before.out_avals, strict=True):
            _check_type(value, kind, self.name)
        old_arguments, old_results = exporting.named_shardings(before)
        boundary = bind(root, function, _meshes_of((*old_arguments, *old_results)))
        of_arguments: list[Named] = [None] * len(before.in_avals)
        for value, index in zip(arguments, kept, strict=True):
            named = boundary.arguments[value.index]
            of_arguments[index] = _for_caller(named, before.in_avals[index], old_arguments[index])
        of_results = [
            _for_caller(boundary.results[value.index], kind, old)
            for value, kind, old in zip(results, before.out_avals, old_results, strict=True)
        ]
        devices = max(num_partitions(root) or 1, boundary.devices)
        place = Place(self.name, devices, Speech.of(root), tuple(changes))
        return exporting.with_program(
            before,
            program=self._portable(program),
            devices=devices,
            arguments=of_arguments,
            results=of_results,
            gradient=self._gradient(before, place, of_arguments, of_results, warn),
        )

    def _refuse_collectives(self, root: ir.Operation) -> None:
        found = next((op for op in operations(root) if isinstance(op, COLLECTIVES)), None)
        if found is not None:
            raise ShardingError(
                "not-expressible",
                f"Shardy's collectives ({found.operation.name}) are for reading, and XLA takes "
                f"none: nobody could call {self.name}",
                help="write it without sp-explicit-collectives, or as --emit=text",
                location=locate(found),
            )

    def _portable(self, program: ir.Module) -> bytes:
        """``program`` for JAX, or for the newest StableHLO where it holds what only that has."""
        try:
            return portable.write(program, None, self.name)
        except ShardingError:
            # StableHLO has made the newest versioned ops of it by then, all of them.
            return portable.write(program, stablehlo.get_current_version(), self.name)

    def serialized(self, program: ir.Module, warn: Warn, changes: Sequence[Change] = ()) -> bytes:
        """:meth:`rewritten` as the content of a file, its gradients included if the file had any.

        Raises:
          ShardingError: as there; ``unwritable`` without the package that JAX writes with.
        """
        changed = self.rewritten(program, warn, changes)
        # An object that was never in a file makes gradients for ever, one after the other.
        with self._reading_gradients():
            order = 0 if isinstance(self.source, export.Exported) else _gradients_of(changed)
        try:
            with stand_ins(self._read[1]):
                return bytes(changed.serialize(vjp_order=order))
        except ImportError as error:
            raise _without_flatbuffers("unwritable", f"{self.name} cannot be written") from error
        except (ValueError, TypeError) as error:
            raise ShardingError(
                "unwritable", f"jax.export cannot serialize {self.name}: {_one_line(error)}"
            ) from error

    @cached_property
    def _read(self) -> tuple[export.Exported, tuple[str, ...]]:
        """The object, and the names of the classes in its pytrees that are not known here."""
        if isinstance(self.source, export.Exported):
            return self.source, ()
        try:
            return deserialized(self.source)
        except ImportError as error:
            raise _without_flatbuffers("unreadable", f"{self.name} cannot be read") from error
        # Over a damaged flatbuffer JAX raises whatever comes of it.
        except Exception as error:
            raise ShardingError(
                "unreadable",
                f"{self.name} is a serialized jax.export.Exported that JAX cannot read: "
                f"{_one_line(error)}",
                help="its program can be used still: write text, or a portable artifact",
            ) from error

    def _gradient(
        self,
        before: export.Exported,
        place: Place,
        arguments: Sequence[Named],
        results: Sequence[Named],
        warn: Warn,
    ) -> Callable[[export.Exported], export.Exported] | None:
        """What makes the gradient of the function at ``place``; ``None`` where there is none."""
        if not before.has_vjp():
            return None
        if isinstance(self.source, export.Exported):
            # JAX makes this one when it is asked for, which takes as long as exporting did.
            return lambda _: self._moved(before.vjp(), place, arguments, results, warn)
        try:
            with self._reading_gradients():
                gradient = self._moved(before.vjp(), place, arguments, results, warn)
        except LostGradientError as lost:
            warn(as_warning(lost))
            return None
        return lambda _: gradient

    def _moved(
        self,
        gradient: export.Exported,
        place: Place,
        arguments: Sequence[Named],
        results: Sequence[Named],
        warn: Warn,
    ) -> export.Exported:
        """The gradient of a function: of its arguments and what its results' cotangents are.

        Raises:
          ShardingError: ``not-supported`` where it cannot be brought to ``place``.
        """
        taken = (*arguments, *results)
        program = place.program_for(gradient, taken, arguments, self._portable)
        return exporting.with_program(
            gradient,
            program=program,
            devices=place.devices,
            arguments=taken,
            results=arguments,
            gradient=self._gradient(gradient, place, taken, arguments, warn),
        )

    @contextlib.contextmanager
    def _reading_gradients(self) -> Iterator[None]:
        """JAX reads them when they are asked for; damage shows as whatever comes of it."""
        try:
            yield
        except ShardingError:
            raise
        except Exception as error:
            raise ShardingError(
                "unreadable",
                f"{self.name} is a serialized jax.export.Exported with a gradient that JAX cannot "
                f"read: {_one_line(error)}",
                help="its program can be used still: write text, or a portable artifact",
            ) from error


def _gradients_of(exported: export.Exported) -> int:
    count = 0
    while exported.has_vjp():
        exported = exported.vjp()
        count += 1
    return count


def _last(values: list[EntryValue], count: int, name: str) -> list[EntryValue]:
    if len(values) < count:
        what = "arguments" if not values or not values[0].is_result else "results"
        raise ShardingError(
            "not-expressible",
            f"the program has {len(values)} {what}, and the exported function in {name} {count}",
            help="write text, or a portable artifact",
        )
    return values[len(values) - count :]


def _check_type(value: EntryValue, kind: Any, name: str) -> None:
    """See to it that a value has the shape of the exported function's; keys have more behind."""
    sizes = tuple(-1 if export.is_symbolic_dim(size) else size for size in kind.shape)
    if value.sizes[: len(sizes)] != sizes:
        raise ShardingError(
            "not-expressible",
            f"{value} is {value.type}, and that of the exported function in {name} is {kind}: a "
            "pass has changed what the function takes or gives",
            path=value.path,
            help="write text, or a portable artifact",
        )


def _for_caller(named: Named, kind: Any, old: Named) -> Named:
    """A named sharding for the value as its caller sees it: keys have fewer dimensions there."""
    if named is None:
        return None
    rank = len(kind.shape)
    if any(entry is not None for entry in named.spec[rank:]):
        return None
    spec = PartitionSpec(*named.spec[:rank])
    memory = None if old is None else old.memory_kind
    return NamedSharding(named.mesh, spec, memory_kind=memory)


def _meshes_of(shardings: Sequence[Named]) -> list[AbstractMesh]:
    meshes = (named.mesh.abstract_mesh for named in shardings if named is not None)
    return [mesh for mesh in dict.fromkeys(meshes) if mesh.axis_names]


def _without_flatbuffers(slug: str, what: str) -> ShardingError:
    return ShardingError(
        slug,
        f"{what}: jax.export needs the package {_FLATBUFFERS}",
        help=f"pip install {_FLATBUFFERS}",
    )


def _one_line(error: Exception) -> str:
    return " ".join(f"{error or type(error).__name__}".split())
