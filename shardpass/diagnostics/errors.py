"""The exception that carries a diagnostic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shardpass.diagnostics.diagnostic import Diagnostic, Excerpt, Severity, SourceLocation
from shardpass.diagnostics.render import underline

_NO_FILE: Final = "-"


class ShardingError(ValueError):
    """Bad input, with everything a reader needs to mend it.

    ``str(error)`` is the message, with its place in front and the help behind it;
    ``error.diagnostic`` is the whole value. A call that found several faults raises the first and
    lists all in ``error.diagnostics``.
    """

    def __init__(
        self,
        slug: str,
        message: str,
        *,
        help: str | None = None,
        notes: Sequence[str] = (),
        path: str | None = None,
        location: SourceLocation | None = None,
        excerpt: Excerpt | None = None,
    ) -> None:
        self.diagnostic = Diagnostic(
            Severity.ERROR, slug, message, location, excerpt, path, tuple(notes), help
        )
        self.diagnostics: tuple[Diagnostic, ...] = (self.diagnostic,)
        super().__init__(message)

    @classmethod
    def of(cls, diagnostics: Sequence[Diagnostic]) -> ShardingError:
        """An error for several diagnostics, the first ``ERROR`` among them in front."""
        first = next(d for d in diagnostics if d.severity is Severity.ERROR)
        error = cls(first.slug, first.message)
        error.diagnostic = first
        error.diagnostics = tuple(diagnostics)
        return error

    def about(
        self,
        subject: str,
        *,
        path: str | None = None,
        location: SourceLocation | None = None,
        excerpt: Excerpt | None = None,
        notes: Sequence[str] = (),
    ) -> ShardingError:
        """The same error as told of ``subject``: ``argument 0 ("w"): 6 elements into 4 pieces``.

        ``path``, ``location`` and ``excerpt`` are taken where the error has none; ``notes`` come
        behind its own.
        """
        said = self.diagnostic
        return ShardingError(
            said.slug,
            f"{subject}: {said.message}" if subject else said.message,
            help=said.help,
            notes=(*said.notes, *notes),
            path=said.path if said.path is not None else path,
            location=said.location or location,
            excerpt=said.excerpt or excerpt,
        )

    @property
    def slug(self) -> str:
        """The slug of the diagnostic in front."""
        return self.diagnostic.slug

    def __str__(self) -> str:
        shown = self.diagnostic
        text = f"{_place(shown.location)}{shown.message}"
        if shown.excerpt:
            text += "".join(f"\n  {line}" for line in underline(shown.excerpt))
        for note in shown.notes:
            text += f"\n  note: {note}"
        if shown.help:
            text += f"\n  help: {shown.help}" if "\n" in text else f" ({shown.help})"
        return text

    def __reduce__(self) -> tuple[object, ...]:
        return (ShardingError.of, (self.diagnostics,))


def _place(location: SourceLocation | None) -> str:
    """``rules.toml:3:5: ``, where that tells more than the message does.

    A text that nobody gave a name to is ``-`` to MLIR, and has no place that could be looked up.
    """
    if location is None or location.file == _NO_FILE or not (location.line or location.name):
        return ""
    return f"{location}: "
