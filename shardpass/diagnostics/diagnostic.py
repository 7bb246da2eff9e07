"""The one value that every fault, warning and remark of the package is."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from shardpass.diagnostics.slugs import SLUGS


class Severity(enum.Enum):
    """How bad it is; only an ``ERROR`` makes a run fail."""

    ERROR = "error"
    WARNING = "warning"
    REMARK = "remark"


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A place in a file: ``line`` and ``column`` count from 1, 0 where unknown.

    ``name`` is what the op there is called, where no line is known: HLO has names alone.
    """

    file: str
    line: int = 0
    column: int = 0
    name: str = ""

    def __str__(self) -> str:
        if not self.line:
            return f'{self.file}: "{self.name}"' if self.name else self.file
        return (
            f"{self.file}:{self.line}:{self.column}" if self.column else f"{self.file}:{self.line}"
        )


@dataclass(frozen=True, slots=True)
class Excerpt:
    """One line of text with a caret under it.

    ``column`` counts characters from 1 and may be one past the end (the text stops too early).
    ``length`` is how many characters the caret underlines.
    """

    text: str
    column: int = 1
    length: int = 1

    @classmethod
    def at(cls, text: str, offset: int, length: int = 1) -> Excerpt:
        """The line of ``text`` that holds character ``offset`` (from 0)."""
        offset = min(max(offset, 0), len(text))
        start = text.rfind("\n", 0, offset) + 1
        end = text.find("\n", offset)
        line = text[start:] if end < 0 else text[start:end]
        column = offset - start + 1
        return cls(line, column, max(1, min(length, len(line) - column + 1)))


@dataclass(frozen=True, slots=True)
class Note:
    """A note with a place of its own, as MLIR attaches them."""

    message: str
    location: SourceLocation | None = None


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One thing that was found, ready to be raised, collected, printed or compared.

    Attributes:
      severity: whether it fails the run.
      slug: a name from :data:`shardpass.diagnostics.slugs.SLUGS`.
      message: one sentence, lower case, no full stop, with the numbers in it.
      location: the file and line it speaks of, if there is one.
      excerpt: the text it speaks of, if there is one.
      path: the dotted path of the argument or result it speaks of (``params.wq``).
      notes: further facts, a line each.
      help: what to do about it, in the imperative.
      attached: those of the notes that a test may expect at places of their own.
    """

    severity: Severity
    slug: str
    message: str
    location: SourceLocation | None = None
    excerpt: Excerpt | None = None
    path: str | None = None
    notes: tuple[str, ...] = ()
    help: str | None = None
    attached: tuple[Note, ...] = ()

    def __post_init__(self) -> None:
        if self.slug not in SLUGS and "/" not in self.slug:
            raise LookupError(
                f"{self.slug!r} is not in the catalogue shardpass.diagnostics.slugs; a slug of "
                "your own has a slash in it (acme/too-large)"
            )

    def at(self, location: SourceLocation | None, excerpt: Excerpt | None = None) -> Diagnostic:
        """This diagnostic with a place, where it has none yet."""
        return replace(
            self,
            location=self.location or location,
            excerpt=self.excerpt or excerpt,
        )

    def to_json(self) -> dict[str, object]:
        """A JSON object; absent fields are left out."""
        record: dict[str, object] = {
            "severity": self.severity.value,
            "slug": self.slug,
            "message": self.message,
        }
        if self.location:
            record["location"] = {
                "file": self.location.file,
                "line": self.location.line,
                "column": self.location.column,
                **({"name": self.location.name} if self.location.name else {}),
            }
        if self.excerpt:
            record["excerpt"] = {
                "text": self.excerpt.text,
                "column": self.excerpt.column,
                "length": self.excerpt.length,
            }
        if self.path is not None:
            record["path"] = self.path
        if self.notes:
            record["notes"] = list(self.notes)
        if self.help:
            record["help"] = self.help
        return record

    def __str__(self) -> str:
        from shardpass.diagnostics.render import render

        return render(self)
