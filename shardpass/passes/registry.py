"""Which passes there are."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from functools import cache

from shardpass.passes.base import Pass


@cache
def builtin_passes() -> dict[str, type[Pass]]:
    """Name -> class for every pass in this package; a module in it need only define one."""
    package = importlib.import_module("shardpass.passes")
    found: dict[str, type[Pass]] = {}
    for module in pkgutil.iter_modules(package.__path__, "shardpass.passes."):
        for value in vars(importlib.import_module(module.name)).values():
            if _is_pass(value) and value.__module__ == module.name:
                found[value.name] = value
    return dict(sorted(found.items()))


def known_passes(extra: Iterable[type[Pass]] = ()) -> dict[str, type[Pass]]:
    """The built-in passes and ``extra``, which may replace one by its name."""
    return builtin_passes() | {cls.name: cls for cls in extra}


def _is_pass(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Pass) and "name" in vars(value)
