"""What a list of devices must be, said with the numbers, for the classes that are made of one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from shardpass.compat.devices import Device
from shardpass.diagnostics import ShardingError


def checked_devices(devices: Any, owner: str) -> tuple[Device, ...]:
    """``devices`` in row-major order, each of one backend, and each once.

    Args:
      devices: any iterable of devices, or an array of them.
      owner: the class that is made of them, for messages.

    Raises:
      ShardingError: ``abstract-type`` for what is no device; ``not-enough-devices`` for none at
        all; ``duplicate-device``; ``mixed-backends``.
    """
    if isinstance(devices, Device) or not isinstance(devices, Iterable):
        raise ShardingError(
            "abstract-type",
            f"{owner} is made of a list of devices, not of {type(devices).__name__} {devices!r}",
            help="pass jax.devices(), or [device]",
        )
    found = tuple(devices.flat if isinstance(devices, np.ndarray) else devices)
    if not found:
        raise ShardingError(
            "not-enough-devices",
            f"{owner} needs at least 1 device, and the list is empty",
            help="pass jax.devices(), or some of them",
        )
    # As sets first, since a list may be long and is nearly always right.
    if (
        all(issubclass(kind, Device) for kind in set(map(type, found)))
        and len(set(found)) == len(found)
        and len({id(device.client) for device in found}) == 1
    ):
        return found
    raise _fault(found, owner)


def is_local(device: Device) -> bool:
    """Whether ``device`` belongs to this process."""
    return device.process_index == device.client.process_index()


def _fault(found: tuple[Any, ...], owner: str) -> ShardingError:
    """What is wrong with a list of which something is."""
    places: dict[Device, int] = {}
    for place, device in enumerate(found):
        if not isinstance(device, Device):
            return ShardingError(
                "abstract-type",
                f"{owner} is made of devices; at {place} stands {type(device).__name__} {device!r}",
                help="pass jax.devices(), or some of them",
            )
        if places.setdefault(device, place) != place:
            return ShardingError(
                "duplicate-device",
                f"device {device} stands twice in the list, at {places[device]} and {place}",
                help="each device holds one place",
            )
    first = found[0]
    place, device = next(
        (place, device) for place, device in enumerate(found) if device.client is not first.client
    )
    return ShardingError(
        "mixed-backends",
        f"device {device} at {place} is of another backend ({device.platform}) "
        f"than {first} at 0 ({first.platform})",
        help="take all devices from one call of jax.devices(backend)",
    )
