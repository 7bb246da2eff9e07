"""Which passes there are."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from shardpass.diagnostics import ShardingError
from shardpass.mlir import native
from shardpass.passes.base import Pass
from shardpass.passes.plugins import load_plugin, owner, plugins

_PACKAGE: Final = "shardpass.passes"


@cache
def builtin_pass(name: str) -> type[Pass] | None:
    """The class called ``name`` in this package, where there is one.

    Its module alone is imported: ``sp-merge-meshes`` is in ``merge_meshes.py``.
    """
    module = f"{_PACKAGE}.{name.removeprefix('sp-').replace('-', '_')}"
    if not name.startswith("sp-") or importlib.util.find_spec(module) is None:
        return None
    return _passes_in(module).get(name)


@cache
def builtin_passes() -> dict[str, type[Pass]]:
    """Name -> class for every pass in this package; a module in it need only define one."""
    package = importlib.import_module(_PACKAGE)
    found: dict[str, type[Pass]] = {}
    for module in pkgutil.iter_modules(package.__path__, f"{_PACKAGE}."):
        found |= _passes_in(module.name)
    return dict(sorted(found.items()))


def _passes_in(module: str) -> dict[str, type[Pass]]:
    return {
        value.name: value
        for value in vars(importlib.import_module(module)).values()
        if _is_pass(value) and value.__module__ == module
    }


def _is_pass(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Pass) and "name" in vars(value)


@dataclass(frozen=True)
class Registry:
    """The passes in Python that a pipeline's text may name.

    Attributes:
      extra: classes of the caller's own, which may replace others by their name.
    """

    extra: tuple[type[Pass], ...] = ()

    @classmethod
    def of(cls, extra: Iterable[type[Pass]]) -> Registry:
        """The registry with ``extra`` beside what is built in and installed."""
        return cls(tuple(extra))

    def find(self, name: str) -> type[Pass] | None:
        """The pass called ``name``, if one in Python is.

        Raises:
          ShardingError: ``pass-clash``, where several distributions have one of that name;
            ``bad-plugin``, where the one that has it is broken.
        """
        for cls in self.extra:
            if cls.name == name:
                return cls
        claims = plugins().get(name, ())
        if not claims:
            return builtin_pass(name)
        owners = [*_owners_of_ours(name), *map(owner, claims)]
        if len(owners) > 1:
            raise ShardingError(
                "pass-clash",
                f'{len(owners)} passes are called "{name}": of {" and of ".join(owners)}',
                help="remove all of these distributions but one",
            )
        return load_plugin(claims[0])

    def names(self) -> Iterator[str]:
        """All that :meth:`find` may know."""
        yield from (cls.name for cls in self.extra)
        yield from builtin_passes()
        yield from plugins()


def _owners_of_ours(name: str) -> Iterator[str]:
    if builtin_pass(name):
        yield "shardpass itself"
    elif native.anchor(name) is not None:
        yield "jaxlib"
