"""Lines of a lit test that look like directives, and that nobody reads.

lit, FileCheck and ``--verify-diagnostics`` pass over what they do not know in silence: a
``CHEKC-NEXT``, a ``CHECK-NEXT`` without its colon, a prefix that no RUN line names, a ``REQUIRE``.
The first word of each comment is looked at; prose begins with another, or in lower case.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardpass.lit.script import Run, comment_prefixes_of

SUFFIXES = ("NEXT", "SAME", "NOT", "DAG", "LABEL", "EMPTY", "COUNT")
#: What lit itself reads. Source: ``parseIntegratedTestScript`` in its ``TestRunner``.
KEYWORDS = ("RUN", "DEFINE", "REDEFINE", "REQUIRES", "UNSUPPORTED", "XFAIL", "ALLOW_RETRIES")
CONDITIONS = ("REQUIRES", "UNSUPPORTED", "XFAIL")
#: Words in capitals that begin ordinary comments.
_PROSE = {"NOTE", "COM", "TODO", "FIXME", "XXX", "HACK", "WARNING", "IMPORTANT"}

_COMMENT = re.compile(r"(?://+|#(?=\s)|^#|^;+)\s*(?P<text>.*)$")
_WORD = re.compile(
    r"(?P<word>[A-Za-z][A-Za-z_-]*?(?:-COUNT-\d+)?)"
    r"(?P<literal>\{[A-Z]+\})?(?:(?P<colon>\s*:)|(?=[^\w-]|$))"
)
_EXPECTED = re.compile(r"(?P<word>\bexp\w*-\w+(?:-re)?)(?P<rest>.*)$")
_EXPECTED_FORM = re.compile(r"\s*(@([+-]\d+|above|below|unknown))?\s*\{\{.*\}\}\s*$")
_SEVERITIES = ("error", "warning", "remark", "note")
_VERIFIES = re.compile(r"(?<![\w-])--?verify-diagnostics\b")
_VERSIONED = re.compile(r"(?:jax|python)-\d+\.\d+\+?")


@dataclass(frozen=True, slots=True)
class Unread:
    """A line that is not read: its number, what is wrong with it, and the word it begins with."""

    line: int
    message: str
    word: str = ""


def unread_lines(
    text: str,
    runs: Sequence[Run],
    prefixes: Sequence[str],
    *,
    first_line: int = 1,
    is_known: bool = True,
) -> Iterator[Unread]:
    """Misspelt directives of lit and FileCheck, and expectations that nobody compares.

    Args:
      text: of a test, a part of one, or a file that holds the directives of tests.
      runs: the RUN lines of these tests.
      prefixes: those that FileCheck reads from ``text``.
      first_line: the number of its first line.
      is_known: whether these are all RUN lines that may read it.
    """
    opaque = not is_known or any(run.has_unknown_substitutions for run in runs)
    verified = opaque or any(_VERIFIES.search(run.command) for run in runs)
    prose = _PROSE | comment_prefixes_of(runs)
    # FileCheck takes a line for a comment if one of these is anywhere before a prefix.
    comments = "|".join(map(re.escape, {"RUN", "COM", *comment_prefixes_of(runs)}))
    hidden = re.compile(rf"(?:{comments}).*(?:{'|'.join(map(re.escape, prefixes)) or '(?!)'})")
    for number, line in enumerate(text.splitlines(), first_line):
        comment = _COMMENT.search(line)
        if not comment:
            continue
        if found := _WORD.match(comment["text"]):
            word = found["word"]
            fault = _word_fault(word, found["colon"], prefixes, prose, opaque)
            if not fault and is_directive(word, prefixes):
                fault = _directive_fault(found, bool(hidden.search(line)))
            if not fault and word in CONDITIONS:
                fault = _condition_fault(comment["text"])
            if fault:
                yield Unread(number, fault, word)
        if found := _EXPECTED.search(comment["text"]):
            fault = _expectation_fault(found, verified)
            if fault:
                yield Unread(number, fault, found["word"])


def check_counts(text: str, prefixes: Sequence[str]) -> dict[str, tuple[int, int]]:
    """For each prefix: how many directives FileCheck finds, and how many want something."""
    counts: dict[str, tuple[int, int]] = dict.fromkeys(prefixes, (0, 0))
    if not prefixes:
        return counts
    either = "|".join(map(re.escape, sorted(prefixes, key=len, reverse=True)))
    kinds = "DAG|COUNT-\\d+|NOT|EMPTY|NEXT|SAME|LABEL"
    form = re.compile(rf"(?:^|[^\w-])({either})(?:-({kinds}))?(?:\{{LITERAL\}})?:")
    for line in text.splitlines():
        found = form.search(line)
        if found and not re.search(r"RUN|COM", line[: found.start(1)]):
            every, wanting = counts[found[1]]
            counts[found[1]] = every + 1, wanting + (found[2] != "NOT")
    return counts


def is_directive(word: str, prefixes: Sequence[str]) -> bool:
    """Whether FileCheck reads ``word:`` as a directive of one of the prefixes."""
    for prefix in prefixes:
        rest = word.removeprefix(prefix)
        if rest != word and (
            not rest
            or re.fullmatch(r"-COUNT-[1-9]\d*", rest)
            or (rest[1:] in SUFFIXES and rest[0] == "-" and rest != "-COUNT")
        ):
            return True
    return False


def _word_fault(
    word: str, colon: str | None, prefixes: Sequence[str], prose: set[str], opaque: bool
) -> str | None:
    """What is wrong with the first word of a comment, or None if nothing is.

    ``colon`` is what follows the word, if it is a colon, with the spaces before it; ``opaque``,
    whether prefixes may be named where the linter cannot see them.
    """
    if word in KEYWORDS or is_directive(word, prefixes):
        return None if colon == ":" else f"{word} without a colon right after it is not read"
    if opaque and (word == "CHECK" or is_directive(word, ["CHECK"])):
        return None
    base, _, suffix = word.partition("-")
    if base in prefixes:
        wanted = ", ".join(SUFFIXES)
        return f"{word}: no such directive; after {base}- comes one of {wanted} (COUNT-<number>)"
    if suffix in SUFFIXES and base.isupper() and not opaque:
        near = difflib.get_close_matches(base, prefixes, 1, cutoff=0.8)
        meant = f"not read; did you mean {near[0]}-{suffix}:?" if near else ""
        return f"{word}: {meant or f'no RUN line has --check-prefix={base}'}"
    if word in prose:
        return None
    shouted = word.isupper() and (colon or "-" in word or "_" in word or "CHECK" in word)
    if colon or shouted:
        forms = [*prefixes, *KEYWORDS, *(f"{p}-{suffix}" for p in prefixes for suffix in SUFFIXES)]
        near = difflib.get_close_matches(word.upper().replace("_", "-"), forms, 1, cutoff=0.8)
        if near:
            return f"{word}: not read; did you mean {near[0]}:?"
    if word.isupper() and len(word) > 2 and colon == ":" and not opaque:
        return f"{word}: no RUN line has --check-prefix={word}"
    return None


def _directive_fault(found: re.Match[str], hidden: bool) -> str | None:
    if hidden:
        return "filecheck skips a line with RUN or COM before its prefix"
    if found["literal"] not in (None, "{LITERAL}"):
        return f"{found['word']}{found['literal']}: only {{LITERAL}} is known"
    return None


def _condition_fault(comment: str) -> str | None:
    """A feature that looks like one of this kit's and that no version ever has."""
    for name in re.findall(r"[-+=.\w<>]+", comment.partition(":")[2]):
        if re.match(r"(?:jax|jaxlib|python)(?![A-Za-z])", name) and not _VERSIONED.fullmatch(name):
            return f"{name}: no such feature; versions are jax-0.10 or python-3.12, or jax-0.10+"
    return None


def _expectation_fault(found: re.Match[str], verified: bool) -> str | None:
    word = found["word"]
    first, _, severity = word.removesuffix("-re").partition("-")
    if (first, severity) not in {("expected", each) for each in _SEVERITIES}:
        is_near = difflib.get_close_matches(first, ["expected"], 1, cutoff=0.7)
        is_near = is_near and difflib.get_close_matches(severity, _SEVERITIES, 1, cutoff=0.7)
        if not is_near:
            return None
        return f"{word}: not read; write expected-error, -warning, -remark or -note"
    if not _EXPECTED_FORM.match(found["rest"]):
        return f"{word}: not of the form `{word} @+1 {{{{text}}}}`"
    if not verified:
        return f"{word}: no RUN line has --verify-diagnostics"
    return None
