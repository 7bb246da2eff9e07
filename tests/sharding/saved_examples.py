"""Something of every class that is saved: with its rank, and what it says in a file."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType

from shardpass.diagnostics import ShardingError
from shardpass.sharding import (
    Chunked,
    GSPMDSharding,
    Mesh,
    NamedSharding,
    NoSharding,
    P,
    PmapSharding,
    PositionalSharding,
    Replicated,
    ShardedAxis,
    ShardingSpec,
    SingleDeviceSharding,
    Unstacked,
)

MIXED = (AxisType.Auto, AxisType.Explicit)
BACKWARDS = (7, 6, 5, 4, 3, 2, 1, 0)


def meshes() -> dict[str, Mesh]:
    """On eight devices or none, in order and not, of every axis type."""
    devices = np.array(jax.devices())
    grid = devices.reshape(2, 4)
    of_jax = jax.sharding.Mesh(grid, ("x", "y"))
    return {
        "in order": Mesh(grid, ("x", "y")),
        "permuted": Mesh(grid[::-1].T, ("y", "x"), MIXED),
        "manual": Mesh(grid, ("x", "y"), AxisType.Manual),
        "of two": Mesh(devices[[5, 2]], "x"),
        "of one": Mesh(devices[3], ()),
        "device-free": Mesh.of(x=2, y=4, axis_types=MIXED),
        "abstract device": Mesh.from_jax(of_jax.abstract_mesh),
        "of nothing": Mesh.from_jax(jax.sharding.Mesh(np.empty((), dtype=object), ())),
    }


def specs() -> dict[str, P]:
    """Of every kind of entry."""
    found = {
        "empty": P(),
        "entries": P("x", None, ("y", "z"), P.UNCONSTRAINED),
        "named ?": P("?", "unconstrained"),
        "partial": P("x", unreduced={"y", "a"}, reduced={"z"}),
    }
    kinds = getattr(jax.sharding, "UnreducedKind", None)
    if kinds is not None:
        found["maximum"] = P("x", unreduced={"y"}, unreduced_kind=kinds.max)
    return found


def shardings() -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Of every class, each with a global shape that it divides."""
    devices = np.array(jax.devices())
    grid = devices.reshape(2, 4)
    mesh = Mesh(grid, ("x", "y"))
    turned = PositionalSharding(grid[:, ::-1])
    stacked = ShardingSpec([Chunked([4]), NoSharding()], [Replicated(2), ShardedAxis(0)])
    lost = ShardingSpec(
        [Chunked([2]), NoSharding(), Unstacked(4)], [ShardedAxis(1), ShardedAxis(0)]
    )
    explicit = Mesh(grid, ("x", "y"), AxisType.Explicit)
    return {
        "named": (NamedSharding(mesh, P("x", ("y",))), (4, 8)),
        "named permuted": (NamedSharding(meshes()["permuted"], P(None, ("y", "x"))), (3, 8)),
        "named host": (NamedSharding(mesh, P("y"), memory_kind="pinned_host"), (8,)),
        "named open": (NamedSharding(mesh, P(P.UNCONSTRAINED, "y")), (8, 8)),
        "named partial": (NamedSharding(explicit, P("x", unreduced={"y"})), (8, 3)),
        "named ids": (NamedSharding(mesh, P("x", "y"), _logical_device_ids=BACKWARDS), (4, 8)),
        "single": (SingleDeviceSharding(devices[3]), (5, 3)),
        "single host": (SingleDeviceSharding(devices[3], memory_kind="pinned_host"), ()),
        "gspmd": (GSPMDSharding(devices[::-1], "{devices=[4,2]<=[2,4]T(1,0)}"), (8, 8)),
        "gspmd list": (GSPMDSharding(devices, "{devices=[4,2]0,4,1,5,2,6,7,3}"), (8, 8)),
        "gspmd copies": (
            GSPMDSharding(devices, "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"),
            (8, 3),
        ),
        "gspmd whole": (GSPMDSharding.get_replicated(devices), (8, 3)),
        "gspmd manual": (
            GSPMDSharding(devices, "{devices=[2,4]<=[8] last_tile_dims={manual}}"),
            (8,),
        ),
        "gspmd partial": (
            GSPMDSharding(devices, "{devices=[2,4]<=[8] last_tile_dims={unreduced}}"),
            (8,),
        ),
        "gspmd named": (GSPMDSharding(devices, "{mesh['x'=2,'y'=4], [{'y'}, {'x'}]}"), (8, 8)),
        "positional": (turned, (4, 8)),
        "positional turned": (turned.T, (8, 4)),
        "positional copies": (turned.replicate(0), (3, 8)),
        "positional whole": (turned.replicate(keepdims=False), ()),
        "positional host": (turned.with_memory_kind("pinned_host"), (4, 8)),
        "pmap": (PmapSharding.default((8, 3)), (8, 3)),
        "pmap whole": (PmapSharding.default((3, 4), None, devices[[4, 1]]), (3, 4)),
        "pmap copies": (PmapSharding(devices[::-1].reshape(2, 4), stacked), (4, 3)),
        "pmap flat": (PmapSharding(devices, stacked), (4, 3)),
        "pmap unstacked": (PmapSharding(devices.reshape(4, 2), lost), (2, 3, 4)),
    }


def everything() -> dict[str, Any]:
    """All of the above, by a name of its own."""
    return {
        **{f"mesh {name}": mesh for name, mesh in meshes().items()},
        **{f"spec {name}": spec for name, spec in specs().items()},
        **{name: sharding for name, (sharding, _) in shardings().items()},
    }


def answers(sharding: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    """What a sharding says without devices, as JSON values; the slug where it says an error."""

    def asked(member: str, *arguments: Any) -> Any:
        try:
            found = getattr(sharding, member)
            found = found(*arguments) if callable(found) else found
        except ShardingError as error:
            return error.slug
        return found if found is None or isinstance(found, int) else str(found)

    return {
        **{
            name: asked(name)
            for name in ("memory_kind", "num_devices", "is_fully_replicated", "manual_axes")
        },
        **{
            name: asked(name, len(shape))
            for name in ("canonical", "canonical_hlo", "to_mhlo", "to_sdy")
        },
        "shard_shape": asked("shard_shape", shape),
        "wrong rank": asked("shard_shape", (*shape, 7, 7)),
    }
