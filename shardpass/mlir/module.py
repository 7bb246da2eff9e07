"""A module in hand: the IR, where it came from, and the ways in and out."""

from __future__ import annotations

import codecs
import io
import os
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Protocol, get_args, runtime_checkable

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, stablehlo

from shardpass.diagnostics import Diagnostic, ShardingError, SourceLocation, did_you_mean
from shardpass.mlir import entry
from shardpass.mlir.context import load_quantized_types, make_context
from shardpass.mlir.errors import from_mlir_error, hearing
from shardpass.mlir.files import is_bytecode, is_portable_artifact, read_bytes, write_whole
from shardpass.mlir.locations import PARSED_TEXT, locate
from shardpass.mlir.source import SourceText

_CUT_SHORT = "it may be cut short, or written by a StableHLO newer than the installed one"

Emit = Literal["text", "bytecode"]


@runtime_checkable
class SupportsCompilerIr(Protocol):
    """What ``jax.jit(f).lower(...)`` gives back."""

    def compiler_ir(self, dialect: str | None = None) -> Any:
        """The lowered module in ``dialect``."""
        ...


@dataclass(frozen=True)
class Module:
    """A StableHLO module with its name and, where it was read from text, that text.

    Attributes:
      ir: the MLIR module. Passes given this object directly would edit it in place;
        :func:`shardpass.run_pipeline` works on a clone.
      name: what messages call it, a file name or ``<module>``.
      source_text: the text it was parsed from; messages quote its lines.
    """

    ir: ir.Module
    name: str = "<module>"
    source_text: str | None = None

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
        return str(self.root.get_asm(enable_debug_info=debug_info))

    def bytecode(self) -> bytes:
        """The module as MLIR bytecode, locations included."""
        buffer = io.BytesIO()
        self.root.write_bytecode(buffer)
        return buffer.getvalue()

    def save(self, path: str | os.PathLike[str], *, emit: Emit | None = None) -> None:
        """Write the module to ``path``, whole or not at all.

        ``emit`` defaults to bytecode for a name ending in ``.mlirbc`` and to text otherwise.

        Raises:
          ShardingError: ``unwritable``; ``bad-option`` for another ``emit``; ``abstract-type`` for
            what is no path.
        """
        if not isinstance(path, (str, os.PathLike)):
            raise ShardingError(
                "abstract-type",
                f"cannot save a module to {type(path).__name__}",
                help="give a path",
            )
        if emit is None:
            emit = "bytecode" if os.fspath(path).endswith((".mlirbc", ".bc")) else "text"
        if emit not in get_args(Emit):
            raise ShardingError(
                "bad-option",
                f"a module is written as text or as bytecode, not as {emit!r}",
                help=did_you_mean(str(emit), get_args(Emit)),
            )
        write_whole(path, self.text().encode() if emit == "text" else self.bytecode())

    def place(self, diagnostic: Diagnostic) -> Diagnostic:
        """``diagnostic`` with its place spelt for people; see :meth:`SourceText.place`."""
        return self._source.place(diagnostic)

    @cached_property
    def _source(self) -> SourceText:
        return SourceText(self.name, self.source_text)


def load(
    source: Module | ir.Module | SupportsCompilerIr | os.PathLike[str] | str | bytes,
    *,
    name: str | None = None,
) -> Module:
    """A module from wherever it is.

    Args:
      source: a path; the content itself, as ``bytes``; MLIR text, as a ``str`` with a line break or
        an opening brace in it; an ``ir.Module``; or what ``jax.jit(f).lower(...)`` gives. Text and
        bytecode are told apart by content, whatever the file is called. StableHLO's portable
        artifacts are read as well.
      name: what messages call it; the path by default.

    Raises:
      ShardingError: ``unreadable`` for a file that cannot be opened or is no module, ``mlir`` for
        what MLIR's parser or verifier reports, each with its line. Bytecode that was tampered with
        can abort the process inside MLIR; the command line reads files in a child.
    """
    if isinstance(source, Module):
        return source if name is None else replace(source, name=name)
    if isinstance(source, ir.Module):
        return Module(source, name or "<module>")
    if isinstance(source, SupportsCompilerIr):
        return Module(source.compiler_ir("stablehlo"), name or "<lowered>")
    if isinstance(source, str) and ("\n" in source or "{" in source):
        return parse(source.encode(), name or "<text>")
    if isinstance(source, bytes):
        return parse(source, name or "<bytes>")
    if isinstance(source, (str, os.PathLike)):
        return parse(read_bytes(source), name or os.fspath(source))
    raise ShardingError(
        "abstract-type",
        f"cannot load a module from {type(source).__name__}",
        help="give a path, bytes, MLIR text, an ir.Module or the result of jax.jit(f).lower(...)",
    )


def parse(
    data: bytes, name: str, *, needs_function: bool = True, allow_unregistered: bool = False
) -> Module:
    """A module from the content of a file; see :func:`load`.

    Args:
      data: the content.
      name: what messages call it.
      needs_function: whether to refuse a module without any, and an empty file with it.
      allow_unregistered: whether ops and attributes of dialects that nobody registered may be in
        it, in MLIR's generic form.
    """
    if needs_function and not data.removeprefix(codecs.BOM_UTF8).strip():
        raise ShardingError("unreadable", f"{name} is empty")
    context = make_context()
    context.allow_unregistered_dialects = allow_unregistered
    if b"quant" in data:
        load_quantized_types(context)
    with context:
        try:
            if is_portable_artifact(data):
                module = Module(_from_portable(context, data, name), name)
            elif is_bytecode(data):
                module = Module(ir.Module.parse(data), name)
            else:
                text = _decode(data, name)
                module = Module(ir.Module.parse(text), name, text)
            return _with_functions(module) if needs_function else module
        except ir.MLIRError as error:
            raise _explain(error, data, name) from error
        except ShardingError:
            raise
        except ValueError as error:
            # Sizes in broken bytecode that no memory can hold.
            raise ShardingError(
                "unreadable",
                f"{name} cannot be read: {' '.join(str(error).split())}",
                help=_CUT_SHORT if is_bytecode(data) else None,
            ) from error


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


def _from_portable(context: ir.Context, data: bytes, name: str) -> ir.Module:
    said: list[Diagnostic] = []
    try:
        with hearing(context, said.append):
            return stablehlo.deserialize_portable_artifact(context, data)
    except ValueError as error:
        raise ShardingError(
            "unreadable",
            f"{name} is a StableHLO artifact that cannot be read",
            notes=[d.message for d in said],
            help=_CUT_SHORT,
        ) from error


def _with_functions(module: Module) -> Module:
    if any(isinstance(op, func.FuncOp) for op in module.ir.body.operations):
        return module
    inner = [op for op in module.ir.body.operations if op.operation.name == "builtin.module"]
    if not inner:
        raise ShardingError(
            "unreadable",
            f"{module.name} holds no function",
            help="a StableHLO module has at least func.func @main",
        )
    one = len(inner) == 1
    fault = ShardingError(
        "unreadable",
        f"{module.name} holds {'a module' if one else f'{len(inner)} modules'} and no function "
        f"outside {'it' if one else 'them'}: {', '.join(map(_shown_module, inner))}",
        location=locate(inner[0 if one else 1]),
        help="take the module out of the one around it"
        if one
        else "give each a file of its own, or, for opt --split-input-file, a line of // ----- "
        "between them",
    )
    raise ShardingError.of([module.place(fault.diagnostic)])


def _shown_module(op: ir.OpView) -> str:
    shown = "one without a name"
    if "sym_name" in op.attributes:
        shown = f"@{ir.StringAttr(op.attributes['sym_name']).value}"
    place = locate(op)
    return f"{shown} on line {place.line}" if place and place.file == PARSED_TEXT else shown


def _decode(data: bytes, name: str) -> str:
    try:
        # Editors on Windows put a byte order mark in front, which is no part of the text.
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ShardingError(
            "unreadable",
            f"{name} is neither MLIR bytecode nor text: byte {error.start} is not UTF-8",
        ) from error


def _explain(error: ir.MLIRError, data: bytes, name: str) -> ShardingError:
    reported = from_mlir_error(error)
    text = None if is_bytecode(data) else _decode(data, name)
    source = SourceText(name, text)
    placed = [source.place(d).at(SourceLocation(name)) for d in reported.diagnostics]
    if text is None:
        placed = [replace(d, help=d.help or _CUT_SHORT) for d in placed]
    return ShardingError.of(placed)
