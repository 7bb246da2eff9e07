"""What a mesh must be, said with the numbers.

JAX lets pass a mesh that names an axis twice (it then counts one of the two) and a mesh that holds
a device twice; Shardy's verifier refuses the first much later, and XLA fails on the second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from shardpass.compat.devices import Device
from shardpass.diagnostics import ShardingError, did_you_mean

AxisType = jax.sharding.AxisType


def check_axes(names: Sequence[Any], sizes: Sequence[Any]) -> None:
    """Raise ``bad-mesh`` unless these are distinct names with a whole, positive size each."""
    for name in names:
        if not isinstance(name, str) or not name:
            fault = "empty" if name == "" else f"of type {type(name).__name__}"
            raise ShardingError(
                "bad-mesh",
                f"axis name {name!r} is {fault}",
                help="axis names are text: that is all Shardy can write down",
            )
    if len(names) != len(sizes):
        given = f"{len(names)} axis names ({', '.join(names)})" if names else "no axis names"
        raise ShardingError(
            "bad-mesh",
            f"{given} for {len(sizes)} dimensions of shape {tuple(sizes)}",
            help="reshape the devices, or give one name per dimension",
        )
    for name, count in Counter(names).items():
        if count > 1:
            raise ShardingError(
                "bad-mesh",
                f'axis "{name}" stands {count} times in the mesh ({", ".join(names)})',
                help="give each axis a name of its own",
            )
    for name, size in zip(names, sizes, strict=True):
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
            raise ShardingError(
                "bad-mesh", f'axis "{name}" has size {size!r}', help="sizes are whole and above 0"
            )


def check_devices(devices: np.ndarray) -> None:
    """Raise ``abstract-type`` for what is no device, ``duplicate-device`` for one met twice."""
    places: dict[Any, tuple[int, ...]] = {}
    for place, device in np.ndenumerate(devices):
        if not isinstance(device, Device):
            raise ShardingError(
                "abstract-type",
                f"a mesh holds devices; at {place} stands {device!r}",
                help="pass jax.devices(), or write Mesh.of(data=2, model=4) without devices",
            )
        if device in places:
            raise ShardingError(
                "duplicate-device",
                f"device {device.id} stands twice in the mesh, at {places[device]} and {place}",
                help="each device holds one place",
            )
        places[device] = place


def axis_types_of(given: Any, names: Sequence[str]) -> tuple[AxisType, ...]:
    """``given`` as one type per axis, ``Auto`` where nothing is said.

    Args:
      given: ``None``, one type for all axes, one per axis, or the older form: a mapping from a type
        to the name or names of the axes that have it, each axis once.
      names: the axis names, major to minor.

    Raises:
      ShardingError: ``bad-mesh``.
    """
    if given is None or isinstance(given, AxisType):
        return (given or AxisType.Auto,) * len(names)
    if isinstance(given, Mapping):
        return _by_name(given, names)
    types = tuple(given)
    for axis_type in types:
        _check_axis_type(axis_type)
    if len(types) != len(names):
        raise ShardingError("bad-mesh", f"{len(types)} axis types for {len(names)} axes")
    return types


def _by_name(given: Mapping[Any, Any], names: Sequence[str]) -> tuple[AxisType, ...]:
    found: dict[str, AxisType] = {}
    for axis_type, axes in given.items():
        _check_axis_type(axis_type)
        for axis in (axes,) if isinstance(axes, str) else tuple(axes):
            if axis not in names:
                raise ShardingError(
                    "bad-mesh",
                    f"axis_types gives {axis!r} the type {axis_type.name}, and the mesh has "
                    + (f"the axes {', '.join(names)}" if names else "no axes"),
                    help=did_you_mean(axis, names) if isinstance(axis, str) else None,
                )
            if axis in found:
                raise ShardingError(
                    "bad-mesh",
                    f'axis "{axis}" has two types, {found[axis].name} and {axis_type.name}',
                )
            found[axis] = axis_type
    missing = [name for name in names if name not in found]
    if missing:
        raise ShardingError(
            "bad-mesh",
            f"axis_types names {len(found)} of {len(names)} axes; {', '.join(missing)} has no type",
            help="a mapping speaks of every axis; leave axis_types out for Auto",
        )
    return tuple(found[name] for name in names)


def _check_axis_type(axis_type: Any) -> None:
    if not isinstance(axis_type, AxisType):
        raise ShardingError(
            "bad-mesh",
            f"axis type {axis_type!r} is no jax.sharding.AxisType",
            help="use AxisType.Auto, AxisType.Explicit or AxisType.Manual",
        )


def refuse_too_few(wanted: int, described: str, found: Sequence[Any]) -> None:
    """Raise ``not-enough-devices`` unless ``found`` holds as many as the mesh needs."""
    if len(found) >= wanted:
        return
    platform = getattr(found[0], "platform", "") if found else ""
    raise ShardingError(
        "not-enough-devices",
        f"the mesh {described} needs {wanted} devices, there are {len(found)}",
        help=(
            "on CPU, start with "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={wanted}, or use a smaller mesh"
            if platform in ("", "cpu")
            else f"use a mesh of at most {len(found)} devices"
        ),
    )


def local_block(mesh: jax.sharding.Mesh) -> jax.sharding.Mesh:
    """The part of ``mesh`` that this process holds, with the axis types of the whole.

    Raises:
      ShardingError: ``not-local``.
    """
    local = mesh.local_devices
    held = f"{len(local)} of {mesh.size} devices"
    if not local:
        raise ShardingError(
            "not-local",
            f"this process holds {held} of the mesh, and so no part of it",
            help="ask is_multi_process and local_devices first",
        )
    try:
        found = mesh.local_mesh
    except ValueError:
        raise ShardingError(
            "not-local",
            f"this process holds {held} of the mesh, and they form no block of it",
            help="order the devices so that those of a process stand together",
        ) from None
    # JAX's own forgets the axis types.
    return found.update(axis_types=mesh.axis_types)
