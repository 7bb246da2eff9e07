"""One process of two, of four CPU devices each: what our objects say there, as JSON.

Run by ``test_multi_process`` as ``python multi_process_worker.py PROCESS PORT REPORT``. Both run
the same program, as JAX wants it, so nothing may depend on the process before a collective but
the data. Devices are written as their places in ``jax.devices()``, 0 to 3 being of process 0.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

X = np.arange(64, dtype=np.float32).reshape(8, 8)


def layouts(devices: np.ndarray) -> dict[str, Callable[[], Any]]:
    """The shardings that are tried, by name; ``devices`` is 2 x 4, a row for each process."""
    from shardpass.sharding import (
        GSPMDSharding,
        Mesh,
        NamedSharding,
        P,
        PmapSharding,
        PositionalSharding,
        SingleDeviceSharding,
    )

    mesh = Mesh(devices, ("x", "y"))
    mixed = Mesh(devices.T.reshape(2, 4), ("x", "y"))
    local, remote = Mesh(devices[0], "y"), Mesh(devices[1], "y")
    return {
        "named": lambda: NamedSharding(mesh, P("x", "y")),
        "named-columns": lambda: NamedSharding(mesh, P(None, "y")),
        "named-rows": lambda: NamedSharding(mesh, P(("y", "x"))),
        "named-replicated": lambda: NamedSharding(mesh, P()),
        "named-mixed": lambda: NamedSharding(mixed, P("x", "y")),
        "named-of-process-0": lambda: NamedSharding(local, P("y")),
        "named-of-process-1": lambda: NamedSharding(remote, P("y")),
        "gspmd": lambda: GSPMDSharding(devices.ravel(), "{devices=[4,2]<=[2,4]T(1,0)}"),
        "gspmd-replicated": lambda: GSPMDSharding.get_replicated(devices.ravel()),
        "gspmd-of-process-1": lambda: GSPMDSharding(devices[1], "{devices=[2,2]<=[4]}"),
        "positional": lambda: PositionalSharding(devices),
        "positional-turned": lambda: PositionalSharding(devices).T,
        "positional-partly": lambda: PositionalSharding(devices).replicate(0),
        "positional-of-process-0": lambda: PositionalSharding(devices[0]).reshape(4, 1),
        "pmap": lambda: PmapSharding.default(X.shape, devices=devices.ravel()),
        "pmap-columns": lambda: PmapSharding.default(X.shape, 1, devices.T.ravel()),
        "single-of-process-0": lambda: SingleDeviceSharding(devices[0, 2]),
        "single-of-process-1": lambda: SingleDeviceSharding(devices[1, 3]),
    }


def bounds(index: tuple[slice, ...], shape: tuple[int, ...]) -> list[list[int]]:
    """Slices as (start, stop), ``slice(None)`` included."""
    return [list(part.indices(size)[:2]) for part, size in zip(index, shape, strict=True)]


class Report:
    """What there is to say of each object."""

    def __init__(self) -> None:
        self.places = {device: place for place, device in enumerate(jax.devices())}

    def devices(self, found: Any) -> list[int]:
        """Devices as places, in the order given; sets sorted."""
        places = [self.places[device] for device in found]
        return sorted(places) if isinstance(found, (set, frozenset)) else places

    def index_map(self, found: Any) -> list[Any]:
        """A map from devices to blocks, in its order."""
        return [[self.places[device], bounds(index, X.shape)] for device, index in found.items()]

    def members(self, sharding: Any) -> dict[str, Any]:
        """Every member that speaks of devices."""
        return {
            "device_set": self.devices(sharding.device_set),
            "device_order": self.devices(sharding.device_order),
            "num_devices": sharding.num_devices,
            "addressable_devices": self.devices(sharding.addressable_devices),
            "is_fully_addressable": sharding.is_fully_addressable,
            "is_fully_replicated": sharding.is_fully_replicated,
            "memory_kind": sharding.memory_kind,
            "shard_shape": list(sharding.shard_shape(X.shape)),
            "devices_indices_map": self.index_map(sharding.devices_indices_map(X.shape)),
            "addressable_devices_indices_map": self.index_map(
                sharding.addressable_devices_indices_map(X.shape)
            ),
            "mhlo": sharding.to_mhlo(2),
        }

    def shards(self, array: jax.Array) -> list[Any]:
        """The blocks that this process holds: place, bounds, sum of the elements."""
        return [
            [
                self.places[shard.device],
                bounds(shard.index, array.shape),
                float(np.asarray(shard.data).sum()),
            ]
            for shard in array.addressable_shards
        ]


def built(sharding: Any) -> dict[str, jax.Array]:
    """The global ``X``, built from what this process has, in every way there is."""
    local = sharding.addressable_devices_indices_map(X.shape)
    arrays = {
        "callback": jax.make_array_from_callback(X.shape, sharding, lambda index: X[index]),
        "single_device_arrays": jax.make_array_from_single_device_arrays(
            X.shape,
            sharding,
            [jax.device_put(X[index], device) for device, index in local.items()],
            dtype=X.dtype,
        ),
    }
    if local:
        # What the process has of each dimension, in the order of the global array.
        held = [
            sorted({place for part in parts for place in range(8)[part]})
            for parts in zip(*local.values(), strict=True)
        ]
        arrays["process_local_data"] = jax.make_array_from_process_local_data(
            sharding, X[np.ix_(*held)], X.shape
        )
    return arrays


def computed(report: Report, sharding: Any) -> dict[str, Any]:
    """Programs over both processes; every process gets the whole answer."""
    from shardpass.sharding import Mesh, NamedSharding, P

    arrays = built(sharding)
    array = arrays["callback"]
    everywhere = NamedSharding(Mesh(np.array(sharding.device_order), "all"), P())
    total = jax.jit(lambda a: a.sum(), out_shardings=everywhere)
    doubled = jax.jit(lambda a: a * 2)(array)
    turned = jax.jit(lambda a: a.T + 1, out_shardings=sharding)(array)
    rows = jax.jit(lambda a: a.sum(axis=1), out_shardings=everywhere)(array)
    # JAX moves a global array to a NamedSharding alone; programs know no such limit.
    moved = jax.jit(lambda a: a, out_shardings=everywhere)(array)
    if isinstance(sharding, NamedSharding):
        moved = jax.device_put(array, everywhere)
    return {
        "moved": np.asarray(moved).tolist(),
        "built": {way: report.shards(made) for way, made in arrays.items()},
        "sums": {way: float(total(made)) for way, made in arrays.items()},
        "rows": np.asarray(rows).tolist(),
        "doubled": report.shards(doubled),
        "doubled_class": type(doubled.sharding).__name__,
        "doubled_is_ours": type(doubled.sharding).__module__.startswith("shardpass."),
        "turned": report.shards(turned),
    }


def meshes(report: Report, devices: np.ndarray) -> dict[str, Any]:
    """What meshes say of processes."""
    from shardpass.diagnostics import ShardingError
    from shardpass.sharding import Mesh, make_mesh

    found = {}
    for name, mesh in {
        "rows": Mesh(devices, ("x", "y")),
        "columns": Mesh(devices.T, ("y", "x")),
        "of-process-0": Mesh(devices[0], "y"),
        "of-process-1": Mesh(devices[1], "y"),
        "scattered": Mesh(devices.flat[[0, 4, 5, 1]], "y"),
        "made": make_mesh((2, 4), ("x", "y")),
    }.items():
        found[name] = {
            "is_multi_process": mesh.is_multi_process,
            "local_devices": report.devices(mesh.local_devices),
            "size": mesh.size,
            "devices": report.devices(mesh.devices.flat),
        }
        try:
            local = mesh.local_mesh
        except ShardingError as error:
            found[name]["local_mesh"] = [error.slug, str(error)]
        else:
            found[name]["local_mesh"] = {
                "shape": dict(local.shape),
                "devices": report.devices(local.devices.flat),
                "types_kept": local.axis_types == mesh.axis_types,
            }
    return found


def main(process: int, port: int, report_file: Path) -> None:
    """Join the other process, and write what there is to say."""
    from shardpass.sharding import PmapSharding

    jax.distributed.initialize(
        f"127.0.0.1:{port}", num_processes=2, process_id=process, initialization_timeout=60
    )
    devices = np.array(jax.devices()).reshape(2, 4)
    report = Report()
    found: dict[str, Any] = {
        "process": jax.process_index(),
        "local": report.devices(jax.local_devices()),
        "meshes": meshes(report, devices),
        "layouts": {},
        "computed": {},
        # Without devices, pmap's placement is over those of the process.
        "pmap_default": report.devices(PmapSharding.default((4, 8)).device_order),
    }
    for name, make in layouts(devices).items():
        sharding = make()
        found["layouts"][name] = report.members(sharding)
        if sharding.addressable_devices and "-of-process-" not in name:
            found["computed"][name] = computed(report, sharding)
    report_file.write_text(json.dumps(found))
    # Both leave together: JAX aborts a process whose partner is gone.
    jax.distributed.shutdown()


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
    except BaseException:
        # Leaving by the door, JAX would wait for the other process, which waits for this one.
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
