"""Small helpers that the tests of passes share."""

from collections.abc import Iterable
from typing import Any

import pytest

from shardpass.diagnostics import Diagnostic, ShardingError
from shardpass.mlir import Module, argument_attributes, result_attributes
from shardpass.passes import run_pipeline

MESH = 'sdy.mesh @mesh = <["x"=2, "y"=4]>\n'

Said = list[tuple[str, str, str]]


def faults(module: Any, pipeline: Any, **options: Any) -> tuple[Diagnostic, ...]:
    """All that a pipeline reports, which must fail."""
    with pytest.raises(ShardingError) as caught:
        run_pipeline(module, pipeline, **options)
    return caught.value.diagnostics


def said(diagnostics: Iterable[Diagnostic]) -> Said:
    """Severity, slug and message of each."""
    return [(d.severity.value, d.slug, d.message) for d in diagnostics]


def attribute_of(module: Module, name: str, *, results: bool = False) -> list[str | None]:
    """The text of an attribute of every argument (or result) of the entry function."""
    read = result_attributes if results else argument_attributes
    return [str(e[name]) if name in e else None for e in read(module.main)]


def shardings(module: Module, *, results: bool = False) -> list[str | None]:
    """The ``sdy.sharding`` of every argument or result, without its dialect's prefix."""
    found = attribute_of(module, "sdy.sharding", results=results)
    return [text and text.removeprefix("#sdy.sharding") for text in found]
