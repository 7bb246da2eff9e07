# Ours has mesh and spec as properties, where JAX declares attributes.
# pyright: reportIncompatibleVariableOverride=false, reportIncompatibleMethodOverride=false
"""``NamedSharding``: a mesh and a spec."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import jax
import numpy as np

from shardpass.canon import HloSharding, MeshShape, TensorSharding, TileAssignment
from shardpass.compat import lowering, output_shardings
from shardpass.compat.devices import Device
from shardpass.diagnostics import ShardingError
from shardpass.sharding.base import Sharding, alive
from shardpass.sharding.conversion import check_rank, tensor_sharding
from shardpass.sharding.memory import check_memory_kind
from shardpass.sharding.mesh import JaxAbstractMesh, JaxMesh, Mesh
from shardpass.sharding.partition_spec import UNCONSTRAINED, JaxPartitionSpec, PartitionSpec
from shardpass.sharding.persistence import persistent
from shardpass.sharding.recorded_devices import ids_text, read_ids
from shardpass.sharding.saved import Saved

AxisType = jax.sharding.AxisType
# JAX holds the number in an int32 and says no more than "std::bad_cast" where it does not fit.
_MOST_DEVICES: Final = 2**31 - 1

if TYPE_CHECKING:

    class _NamedSharding(Sharding, jax.sharding.NamedSharding): ...  # pyright: ignore

else:
    _NamedSharding = alive(jax.sharding.NamedSharding)


@persistent
class NamedSharding(_NamedSharding):
    """An array cut over the axes of ``mesh`` as ``spec`` says.

    A subclass of ``jax.sharding.NamedSharding``: JAX takes it everywhere, compares and hashes it as
    its own, and gives it back from ``jit`` on meshes of ``Auto`` axes.

    Args:
      mesh: ours or JAX's, with devices or without.
      spec: ours or JAX's.
      memory_kind: ``"device"``, ``"pinned_host"``, ...; the default of the devices if left out.
      _logical_device_ids: JAX's permutation of the devices that is written into the lowered mesh.

    Raises:
      ShardingError: ``unknown-axis``, ``duplicate-axis``, ``bad-spec`` (open dimensions without an
        ``Auto`` axis to fill them, unreduced axes that are not ``Explicit``), ``memory-kind``,
        ``bad-mesh``, ``abstract-type``.
    """

    def __init__(
        self,
        mesh: Mesh | JaxMesh | JaxAbstractMesh,
        spec: PartitionSpec | JaxPartitionSpec,
        *,
        memory_kind: str | None = None,
        _logical_device_ids: tuple[int, ...] | None = None,
    ) -> None:
        our_mesh = mesh if type(mesh) is Mesh else Mesh.from_jax(mesh)
        our_spec = spec if type(spec) is PartitionSpec else PartitionSpec.from_jax(spec)
        layouts = our_mesh.known_specs.get(id(our_spec))
        if layouts is None:
            _check(our_mesh, our_spec)
            layouts = our_mesh.know(our_spec)
        if memory_kind is None and _logical_device_ids is None:
            super().__init__(our_mesh.to_jax(), our_spec.to_jax())
        else:
            if memory_kind is not None:
                check_memory_kind(memory_kind, our_mesh)
            super().__init__(
                our_mesh.to_jax(),
                our_spec.to_jax(),
                memory_kind=memory_kind,
                _logical_device_ids=_logical_device_ids,
            )
        self._our_mesh = our_mesh
        self._our_spec = our_spec
        # Neither the kind of memory nor JAX's ids, which few have, are part of what is shared.
        self._our_layouts = layouts[1] if _logical_device_ids is None else {}

    @classmethod
    def from_jax(cls, sharding: jax.sharding.NamedSharding) -> NamedSharding:
        """JAX's sharding as one of ours; one of ours is given back as it is."""
        if type(sharding) is cls:
            return sharding
        return cls(
            sharding.mesh,
            sharding.spec,
            memory_kind=sharding.memory_kind,
            _logical_device_ids=lowering.logical_device_ids(sharding),
        )

    def to_jax(self) -> jax.sharding.NamedSharding:
        """JAX's own class with the same content; equal to this one."""
        return jax.sharding.NamedSharding(
            self._our_mesh.to_jax(),
            self._our_spec.to_jax(),
            memory_kind=self.memory_kind,
            _logical_device_ids=lowering.logical_device_ids(self),
        )

    @property
    def mesh(self) -> Mesh:
        """The mesh, as one of ours."""
        return self._our_mesh

    @property
    def spec(self) -> PartitionSpec:
        """The spec, as one of ours."""
        return self._our_spec

    # What is its own ------------------------------------------------------------------------------

    def canonical(self, ndim: int) -> TensorSharding:
        """The layout of a value of ``ndim`` dimensions over the axes of the mesh.

        Raises:
          ShardingError: ``rank-mismatch``, if the spec has more entries.
        """
        mesh = self._our_mesh.mesh_shape
        ids = lowering.logical_device_ids(self)
        if ids is not None:
            mesh = MeshShape(mesh.axes, tuple(ids))
        return tensor_sharding(mesh, self._our_spec, ndim)

    def canonical_hlo(self, ndim: int) -> HloSharding:
        """The layout as XLA's tile assignment; a list where there are logical device ids.

        Raises:
          ShardingError: ``rank-mismatch``, if the spec has more entries.
        """
        layout = super().canonical_hlo(ndim)
        if lowering.logical_device_ids(self) is None or layout.tile is None:
            return layout
        # JAX lists the devices whenever it was given ids, also where they are 0, 1, 2.
        return dataclasses.replace(layout, tile=TileAssignment.of_array(layout.tile.device_array()))

    @property
    def device_order(self) -> tuple[Device, ...]:
        """The devices of the mesh, the last axis fastest.

        Raises:
          ShardingError: ``device-free``.
        """
        return tuple(self._our_mesh.devices.flat)

    @property
    def manual_axes(self) -> tuple[str, ...]:
        """The axes of type ``Manual``, in mesh order."""
        mesh = self._our_mesh
        if AxisType.Manual not in mesh.axis_types:
            return ()
        return tuple(
            name
            for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True)
            if kind is AxisType.Manual
        )

    # Better words, and our class, where JAX has its own -------------------------------------------

    def check_compatible_aval(self, aval_shape: tuple[int, ...]) -> None:
        """What JAX asks before it gives a value of this shape this sharding.

        Raises:
          ShardingError: ``rank-mismatch``.
        """
        check_rank(self._our_spec, len(aval_shape))

    @functools.cached_property
    def device_set(self) -> set[Device]:
        """The devices, those of other processes included.

        Raises:
          ShardingError: ``device-free``.
        """
        self._our_mesh.require_devices("device_set")
        return super().device_set

    @functools.cached_property
    def addressable_devices(self) -> set[Device]:
        """The devices of this process.

        Raises:
          ShardingError: ``device-free``.
        """
        self._our_mesh.require_devices("addressable_devices")
        return super().addressable_devices

    @functools.cached_property
    def is_fully_addressable(self) -> bool:
        """Whether all devices belong to this process.

        Raises:
          ShardingError: ``device-free``.
        """
        self._our_mesh.require_devices("is_fully_addressable")
        return super().is_fully_addressable

    def bind(self, devices: Sequence[Device] | np.ndarray | None = None) -> NamedSharding:
        """This layout on real devices; everything else stays.

        Args:
          devices: as :meth:`Mesh.bind` takes them; ``None`` leaves what has devices as it is, and
            puts what was loaded without on those that it was saved on.

        Raises:
          ShardingError: as :meth:`Mesh.bind`; ``memory-kind``, if the devices lack it.
        """
        return self.update(mesh=self._our_mesh.bind(devices))

    def with_memory_kind(self, kind: str) -> NamedSharding:
        """The same layout in another kind of memory.

        Raises:
          ShardingError: ``memory-kind``.
        """
        return self.update(memory_kind=kind)

    def update(self, **changes: Any) -> NamedSharding:
        """A copy with another ``mesh``, ``spec`` (or tuple of entries) or ``memory_kind``."""
        spec = changes.pop("spec", self._our_spec)
        known = {
            "mesh": self._our_mesh,
            "spec": spec if isinstance(spec, JaxPartitionSpec) else PartitionSpec(*spec),
            "memory_kind": self.memory_kind,
            "_logical_device_ids": lowering.logical_device_ids(self),
        }
        return NamedSharding(**{**known, **changes})

    def __repr__(self) -> str:
        memory = "" if self.memory_kind is None else f", memory_kind={self.memory_kind!r}"
        return f"NamedSharding({self._our_mesh}, {self._our_spec!r}{memory})"

    def _saved_state(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "mesh": self._our_mesh._saved_state(),
            "spec": self._our_spec._saved_state(),
        }
        if self.memory_kind is not None:
            state["memory_kind"] = self.memory_kind
        ids = lowering.logical_device_ids(self)
        if ids is not None:
            state["logical_device_ids"] = ids_text(ids)
        return state

    @classmethod
    def _from_saved(cls, saved: Saved) -> NamedSharding:
        fields = saved.fields(("mesh", "spec"), ("memory_kind", "logical_device_ids"))
        mesh = Mesh._from_saved(fields["mesh"])
        spec = PartitionSpec._from_saved(fields["spec"])
        kind = fields["memory_kind"].text() if "memory_kind" in fields else None
        ids = None
        if "logical_device_ids" in fields:
            place = fields["logical_device_ids"]
            ids = read_ids(place, mesh.mesh_shape.size)
            with place.building():
                MeshShape(mesh.mesh_shape.axes, ids)
        with saved.building():
            return cls(mesh, spec, memory_kind=kind, _logical_device_ids=ids)


@functools.lru_cache(maxsize=1024)
def _check(mesh: Mesh, spec: PartitionSpec) -> None:
    """Everything that JAX checks when it builds one, in our words."""
    shape = mesh.mesh_shape
    if mesh.size > _MOST_DEVICES:
        raise ShardingError(
            "bad-mesh",
            f"the mesh {shape.describe()} has {mesh.size} devices, and JAX's NamedSharding counts "
            f"to {_MOST_DEVICES}",
        )
    try:
        # Unknown axes and axes used twice are the algebra's to find.
        tensor_sharding(shape, spec, len(spec))
        for axis in sorted(spec.reduced):
            shape.axis_size(axis)
    except ShardingError as error:
        found = error.diagnostic
        raise ShardingError(
            found.slug,
            found.message,
            help=found.help,
            notes=(*found.notes, f"spec is {spec} on mesh {shape.describe()}"),
        ) from None
    types = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    for name, axes in (("unreduced", spec.unreduced), ("reduced", spec.reduced)):
        for axis in sorted(axes):
            if types[axis] is not AxisType.Explicit:
                raise ShardingError(
                    "bad-spec",
                    f'axis "{axis}" is {types[axis].name}, and only Explicit axes can be {name}',
                    help="give the mesh axis_types with AxisType.Explicit for it",
                )
    if UNCONSTRAINED in spec.partitions and AxisType.Auto not in types.values():
        raise ShardingError(
            "bad-spec",
            f"{spec} leaves a dimension open, and no axis of the mesh {shape.describe()} is Auto",
            help="write None, or give the mesh an Auto axis",
        )


def _in_jax_results(made_by_xla: Any, aval: Any, origin: NamedSharding) -> jax.sharding.Sharding:
    """What XLA chose for a result, over the axes of ``origin``, or in tiles where they cannot."""
    recover = output_shardings.handlers()[jax.sharding.NamedSharding]
    try:
        found = recover(made_by_xla, aval, origin)
    except (ValueError, AssertionError):  # A constraint within was on a mesh of another shape.
        from shardpass.sharding.gspmd import GSPMDSharding

        return GSPMDSharding.from_jax(made_by_xla)
    return NamedSharding.from_jax(found)  # pyright: ignore[reportArgumentType]


output_shardings.enter(NamedSharding, _in_jax_results)
