"""``shardpass opt``: passes over a file, for people who test passes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from shardpass.cli.guard import FAILED, console, guarded, reading_the_command_line
from shardpass.cli.options import console_options, emit_option, example
from shardpass.cli.streams import STANDARD_INPUT, read_standard_input

if TYPE_CHECKING:
    from shardpass.diagnostics import Diagnostic
    from shardpass.mlir import Emit, Module

_SPLIT = re.compile(r"^// -----.*$", re.MULTILINE)
_COMMENT = re.compile(rb"^\s*//.*$", re.MULTILINE)
_SEPARATOR = "\n// -----\n"


@dataclass(frozen=True)
class _Request:
    """What one call of ``opt`` asks for."""

    pipeline: tuple[str, ...]
    split: bool
    verify_diagnostics: bool
    verify_each: bool
    debug_info: bool
    emit: Emit


class _LikeMlirOpt(click.Command):
    """Reads words as mlir-opt does: one dash is as good as two before a long name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The words with two dashes before each long name, then as click reads them."""
        takes_value = {
            name
            for parameter in self.params
            if isinstance(parameter, click.Option) and not parameter.is_flag
            for name in parameter.opts
        }
        words: list[str] = []
        for word in args:
            if word == "--":
                break
            is_value = bool(words) and words[-1] in takes_value
            words.append(word if is_value else _as_long(word))
        return super().parse_args(ctx, words + args[len(words) :])


#: Short options, alone, together or with a value behind ``-o``; other words are names of passes.
_SHORT = re.compile(r"-[qh]*(?:o.*)?", re.DOTALL)
_VERIFY_EACH = "--verify-each"


def _as_long(word: str) -> str:
    """``-canonicalize`` -> ``--canonicalize``, and ``--verify-each`` with its value."""
    if re.match(r"-[A-Za-z]", word) and not _SHORT.fullmatch(word):
        word = f"-{word}"
    return f"{word}=true" if word == _VERIFY_EACH else word


@click.command(
    cls=_LikeMlirOpt,
    context_settings={"ignore_unknown_options": True},
    short_help="Run passes over a module, as compiler tests do.",
    epilog=example(
        "shardpass opt step.mlir --sp-strip --sp-annotate='rules=r.toml mesh=data=2,model=4'",
        "shardpass opt --pass-pipeline='sp-propagate,sp-export-mhlo' < step.mlir",
        "shardpass opt errors.mlir --sp-verify --split-input-file --verify-diagnostics",
    ),
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[FILE] [--PASS[=OPTIONS]]...")
@click.option(
    "-o", "--output", default="-", help="Where the result goes; standard output if not said."
)
@click.option("--pass-pipeline", metavar="TEXT", help="The passes as a pipeline's text.")
@click.option(
    "--split-input-file",
    is_flag=True,
    help="Take the parts between lines of '// -----' for modules of their own.",
)
@click.option(
    "--verify-diagnostics",
    is_flag=True,
    help="Compare what is reported with the expected-error comments of the file.",
)
@click.option(
    _VERIFY_EACH,
    type=bool,
    default=True,
    show_default=True,
    metavar="[=BOOL]",
    help="Run MLIR's verifier behind every pass.",
)
@click.option("--mlir-print-debuginfo", "debug_info", is_flag=True, help="Print locations.")
@click.option("--list-passes", is_flag=True, help="Show every pass with its options, and stop.")
@emit_option
@console_options
@click.pass_context
def opt(
    context: click.Context,
    words: tuple[str, ...],
    output: str,
    pass_pipeline: str | None,
    split_input_file: bool,
    verify_diagnostics: bool,
    verify_each: bool,
    debug_info: bool,
    list_passes: bool,
    emit: Emit | None,
) -> None:
    """Run passes over FILE (standard input if not named) and print the module.

    A file named by --output is written if nothing fails.

    Passes are flags and run in the order in which they stand, with options behind an equals sign
    (--sp-propagate="conservative strategy=basic"), or a pipeline's text. Native passes of Shardy,
    StableHLO and MLIR are named in the same way. Without any pass the module is parsed, verified
    and printed.
    """
    files = [word for word in words if word == "-" or not word.startswith("-")]
    if len(files) > 1:
        raise click.UsageError(f"one file at most, not {len(files)}: {' '.join(files)}")
    flags = [word for word in words if word != "-" and word.startswith("-")]
    pipeline = [_as_text(flag) for flag in flags]
    if pass_pipeline is not None:
        if pipeline:
            raise click.UsageError("passes come as flags or as --pass-pipeline, not both")
        pipeline = [pass_pipeline]
    request = _Request(
        tuple(pipeline),
        split_input_file,
        verify_diagnostics,
        verify_each,
        debug_info,
        emit or "text",
    )
    if list_passes:
        guarded(context, _list_passes)
    else:
        file = files[0] if files else "-"
        guarded(context, _opt, file, output, request)


def _as_text(flag: str) -> str:
    """``--sp-annotate=rules=r.toml`` -> ``sp-annotate{rules=r.toml}``."""
    found = re.fullmatch(r"--?([A-Za-z][\w-]*)(?:=(.*))?", flag, re.DOTALL)
    if not found:
        raise click.UsageError(f"no such option: {flag}")
    name, options = found.groups()
    return name if options is None else f"{name}{{{options}}}"


def _opt(file: str, output: str, request: _Request) -> int:
    from shardpass.diagnostics import Severity, ShardingError
    from shardpass.mlir import files

    if output != "-":
        files.check_target(output)
    name = STANDARD_INPUT if file == "-" else file
    data = read_standard_input() if file == "-" else files.read_bytes(file)
    with reading_the_command_line():
        _check_pipeline(request.pipeline)
    printed: list[str | bytes] = []
    faults: list[Diagnostic] = []
    for part, first_line in _parts(data, split=request.split):
        reported: list[Diagnostic] = []
        try:
            module, warnings = _run(part, first_line, name, request)
            reported += warnings
            printed.append(_print(module, request))
        except ShardingError as error:
            reported += error.diagnostics
        faults += _faults(part, first_line, name, reported, request)
    if request.emit != "text" and len(printed) > 1:
        raise ShardingError(
            "usage", f"{request.emit} holds one module, and the file has {len(printed)} parts"
        )
    console().report(faults)
    failed = any(fault.severity is Severity.ERROR for fault in faults)
    # Half a file looks like a whole one to whoever reads it next. What is printed is for people.
    if output == "-" or not failed:
        _write(output, printed)
    return FAILED if failed else 0


def _check_pipeline(pipeline: Sequence[str]) -> None:
    """Say what is wrong with the passes before any part of the file runs."""
    from shardpass.diagnostics import ShardingError, did_you_mean
    from shardpass.passes import build

    options = [flag.lstrip("-") for parameter in opt.params for flag in parameter.opts]
    for text in pipeline:
        try:
            build(text)
        except ShardingError as error:
            name = text.split("{")[0]
            guess = did_you_mean(name, options)
            if error.slug != "unknown-pass" or guess is None:
                raise
            raise ShardingError(
                "usage", f"there is neither a pass nor an option --{name}", help=guess
            ) from error


def _parts(data: bytes, *, split: bool) -> Iterator[tuple[bytes, int]]:
    """The modules in a file, each with the number of its first line."""
    if not split:
        yield data, 1
        return
    text = data.decode(errors="surrogateescape")
    start = 0
    for border in [*_SPLIT.finditer(text), None]:
        end = border.start() if border else len(text)
        yield text[start:end].encode(errors="surrogateescape"), text.count("\n", 0, start) + 1
        start = border.end() if border else end


def _run(
    part: bytes, first_line: int, name: str, request: _Request
) -> tuple[Module, Sequence[Diagnostic]]:
    from shardpass.diagnostics import ShardingError, SourceLocation
    from shardpass.mlir import parse
    from shardpass.passes import run_pipeline

    # As in mlir-opt, a part of a file may be empty: there is nothing to run passes on.
    is_empty = request.split and not _COMMENT.sub(b"", part).strip()
    try:
        # Empty lines in front make MLIR count lines as the whole file does.
        module = parse(b"\n" * (first_line - 1) + part, name, needs_function=not is_empty)
    except ShardingError as error:
        blank = len(part) - len(part.lstrip())
        line = first_line + part.count(b"\n", 0, blank)
        start = SourceLocation(name, line) if request.split else None
        raise ShardingError.of([fault.at(start) for fault in error.diagnostics]) from error
    if is_empty or not request.pipeline:
        return module, ()
    result = run_pipeline(module, request.pipeline, in_place=True, verify_each=request.verify_each)
    return result.module, result.diagnostics


def _print(module: Module, request: _Request) -> str | bytes:
    if request.emit != "text":
        return module.to_bytes(request.emit, warn=lambda lost: console().report([lost]))
    return module.text(debug_info=request.debug_info)


def _faults(
    part: bytes, first_line: int, name: str, reported: list[Diagnostic], request: _Request
) -> list[Diagnostic]:
    from shardpass.diagnostics.expected import verify

    if not request.verify_diagnostics:
        return reported
    return verify(part.decode(errors="replace"), reported, file=name, first_line=first_line)


def _write(output: str, printed: list[Any]) -> None:
    from shardpass.mlir import files

    if not printed:
        return
    if isinstance(printed[0], bytes):
        data = printed[0]
    else:
        data = _SEPARATOR.join(printed).encode(errors="surrogateescape")
    if output == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        files.write_whole(output, data)


def _list_passes() -> int:
    from shardpass.mlir.native import NATIVE_PASSES, anchor
    from shardpass.passes import builtin_passes

    for name, cls in builtin_passes().items():
        click.echo(f"{name}\n    {cls.summary()}")
        for key, field in cls.options().items():
            default = "" if field.default is None else f" (default {_default(field.default)})"
            click.echo(f"      {key}: {field.metadata['help']}{default}")
    click.echo("\nNative passes:")
    for name, text in NATIVE_PASSES.items():
        if anchor(name) is not None:
            click.echo(f"  {name:48} {text}")
    return 0


def _default(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
