# JAX keeps as attributes, and for one class, what ours answers as properties and for two.
# pyright: reportIncompatibleVariableOverride=false, reportIncompatibleMethodOverride=false
"""``Mesh``: named axes over devices, or over devices yet to come.

JAX keeps its meshes unique by content, and its ``Mesh.__new__`` hands back a plain one whatever
class is asked for, so ours is not a subclass. It *holds* JAX's mesh and stands for it:

* ``__class__`` answers with the class of the mesh that is held, which is what ``isinstance`` goes
  by: ``jax.sharding.Mesh`` with real devices, ``jax.sharding.AbstractMesh`` without. So every JAX
  API takes it (``jax.set_mesh``, ``jax.shard_map``, ``NamedSharding``);
* whatever JAX reads from a mesh, public or not, is read from the one that is held;
* it is equal to JAX's mesh, both ways, with the same hash.

Axis types are always passed on explicitly: the default of JAX's ``AbstractMesh`` is ``Auto`` on one
version and ``Explicit`` on another, and ``jax.make_mesh`` has another default than ``Mesh``. Ours
are those of ``Mesh`` (``Auto``), and of ``jax.make_mesh`` (``Explicit``) in :func:`make_mesh`.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import jax
import numpy as np

from shardpass.canon import MeshShape
from shardpass.compat import mesh_context
from shardpass.compat.devices import Device
from shardpass.diagnostics import ShardingError
from shardpass.sharding import saved_mesh
from shardpass.sharding.mesh_checks import (
    axis_types_of,
    check_axes,
    check_devices,
    local_block,
    refuse_too_few,
)
from shardpass.sharding.persistence import persistent
from shardpass.sharding.recorded_devices import RecordedDevices, clients_here
from shardpass.sharding.saved import Saved
from shardpass.sharding.saved_mesh import MeshDescription

AxisType = jax.sharding.AxisType
_MOST_SPECS = 1024
_OWN = ("_held", "_shape", "_recorded", "_state", "known_specs")
JaxMesh = jax.sharding.Mesh
JaxAbstractMesh = jax.sharding.AbstractMesh
AxisTypes: TypeAlias = AxisType | Sequence[AxisType] | Mapping[AxisType, str | Sequence[str]] | None


if TYPE_CHECKING:
    # What it answers to, so that a type checker lets it pass where JAX wants its own.
    class _Standing(JaxMesh): ...
else:
    _Standing = contextlib.ContextDecorator


@persistent
class Mesh(_Standing):
    """An array of devices with a name for each of its axes; the devices may be missing.

    ``Mesh(devices, ("x", "y"))`` is JAX's constructor. ``Mesh.of(data=2, model=4)`` is the same
    mesh without devices: it lowers, and :meth:`bind` gives it devices.

    Args:
      devices: an array of JAX devices (or nested sequences of them), as many dimensions as axes.
      axis_names: one name per dimension, major to minor; a single name for one dimension.
      axis_types: one ``jax.sharding.AxisType`` per axis, or one for all; ``Auto`` if left out. A
        mapping from a type to the name or names of its axes is the older form, and works as well.
      axis_sizes: instead of ``devices``: the mesh without devices.

    Raises:
      ShardingError: ``bad-mesh`` for a repeated name, a name that is no text, an axis without
        devices, or axes and dimensions of different number; ``duplicate-device``;
        ``abstract-type`` for a device that is none.
    """

    _held: JaxMesh | JaxAbstractMesh
    _shape: MeshShape
    _recorded: RecordedDevices | None
    _state: dict[str, Any]
    #: ``id`` of a spec that was found to fit -> that spec, and the layouts by number of dimensions.
    known_specs: dict[int, tuple[Any, dict[int, Any]]]

    def __new__(
        cls,
        devices: Any = None,
        axis_names: str | Sequence[str] = (),
        axis_types: AxisTypes = None,
        *,
        axis_sizes: Sequence[int] | None = None,
    ) -> Mesh:
        """Check what is given and build JAX's mesh of it."""
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        types = axis_types_of(axis_types, names)
        if (devices is None) == (axis_sizes is None):
            raise ShardingError(
                "bad-mesh",
                "a mesh is made of devices or of axis_sizes, one of the two",
                help="write Mesh(devices, names), or Mesh.of(data=2, model=4) without devices",
            )
        if axis_sizes is not None:
            check_axes(names, tuple(axis_sizes))
            sizes = tuple(int(size) for size in axis_sizes)
            return cls._holding(JaxAbstractMesh(sizes, names, axis_types=types))
        array = devices if isinstance(devices, np.ndarray) else np.array(devices, dtype=object)
        check_axes(names, array.shape)
        check_devices(array)
        return cls._holding(JaxMesh(array, names, axis_types=types))

    @classmethod
    def _holding(
        cls, held: JaxMesh | JaxAbstractMesh, recorded: RecordedDevices | None = None
    ) -> Mesh:
        self = object.__new__(cls)
        object.__setattr__(self, "_held", held)
        object.__setattr__(self, "_recorded", recorded)
        axes = tuple(zip(held.axis_names, held.axis_sizes, strict=True))
        object.__setattr__(self, "_shape", MeshShape(axes))
        object.__setattr__(self, "known_specs", {})
        return self

    # Other ways to make one -----------------------------------------------------------------------

    @classmethod
    def of(
        cls,
        axes: Mapping[str, int] | MeshShape | None = None,
        /,
        *,
        axis_types: AxisTypes = None,
        **sizes: int,
    ) -> Mesh:
        """A mesh without devices: ``Mesh.of(data=2, model=4)``, in the order written.

        Args:
          axes: the axes as a mapping, for names that are no keywords, or a ``MeshShape``.
          axis_types: as for the constructor.
          **sizes: name = size.

        Raises:
          ShardingError: ``bad-mesh``; ``not-expressible`` for a ``MeshShape`` with device ids of
            its own, which have no meaning before there are devices.
        """
        if isinstance(axes, MeshShape):
            if axes.device_ids is not None:
                raise ShardingError(
                    "not-expressible",
                    f"a mesh without devices cannot hold the device ids of {axes}",
                    help="bind the devices in that order instead",
                )
            axes = dict(axes.axes)
        sizes = {**(axes or {}), **sizes}
        return cls(axis_names=tuple(sizes), axis_sizes=tuple(sizes.values()), axis_types=axis_types)

    @classmethod
    def from_jax(cls, mesh: JaxMesh | JaxAbstractMesh) -> Mesh:
        """JAX's mesh as one of ours; one of ours is given back as it is.

        Raises:
          ShardingError: ``abstract-type`` for what is no mesh; ``bad-mesh``, ``duplicate-device``
            for meshes that JAX lets pass and Shardy does not.
        """
        if type(mesh) is Mesh:
            return mesh
        if type(mesh) not in (JaxMesh, JaxAbstractMesh):
            raise ShardingError(
                "abstract-type",
                f"a mesh is needed, not {type(mesh).__name__} {mesh!r}",
                help="write Mesh(devices, names), or Mesh.of(data=2, model=4) without devices",
            )
        return _from_jax(mesh)

    def to_jax(self) -> JaxMesh | JaxAbstractMesh:
        """JAX's own mesh, the same object for equal meshes."""
        return self._held

    def bind(self, devices: Sequence[Device] | np.ndarray | None = None) -> Mesh:
        """This mesh on real devices, the last axis fastest over them.

        Args:
          devices: as many as the mesh has, in order. ``None`` leaves a mesh that has devices as it
            is, puts one that was loaded without on those that it was saved on
            (:attr:`recorded_devices`), and any other on the first of ``jax.devices()``.

        Raises:
          ShardingError: ``not-enough-devices``; ``device-count`` if more are given than fit;
            ``missing-devices``, with those of the record that are not here.
        """
        if devices is None and not self.is_device_free:
            return self
        if devices is None and self._recorded is not None:
            devices = self._recorded.find(f"the mesh {self._shape.describe()}")
        found = list(jax.devices() if devices is None else np.asarray(devices, object).flat)
        wanted = self._shape.size
        refuse_too_few(wanted, self._shape.describe(), found)
        if devices is not None and len(found) > wanted:
            raise ShardingError(
                "device-count",
                f"{len(found)} devices for the mesh {self._shape.describe()} of {wanted}",
                help=f"pass {wanted} of them",
            )
        array = np.array(found[:wanted], dtype=object).reshape(self.axis_sizes)
        return Mesh(array, self.axis_names, self.axis_types)

    def without_devices(self) -> Mesh:
        """The same axes without devices, and without record of any."""
        return Mesh.from_jax(self._held.abstract_mesh.update(abstract_device=None))

    def update(self, *arguments: Any, **changes: Any) -> Mesh:
        """A copy with other ``devices`` (or ``axis_sizes``), ``axis_names`` or ``axis_types``.

        Takes what JAX's mesh of the kind takes, in its order; ``axis_types`` as the constructor.

        Raises:
          ShardingError: ``bad-mesh``, ``duplicate-device``.
        """
        given = dict(zip(("axis_names", "axis_types"), arguments[1:], strict=False)) | changes
        if given.get("axis_types") is not None:
            names = given.get("axis_names") or self.axis_names
            names = (names,) if isinstance(names, str) else tuple(names)
            changes["axis_types"] = axis_types_of(given["axis_types"], names)
            arguments = arguments[:2]
        return Mesh.from_jax(self._held.update(*arguments, **changes))

    # What it is -----------------------------------------------------------------------------------

    @property
    def mesh_shape(self) -> MeshShape:
        """Names and sizes, as the algebra knows them."""
        return self._shape

    @property
    def is_device_free(self) -> bool:
        """Whether this mesh has no devices yet."""
        return type(self._held) is JaxAbstractMesh

    @property
    def recorded_devices(self) -> RecordedDevices | None:
        """The devices that a device-free mesh had when it was saved, in mesh order.

        Where :meth:`bind` puts it back; no part of equality. ``None`` for a mesh with devices, and
        for one that never had any.
        """
        return self._recorded

    @property
    def axis_names(self) -> tuple[str, ...]:
        """Axis names, major to minor."""
        return self._held.axis_names

    @property
    def axis_sizes(self) -> tuple[int, ...]:
        """Axis sizes, major to minor."""
        return self._held.axis_sizes

    @property
    def axis_types(self) -> tuple[AxisType, ...]:
        """For each axis, who decides about it: ``Auto``, ``Explicit`` or ``Manual``."""
        return self._held.axis_types

    @property
    def shape(self) -> OrderedDict[str, int]:
        """Axis name -> size, major to minor; yours to change."""
        return OrderedDict(self._shape.axes)

    @property
    def size(self) -> int:
        """Number of devices; as in JAX, 0 for a mesh without axes and devices."""
        return self._held.size

    @property
    def devices(self) -> np.ndarray:
        """The devices, shaped like the mesh, read-only.

        Raises:
          ShardingError: ``device-free``.
        """
        return self.require_devices("devices").devices

    @property
    def device_ids(self) -> np.ndarray:
        """The ids of the devices, shaped like the mesh.

        Raises:
          ShardingError: ``device-free``.
        """
        return self.require_devices("device_ids").device_ids

    @property
    def local_devices(self) -> list[Device]:
        """The devices of this process, in mesh order.

        Raises:
          ShardingError: ``device-free``.
        """
        return self.require_devices("local_devices").local_devices

    @property
    def local_mesh(self) -> Mesh:
        """The part of the mesh that this process holds, if it is a block of it.

        Raises:
          ShardingError: ``device-free``; ``not-local``, if it is none.
        """
        return Mesh.from_jax(local_block(self.require_devices("local_mesh")))

    @property
    def is_multi_process(self) -> bool:
        """Whether other processes hold some of the devices.

        Raises:
          ShardingError: ``device-free``.
        """
        return self.require_devices("is_multi_process").is_multi_process

    @property
    def abstract_mesh(self) -> JaxAbstractMesh:
        """JAX's mesh of the same axes without devices."""
        return self._held.abstract_mesh

    def require_devices(self, member: str) -> JaxMesh:
        """JAX's mesh with the devices, for ``member``, which has no meaning without.

        Raises:
          ShardingError: ``device-free``.
        """
        if type(self._held) is JaxMesh:
            return self._held
        raise ShardingError(
            "device-free",
            f"the mesh {self._shape.describe()} has no devices, and so no {member}",
            help="bind(), of the mesh or of what was loaded with it, puts it on jax.devices()",
        )

    def know(self, spec: object) -> tuple[Any, dict[int, Any]]:
        """Remember that ``spec`` fits, and keep it alive, so that its ``id`` stays its own."""
        if len(self.known_specs) >= _MOST_SPECS:
            self.known_specs.clear()
        known = self.known_specs[id(spec)] = spec, {}
        return known

    # What makes it one of JAX's -------------------------------------------------------------------

    @property
    def __class__(self) -> type:
        return type(self._held)

    def __getattr__(self, name: str) -> Any:
        # JAX reads more from a mesh than it documents; protocols of Python stay our own.
        if name.startswith("__") or name in _OWN:
            raise AttributeError(name)
        return getattr(self._held, name)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"cannot assign to field {name!r}")

    def __eq__(self, other: object) -> bool:
        return self._held is (other._held if type(other) is Mesh else other)

    def __hash__(self) -> int:
        return hash(self._held)

    # Context manager ------------------------------------------------------------------------------

    def __enter__(self) -> Mesh:
        """Make this the mesh that bare specs refer to in this thread, as JAX's ``with mesh:``.

        Nests, and may be entered again while it is entered. JAX has deprecated the form in favour
        of ``with jax.set_mesh(mesh):``; the context is the same one, without the warning.

        Raises:
          ShardingError: ``device-free``.
        """
        mesh_context.enter_mesh(self.require_devices("context"))
        return self

    def __exit__(self, *exception: object) -> None:
        mesh_context.exit_mesh(self.require_devices("context"))

    # Showing and keeping --------------------------------------------------------------------------

    def __str__(self) -> str:
        pieces = [f"{name!r}: {size}" for name, size in self._shape.axes]
        if any(axis_type is not AxisType.Auto for axis_type in self.axis_types):
            pieces.append(f"axis_types={self.axis_types}")
        if self.is_device_free:
            pieces.append("no devices")
        return f"Mesh({', '.join(pieces)})"

    def __repr__(self) -> str:
        types = f"axis_types={self.axis_types}"
        if self.is_device_free:
            return f"Mesh(axis_sizes={self.axis_sizes}, axis_names={self.axis_names}, {types})"
        # JAX's mesh of nothing has no ids to give.
        found = [] if self._held.empty else self.device_ids
        ids = np.array2string(np.asarray(found), separator=", ", threshold=16).replace("\n", "")
        return f"Mesh(device_ids={ids}, axis_names={self.axis_names}, {types})"

    def _saved_state(self) -> dict[str, Any]:
        # One dict for all that is saved of this mesh, so that a pickle holds it once.
        try:
            return self._state
        except AttributeError:
            state = saved_mesh.state_of(self._held, self._recorded)
            object.__setattr__(self, "_state", state)
            return state

    @classmethod
    def _from_saved(cls, saved: Saved) -> Mesh:
        return _loaded(saved_mesh.read(saved), clients_here())


def make_mesh(
    axis_sizes: Sequence[int],
    axis_names: Sequence[str],
    axis_types: AxisTypes = None,
    *,
    devices: Sequence[Device] | None = None,
) -> Mesh:
    """A mesh whose devices stand as ``jax.make_mesh`` puts them: near each other on the hardware.

    Args:
      axis_sizes: the sizes, major to minor; fewer devices than there are may be asked for.
      axis_names: the names.
      axis_types: one per axis, or one for all; ``Explicit`` if left out, as in ``jax.make_mesh``.
      devices: the devices to choose from; ``None`` for ``jax.devices()``.

    Raises:
      ShardingError: ``not-enough-devices``, ``bad-mesh``, ``duplicate-device``.
    """
    names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
    check_axes(names, tuple(axis_sizes))
    sizes = tuple(int(size) for size in axis_sizes)
    types = axis_types_of(AxisType.Explicit if axis_types is None else axis_types, names)
    found = list(jax.devices() if devices is None else devices)
    described = ", ".join(f"{name}={size}" for name, size in zip(names, sizes, strict=True))
    refuse_too_few(math.prod(sizes), described, found)
    return Mesh.from_jax(jax.make_mesh(sizes, names, axis_types=types, devices=found))


@functools.lru_cache(maxsize=256)
def _from_jax(mesh: JaxMesh | JaxAbstractMesh) -> Mesh:
    # Once per mesh, not once per array that jit gives back.
    check_axes(mesh.axis_names, mesh.axis_sizes)
    if type(mesh) is JaxMesh and not mesh.empty:
        check_devices(mesh.devices)
    return Mesh._holding(mesh)


@functools.lru_cache(maxsize=256)
def _loaded(described: MeshDescription, clients: tuple[Any, ...] | None) -> Mesh:
    # One object for all shardings that were saved on one mesh, as it was before.
    recorded = described.recorded
    if recorded is None:
        return Mesh.from_jax(described.abstract())
    array = np.empty(described.sizes, dtype=object)
    if len(recorded):
        devices = None if clients is None else recorded.among(clients)
        if devices is None:
            return Mesh._holding(described.abstract(), recorded)
        array.reshape(-1)[:] = devices
    return Mesh.from_jax(JaxMesh(array, described.names, axis_types=described.axis_types))
