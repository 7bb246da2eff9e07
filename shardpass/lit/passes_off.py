"""The passes on a command line of ``shardpass opt``, and the line without one of them.

A pass is a flag that is none of the command's own options (``--sp-strip``, ``-cse``,
``--sp-annotate=rules=r.toml``), or stands in the text of ``--pass-pipeline``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

#: Names of the command's options, dashes included, and whether each takes a value.
Options = Mapping[str, bool]

_PIPELINE = "--pass-pipeline"


def passes_of(words: Sequence[str], options: Options) -> list[str]:
    """The passes on a command line, each once, in the order in which they stand."""
    found: dict[str, None] = {}
    for word, is_value_of in _read(words, options):
        text = _pipeline_text(word, is_value_of)
        if text is not None:
            found.update(dict.fromkeys(passes_in_pipeline(text)))
        elif name := _pass_flag(word, is_value_of, options):
            found[name] = None
    return list(found)


def without_pass(words: Sequence[str], name: str, options: Options) -> list[str]:
    """The command line less every use of a pass; a pipeline left empty goes with its option."""
    kept: list[str] = []
    for word, is_value_of in _read(words, options):
        text = _pipeline_text(word, is_value_of)
        if text is None:
            if _pass_flag(word, is_value_of, options) != name:
                kept.append(word)
            continue
        rest = pipeline_without(text, name)
        if rest.strip():
            kept.append(word.removesuffix(text) + rest)
        elif is_value_of:
            del kept[-1]
    return kept


def passes_in_pipeline(text: str) -> list[str]:
    """The passes in a pipeline's text, also inside ``anchor(...)``, in order."""
    found = []
    for part in split_pipeline(text):
        if nested := _nested(part):
            found += passes_in_pipeline(nested[1])
        elif name := part.split("{")[0].strip():
            found.append(name)
    return found


def pipeline_without(text: str, name: str) -> str:
    """The pipeline less every use of the pass; an anchor left empty goes with it."""
    kept = []
    for part in split_pipeline(text):
        if nested := _nested(part):
            inner = pipeline_without(nested[1], name)
            if inner.strip():
                kept.append(f"{nested[0]}({inner})")
        elif part.split("{")[0].strip() != name:
            kept.append(part)
    return ",".join(kept)


def split_pipeline(text: str) -> list[str]:
    """The parts of a pipeline between commas that stand outside of brackets and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for position, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "{([":
            depth += 1
        elif character in "})]":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [*parts, text[start:]]


def named_after(test: Path, passes: Sequence[str]) -> str | None:
    """The pass that a test is named after, or None.

    ``merge-meshes.mlir`` and ``merge_meshes-errors.mlir`` are both about ``sp-merge-meshes``: of
    the passes, the longest whose name the file's name begins with, up to a dash. What stands before
    a pass's first dash, its project's mark, may be left out.
    """
    stem = test.name.split(".")[0].replace("_", "-")
    forms = {
        form: name
        for name in passes
        for form in (name, name.partition("-")[2])
        if form and (stem == form or stem.startswith(f"{form}-"))
    }
    return forms[max(forms, key=len)] if forms else None


def _read(words: Sequence[str], options: Options) -> list[tuple[str, str]]:
    """Each word with the option whose value it is, or an empty text.

    What looks like a flag is none, since an option may have a value behind ``=`` or not at all.
    """
    read, option = [], ""
    for word in words:
        is_value = bool(option) and (word == "-" or not word.startswith("-"))
        read.append((word, option if is_value else ""))
        option = "" if is_value else _option_with_value(word, options)
    return read


def _option_with_value(word: str, options: Options) -> str:
    """The option in full if the next word is its value."""
    for option in (word, f"-{word}"):
        if option.startswith("-") and options.get(option):
            return option
    return ""


def _pipeline_text(word: str, is_value_of: str) -> str | None:
    """The pipeline's text in a word that holds one."""
    if is_value_of:
        return word if is_value_of == _PIPELINE else None
    option, equals, text = word.partition("=")
    return text if equals and option in (_PIPELINE, _PIPELINE[1:]) else None


def _pass_flag(word: str, is_value_of: str, options: Options) -> str | None:
    """The pass that a flag names."""
    flag = re.fullmatch(r"--?([A-Za-z][\w.-]*)(?:=.*)?", word, re.DOTALL)
    if is_value_of or not flag or f"--{flag[1]}" in options or f"-{flag[1]}" in options:
        return None
    letters = [option[1] for option in options if re.fullmatch(r"-[A-Za-z]", option)]
    plain = "".join(letter for letter in letters if not options[f"-{letter}"])
    valued = "".join(letter for letter in letters if options[f"-{letter}"])
    short = rf"-[{plain}]*" if plain else "-"
    short += rf"(?:[{valued}].*)?" if valued else ""
    return None if re.fullmatch(short, word, re.DOTALL) else flag[1]


def _nested(part: str) -> tuple[str, str] | None:
    """The anchor and the inside of ``anchor(...)``."""
    found = re.fullmatch(r"\s*([\w.]+)\((.*)\)\s*", part, re.DOTALL)
    return (found[1], found[2]) if found else None
