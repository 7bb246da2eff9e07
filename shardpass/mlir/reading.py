"""The content of a file as an MLIR module, in whatever form it is."""

from __future__ import annotations

import codecs
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func

from shardpass.diagnostics import Diagnostic, Severity, ShardingError, SourceLocation
from shardpass.mlir import bytecode, portable
from shardpass.mlir.context import load_quantized_types, make_context
from shardpass.mlir.errors import from_mlir_error, hearing
from shardpass.mlir.exported import Container
from shardpass.mlir.files import is_bytecode
from shardpass.mlir.forms import FORMS, Form, form_of, looks_like, unpacked
from shardpass.mlir.locations import PARSED_TEXT, locate
from shardpass.mlir.source import SourceText


def _without_limit(_: int) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


#: Entered around the reading of so many bytes. Over some damaged files MLIR goes on for ever;
#: whoever reads in a process of its own (the command line) puts something here that ends it.
around_reading: Callable[[int], contextlib.AbstractContextManager[None]] = _without_limit


@dataclass(frozen=True)
class Content:
    """What a file held.

    Attributes:
      module: its program.
      form: the form it was in.
      text: the text, where it was MLIR text.
      container: the ``Exported`` around the program.
    """

    module: ir.Module
    form: Form
    text: str | None = None
    container: Container | None = None


def read(
    data: bytes,
    name: str,
    *,
    form: Form | None = None,
    needs_function: bool = True,
    allow_unregistered: bool = False,
    implicit_module: bool = True,
) -> Content:
    """The module in ``data``.

    Args:
      data: the content of a file, possibly compressed with gzip.
      name: what messages call it.
      form: its form, where that is known; told from the content by default.
      needs_function: whether to refuse a module without any, and an empty file with it.
      allow_unregistered: whether there may be ops and attributes of dialects that nobody
        registered.
      implicit_module: whether MLIR puts a module around a text that is none; otherwise there must
        be one.

    Raises:
      ShardingError: ``unreadable``, ``mlir``; see :func:`shardpass.load`.
    """
    data = unpacked(data, name)
    if needs_function and not data.removeprefix(codecs.BOM_UTF8).strip():
        raise ShardingError("unreadable", f"{name} is empty")
    context = make_context()
    context.allow_unregistered_dialects = allow_unregistered
    if b"quant" in data:
        load_quantized_types(context)
    form = form or form_of(data)
    with around_reading(len(data)):
        found = _read(context, data, name, form)
    if not implicit_module and form == "text" and found.text is not None:
        _check_top_level(context, found.text, name)
    if needs_function:
        _check_functions(found, name)
    return found


def _read(context: ir.Context, data: bytes, name: str, form: Form) -> Content:
    if form == "exported":
        container = Container(data, name)
        program = container.program
        if form_of(program) not in ("portable", "bytecode"):
            raise ShardingError("unreadable", f"{name} holds no program: it is damaged")
        found = _read(context, program, name, form_of(program))
        return replace(found, form=form, container=container)
    if form in ("portable", "bytecode") and (fault := bytecode.fault_in(data)):
        raise ShardingError(
            "unreadable",
            f"{name} is {FORMS[form]} that does not add up: {fault}",
            help=portable.CUT_SHORT,
        )
    with context:
        try:
            if form == "portable":
                return Content(portable.read(context, data, name), form)
            if form == "bytecode":
                return Content(_from_bytecode(context, data, name), form)
            if form in ("hlo", "hlo-proto"):
                return Content(_from_hlo(context, data, name, form), form)
            text = _decoded(data, name, form)
            return Content(ir.Module.parse(text), form, text)
        except ir.MLIRError as error:
            raise _explained(error, data, name) from error
        except ShardingError:
            raise
        except ValueError as error:
            # Sizes in broken bytecode that no memory can hold.
            raise ShardingError(
                "unreadable",
                f"{name} cannot be read: {' '.join(str(error).split())}",
                help=portable.CUT_SHORT if is_bytecode(data) else None,
            ) from error


def _from_bytecode(context: ir.Context, data: bytes, name: str) -> ir.Module:
    # What MLIR says of damaged names is not UTF-8, and jaxlib's own `MLIRError` dies of that.
    said: list[Diagnostic] = []
    try:
        with hearing(context, said.append):
            return ir.Module.parse(data)
    except ir.MLIRError as error:
        if not any(diagnostic.severity is Severity.ERROR for diagnostic in said):
            raise
        raise ShardingError.of([_in_bytecode(found, name) for found in said]) from error


def _in_bytecode(diagnostic: Diagnostic, name: str) -> Diagnostic:
    placed = SourceText(name, None).place(diagnostic).at(SourceLocation(name))
    return replace(placed, help=placed.help or portable.CUT_SHORT)


def _from_hlo(context: ir.Context, data: bytes, name: str, form: Form) -> ir.Module:
    # Late, since it comes with the whole object model: most files are not HLO.
    from shardpass.mlir import hlo

    if form == "hlo":
        return hlo.from_text(context, _decoded(data, name, form), name)
    return hlo.from_proto(context, data, name)


def _check_top_level(context: ir.Context, text: str, name: str) -> None:
    """Refuse what is no module by itself; it was read before, inside of one."""
    try:
        with context:
            top = ir.Operation.parse(text)
    except ir.MLIRError as error:
        # It is about all of the text, and has no place in it.
        raise ShardingError.of(
            [replace(fault, location=None) for fault in from_mlir_error(error).diagnostics]
        ) from error
    if top.operation.name != "builtin.module":
        fault = ShardingError(
            "unreadable",
            f"{name} holds a {top.operation.name} where a builtin.module has to stand: passes run "
            "on modules",
            location=locate(top),
        )
        raise ShardingError.of([SourceText(name, text).place(fault.diagnostic)])


def _check_functions(found: Content, name: str) -> None:
    operations = found.module.body.operations
    if any(isinstance(op, func.FuncOp) for op in operations):
        return
    inner = [op for op in operations if op.operation.name == "builtin.module"]
    if not inner:
        raise ShardingError(
            "unreadable",
            f"{name} holds no function",
            location=SourceLocation(name),
            help="a StableHLO module has at least func.func @main",
        )
    one = len(inner) == 1
    fault = ShardingError(
        "unreadable",
        f"{name} holds {'a module' if one else f'{len(inner)} modules'} and no function "
        f"outside {'it' if one else 'them'}: {', '.join(map(_shown_module, inner))}",
        location=locate(inner[0 if one else 1]),
        help="take the module out of the one around it"
        if one
        else "give each a file of its own, or, for opt --split-input-file, a line of // ----- "
        "between them",
    )
    raise ShardingError.of([SourceText(name, found.text).place(fault.diagnostic)])


def _shown_module(op: ir.OpView) -> str:
    shown = "one without a name"
    if "sym_name" in op.attributes:
        shown = f"@{ir.StringAttr(op.attributes['sym_name']).value}"
    place = locate(op)
    return f"{shown} on line {place.line}" if place and place.file == PARSED_TEXT else shown


def _decoded(data: bytes, name: str, form: Form) -> str:
    try:
        # Editors on Windows put a byte order mark in front, which is no part of the text.
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if form == "hlo":
            raise ShardingError(
                "unreadable", f"{name} is HLO text with a fault: byte {error.start} is not UTF-8"
            ) from error
        other = looks_like(data)
        known = ", ".join(what.removeprefix("a ") for what in FORMS.values())
        raise ShardingError(
            "unreadable",
            f"{name} is {other}, and no module"
            if other
            else f"{name} is neither MLIR bytecode nor text: byte {error.start} is not UTF-8",
            help=f"what is read is {known}" if other else None,
        ) from error


def _explained(error: ir.MLIRError, data: bytes, name: str) -> ShardingError:
    reported: list[Diagnostic] = list(from_mlir_error(error).diagnostics)
    if is_bytecode(data):
        return ShardingError.of([_in_bytecode(diagnostic, name) for diagnostic in reported])
    source = SourceText(name, _decoded(data, name, "text"))
    return ShardingError.of([source.place(d).at(SourceLocation(name)) for d in reported])
