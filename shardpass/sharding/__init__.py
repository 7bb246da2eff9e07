"""What the user says: meshes, specs and shardings, alive in JAX.

The classes carry the names and meanings of ``jax.sharding``, and each lives in JAX in the way that
was measured to work on every supported version:

* :class:`NamedSharding` and :class:`SingleDeviceSharding` **subclass** JAX's class of the same
  name. JAX dispatches on its own classes in C++, so a class that merely stood beside them would
  lose its axis names after ``jit``, fail in ``jax.export`` and on Explicit meshes, compare equal
  one way round only, and trace twice. A subclass is compared, hashed and dispatched by the same
  code as JAX's own, and costs nothing per call.
* :class:`PartitionSpec` and :class:`Mesh` **stand for** JAX's objects, which are unique by content
  and cannot be subclassed: each holds one and answers ``__class__`` with its class.
* The subclasses are **entered in the table** by which JAX rebuilds the shardings of a program's
  results, so that arrays come back from ``jit`` with our class on ``Auto`` meshes. (Ours and JAX's
  are equal, and JAX keeps one of several equal shardings, for arguments of any function: where a
  process has used JAX's own of the same content first, results carry that class.)

On top of that stands one idea: every sharding has a canonical form, a
:class:`shardpass.canon.TensorSharding`, once the number of dimensions is known
(``sharding.canonical(ndim)``). Notations (``to_sdy``, ``to_mhlo``), shard shapes, index maps and
equivalence are derived from it once, in :class:`Sharding`, and a class says only what is its own.

Errors are :class:`shardpass.diagnostics.ShardingError`, raised where the mistake is made: a mesh
that names an axis twice when it is built, a spec that the mesh does not fit when the two meet, a
dimension that does not divide when a shape is known.

Everything here takes JAX's own objects where it takes ours.

What else ``jax.sharding`` exports (``AxisType``, ``set_mesh``, ``get_abstract_mesh``, ``reshard``,
... as the installed version has it) is found here as well, unchanged, so that one import line is
all that has to be rewritten.
"""

import importlib
from typing import TYPE_CHECKING, Any

import jax

from shardpass.sharding.base import Sharding
from shardpass.sharding.conversion import (
    PartitionEntries,
    as_mesh_shape,
    as_partition_entries,
    as_spec,
    spec_of,
    spec_to_tensor_sharding,
)
from shardpass.sharding.device_free import DeviceFreeSharding
from shardpass.sharding.mesh import Mesh, make_mesh
from shardpass.sharding.named import NamedSharding
from shardpass.sharding.partition_spec import UNCONSTRAINED, P, PartitionSpec
from shardpass.sharding.persistence import from_json, to_json
from shardpass.sharding.recorded_devices import RecordedDevices
from shardpass.sharding.single_device import SingleDeviceSharding

if TYPE_CHECKING:
    from shardpass.sharding.convert import to_gspmd, to_named, to_pmap, to_positional
    from shardpass.sharding.difference import common_device_order, explain_difference
    from shardpass.sharding.gspmd import GSPMDSharding
    from shardpass.sharding.pmap import PmapSharding
    from shardpass.sharding.pmap_spec import (
        Chunked,
        NoSharding,
        Replicated,
        ShardedAxis,
        ShardingSpec,
        Unstacked,
    )
    from shardpass.sharding.positional import PositionalSharding

# Loaded when they are asked for, since a program that imports this package uses few of them.
_MODULE_OF = {
    "Chunked": "pmap_spec",
    "GSPMDSharding": "gspmd",
    "NoSharding": "pmap_spec",
    "PmapSharding": "pmap",
    "PositionalSharding": "positional",
    "Replicated": "pmap_spec",
    "ShardedAxis": "pmap_spec",
    "ShardingSpec": "pmap_spec",
    "Unstacked": "pmap_spec",
    "common_device_order": "difference",
    "explain_difference": "difference",
    "to_gspmd": "convert",
    "to_named": "convert",
    "to_pmap": "convert",
    "to_positional": "convert",
}

__all__ = [
    "UNCONSTRAINED",
    "Chunked",
    "DeviceFreeSharding",
    "GSPMDSharding",
    "Mesh",
    "NamedSharding",
    "NoSharding",
    "P",
    "PartitionEntries",
    "PartitionSpec",
    "PmapSharding",
    "PositionalSharding",
    "RecordedDevices",
    "Replicated",
    "ShardedAxis",
    "Sharding",
    "ShardingSpec",
    "SingleDeviceSharding",
    "Unstacked",
    "as_mesh_shape",
    "as_partition_entries",
    "as_spec",
    "common_device_order",
    "explain_difference",
    "from_json",
    "make_mesh",
    "spec_of",
    "spec_to_tensor_sharding",
    "to_gspmd",
    "to_json",
    "to_named",
    "to_pmap",
    "to_positional",
]

_FROM_JAX = sorted(
    name
    for name in dir(jax.sharding)
    if not name.startswith("_") and name not in {*globals(), *_MODULE_OF}
)
__all__ += _FROM_JAX  # pyright: ignore[reportUnsupportedDunderAll]: known to the installed JAX


def __getattr__(name: str) -> Any:
    """What is loaded later; and what ``jax.sharding`` exports and is no class of ours."""
    if name in _MODULE_OF:
        module = importlib.import_module(f"{__name__}.{_MODULE_OF[name]}")
        value = globals()[name] = getattr(module, name)
        return value
    if name in _FROM_JAX:
        return getattr(jax.sharding, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The names of this module, and those of ``jax.sharding``."""
    return sorted({*globals(), *_MODULE_OF, *_FROM_JAX})
