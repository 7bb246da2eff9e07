"""The state of a mesh: axes, who decides about them, and which devices it is or was on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax

from shardpass.canon import MeshShape
from shardpass.sharding.mesh_checks import check_axes
from shardpass.sharding.recorded_devices import RecordedDevices
from shardpass.sharding.saved import Saved

AxisType = jax.sharding.AxisType
JaxMesh = jax.sharding.Mesh
JaxAbstractMesh = jax.sharding.AbstractMesh


@dataclass(frozen=True, slots=True)
class MeshDescription:
    """A mesh in words that every process understands.

    Attributes:
      names: axis names, major to minor.
      sizes: axis sizes.
      axis_types: one per axis.
      abstract_device: what JAX's mesh without devices says of the one to come.
      recorded: the devices, in mesh order; ``None`` for a mesh that never had any.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    axis_types: tuple[AxisType, ...]
    abstract_device: Any = None
    recorded: RecordedDevices | None = None

    def abstract(self) -> JaxAbstractMesh:
        """JAX's mesh of it without devices."""
        return JaxAbstractMesh(
            self.sizes,
            self.names,
            axis_types=self.axis_types,
            abstract_device=self.abstract_device,
        )


def state_of(
    mesh: JaxMesh | JaxAbstractMesh, recorded: RecordedDevices | None = None
) -> dict[str, Any]:
    """The state of JAX's ``mesh``; ``recorded``, if it has no devices, is what it was on."""
    state: dict[str, Any] = {
        "axes": [[name, size] for name, size in zip(mesh.axis_names, mesh.axis_sizes, strict=True)],
        "axis_types": [axis_type.name for axis_type in mesh.axis_types],
    }
    if isinstance(mesh, JaxAbstractMesh):
        device = mesh.abstract_device
        if device is not None:
            state["abstract_device"] = {
                "device_kind": device.device_kind,
                "num_cores": device.num_cores,
                "platform": device.platform,
            }
    else:
        # JAX's mesh of nothing, with no axes, has no device in its one place.
        recorded = RecordedDevices.of(() if mesh.empty else mesh.devices.flat)
    if recorded is not None:
        state["devices"] = recorded.state()
    return state


def read(saved: Saved) -> MeshDescription:
    """The inverse of :func:`state_of`.

    Raises:
      ShardingError: ``bad-state``, ``bad-mesh``, with the place.
    """
    fields = saved.fields(("axes", "axis_types"), ("abstract_device", "devices"))
    pairs = [axis.pair() for axis in fields["axes"].items()]
    names = tuple(name.text() for name, _ in pairs)
    sizes = tuple(size.whole() for _, size in pairs)
    known, owner = dict(AxisType.__members__), f"jax {jax.__version__}"
    types = [kind.one_of(known, "axis type", owner) for kind in fields["axis_types"].items()]
    if len(types) != len(names):
        raise fields["axis_types"].error(f"{len(types)} axis types for {len(names)} axes")
    with fields["axes"].building():
        check_axes(names, sizes)
        count = MeshShape(tuple(zip(names, sizes, strict=True))).size
    recorded = device = None
    if "devices" in fields:
        nothing = not names and fields["devices"].value == []
        recorded = RecordedDevices.read(fields["devices"], 0 if nothing else count)
    if "abstract_device" in fields:
        device = _abstract_device(fields["abstract_device"])
    return MeshDescription(names, sizes, tuple(types), device, recorded)


def _abstract_device(saved: Saved) -> Any:
    fields = saved.fields(("device_kind", "platform"), ("num_cores",))
    return jax.sharding.AbstractDevice(
        device_kind=fields["device_kind"].text(),
        num_cores=fields["num_cores"].whole() if "num_cores" in fields else None,
        platform=fields["platform"].text(),
    )
