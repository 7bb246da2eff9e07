"""The sharding algebra: one meaning, two notations."""

from shardpass.canon.axes import AxisRef, DimSharding
from shardpass.canon.hlo_sharding import HloKind, HloSharding, ShardGroup, SubgroupType
from shardpass.canon.lowering import to_hlo
from shardpass.canon.mesh import MeshShape
from shardpass.canon.metadata import Metadata
from shardpass.canon.named_hlo import NamedHlo
from shardpass.canon.naming import from_hlo, manual_axes
from shardpass.canon.placement import device_blocks, device_ids, is_equivalent
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
    "ShardGroup",
    "SubgroupType",
    "TensorSharding",
    "TileAssignment",
    "device_blocks",
    "device_ids",
    "from_hlo",
    "is_equivalent",
    "manual_axes",
    "to_hlo",
]
