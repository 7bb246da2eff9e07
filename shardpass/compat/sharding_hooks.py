"""The private hooks that JAX asks of every sharding, answered from the public members of ours.

``jax.sharding.Sharding`` is documented as a base class, and yet a subclass has to implement members
with a leading underscore. A class of ours that is no subclass of one of JAX's own shardings (JAX
has dropped it) is a subclass of :class:`HookedSharding`, says ``device_order``,
``canonical_hlo(ndim)`` and ``axes_for_shardy(ndim)``, and is taken by all of JAX. Source:
``jax/_src/sharding.py``, ``jax/_src/named_sharding.py``.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import jax
from jax._src.named_sharding import SdyArray, SdyDim
from jaxlib import xla_client

from shardpass.canon import HloSharding, TensorSharding
from shardpass.compat import hlo_sharding
from shardpass.compat.devices import Device

if TYPE_CHECKING:
    _Base = object
else:
    _Base = jax.sharding.Sharding


class HookedSharding(_Base):
    """A ``jax.sharding.Sharding`` whose hooks are in terms of three members that we document."""

    device_order: tuple[Device, ...]

    def canonical_hlo(self, ndim: int) -> HloSharding:
        """The layout of a value of ``ndim`` dimensions as XLA's tile assignment."""
        raise NotImplementedError

    def refuse_jax(self) -> None:
        """Raise, if no array can be laid out like this in JAX: it takes any that has devices."""

    def rank_for_jax(self, ndim: int) -> int:
        """The number of dimensions to lower for where JAX asks for ``ndim``.

        Under ``vmap`` JAX asks for the tiles of the batched value, and then adds the new dimension
        to whatever it got. So a sharding for values of one rank has to answer for that rank.
        """
        return ndim

    def axes_for_shardy(self, ndim: int) -> TensorSharding:
        """The layout of a value of ``ndim`` dimensions over whole axes, as Shardy is told it."""
        raise NotImplementedError

    @functools.cached_property
    def device_list(self) -> Any:
        """The devices as jaxlib's list: compared as a whole."""
        return xla_client.DeviceList(self.device_order)

    @functools.cached_property
    def _internal_device_list(self) -> Any:
        """The same, by which executables and arrays know their devices."""
        self.refuse_jax()
        return self.device_list

    @functools.cached_property
    def _device_assignment(self) -> tuple[Device, ...]:
        """The devices in the order in which XLA numbers them."""
        return tuple(self._internal_device_list)

    def _to_xla_hlo_sharding(self, num_dimensions: int) -> Any:
        """jaxlib's object: what GSPMD is told, and what JAX compares layouts by."""
        found = self._jaxlib_tiles.get(num_dimensions)
        if found is None:
            tiles = self.canonical_hlo(self.rank_for_jax(num_dimensions))
            found = self._jaxlib_tiles[num_dimensions] = hlo_sharding.from_text(str(tiles))
        return found

    @functools.cached_property
    def _jaxlib_tiles(self) -> dict[int, Any]:
        """What JAX was told so far, by the number of dimensions: it asks at every call."""
        return {}

    def _to_sdy_sharding(self, num_dimensions: int, modify_wrt_axis_types: bool = False) -> Any:
        """JAX's description of an ``sdy.sharding``: what Shardy is told."""
        return sdy_array(self.axes_for_shardy(num_dimensions))


@functools.lru_cache(maxsize=1024)
def sdy_array(sharding: TensorSharding) -> SdyArray:
    """JAX's description of ``sharding``, which is over whole axes with nothing unreduced."""
    return SdyArray(
        mesh_shape=sharding.mesh.axes,
        dim_shardings=tuple(
            SdyDim(axes=tuple(axis.name for axis in dim.axes), is_open=dim.open)
            for dim in sharding.dims
        ),
        logical_device_ids=sharding.mesh.device_ids,
    )


def default_memory_kind(sharding: HookedSharding) -> str | None:
    """The kind of memory that JAX uses where none is asked for; ``None`` without a local device."""
    return sharding.device_list.default_memory_kind
