"""Memory kinds: which ones there are."""

from __future__ import annotations

import functools

from shardpass.compat.devices import Device
from shardpass.diagnostics import ShardingError, did_you_mean
from shardpass.sharding.mesh import Mesh

# What a sharding without devices may ask for: all kinds that JAX names.
_ALL_KINDS = ("device", "pinned_host", "unpinned_host")


def check_memory_kind(kind: str, where: Mesh | Device | None) -> None:
    """Raise ``memory-kind`` unless the devices (those of this process) have ``kind``.

    ``None`` stands for devices of which this process has none.
    """
    if where is None or isinstance(where, Device):
        device: Device | None = where
    else:
        local = [] if where.is_device_free else where.local_devices
        device = local[0] if local else None
    kinds = _ALL_KINDS if device is None else _kinds(device)
    if kind not in kinds:
        owner = "no device" if device is None else f"device {device}"
        raise ShardingError(
            "memory-kind",
            f"{owner} has memory of kind {kind!r}; there are {', '.join(kinds)}"
            if device is None
            else f"{owner} has no memory of kind {kind!r}, only {', '.join(kinds)}",
            help=did_you_mean(kind, kinds) if isinstance(kind, str) else None,
        )


@functools.cache
def _kinds(device: Device) -> tuple[str, ...]:
    return tuple(memory.kind for memory in device.addressable_memories())
