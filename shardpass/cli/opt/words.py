"""The words of ``shardpass opt``, read as mlir-opt reads its own.

One dash before a long name is as good as two. A flag may be given a value (``-cse-first=false``),
and some options have one that may be left out (``--verify-diagnostics=only-expected``). Every word
that is no option is a file or, with a dash in front, a pass; passes keep their order.
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
    """An option whose value may be left out, and then is ``bare``.

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
        return super().parse_args(ctx, [*self._as_click(args[:end]), *args[end:]])

    def _as_click(self, args: Sequence[str]) -> list[str]:
        options = {
            name: option
            for option in self.params
            if isinstance(option, click.Option)
            for name in option.opts
        }
        words: list[str] = []
        value_is_next = False
        for word in args:
            if value_is_next:
                words.append(word)
                value_is_next = False
                continue
            word = _as_long(word, options)
            words += _in_full(word, options)
            option = options.get(word)
            value_is_next = (
                option is not None and not option.is_flag and not isinstance(option, MayHaveValue)
            )
        return words


def _as_long(word: str, options: dict[str, click.Option]) -> str:
    """``-canonicalize`` -> ``--canonicalize``; ``-o=out.mlir`` -> ``-oout.mlir``."""
    if not re.match(r"-[A-Za-z]", word):
        return word
    long = f"-{word}"
    short = _SHORT.fullmatch(word)
    if not short or long.split("=")[0] in options:
        return long
    value = short["value"]
    return word[: -len(value)] + value[1:] if value and value.startswith("=") else word


def _in_full(word: str, options: dict[str, click.Option]) -> list[str]:
    """``word`` with the value that may be left out, or without one that a flag was given."""
    found = _LONG.fullmatch(word)
    option = options.get(f"--{found['name']}") if found else None
    if not found or option is None:
        return [word]
    name, value = f"--{found['name']}", found["value"]
    if isinstance(option, MayHaveValue):
        return [f"{name}={option.bare if value is None else value}"]
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
    """``--sp-annotate=rules=r.toml`` -> ``sp-annotate{rules=r.toml}``."""
    found = _LONG.fullmatch(flag)
    if not found:
        raise click.UsageError(f"no such option: {flag}")
    name, options = found.groups()
    if name in _NOT_FROM_PYTHON:
        raise click.UsageError(f"--{name} of mlir-opt cannot be asked for from Python")
    return name if options is None else f"{name}{{{options}}}"
