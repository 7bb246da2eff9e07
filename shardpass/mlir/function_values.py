"""Shardy's complaints about arguments and results, in the user's names.

``'func.func' op arg 12 - unknown mesh: @m`` becomes ``argument 12 ("params.w"): unknown mesh: @m``,
with the caret under the argument. The module did not parse, so that names and places are found in
its text.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

from shardpass.diagnostics import Diagnostic, SourceLocation
from shardpass.mlir.locations import PARSED_TEXT
from shardpass.mlir.paths import dotted

_COMPLAINT = re.compile(r"'func\.func' op (?P<kind>arg|result) (?P<index>\d+) - (?P<what>.*)")
_ARGUMENT = re.compile(r"%[\w$.-]+\s*:")
_NAME = re.compile(r'loc\((?:"(?P<name>(?:[^"\\]|\\.)*)"|(?P<alias>#loc\d*))')


def name_function_value(diagnostic: Diagnostic, text: str | None) -> Diagnostic:
    """``diagnostic`` about the ``text`` that was parsed, in the user's names where it can be."""
    told = _COMPLAINT.match(diagnostic.message)
    if not told:
        return diagnostic
    index = int(told["index"])
    if told["kind"] == "result":
        return replace(diagnostic, message=f"result {index}: {told['what']}")
    place = diagnostic.location
    plain = replace(diagnostic, message=f"argument {index}: {told['what']}")
    if text is None or place is None or place.file != PARSED_TEXT:
        return plain
    arguments = _ARGUMENT.finditer(text, _offset(text, place))
    argument = next(itertools.islice(arguments, index, None), None)
    if argument is None:
        return plain
    following = next(arguments, None)
    end = following.start() if following else len(text)
    path = _name_in(text[argument.end() : end], text) or f"arg{index}"
    start = argument.start()
    line = text.count("\n", 0, start) + 1
    # In bytes, as MLIR counts.
    column = len(text[text.rfind("\n", 0, start) + 1 : start].encode()) + 1
    return replace(
        plain,
        message=f'argument {index} ("{path}"): {told["what"]}',
        location=SourceLocation(PARSED_TEXT, line, column),
        path=path,
    )


def _offset(text: str, place: SourceLocation) -> int:
    lines_above = itertools.islice(text.split("\n"), place.line - 1)
    return sum(len(line) + 1 for line in lines_above) + max(place.column - 1, 0)


def _name_in(argument: str, text: str) -> str | None:
    """The dotted name in an argument's text, where it carries a location."""
    found = _NAME.search(argument.partition("{\n")[0])
    if found and found["alias"]:
        found = re.search(rf'^{found["alias"]} = loc\("(?P<name>[^"]*)"', text, re.MULTILINE)
    return dotted(found["name"]) if found and found["name"] else None
