"""What ``jax.export`` keeps to itself of an ``Exported``, and of the classes in its pytrees.

An ``Exported`` constrains the arguments and results of a call by two fields with an underscore, and
keeps the function that makes its gradient in a third; ``dataclasses.replace`` is the only way to an
``Exported`` with others. jax 0.10.2 has a flag beside them, which says that they count.

The classes that may stand in a pytree of a serialized ``Exported`` are in two tables. Their public
functions add to them; nothing takes away again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax._src.export import _export
from jax.export import Exported

#: Serialized name -> class, and how to read and build a node of it.
classes_by_name: dict[str, Any] = _export.deserialization_registry
#: Class -> serialized name, and how to write a node of it.
names_by_class: dict[type, Any] = _export.serialization_registry

Named = Sequence[jax.sharding.NamedSharding | None]


def named_shardings(exported: Exported) -> tuple[Named, Named]:
    """What a call constrains the arguments and the results to, in order, dropped ones included."""
    return exported._in_named_shardings, exported._out_named_shardings


def with_program(
    exported: Exported,
    *,
    program: bytes,
    devices: int,
    arguments: Named,
    results: Named,
    gradient: Callable[[Exported], Exported] | None,
) -> Exported:
    """``exported`` with another program of the same signature."""
    changed: dict[str, Any] = {
        "mlir_module_serialized": program,
        "nr_devices": devices,
        "_in_named_shardings": tuple(arguments),
        "_out_named_shardings": tuple(results),
        "in_shardings_hlo": (None,) * len(arguments),
        "out_shardings_hlo": (None,) * len(results),
        "_get_vjp": gradient,
        "_has_named_shardings": True,
    }
    known = {field.name for field in dataclasses.fields(exported)}
    return dataclasses.replace(exported, **{k: v for k, v in changed.items() if k in known})
