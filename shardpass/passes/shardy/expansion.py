"""A native pipeline taken apart, so that options inside it can be set.

The text that MLIR prints for a pass manager is a pipeline again, with every option at its value. It
is edited here as elements of that text.
"""

from __future__ import annotations

import re
from functools import cache

from jax.extend.mlir import ir, passmanager

from shardpass.mlir import native
from shardpass.passes.pipeline_text import NestText, PassText, parse_pipeline


@cache
def expand(pipeline: str) -> tuple[str, ...]:
    """The passes of a native pipeline, in order, each as text with its options.

    ``sdy-save-module`` is left out: it writes dumps that nobody has asked for, and is the one pass
    that MLIR prints and does not read.
    """
    # Passes are named and nested without any dialect, and those of a full context take a while.
    with ir.Context() as context:
        printed = str(passmanager.PassManager.parse(f"{native.MODULE}({pipeline})", context))
    return without(tuple(e.written for e in _inside(printed)), "sdy-save-module")


def set_option(elements: tuple[str, ...], key: str, value: str) -> tuple[str, ...]:
    """``elements`` with option ``key`` set wherever a pass has it."""
    option = re.compile(rf"(?<=[{{ ]){re.escape(key)}=[^\s}}]*")
    return tuple(option.sub(lambda _: f"{key}={value}", element) for element in elements)


def without(elements: tuple[str, ...], name: str) -> tuple[str, ...]:
    """``elements`` without the pass ``name``, nested or not."""
    return tuple(element for element in elements if name not in _names(parse_pipeline(element)[0]))


def _inside(printed: str) -> tuple[PassText | NestText, ...]:
    (manager,) = parse_pipeline(printed)
    assert isinstance(manager, NestText)
    return manager.elements


def _names(element: PassText | NestText) -> set[str]:
    if isinstance(element, PassText):
        return {element.name}
    return {name for inner in element.elements for name in _names(inner)}
