"""A module in hand: the IR, where it came from, and the ways in and out."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

from jax import export
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func

from shardpass.diagnostics import Diagnostic, ShardingError
from shardpass.mlir import entry, portable
from shardpass.mlir.exported import Container
from shardpass.mlir.exported_gradients import Change
from shardpass.mlir.files import read_bytes, write_whole
from shardpass.mlir.forms import FORMS, Emit, Form, asked, form_for
from shardpass.mlir.locations import with_file_name
from shardpass.mlir.reading import Content, read
from shardpass.mlir.source import SourceText


@runtime_checkable
class SupportsCompilerIr(Protocol):
    """What ``jax.jit(f).lower(...)`` gives back."""

    def compiler_ir(self, dialect: str | None = None) -> Any:
        """The lowered module in ``dialect``."""
        ...


@dataclass(frozen=True)
class Module:
    """A StableHLO module with its name and, where it was read from a file, what the file was.

    Attributes:
      ir: the MLIR module. Passes given this object directly would edit it in place;
        :func:`shardpass.run_pipeline` works on a clone.
      name: what messages call it, a file name or ``<module>``.
      source_text: the MLIR text it was parsed from; messages quote its lines.
      form: the form it was read from, ``"text"``, ``"bytecode"``, ``"portable"``, ``"exported"``,
        ``"hlo"`` or ``"hlo-proto"``; ``None`` for a module that comes from memory.
      container: the ``jax.export.Exported`` that it was taken out of.
      changes: what :func:`shardpass.run_pipeline` did to it, of all that is to be done to the
        gradient in the container as well.
    """

    ir: ir.Module
    name: str = "<module>"
    source_text: str | None = None
    form: Form | None = None
    container: Container | None = field(default=None, repr=False)
    changes: tuple[Change, ...] = field(default=(), repr=False, compare=False)

    @property
    def root(self) -> ir.Operation:
        """The ``builtin.module`` operation."""
        return self.ir.operation

    @property
    def main(self) -> func.FuncOp:
        """The entry function.

        Raises:
          ShardingError: ``no-entry-function``.
        """
        return entry.entry_function(self.root)

    @property
    def arguments(self) -> list[entry.EntryValue]:
        """The entry function's arguments."""
        return entry.arguments_of(self.main)

    @property
    def results(self) -> list[entry.EntryValue]:
        """The entry function's results."""
        return entry.results_of(self.main)

    def clone(self) -> Module:
        """A copy whose IR shares nothing with this one but the context.

        By way of bytecode, which is ten times quicker than text.
        """
        with self.ir.context:
            return replace(self, ir=ir.Module.parse(self.bytecode()))

    def text(self, *, debug_info: bool | None = None) -> str:
        """The module as MLIR text.

        ``debug_info`` prints locations, which carry the names of arguments. By default they are
        printed unless the module was read from text that had none.
        """
        if debug_info is None:
            debug_info = self.source_text is None or "loc(" in self.source_text
        return self.with_places(str(self.root.get_asm(enable_debug_info=debug_info)))

    def with_places(self, printed: str) -> str:
        """``printed``, the IR as MLIR prints it, with the name of the file that it was read from.

        MLIR calls it ``"-"``, which means another file wherever that is read.
        """
        return printed if self.source_text is None else with_file_name(printed, self.name)

    def bytecode(self) -> bytes:
        """The module as MLIR bytecode, locations included."""
        buffer = io.BytesIO()
        self.root.write_bytecode(buffer)
        return buffer.getvalue()

    def exported(self, *, warn: Callable[[Diagnostic], None] | None = None) -> export.Exported:
        """The ``jax.export.Exported`` that it was taken out of, with this program and its layouts.

        Its ``in_shardings_jax(mesh)`` are those of the arguments, for a mesh with the names, sizes
        and axis types (``Auto``, unless the ``Exported`` had others) of the program's.

        Args:
          warn: told of what is lost; a Python warning by default.

        Raises:
          ShardingError: ``not-expressible`` for a module that comes from elsewhere, or takes and
            gives other types by now; ``unreadable`` for a file whose rest JAX cannot read.
        """
        return self._container.rewritten(self.clone().ir, warn or _warn, self.changes)

    def to_bytes(
        self, emit: Emit = "text", *, warn: Callable[[Diagnostic], None] | None = None
    ) -> bytes:
        """The module as the content of a file.

        Args:
          emit: a form as :attr:`form` names it; ``"portable=1.9.0"`` is an artifact of that version
            of StableHLO.
          warn: told of what is lost on the way; a Python warning by default.

        Raises:
          ShardingError: ``bad-option`` for another ``emit``; ``not-expressible`` for what the form
            cannot say: Shardy's notation in HLO, other dialects' ops in a portable artifact, an
            ``Exported`` of a module that was none; ``unwritable`` and ``unreadable`` as
            :meth:`exported`.
        """
        form, version = asked(emit)
        if form == "bytecode":
            return self.bytecode()
        if form == "portable":
            return portable.write(self.clone().ir, version, self.name)
        if form == "exported":
            return self._container.serialized(self.clone().ir, warn or _warn, self.changes)
        if form == "text":
            return self.text().encode()
        # Late, since it comes with the whole object model: most files are not HLO.
        from shardpass.mlir import hlo

        if form == "hlo":
            return hlo.to_text(self.root, self.bytecode(), self.name).encode()
        return hlo.to_proto(self.root, self.bytecode(), self.name)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        emit: Emit | None = None,
        warn: Callable[[Diagnostic], None] | None = None,
    ) -> None:
        """Write the module to ``path``, whole or not at all.

        Args:
          path: where to.
          emit: as :meth:`to_bytes` takes it. By default what the name ends in decides: text for
            ``.mlir``, bytecode for ``.mlirbc``, HLO text for ``.hlo``, a proto for ``.hlo.pb``.
            Under any other name what was read from an ``Exported`` stays one, and the rest is text.
          warn: told of what is lost on the way; a Python warning by default.

        Raises:
          ShardingError: ``unwritable``; ``abstract-type`` for what is no path; as
            :meth:`to_bytes`.
        """
        if not isinstance(path, (str, os.PathLike)):
            raise ShardingError(
                "abstract-type",
                f"cannot save a module to {type(path).__name__}",
                help="give a path",
            )
        chosen = form_for(path, self.form) if emit is None else emit
        write_whole(path, self.to_bytes(chosen, warn=warn))

    def check_form(self, path: str | os.PathLike[str], emit: Emit | None) -> None:
        """Refuse a form that no module from where this one comes from can be written in.

        For those who want to know before the work; :meth:`save` finds the rest.

        Raises:
          ShardingError: ``bad-option``; ``not-expressible`` and ``unreadable`` for an ``Exported``.
        """
        form = form_for(path, self.form) if emit is None else asked(emit)[0]
        if form == "exported":
            _ = self._container.exported

    @property
    def _container(self) -> Container:
        if self.container is None:
            came = "from memory" if self.form is None else f"as {FORMS[self.form]}"
            raise ShardingError(
                "not-expressible",
                f"{self.name} cannot be written as {FORMS['exported']}: it came {came}, without "
                "the pytrees and types of a function",
                help="export the function with jax.export, and load that",
            )
        return self.container

    def place(self, diagnostic: Diagnostic) -> Diagnostic:
        """``diagnostic`` with its place spelt for people; see :meth:`SourceText.place`."""
        return self._source.place(diagnostic)

    @cached_property
    def _source(self) -> SourceText:
        return SourceText(self.name, self.source_text)


def load(
    source: Module
    | ir.Module
    | SupportsCompilerIr
    | export.Exported
    | os.PathLike[str]
    | str
    | bytes,
    *,
    name: str | None = None,
) -> Module:
    """A module from wherever it is.

    Args:
      source: a path; the content itself, as ``bytes``; MLIR or HLO text, as a ``str`` with a line
        break or an opening brace in it; an ``ir.Module``; what ``jax.jit(f).lower(...)`` or
        ``jax.export.export(f)(...)`` gives. Files are MLIR text or bytecode, StableHLO's portable
        artifacts, serialized ``jax.export.Exported``, HLO text or protos, told apart by content,
        whatever they are called; any of them may be compressed with gzip.
      name: what messages call it; the path by default.

    Raises:
      ShardingError: ``unreadable`` for a file that cannot be opened or is no module, ``mlir`` for
        what MLIR's parser or verifier reports, each with its line. Bytecode and HLO that were
        tampered with can abort the process inside MLIR and XLA; the command line reads files in a
        child.
    """
    if isinstance(source, Module):
        return source if name is None else replace(source, name=name)
    if isinstance(source, ir.Module):
        return Module(source, name or "<module>")
    if isinstance(source, export.Exported):
        given = name or "<exported>"
        container = Container(source, given)
        return _module(read(container.program, given, form="portable"), given, container)
    if isinstance(source, SupportsCompilerIr):
        return Module(source.compiler_ir("stablehlo"), name or "<lowered>")
    if isinstance(source, str) and ("\n" in source or "{" in source):
        return parse(source.encode(), name or "<text>")
    if isinstance(
        source, (bytearray, memoryview)
    ):  # What `Exported.serialize` gives is a bytearray.
        source = bytes(source)
    if isinstance(source, bytes):
        return parse(source, name or "<bytes>")
    if isinstance(source, (str, os.PathLike)):
        return parse(read_bytes(source), name or os.fspath(source))
    raise ShardingError(
        "abstract-type",
        f"cannot load a module from {type(source).__name__}",
        help="give a path, bytes, MLIR text, an ir.Module, or the result of jax.jit(f).lower(...) "
        "or jax.export.export(f)(...)",
    )


def parse(
    data: bytes,
    name: str,
    *,
    needs_function: bool = True,
    allow_unregistered: bool = False,
    implicit_module: bool = True,
) -> Module:
    """A module from the content of a file; see :func:`load`.

    Args:
      data: the content.
      name: what messages call it.
      needs_function: whether to refuse a module without any, and an empty file with it.
      allow_unregistered: whether ops and attributes of dialects that nobody registered may be in
        it, in MLIR's generic form.
      implicit_module: whether MLIR puts a module around a text that is none; otherwise there must
        be one.
    """
    content = read(
        data,
        name,
        needs_function=needs_function,
        allow_unregistered=allow_unregistered,
        implicit_module=implicit_module,
    )
    return _module(content, name, content.container)


def _module(content: Content, name: str, container: Container | None) -> Module:
    form = "exported" if container is not None else content.form
    return Module(content.module, name, content.text, form, container)


def save(module: Module, path: str | os.PathLike[str], *, emit: Emit | None = None) -> None:
    """:meth:`Module.save` as a function.

    Raises:
      ShardingError: as there; ``abstract-type`` for what is no module.
    """
    if not isinstance(module, Module):
        raise ShardingError(
            "abstract-type",
            f"cannot save a {type(module).__name__} as a module",
            help="give a shardpass.Module; shardpass.load makes one of other things",
        )
    module.save(path, emit=emit)


def _warn(lost: Diagnostic) -> None:
    warnings.warn(str(lost), stacklevel=3)
