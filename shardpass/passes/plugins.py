"""Passes of other distributions, found by the entry-point group ``shardpass.passes``.

::

    [project.entry-points."shardpass.passes"]
    acme-pad = "acme_passes.pad:Pad"

The name of the entry point is that of the pass, and what it points to is its class. Nothing is
imported until somebody names the pass: a distribution that is broken fails there, and nowhere else.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from shardpass.diagnostics import ShardingError
from shardpass.passes.base import Pass
from shardpass.passes.option_text import fields_without_reader

GROUP = "shardpass.passes"


def plugins() -> dict[str, tuple[EntryPoint, ...]]:
    """Name -> the entry points that claim it; of good neighbours each has one."""
    return _found_on(tuple(sys.path))


@cache
def _found_on(path: tuple[str, ...]) -> dict[str, tuple[EntryPoint, ...]]:
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for point in entry_points(group=GROUP):
        found[point.name] = (*found.get(point.name, ()), point)
    return found


def owner(point: EntryPoint) -> str:
    """The distribution that ``point`` belongs to, with its version."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else "no distribution"


def load_plugin(point: EntryPoint) -> type[Pass]:
    """The class that ``point`` points to.

    Raises:
      ShardingError: ``bad-plugin``, where it cannot be imported or is no pass of that name.
    """
    whose = f'the pass "{point.name}" of {owner(point)}'
    try:
        loaded = point.load()
    except Exception as error:
        raise ShardingError(
            "bad-plugin",
            f"{whose} cannot be imported: {type(error).__name__}: {' '.join(str(error).split())}",
            notes=[f"its entry point is {point.value}"],
            help="install another version of it, or take it away",
        ) from error
    if not (isinstance(loaded, type) and issubclass(loaded, Pass)):
        raise ShardingError(
            "bad-plugin",
            f"{whose} is no pass: {point.value} is of type {type(loaded).__name__}",
            help="its entry point names a subclass of shardpass.Pass",
        )
    if getattr(loaded, "name", None) != point.name:
        raise ShardingError(
            "bad-plugin",
            f"{whose} calls itself {getattr(loaded, 'name', None)!r}",
            help="the entry point and the class's field `name` have to say the same",
        )
    if faults := [f'"{key}" is of type {kind}' for key, kind in fields_without_reader(loaded)]:
        raise ShardingError(
            "bad-plugin",
            f"{whose} has options that no text can set: {', '.join(faults)}",
            help="give each a reader, option(…, parse=…); of themselves bool, int, float and str "
            "are read",
        )
    return loaded
