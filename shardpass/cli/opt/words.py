"""The words of ``shardpass opt``, read as mlir-opt reads its own.

One dash before a long name is as good as two, and two before a short one as good as one. A flag may
be given a value (``-cse-first=false``), and some options have one that may be left out
(``--verify-diagnostics=only-expected``). Every word that is no option is a file or, with a dash in
front, a pass; passes keep their order, and may stand there several times, which options may not.
What stands behind ``--`` is a file, whatever it begins with.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import click

_TRUE = frozenset({"true", "TRUE", "True", "1", ""})
_FALSE = frozenset({"false", "FALSE", "False", "0"})

#: Short options, alone, together or with a value behind ``-o``; other words are long.
_SHORT = re.compile(r"-[qh]*(?:o(?P<value>.*))?", re.DOTALL)
_LONG = re.compile(r"--(?P<name>[A-Za-z][\w-]*)(?:=(?P<value>.*))?", re.DOTALL)

#: Options of mlir-opt for which MLIR's Python bindings have no word.
_NOT_FROM_PYTHON = frozenset(
    {
        "irdl-file",
        "load-dialect-plugin",
        "load-pass-plugin",
        "log-actions-to",
        "log-mlir-actions-filter",
        "mlir-debug-counter",
        "mlir-enable-debugger-hook",
        "mlir-output-format",
        "mlir-pass-pipeline-local-reproducer",
        "mlir-print-debug-counter",
        "mlir-print-elementsattrs-with-hex-if-larger",
        "mlir-print-op-on-diagnostic",
        "mlir-print-stacktrace-on-diagnostic",
        "mlir-print-unique-ssa-ids",
        "mlir-print-value-users",
        "mlir-very-unsafe-disable-verifier-on-parsing",
        "profile-actions-to",
    }
)


class MayHaveValue(click.Option):
    """An option whose value may be left out, or be empty, and then is ``bare``.

    click would take the next word for it, the name of the file as likely as not.
    """

    def __init__(self, *given: Any, bare: str, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self.bare = bare


class LikeMlirOpt(click.Command):
    """Reads words as mlir-opt does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The words as click likes them, read by click."""
        end = args.index("--") if "--" in args else len(args)
        # A path by which nobody takes the file for a pass.
        files = [f"./{w}" if w.startswith("-") and w != "-" else w for w in args[end + 1 :]]
        return super().parse_args(ctx, [*self._as_click(args[:end]), *args[end : end + 1], *files])

    def _as_click(self, args: Sequence[str]) -> list[str]:
        options = {
            name: option
            for option in self.params
            if isinstance(option, click.Option)
            for name in option.opts
        }
        words: list[str] = []
        given: set[str | None] = set()
        value_is_next = False
        for word in args:
            if value_is_next:
                words.append(word)
                value_is_next = False
                continue
            for part in _parts(word, options):
                words += _in_full(part, options)
                name, equals, _ = part.partition("=")
                option = options.get(name)
                if option is None:
                    continue
                if option.name in given and not option.multiple:
                    raise click.UsageError(f"{name} may stand there but once")
                given.add(option.name)
                is_bare = not (equals or option.is_flag)
                value_is_next = is_bare and not isinstance(option, MayHaveValue)
        return words


def _parts(word: str, options: dict[str, click.Option]) -> list[str]:
    """``word`` as long options and single short ones.

    ``-canonicalize`` -> ``--canonicalize``; ``-qo=out.mlir``, ``-qoout.mlir`` -> ``-q``,
    ``--output=out.mlir``; ``--o`` -> ``-o``.
    """
    if re.match(r"--[A-Za-z](?:=|$)", word) and word[1:3] in ("-h", *options):
        word = word[1:]
    if not re.match(r"-[A-Za-z]", word):
        return [word]
    long = f"-{word}"
    short = _SHORT.fullmatch(word)
    if not short or long.split("=")[0] in options:
        return [long]
    value = short["value"]
    letters = [f"-{letter}" for letter in word[1 : len(word) - len(value or "")]]
    if not value:
        return letters
    name = next(name for name in options[letters[-1]].opts if name.startswith("--"))
    return [*letters[:-1], f"{name}={value.removeprefix('=')}"]


def _in_full(word: str, options: dict[str, click.Option]) -> list[str]:
    """``word`` with the value that may be left out, or without one that a flag was given."""
    found = _LONG.fullmatch(word)
    option = options.get(f"--{found['name']}") if found else None
    if not found or option is None:
        return [word]
    name, value = f"--{found['name']}", found["value"]
    if isinstance(option, MayHaveValue):
        return [f"{name}={value or option.bare}"]
    if not option.is_flag or value is None:
        return [word]
    if value in _TRUE:
        return [name]
    if value in _FALSE:
        return []
    raise click.UsageError(f"{name} is true or false, not {value!r}")


def files_and_passes(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The files among ``words``, and the passes as texts of a pipeline.

    Raises:
      click.UsageError: for a word with a dash that cannot be a pass.
    """
    files = [word for word in words if word == "-" or not word.startswith("-")]
    flags = [word for word in words if word != "-" and word.startswith("-")]
    return files, [_as_text(flag) for flag in flags]


def _as_text(flag: str) -> str:
    """``--sp-annotate=rules=r.toml`` -> ``sp-annotate{rules=r.toml}``.

    The options may come in the braces that they have in a pipeline.
    """
    found = _LONG.fullmatch(flag)
    if not found:
        raise click.UsageError(f"no such option: {flag}")
    name, options = found.groups()
    if name in _NOT_FROM_PYTHON:
        raise click.UsageError(f"--{name} of mlir-opt cannot be asked for from Python")
    if options is None:
        return name
    return f"{name}{options}" if re.fullmatch(r"\{.*\}", options) else f"{name}{{{options}}}"
