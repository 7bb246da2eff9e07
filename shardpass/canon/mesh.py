"""The logical mesh: named axes over devices, without the devices."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from shardpass.canon.mlir_string import quote
from shardpass.canon.shapes import bounded_product
from shardpass.diagnostics import ShardingError, did_you_mean

# A mesh of one line can have more devices than fit into memory; beyond this many (128 MiB of ids),
# writing them out is refused.
MOST_LISTED: Final = 2**24


@dataclass(frozen=True, slots=True)
class MeshShape:
    """Named axes, major to minor, and the ids of the devices if they are not ``0, 1, 2, ...``.

    A mesh of a million devices is a few numbers: no list of devices exists until
    :meth:`device_array` is asked for one. ``str()`` is Shardy's text.

    Attributes:
      axes: ``(name, size)`` pairs; the last axis varies fastest over the device ids.
      device_ids: the id at each mesh coordinate in row-major order; ``None`` for ``0, 1, 2, ...``
        (a list that says just that becomes ``None``, as in Shardy). A mesh without axes and with
        one id is *maximal*: everything lives whole on that device.

    Raises:
      ShardingError: ``bad-mesh`` for a repeated name, a size below one, more than
        ``2**63 - 1`` devices, or ids that are not each of ``0 .. size - 1`` once. These are the
        rules of Shardy's own verifier, except that it lets the number of devices overflow.
    """

    axes: tuple[tuple[str, int], ...] = ()
    device_ids: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        _check_axes(self.axes)
        if self.device_ids is None:
            return
        _check_device_ids(self.axes, self.size, self.device_ids)
        if self.axes and self.device_ids == tuple(range(self.size)):
            object.__setattr__(self, "device_ids", None)

    @classmethod
    def of(cls, **axes: int) -> MeshShape:
        """``MeshShape.of(x=2, y=4)``, in the order written."""
        return cls(tuple(axes.items()))

    @classmethod
    def maximal(cls, device_id: int) -> MeshShape:
        """The mesh of one device: ``<[], device_ids=[3]>``."""
        return cls((), (device_id,))

    @classmethod
    def parse(cls, text: str) -> MeshShape:
        """Read ``<["x"=2, "y"=4]>``, also with ``#sdy.mesh`` or ``mesh`` in front.

        Raises:
          ShardingError: ``syntax`` or ``trailing-text`` with the place, ``bad-mesh``.
        """
        from shardpass.canon.sdy_parser import parse_mesh

        return parse_mesh(text)

    @property
    def names(self) -> tuple[str, ...]:
        """Axis names, major to minor."""
        return tuple(name for name, _ in self.axes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Axis sizes, major to minor."""
        return tuple(size for _, size in self.axes)

    @property
    def size(self) -> int:
        """Number of devices; 1 for a mesh without axes."""
        return math.prod(size for _, size in self.axes)

    @property
    def is_maximal(self) -> bool:
        """Whether this is one device by its id, rather than a grid."""
        return self.device_id is not None

    @property
    def device_id(self) -> int | None:
        """The device of a maximal mesh; ``None`` for a grid."""
        return self.device_ids[0] if self.device_ids and not self.axes else None

    def axis_size(self, name: str) -> int:
        """The size of axis ``name``.

        Raises:
          ShardingError: ``unknown-axis``.
        """
        return self.axes[self.axis_index(name)][1]

    def axis_index(self, name: str) -> int:
        """The position of axis ``name``, 0 for the most major.

        Raises:
          ShardingError: ``unknown-axis``.
        """
        for index, (known, _) in enumerate(self.axes):
            if known == name:
                return index
        raise ShardingError(
            "unknown-axis",
            f'axis "{name}" is not in the mesh {self.describe()}',
            help=did_you_mean(name, self.names),
        )

    def device_array(self) -> np.ndarray:
        """Device ids as int64, shaped like the mesh; the only member that makes the list.

        Raises:
          ShardingError: ``device-count``, beyond ``2**24`` devices.
        """
        if self.size > MOST_LISTED:
            raise ShardingError(
                "device-count",
                f"a list of {self.size} devices is beyond the {MOST_LISTED} that are written out",
            )
        if self.device_ids is None:
            return np.arange(self.size, dtype=np.int64).reshape(self.sizes)
        return np.array(self.device_ids, dtype=np.int64).reshape(self.sizes)

    def describe(self) -> str:
        """``x=2, y=4``: how messages speak of a mesh."""
        if self.is_maximal:
            return f"device {self.device_id}"
        return _describe(self.axes) or "without axes"

    def __str__(self) -> str:
        axes = ", ".join(f"{quote(name)}={size}" for name, size in self.axes)
        if self.device_ids is None:
            return f"<[{axes}]>"
        return f"<[{axes}], device_ids=[{', '.join(map(str, self.device_ids))}]>"


def _describe(axes: tuple[tuple[str, int], ...]) -> str:
    shown = [f"{name}={size}" for name, size in axes[:16]]
    return ", ".join([*shown, "..."] if len(axes) > 16 else shown)


def _check_axes(axes: tuple[tuple[str, int], ...]) -> None:
    sizes: Mapping[str, int] = dict(axes)
    described = _describe(axes)
    if len(sizes) < len(axes):
        names = [name for name, _ in axes]
        twice = next(name for name in names if names.count(name) > 1)
        raise ShardingError(
            "bad-mesh",
            f'axis "{twice}" stands {names.count(twice)} times in the mesh {described}',
            help="give each axis a name of its own",
        )
    for name, size in axes:
        if not isinstance(name, str):
            raise ShardingError(
                "bad-mesh", f"the name of a mesh axis is a text, not {name!r} (size {size})"
            )
        if not _is_text(name):
            raise ShardingError(
                "bad-mesh",
                f"the name of mesh axis {name!a} (size {size}) has half of a surrogate pair in it, "
                "which UTF-8 cannot say",
                help="write the character itself",
            )
        if isinstance(size, bool) or not isinstance(size, numbers.Integral):
            raise ShardingError(
                "bad-mesh", f'the size of mesh axis "{name}" is a whole number, not {size!r}'
            )
        if size < 1:
            raise ShardingError("bad-mesh", f'axis "{name}" has size {size}, below 1')
    if bounded_product(sizes.values()) is None:
        raise ShardingError("bad-mesh", f"the mesh {described} has more than 2**63 - 1 devices")


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_device_ids(
    axes: tuple[tuple[str, int], ...], size: int, device_ids: tuple[int, ...]
) -> None:
    if not axes:
        if len(device_ids) != 1:
            raise ShardingError(
                "bad-mesh", f"a mesh without axes is one device, not {len(device_ids)} device ids"
            )
        if device_ids[0] < 0:
            raise ShardingError("bad-mesh", f"device id {device_ids[0]} is negative")
        return
    if len(device_ids) != size:
        raise ShardingError(
            "bad-mesh", f"{len(device_ids)} device ids for a mesh of {size} devices"
        )
    seen: set[int] = set()
    for device in device_ids:
        if not 0 <= device < size:
            raise ShardingError("bad-mesh", f"device id {device} is not within 0..{size - 1}")
        if device in seen:
            raise ShardingError("bad-mesh", f"device id {device} stands twice in the mesh")
        seen.add(device)
