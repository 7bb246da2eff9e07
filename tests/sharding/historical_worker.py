# The old jax has no public name for the entries of a pmap's spec, and is asked in one way only.
# ruff: noqa: TID251, B905
"""Run by the Python of jax 0.4.38: cases as JSON on stdin, its answers as JSON on stdout.

An answer is what the old classes say, or ``{"error": ...}``; device ids stand for devices. This
file is all of it that the old environment reads: it imports nothing of the project.
"""

import json
import sys

import jax
import numpy as np
from jax._src.sharding_specs import (
    Chunked,
    NoSharding,
    Replicated,
    ShardedAxis,
    ShardingSpec,
    Unstacked,
)
from jax.sharding import Mesh, NamedSharding, PartitionSpec, PmapSharding, PositionalSharding

DIMS = {"N": NoSharding, "C": Chunked, "U": Unstacked, "S": ShardedAxis, "R": Replicated}


def answered(ask):
    """What ``ask()`` returns, or what it raised, which is one error as good as another."""
    try:
        return ask()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def devices_of(ids):
    flat = np.array(ids)
    found = np.empty(flat.shape, dtype=object)
    for place in np.ndindex(flat.shape):
        found[place] = jax.devices()[flat[place]]
    return found


def positional(case):
    sharding = PositionalSharding(devices_of(case["devices"]))
    for name, arguments, keywords in case["ops"]:
        arguments = [tuple(a) if isinstance(a, list) else a for a in arguments]
        sharding = sharding.T if name == "T" else getattr(sharding, name)(*arguments, **keywords)
    return sharding


def blocks(found, shape):
    return {
        device.id: [
            list(part.indices(size)[:2]) if isinstance(part, slice) else part
            for part, size in zip(index, shape)
        ]
        for device, index in found.items()
    }


def about_positional(case):
    sharding = positional(case)
    return {
        "shape": sharding.shape,
        "ndim": sharding.ndim,
        "replicated": sharding.is_fully_replicated,
        "num_devices": sharding.num_devices,
        "device_set": sorted(device.id for device in sharding.device_set),
        "repr": repr(sharding).replace("unpinned_host", "?"),
        "hlo": [
            answered(lambda ndim=ndim: repr(sharding._to_xla_hlo_sharding(ndim)))
            for ndim in range(sharding.ndim + 1)
        ],
        "values": [about_value(sharding, tuple(shape)) for shape in case["shapes"]],
    }


def about_value(sharding, shape):
    local = sharding.addressable_devices_indices_map
    return {
        "shard_shape": answered(lambda: sharding.shard_shape(shape)),
        "blocks": answered(lambda: blocks(sharding.devices_indices_map(shape), shape)),
        "local": answered(lambda: blocks(local(shape), shape)),
        "fits": answered(lambda: sharding.check_compatible_aval(shape)),
    }


def about_two(case):
    one, other = positional(case["one"]), positional(case["other"])
    mesh = Mesh(devices_of(case["mesh"]), ("x", "y"))
    spec = [tuple(part) if isinstance(part, list) else part for part in case["spec"]]
    named = NamedSharding(mesh, PartitionSpec(*spec))
    return {
        "equal": one == other,
        "equivalent": answered(lambda: one.is_equivalent_to(other, one.ndim)),
        "like named": answered(lambda: one.is_equivalent_to(named, one.ndim)),
        "equal named": one == named,
    }


def entry(value):
    return DIMS[value[0]](*value[1:])


def about_spec(case):
    spec = ShardingSpec(map(entry, case["sharding"]), map(entry, case["mapping"]))
    shape = tuple(case["shape"])
    devices = devices_of(case["devices"])
    sharding = PmapSharding(devices, spec)
    found = spec.indices(shape)
    return {
        "repr": repr(spec),
        "str": str(sharding),
        "replicated": sharding.is_fully_replicated,
        "mesh": found.shape,
        "blocks": blocks(dict(zip(devices.flat, found.flat)), shape),
        "shard_shape": answered(lambda: sharding.shard_shape(shape)),
    }


def about_default(case):
    devices = None if case["devices"] is None else list(devices_of(case["devices"]))
    shape = tuple(case["shape"])
    sharding = PmapSharding.default(shape, case["dim"], devices)
    return {
        "repr": repr(sharding),
        "str": str(sharding),
        "equal": sharding == PmapSharding.default(shape, case["dim"], devices),
        "shard_shape": sharding.shard_shape(shape),
        "blocks": blocks(sharding.devices_indices_map(shape), shape),
    }


ABOUT = {
    "positional": about_positional,
    "two": about_two,
    "spec": about_spec,
    "default": about_default,
}

if __name__ == "__main__":
    cases = json.load(sys.stdin)
    answers = [answered(lambda case=case: ABOUT[case["kind"]](case)) for case in cases]
    json.dump({"jax": jax.__version__, "answers": answers}, sys.stdout)
