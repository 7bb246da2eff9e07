"""What a function may be called: by its own name, and by that of the class that it stands in.

JAX knows a function by its name alone, and where it begins. The rest is in what Python compiles its
file to.
"""

from __future__ import annotations

import functools
import linecache
import warnings
from collections.abc import Iterator
from types import CodeType
from typing import Final

from shardpass.runtime.lowering.calls import Call

#: What Python writes between a function and what is defined inside of it.
_LOCAL: Final = ".<locals>."


def names_of(call: Call) -> tuple[str, ...]:
    """``step``, and for a method ``Trainer.step`` as well, with and without what is around it."""
    file, line = call.begins_at
    full = None if file is None or line is None else _qualified_names(file).get((line, call.name))
    if full is None:
        return (call.name,)
    return tuple(dict.fromkeys((call.name, full.rpartition(_LOCAL)[2], full)))


@functools.lru_cache(maxsize=64)
def _qualified_names(file: str) -> dict[tuple[int, str], str]:
    """The first line and the name of each function in ``file`` -> its qualified name."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python has said what there is to say.
            code = compile("".join(linecache.getlines(file)), file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return {}  # A file that has changed since, or none of Python's own.
    return {(c.co_firstlineno, c.co_name): c.co_qualname for c in _codes_in(code)}


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes_in(constant)
