"""``--verify-roundtrip``: whether a module survives being written and read."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from shardpass.cli.opt.output import Printing
from shardpass.diagnostics import ShardingError, SourceLocation

if TYPE_CHECKING:
    from shardpass.mlir import Module

_RESOURCE = re.compile(r"dense_resource<(?P<name>[^>]+)>")
_METADATA = "\n{-#"


def check_roundtrip(module: Module, *, allow_unregistered: bool) -> None:
    """Write ``module`` as text, generic text and bytecode, read each, and compare.

    Raises:
      ShardingError: ``roundtrip``, where another module comes of it; ``mlir``, where none does.
    """
    from shardpass.mlir import parse

    printing = Printing(debug_info=True)
    name = module.name
    # Without its text it is printed as MLIR has it: the file's name is for people.
    module = replace(module, source_text=None)
    text = printing.text(module)
    for form, data in (
        ("text", text.encode()),
        ("generic text", Printing(debug_info=True, generic=True).text(module).encode()),
        ("bytecode", module.bytecode()),
    ):
        again = parse(
            data,
            f"{name}, written as {form},",
            needs_function=False,
            allow_unregistered=allow_unregistered,
        )
        if with_numbered_resources(
            printing.text(replace(again, source_text=None))
        ) != with_numbered_resources(text):
            raise ShardingError(
                "roundtrip",
                f"another module comes of writing this one as {form} and reading that",
                location=SourceLocation(name),
            )


def with_numbered_resources(text: str) -> str:
    """A module's ``text`` with numbers for the names of its resources.

    Some versions of jaxlib give a resource another name where one was read under its own before.
    """
    body, mark, metadata = text.partition(_METADATA)
    numbers: dict[str, str] = {}
    for found in _RESOURCE.finditer(body):
        numbers.setdefault(found["name"], f"#{len(numbers)}")
    body = _RESOURCE.sub(lambda found: f"dense_resource<{numbers[found['name']]}>", body)
    entries = re.sub(
        r'^(\s*)(.+?)(?=: "0x)',
        lambda found: found[1] + numbers.get(found[2], found[2]),
        metadata,
        flags=re.MULTILINE,
    )
    return body + mark + entries
