"""``shardpass opt`` over files: each in processes of its own, and what is done when one dies.

A native pass can abort its process. That costs one part of one file: what is said of it names the
pass, which a second process found out by having MLIR print what it was about to run, and the other
parts go through a third.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from shardpass.cli.console import Console
from shardpass.cli.guard import Attempt, attempted, imports
from shardpass.cli.opt.ir_printing import TRACE, dumps
from shardpass.cli.opt.parts import Part, parts_of
from shardpass.cli.opt.reproducer import (
    Reproducer,
    command,
    keep_in_temporary_folder,
    with_reproducer,
)
from shardpass.cli.opt.work import Request, Source, in_hand, work
from shardpass.diagnostics import Diagnostic, Severity, ShardingError, SourceLocation


@dataclass(frozen=True)
class Run:
    """One file on its way through ``opt``.

    Attributes:
      console: where all is reported.
      source: the file.
      request: what to do with it.
      reproducer: where a failure goes; if not said, to a file in the temporary folder that is
        named after it.
    """

    console: Console
    source: Source
    request: Request
    reproducer: str | None = None

    def go(self) -> Attempt:
        """Do it, with everything reported."""
        dead: dict[int, Diagnostic] = {}
        while True:
            attempt = self._attempt(dead)
            if attempt.death is None:
                self._tell_where_to_find(attempt, dead)
                return attempt
            place = _last_part(attempt)
            if place is None or place in dead:
                self.console.report(attempt.death.diagnostics)
                return replace(attempt, death=None)
            dead[place] = self._obituary(attempt.death.diagnostic, place)

    def _attempt(self, dead: dict[int, Diagnostic]) -> Attempt:
        def sift(told: str) -> str:
            wanted, rest = self.request.ir_printing.sift(told)
            self.console.write(wanted)
            return rest

        return attempted(
            self.console,
            work,
            self.source,
            self.request,
            dead,
            None,
            self.reproducer,
            sift=sift if self.request.ir_printing else str,
        )

    def _obituary(self, death: Diagnostic, place: int) -> Diagnostic:
        """What to say of the part at ``place``, of which a process died."""
        part = self._part(place)
        return replace(
            death,
            message=f"{self._where_it_died(place)}: {death.message}",
            location=SourceLocation(self.source.name, part.line if part.is_cut_out else 0),
            notes=(*death.notes, *self._kept(part, "what it died of")),
        )

    def _where_it_died(self, place: int) -> str:
        told: list[str] = []

        def collect(text: str) -> str:
            told.append(text)
            return ""

        quiet = replace(
            self.request,
            ir_printing=TRACE,
            timing=False,
            statistics=False,
            show_pipeline=False,
            output=self.request.output.to(None),
        )
        silent = Console(quiet=True, write=lambda _: None)
        attempt = attempted(silent, work, self.source, quiet, {}, place, None, sift=collect)
        if attempt.death is None:
            return "it did not die a second time, so that nobody knows of which pass"
        last = next(iter([*dumps("".join(told))][::-1]), None)
        if last is None:
            return "in front of all passes" if self.request.pipeline else "without any pass"
        where = f"in {last.name}" if last.before else f"behind {last.name}"
        return f"{where}, on function {last.function}" if last.function else where

    def _tell_where_to_find(self, attempt: Attempt, dead: dict[int, Diagnostic]) -> None:
        """Keep the first part that failed in the passes or behind them.

        Where what is reported is compared with the file, an error may be what is wanted.
        """
        compares = self.request.verify_diagnostics is not None and not self.reproducer
        kinds = ("broke",) if compares else ("broke", "failed")
        found = next((m.split() for m in attempt.marks if m.split()[0] in kinds), None)
        if found is None or dead or (self.console.quiet and not self.reproducer):
            return
        part = self._part(int(found[1]))
        where, *how = self._kept(part, "what failed")
        self.console.report(
            [Diagnostic(Severity.REMARK, "reproducer", where, help=next(iter(how), None))]
        )

    def _kept(self, part: Part, what: str) -> tuple[str, ...]:
        """Keep ``part``; where it is now, and how to repeat what was done to it."""
        try:
            path = self._keep(part)
        except ShardingError as error:
            # What is to be told is the failure itself, and that alone decides the exit code.
            return (f"{what} could not be kept: {error.diagnostic.message}",)
        return f"{what} is in {path}", f"to repeat it: {self._command(part, path)}"

    def _part(self, place: int) -> Part:
        data, _ = self._in_hand
        return parts_of(data, self.request.split)[place]

    @cached_property
    def _in_hand(self) -> tuple[bytes, Request]:
        return in_hand(self.source, self.request)

    def _keep(self, part: Part) -> str:
        """Write ``part`` and what was done to it; the path.

        What was read from a reproducer is in a file already.
        """
        from shardpass.mlir import files
        from shardpass.mlir.forms import form_of

        _, request = self._in_hand
        if request.from_reproducer and self.source.given is None and not self.reproducer:
            return self.source.name
        suffix = ".mlir" if form_of(part.data) == "text" else os.path.splitext(self.source.name)[1]
        done = Reproducer(request.pipeline_text, request.verify_each)

        def content(path: str) -> bytes:
            if not self._can_hold_a_pipeline(part):
                return part.data
            head = f"To repeat it in {os.getcwd()}: {self._command(part, path)}"
            return with_reproducer(part.data, done, head)

        if self.reproducer:
            files.write_whole(self.reproducer, content(self.reproducer))
            return self.reproducer
        failure = f"{done}{self._command(part, '')}\n".encode(errors="surrogateescape") + part.data
        return keep_in_temporary_folder(self.source.name, suffix, failure, content)

    def _command(self, part: Part, path: str) -> str:
        _, request = self._in_hand
        words = [path]
        if self._can_hold_a_pipeline(part):
            words.append("--run-reproducer")
        else:
            if request.pipeline:
                words.append(f"--pass-pipeline={request.pipeline_text}")
            if not request.verify_each:
                words.append("--verify-each=false")
        if request.allow_unregistered:
            words.append("--allow-unregistered-dialect")
        if not request.implicit_module:
            words.append("--no-implicit-module")
        if request.verify_roundtrip:
            words.append("--verify-roundtrip")
        if request.output.emit not in (None, "text"):
            words += [f"--emit={request.output.emit}", "-o", os.devnull]
        return command(*words)

    def _can_hold_a_pipeline(self, part: Part) -> bool:
        from shardpass.mlir.forms import form_of

        _, request = self._in_hand
        return bool(request.pipeline) and form_of(part.data) == "text"


def _last_part(attempt: Attempt) -> int | None:
    places = [int(m.split()[1]) for m in attempt.marks if m.startswith("part ")]
    return places[-1] if places else None


def run_batch(runs: Sequence[Run]) -> int:
    """Take each file through ``opt``, whatever becomes of the others; the exit code for all.

    All is imported here, once, and each file gets a fork of this process.
    """
    with imports():
        import shardpass.passes.pipeline  # noqa: F401
    worst = 0
    for run in runs:
        attempt = run.go()
        if attempt.was_interrupted:
            return attempt.code
        worst = max(worst, attempt.code)
    return worst


def batch_outputs(names: Sequence[str], folder: str) -> list[str]:
    """Where the results of the files ``names`` go in ``folder``.

    Raises:
      ShardingError: ``usage``, where two would go to one file, or one over what it was read from;
        ``unwritable``, where there is no such folder.
    """
    if not os.path.isdir(folder):
        raise ShardingError(
            "unwritable",
            f"cannot write to {folder}: there is no such folder",
            help=f"make it first: mkdir -p {folder}",
        )
    taken: dict[str, str] = {}
    for name in names:
        output = os.path.join(folder, Path(name).name)
        if output in taken:
            raise ShardingError(
                "usage", f"{taken[output]} and {name} would both be written to {output}"
            )
        if os.path.realpath(output) == os.path.realpath(name):
            raise ShardingError("usage", f"{name} would be written over itself")
        taken[output] = name
    return list(taken)
