"""The work of ``shardpass opt``: each module of a file parsed, sent through the passes, printed.

It runs in a child process, which tells by marks what it is at: ``part 3`` where it begins one,
``failed 3`` where an error came of the passes or behind them, ``broke 3`` where that is a fault of
a pass.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from shardpass.cli.folder import same_folder
from shardpass.cli.guard import (
    DIED,
    FAILED,
    console,
    internal_fault,
    mark,
    reading_the_command_line,
)
from shardpass.cli.opt.ir_printing import EVERY, IrPrinting, without_steps_between
from shardpass.cli.opt.output import Output
from shardpass.cli.opt.parts import Part, parts_of
from shardpass.cli.opt.reproducer import read_reproducer
from shardpass.cli.opt.roundtrip import check_roundtrip
from shardpass.diagnostics import Diagnostic, Severity, ShardingError, SourceLocation, did_you_mean

if TYPE_CHECKING:
    from shardpass.diagnostics.expected import Level
    from shardpass.mlir import Module
    from shardpass.passes.pipeline import Instrument


@dataclass(frozen=True)
class Request:
    """What one call of ``opt`` asks for, whatever the file."""

    pipeline: tuple[str, ...] = ()
    split: str | None = None
    verify_diagnostics: Level | None = None
    verify_each: bool = True
    verify_roundtrip: bool = False
    allow_unregistered: bool = False
    implicit_module: bool = True
    timing: bool = False
    statistics: bool = False
    show_pipeline: bool = False
    ir_printing: IrPrinting = field(default_factory=IrPrinting)
    output: Output = field(default_factory=Output)
    from_reproducer: bool = False
    options: tuple[str, ...] = ()

    @property
    def pipeline_text(self) -> str:
        """The passes as one text."""
        return f"builtin.module({','.join(self.pipeline)})"


@dataclass(frozen=True)
class Source:
    """A file: what messages call it, and its content where that can be read but once."""

    name: str
    given: bytes | None = None

    @classmethod
    def at(cls, path: str) -> Source:
        """The file at ``path``; a pipe is read now, since that can be done but once.

        Raises:
          ShardingError: ``unreadable``.
        """
        is_pipe = os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))
        return cls(path, cls(path).read() if is_pipe else None)

    def read(self) -> bytes:
        """Its content.

        Raises:
          ShardingError: ``unreadable``.
        """
        from shardpass.mlir import files

        return files.read_bytes(self.name) if self.given is None else self.given


@dataclass
class _Outcome:
    """What became of the parts of a file so far."""

    formed: list[bytes] = field(default_factory=list)
    faults: list[Diagnostic] = field(default_factory=list)
    broke: bool = False


def in_hand(source: Source, request: Request) -> tuple[bytes, Request]:
    """The content of ``source``, and what to do to it, which may stand there as well.

    Raises:
      ShardingError: ``unreadable``.
    """
    data = source.read()
    if not request.from_reproducer:
        return data, request
    data, done = read_reproducer(data, source.name)
    return data, replace(
        request,
        pipeline=(done.pipeline,),
        verify_each=done.verify_each,
    )


def work(
    source: Source,
    request: Request,
    dead: Mapping[int, Diagnostic],
    only: int | None,
    reproducer: str | None,
) -> int:
    """Run ``request`` over the parts of ``source``, and report.

    Args:
      source: the file.
      request: what to do.
      dead: what is said of the parts, by their place, that nothing is to be done with.
      only: the one part to run; all if not said.
      reproducer: where a failure is to be put, by somebody else.

    Returns:
      The exit code.
    """
    from shardpass.mlir import files

    for target in (request.output.path, reproducer):
        if target not in (None, "-"):
            files.check_target(target)
    data, request = in_hand(source, request)
    with reading_the_command_line(), same_folder():
        _check(request)
    done = _Outcome()
    for part in parts_of(data, request.split):
        if part.index in dead:
            done.formed.append(b"")
            done.faults.append(dead[part.index])
            done.broke = True
        elif only in (None, part.index):
            # What is printed between passes was shown already, before a part behind this one died.
            again = part.index < max(dead, default=-1)
            now = replace(request, ir_printing=IrPrinting()) if again else request
            with same_folder():
                _through(part, source.name, now, done)
    request.output.check(len(done.formed))
    console().report(done.faults)
    failed = any(fault.severity is Severity.ERROR for fault in done.faults)
    request.output.write(done.formed, failed=failed)
    return DIED if done.broke else FAILED if failed else 0


def _through(part: Part, name: str, request: Request, done: _Outcome) -> None:
    mark(f"part {part.index}")
    reported: list[Diagnostic] = []
    formed = b""  # Its place between the others is kept where it failed.
    module = None
    try:
        module = _parsed(part, name, request)
        module, warnings = _run(module, part, request)
        reported += warnings
        formed = request.output.formed(module)
    except ShardingError as error:
        reported += error.diagnostics
        if module is not None and error.slug != "usage":
            mark(f"failed {part.index}")
    except Exception as error:
        mark(f"broke {part.index}")
        reported.append(internal_fault(error))
        done.broke = True
    finally:
        _show_dumps(request.ir_printing)
    done.formed.append(formed)
    done.faults += _compared(part, name, reported, request)


def _parsed(part: Part, name: str, request: Request) -> Module:
    from shardpass.mlir import parse

    try:
        return parse(
            part.in_place,
            name,
            # A file without anything is a mistake, a part without anything is as good as another.
            needs_function=not part.is_cut_out and not part.data.strip(),
            allow_unregistered=request.allow_unregistered,
            implicit_module=request.implicit_module,
        )
    except ShardingError as error:
        start = SourceLocation(name, part.line) if part.is_cut_out else None
        raise ShardingError.of([fault.at(start) for fault in error.diagnostics]) from error


def _run(module: Module, part: Part, request: Request) -> tuple[Module, Sequence[Diagnostic]]:
    from shardpass.passes import run_pipeline

    if request.verify_roundtrip:
        check_roundtrip(module, allow_unregistered=request.allow_unregistered)
    instrument = _instrument(request)
    # Whoever wants to see what ran is shown that nothing did.
    if not (request.pipeline or instrument) or (part.is_cut_out and part.is_empty):
        return module, ()
    result = run_pipeline(
        module,
        request.pipeline,
        in_place=True,
        verify_each=request.verify_each,
        instrument=instrument,
        needs_entry=False,
    )
    return result.module, result.diagnostics


def _instrument(request: Request) -> Instrument | None:
    looks = request.ir_printing or request.timing or request.statistics or request.show_pipeline
    if not looks:
        return None

    def instrument(manager: object) -> None:
        from jax.extend.mlir import passmanager

        assert isinstance(manager, passmanager.PassManager)
        if request.show_pipeline:
            console().write(f"{without_steps_between(str(manager))}\n")
        if request.ir_printing:
            request.ir_printing.enable(manager)
        if request.statistics:
            manager.enable_statistics()
        if request.timing:
            manager.enable_timing()

    return instrument


def _show_dumps(ir_printing: IrPrinting) -> None:
    """Put the dumps that were asked for where a person sees them, in front of the results."""
    if not ir_printing:
        return
    sys.stderr.flush()
    size = os.fstat(2).st_size
    if not size:
        return
    # The file behind it is held back until this process ends; what is no dump stays in it.
    wanted, rest = ir_printing.sift(os.pread(2, size, 0).decode(errors="replace"))
    os.ftruncate(2, 0)
    os.lseek(2, 0, os.SEEK_SET)
    os.write(2, rest.encode())
    console().write(wanted)


def _compared(
    part: Part, name: str, reported: list[Diagnostic], request: Request
) -> list[Diagnostic]:
    from shardpass.diagnostics.expected import verify

    if request.verify_diagnostics is None:
        return reported
    return verify(
        part.data.decode(errors="replace"),
        reported,
        file=name,
        first_line=part.first_line,
        level=request.verify_diagnostics,
    )


def _check(request: Request) -> None:
    """Say what is wrong with the passes before any part of the file runs."""
    from shardpass.passes import build

    for text in request.pipeline:
        try:
            build(text)
        except ShardingError as error:
            name = text.split("{")[0]
            guess = did_you_mean(name, request.options)
            if error.slug != "unknown-pass" or guess is None:
                raise
            raise ShardingError(
                "usage", f"there is neither a pass nor an option --{name}", help=guess
            ) from error
    _check_names(request.ir_printing.before | request.ir_printing.after)


def _check_names(names: Iterable[str]) -> None:
    from shardpass.passes import build

    for name in sorted(set(names) - {EVERY}):
        build(name)
