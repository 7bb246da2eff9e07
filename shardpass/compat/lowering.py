"""What any JAX sharding lowers to, whoever wrote its class, and the devices it stands on.

``jax.sharding.Sharding`` documents neither; both are among the hooks that every sharding has to
implement for JAX itself. Source: ``jax/_src/sharding.py``.
"""

from __future__ import annotations

import jax

from shardpass.compat.devices import Device


def hlo_text(sharding: jax.sharding.Sharding, ndim: int) -> str:
    """XLA's text of ``sharding`` on ``ndim`` dimensions: ``{devices=[2,4]<=[8]}``."""
    return repr(sharding._to_xla_hlo_sharding(ndim))


def hlo_proto(sharding: jax.sharding.Sharding, ndim: int) -> bytes:
    """The serialized ``OpSharding`` of ``sharding`` on ``ndim`` dimensions."""
    return sharding._to_xla_hlo_sharding(ndim).to_proto().SerializeToString()


def uses_shardy() -> bool:
    """Whether JAX lowers for Shardy, rather than for the older propagation of GSPMD."""
    return jax.config.jax_use_shardy_partitioner  # pyright: ignore[reportAttributeAccessIssue]


def device_assignment(sharding: jax.sharding.Sharding) -> tuple[Device, ...]:
    """The devices in the order in which XLA numbers them, non-addressable ones included."""
    return tuple(sharding._device_assignment)


def device_list(sharding: jax.sharding.Sharding) -> object:
    """The same devices as jaxlib holds them: compared as a whole, once per mesh."""
    return sharding._internal_device_list


def logical_device_ids(sharding: jax.sharding.NamedSharding) -> tuple[int, ...] | None:
    """The device permutation that JAX writes into the mesh of a lowered sharding, if any."""
    return sharding._logical_device_ids
