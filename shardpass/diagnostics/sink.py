"""Where passes report to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from shardpass.diagnostics.diagnostic import Diagnostic, Excerpt, Severity, SourceLocation
from shardpass.diagnostics.errors import ShardingError


class Sink:
    """Collects diagnostics in the order in which they are found; equal ones once."""

    def __init__(self) -> None:
        self._found: dict[Diagnostic, None] = {}

    def report(self, diagnostic: Diagnostic) -> None:
        """Add one diagnostic."""
        self._found[diagnostic] = None

    def report_error(self, error: ShardingError) -> None:
        """Add all that an exception carries."""
        for diagnostic in error.diagnostics:
            self.report(diagnostic)

    def error(self, slug: str, message: str, **fields: Any) -> None:
        """Report an error; ``fields`` are those of :class:`Diagnostic`."""
        self._add(Severity.ERROR, slug, message, **fields)

    def warning(self, slug: str, message: str, **fields: Any) -> None:
        """Report a warning."""
        self._add(Severity.WARNING, slug, message, **fields)

    def remark(self, slug: str, message: str, **fields: Any) -> None:
        """Report something worth knowing that is not wrong."""
        self._add(Severity.REMARK, slug, message, **fields)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """All that was reported."""
        return tuple(self._found)

    @property
    def has_errors(self) -> bool:
        """Whether any of it fails the run."""
        return any(d.severity is Severity.ERROR for d in self._found)

    def raise_errors(self) -> None:
        """Raise what was reported, if any of it is an error."""
        if self.has_errors:
            raise ShardingError.of(self.diagnostics)

    def _add(
        self,
        severity: Severity,
        slug: str,
        message: str,
        *,
        location: SourceLocation | None = None,
        excerpt: Excerpt | None = None,
        path: str | None = None,
        notes: Sequence[str] = (),
        help: str | None = None,
    ) -> None:
        self.report(
            Diagnostic(severity, slug, message, location, excerpt, path, tuple(notes), help)
        )

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self.diagnostics)

    def __len__(self) -> int:
        return len(self._found)
