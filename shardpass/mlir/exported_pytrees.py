"""Reading and writing an ``Exported`` whose pytrees have classes that this process does not know.

A file names each class of its pytrees (optimizer states are named tuples, for one), and JAX asks
for the class to be registered under that name. For whoever only changes shardings the classes mean
nothing: stand-ins take their place while the file is read and written, and what a class stored of
itself is copied as it is. Where the process knows a class, it is used.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import jax
from jax import export

from shardpass.compat import exporting

_UNKNOWN = re.compile(r"unregistered type `([^`]+)`")


def deserialized(data: bytes) -> tuple[export.Exported, tuple[str, ...]]:
    """The ``Exported`` in ``data``, and the names of the classes that were not known.

    Raises:
      Exception: whatever JAX raises for what it cannot read; ``ImportError`` without
        ``flatbuffers``.
    """
    unknown: list[str] = []
    while True:
        with stand_ins(unknown):
            try:
                return export.deserialize(bytearray(data)), tuple(unknown)
            except ValueError as error:
                found = _UNKNOWN.search(str(error))
                if found is None or found[1] in unknown:
                    raise
                unknown.append(found[1])


@contextlib.contextmanager
def stand_ins(names: Iterable[str]) -> Iterator[None]:
    """Let classes of these names be read and written; as before afterwards."""
    added: list[str] = []
    try:
        for name in names:
            if name not in exporting.classes_by_name:
                _register(name)
                added.append(name)
        yield
    finally:
        for name in added:
            del exporting.classes_by_name[name]
            del exporting.names_by_class[_stand_in(name)]


def _register(name: str) -> None:
    node = _stand_in(name)
    export.register_pytree_node_serialization(
        node,
        serialized_name=name,
        serialize_auxdata=bytes,
        deserialize_auxdata=bytes,
        from_children=lambda aux_data, children: node(aux_data, tuple(children)),
    )


class _Node:
    """A node of a class that is not known: its children, and what the class stored of itself."""

    def __init__(self, stored: Any, children: tuple[Any, ...]) -> None:
        self.stored = stored
        self.children = children


@cache
def _stand_in(name: str) -> type[_Node]:
    """The class in place of the one called ``name``; JAX keeps each registered class for good."""
    node = type(name, (_Node,), {"__doc__": f"Stands in for {name}."})
    jax.tree_util.register_pytree_node(
        node, lambda each: (each.children, each.stored), lambda stored, parts: node(stored, parts)
    )
    return node
