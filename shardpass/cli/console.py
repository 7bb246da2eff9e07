"""What a command says while it works, and when it is done."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import click

from shardpass.diagnostics import Diagnostic, Severity, render, summary

_COLORS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.REMARK: "cyan"}
#: A step that took less is not worth a line in a log.
_LEAST_SECONDS = 0.5


def write_to_standard_error(text: str) -> None:
    """Put ``text`` there as it is."""
    click.echo(text, err=True, nl=False, color=True)


@dataclass(frozen=True)
class Console:
    """Standard error as one command uses it.

    The command's work is done in a child process whose standard error is held back, so ``write``
    may lead through a pipe, and what kind of terminal is at its end is said here.

    Attributes:
      as_json: print each diagnostic as a line of JSON.
      quiet: print no progress and no remarks.
      live: whether a person watches, so that a line may be rewritten.
      color: whether severities are colored.
      write: puts text on standard error.
    """

    as_json: bool = False
    quiet: bool = False
    live: bool = False
    color: bool = False
    write: Callable[[str], None] = write_to_standard_error

    @classmethod
    def of_terminal(cls, *, as_json: bool, quiet: bool) -> Console:
        """The console of this process, as its standard error allows."""
        live = sys.stderr.isatty()
        return cls(as_json, quiet, live, live and not os.environ.get("NO_COLOR"))

    def say(self, text: str) -> None:
        """Print a line about what is going on."""
        if not self.quiet:
            self.write(f"{text}\n")

    def report(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Print diagnostics in order, and how many there were."""
        shown = [d for d in diagnostics if not (self.quiet and d.severity is Severity.REMARK)]
        for diagnostic in shown:
            self.write(f"{self._text(diagnostic)}\n")
        count = summary(shown)
        if count and len(shown) > 1 and not self.as_json:
            self.write(f"{count}\n")

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Say what is going on while it does, and how long it took if that was long.

        On a terminal the line stands there meanwhile; in a log it appears afterwards.
        """
        live = self.live and not self.quiet
        if live:
            self.write(f"{what} ...")
        started = time.monotonic()
        try:
            yield
        finally:
            took = time.monotonic() - started
            if live:
                self.write("\r\033[K")
            if took >= _LEAST_SECONDS:
                self.say(f"{what}: {took:.1f} s")

    def _text(self, diagnostic: Diagnostic) -> str:
        if self.as_json:
            return json.dumps(diagnostic.to_json())
        text = render(diagnostic)
        if not self.color:
            return text
        label = f"{diagnostic.severity.value}[{diagnostic.slug}]"
        styled = click.style(label, fg=_COLORS[diagnostic.severity], bold=True)
        return text.replace(label, styled, 1)
