"""The sharding algebra: one meaning, two notations.

A sharding says which block of a tensor each device holds. Two notations for that meet in a
StableHLO module, and this layer is the one place that knows both:

* **Named axes**, Shardy's. Devices stand in a grid with named axes, a :class:`MeshShape`; a
  :class:`TensorSharding` says for each dimension which axes cut it, major to minor::

      #sdy.sharding<@mesh, [{"y"}, {"x":(1)2, ?}], replicated={"x":(2)2}>

  An axis can be used in part (a *sub-axis*, :class:`AxisRef`). A dimension can be open to
  propagation and have a priority; axes can be kept unused, or hold partial results.

* **Tiles**, XLA's. An array with one entry for each tile says which device holds it; trailing
  dimensions of the array, the *subgroups*, hold devices that share a tile: replicas, devices of a
  manual region, or partial results. That is an :class:`HloSharding` with its
  :class:`TileAssignment`. The example above, on the mesh ``x=4, y=4``::

      {devices=[4,2,2]<=[4,4]T(1,0) last_tile_dim_replicate}

  XLA writes it in three ways: V1 lists the devices one by one, V2 is the formula above (count,
  reshape, transpose), V3 is named axes again, ``{mesh['x'=4,'y'=4], [{'y'}, {'x':(1)2}]}``.

:func:`to_hlo` goes from names to tiles and is exact for placement; what only guides propagation is
lost. :func:`from_hlo` goes back, onto a given mesh or one of its own making;
:func:`common_mesh` finds the one on which many come back over whole axes.
:class:`Respelling` says a sharding on another mesh over the same devices.
:func:`device_blocks` gives the block of every device.

**Normal form.** Under both notations lies the order of devices as *strides*
(:mod:`shardpass.canon.layout`): a list of ``(size, stride)`` pairs, major to minor, with nothing
left to merge. It is unique, so two shardings place alike exactly if their tiles have the same
strides; :func:`is_equivalent` compares that, with the devices of each subgroup in ascending order.
``==`` on an :class:`HloSharding` is narrower: the same array, whichever way it was written.
``==`` on a :class:`TensorSharding` compares everything that it says.

**Size.** A mesh of a million devices is two numbers and two names. Nothing here makes a list of
devices until ``device_array()``, ``device_blocks()`` or a V1 text asks for one, and beyond
``2**24`` devices that is refused. All numbers are Python's, checked against the 64 bits of XLA and
Shardy.

**Conventions**, and where they come from:

* Axes of a dimension go from major to minor, the first varying slowest (Shardy, "Sharding
  representation").
* Tiles are row-major; device ids of a mesh without ``device_ids`` too (``sdy.mesh``).
* Subgroups are sorted manual, unreduced, replicated; replicas are listed in ascending order; one
  subgroup without data tiles is ``{manual}``, ``{unreduced}`` or ``{replicated}``
  (xla/hlo/ir/hlo_sharding.cc, ``Subgroup`` and ``PartialTile``).
* Iotas have no reshape size of 1, and no two neighbours that stay neighbours when transposed
  (xla/hlo/ir/tile_assignment.cc).
* A mesh with ``device_ids`` lowers to a V1 list (XLA's Shardy export).
* A dimension that does not divide is cut into blocks of the size rounded up; the last ones are
  short or empty (``HloSharding::TileOffsetForDevice``).

**Stricter than XLA, on purpose.** XLA's parser reads texts that nobody can have meant, and the
partitioner then compiles something else, or aborts. These are refused here, with the place:

* tiles and devices that are not one to one: a device twice, ``T(0,0)``, sizes that do not multiply
  out (jaxlib 0.10 makes up the missing ids);
* numbers that count nothing (zero tiles, negative ids) or do not fit into 64 bits (XLA wraps);
* two entries that exclude each other (``{replicated manual}``), of which XLA drops one in silence;
* an array of one tile (``{devices=[1,1]<=[1]}``), which says neither replicated nor which device;
* comments; lists of nothing (``last_tile_dims={}``); a mesh in V3 text without the comma behind it,
  and names there with a quote in them, which XLA prints unescaped; subgroups that are not manual,
  unreduced or replicated.

Where XLA's canonical text, read again, gives yet another, ours is the one that stays. Of what
Shardy's verifier lets through, meshes of more than ``2**63 - 1`` devices and sub-axes that no
common split of their axis holds (``"a":(1)2`` with ``"a":(3)2`` of 6) are refused.

Ids beyond the number of tiles (``{devices=[2,2]5,6,7,8}``) are well formed: a program may run on
some of the devices. :meth:`HloSharding.validate` holds a sharding against a value and its devices.

This layer needs numpy alone.
"""

from shardpass.canon.axes import AxisRef, DimSharding
from shardpass.canon.hlo_sharding import HloKind, HloSharding, ShardGroup, SubgroupType
from shardpass.canon.lowering import to_hlo, to_named_hlo
from shardpass.canon.mesh import MeshShape
from shardpass.canon.metadata import Metadata
from shardpass.canon.named_hlo import NamedHlo
from shardpass.canon.naming import from_hlo, manual_axes
from shardpass.canon.placement import device_blocks, device_ids, is_equivalent
from shardpass.canon.refinement import NoCommonMeshError, common_mesh
from shardpass.canon.respelling import Respelling, refined_mesh
from shardpass.canon.tensor_sharding import TensorSharding
from shardpass.canon.tile_assignment import TileAssignment

__all__ = [
    "AxisRef",
    "DimSharding",
    "HloKind",
    "HloSharding",
    "MeshShape",
    "Metadata",
    "NamedHlo",
    "NoCommonMeshError",
    "Respelling",
    "ShardGroup",
    "SubgroupType",
    "TensorSharding",
    "TileAssignment",
    "common_mesh",
    "device_blocks",
    "device_ids",
    "from_hlo",
    "is_equivalent",
    "manual_axes",
    "refined_mesh",
    "to_hlo",
    "to_named_hlo",
]
