"""Our ``PositionalSharding`` and ``PmapSharding`` beside those of jax 0.4.38, on many cases.

The old jax answers in a process and an environment of its own, which ``./tools/test`` makes. What
we chose to do otherwise is said at each comparison that leaves it out.
"""

import functools
import json
import math
import os
import random
import subprocess
from pathlib import Path

import jax
import numpy as np
import pytest

from shardpass.canon import HloSharding
from shardpass.diagnostics import ShardingError
from shardpass.sharding import (
    Chunked,
    Mesh,
    NamedSharding,
    NoSharding,
    P,
    PmapSharding,
    PositionalSharding,
    Replicated,
    ShardedAxis,
    ShardingSpec,
    Unstacked,
)

WORKER = Path(__file__).parent / "historical_worker.py"
OLD_PYTHON = os.environ.get("SHARDPASS_HISTORICAL_PYTHON", "")
REASON = OLD_PYTHON or "no jax 0.4.38 here: run the tests by ./tools/test, which installs it"

pytestmark = pytest.mark.skipif(not Path(OLD_PYTHON).is_file(), reason=REASON)

DIMS = {"N": NoSharding, "C": Chunked, "U": Unstacked, "S": ShardedAxis, "R": Replicated}
DEFAULT_KIND = "memory_kind=device"


# Our side of each question ------------------------------------------------------------------------


def devices_of(ids):
    flat = np.array(ids)
    return np.array([jax.devices()[index] for index in flat.flat]).reshape(flat.shape)


def applied(sharding, op):
    name, arguments, keywords = op
    arguments = [tuple(a) if isinstance(a, list) else a for a in arguments]
    return sharding.T if name == "T" else getattr(sharding, name)(*arguments, **keywords)


def positional(case):
    return functools.reduce(applied, case["ops"], PositionalSharding(devices_of(case["devices"])))


def spec_of(case):
    sharding, mapping = (
        [DIMS[name](*rest) for name, *rest in case[part]] for part in ("sharding", "mapping")
    )
    return ShardingSpec(sharding, mapping)


def blocks(found, shape):
    return {
        str(device.id): [
            list(part.indices(size)[:2]) if isinstance(part, slice) else part
            for part, size in zip(index, shape, strict=True)
        ]
        for device, index in found.items()
    }


def is_error(answer):
    return isinstance(answer, dict) and "error" in answer


# Cases --------------------------------------------------------------------------------------------


def shape_of(random, count):
    """A shape of ``count`` places, some of its sizes 1."""
    sizes = []
    while count > 1:
        size = random.choice([k for k in range(2, count + 1) if count % k == 0])
        sizes.append(size)
        count //= size
    sizes += [1] * random.choice([0, 0, 0, 1])
    random.shuffle(sizes)
    return sizes or [1]


def some_devices(random, counts=(1, 2, 4, 6, 8)):
    ids = list(range(8))
    if random.random() < 0.6:
        random.shuffle(ids)
    return ids[: random.choice(counts)]


def op_on(random, sharding):
    """Something to do to ``sharding``; mostly it can be done."""
    ndim, count = sharding.ndim, math.prod(sharding.shape)
    kind = random.choice(["reshape", "transpose", "T", "replicate", "replicate"])
    if kind == "reshape":
        sizes = shape_of(random, count)
        if random.random() < 0.3:
            sizes[random.randrange(len(sizes))] = -1
        if random.random() < 0.1:
            sizes[random.randrange(len(sizes))] += 1
        return [kind, random.choice([sizes, [sizes]]), {}]
    if kind == "transpose":
        order = random.sample(range(ndim), ndim)
        if random.random() < 0.3:
            order = [dim - ndim for dim in order]
        if order and random.random() < 0.1:
            order[0] = random.choice([ndim, order[-1]])
        return [kind, random.choice([order, [order], []]), {}]
    if kind == "replicate":
        axis = random.choice([None, [], random.sample(range(ndim), random.randint(0, ndim))])
        if ndim and random.random() < 0.6:
            axis = random.choice([*range(-ndim, ndim), ndim])
        return [kind, [axis], random.choice([{}, {"keepdims": False}])]
    return ["T", [], {}]


def loses_all_dimensions(case):
    """Whether a dimension-less place is asked for, of which the old JAX made no sharding."""
    sharding = PositionalSharding(devices_of(case["devices"]))
    for op in case["ops"]:
        try:
            sharding = applied(sharding, op)
        except ShardingError:
            return False
        if op[0] == "replicate" and not sharding.shape:
            return True
    return False


def positional_case(random, counts=(1, 2, 4, 6, 8)):
    while True:
        ids = some_devices(random, counts)
        devices = np.array(ids).reshape(shape_of(random, len(ids)))
        sharding = PositionalSharding(devices_of(devices))
        ops = []
        for _ in range(random.randint(0, 4)):
            ops.append(op_on(random, sharding))
            try:
                sharding = applied(sharding, ops[-1])
            except ShardingError:
                break
        case = {"kind": "positional", "devices": devices.tolist(), "ops": ops}
        if not loses_all_dimensions(case):
            break
    shapes = [[size * random.randint(0, 3) for size in sharding.shape] for _ in range(2)]
    shapes.append([size + random.randint(0, 1) for size in sharding.shape])
    shapes.append(random.choice([[*shapes[0], 2], [2, *shapes[0]], shapes[0][1:]]))
    return {**case, "shapes": shapes}


def pair_case(random):
    one = positional_case(random, (8,))
    other = random.choice([one, positional_case(random, (8,)), positional_case(random, (8,))])
    if random.random() < 0.3:
        other = {**one, "ops": [*one["ops"], ["T", [], {}], ["T", [], {}]]}
    ids = np.array(one["devices"]).reshape(2, 4).tolist()
    spec = random.choice(["", "x", "y", "xy", "yx", ["xy"], ["yx"], [None, "x"], [None, "yx"]])
    entries = [list(e) if e and len(e) > 1 else e for e in spec]
    return {"kind": "two", "one": one, "other": other, "mesh": ids, "spec": entries}


def spec_case(random):
    sharding, sizes = [], []
    for _ in range(random.randint(1, 3)):
        kind = random.choice("NNCU")
        room = [k for k in (1, 2, 4) if k * math.prod(sizes) <= 8]
        if kind == "N":
            sharding.append([kind])
        elif kind == "U" or random.random() < 0.7:
            sizes.append(random.choice(room))
            sharding.append([kind, sizes[-1] if kind == "U" else [sizes[-1]]])
        else:
            first = random.choice(room)
            second = random.choice([k for k in room if first * k * math.prod(sizes) <= 8])
            sizes += [first, second]
            sharding.append(["C", [first, second]])
    mapping = [["S", axis] for axis in range(len(sizes))]
    count = math.prod(sizes)
    if random.random() < 0.5:
        copies = random.choice([k for k in (1, 2, 4) if k * count <= 8])
        mapping.append(["R", copies])
        count *= copies
    random.shuffle(mapping)
    if random.random() < 0.08 and sizes:
        mapping[mapping.index(["S", 0])] = ["S", random.choice([1, 7])]
    shape = []
    for kind, *size in sharding:
        pieces = 1 if kind == "N" else size[0] if kind == "U" else math.prod(size[0])
        shape.append(random.randint(0, 4) if kind == "N" else pieces)
        if kind == "C" and random.random() < 0.3:
            shape[-1] *= random.randint(0, 3)
        if kind != "N" and random.random() < 0.1:
            shape[-1] += 1
    if random.random() < 0.1:
        shape.append(2)
    ids = random.sample(range(8), count)
    devices = np.array(ids).reshape(shape_of(random, count)).tolist()
    return {
        "kind": "spec",
        "sharding": sharding,
        "mapping": mapping,
        "shape": shape,
        "devices": devices,
    }


def default_case(random):
    shape = [random.choice([1, 2, 3, 4, 8]) for _ in range(random.randint(1, 3))]
    dim = random.choice([None, *range(len(shape)), len(shape), -1])
    size = shape[dim] if dim is not None and 0 <= dim < len(shape) else random.randint(1, 8)
    if random.random() < 0.1:
        size = max(1, size - 1)
    devices = random.choice([None, random.sample(range(8), size)])
    return {"kind": "default", "shape": shape, "dim": dim, "devices": devices}


def all_cases():
    source = random.Random(20260)
    makers = [(positional_case, 260), (pair_case, 160), (spec_case, 220), (default_case, 80)]
    return [make(source) for make, count in makers for _ in range(count)]


@pytest.fixture(scope="module")
def answers():
    """``answers(kind)``: the cases of a kind, each with what the old JAX says."""
    cases = all_cases()
    done = subprocess.run(
        [OLD_PYTHON, str(WORKER)],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=True,
        env={
            **{k: v for k, v in os.environ.items() if not k.startswith("PYTHON")},
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        },
    )
    said = json.loads(done.stdout)
    assert said["jax"] == "0.4.38"
    pairs = list(zip(cases, said["answers"], strict=True))
    return lambda kind: [(case, answer) for case, answer in pairs if case["kind"] == kind]


# Comparisons --------------------------------------------------------------------------------------


def same_or_both_refuse(ask, answer, context):
    """What ``ask()`` returns is ``answer``; or both sides raise."""
    if is_error(answer):
        with pytest.raises(ShardingError):
            pytest.fail(f"{context}: {ask()!r}, and the old JAX raised {answer['error']}")
    else:
        assert ask() == answer, context


def test_positional(answers):
    seen = {"errors": 0, "replicas": 0}
    for case, answer in answers("positional"):
        if is_error(answer):
            seen["errors"] += 1
            same_or_both_refuse(lambda case=case: positional(case), answer, case)
            continue
        sharding = positional(case)
        seen["replicas"] += math.prod(sharding.shape) < sharding.num_devices
        assert list(sharding.shape) == answer["shape"], case
        assert sharding.ndim == answer["ndim"]
        assert sharding.is_fully_replicated == answer["replicated"]
        assert sharding.num_devices == answer["num_devices"]
        assert sorted(device.id for device in sharding.device_set) == answer["device_set"]
        assert repr(sharding).replace(DEFAULT_KIND, "memory_kind=?") == answer["repr"]
        for ndim, text in enumerate(answer["hlo"]):
            expected = text if is_error(text) else HloSharding.parse(text)
            same_or_both_refuse(functools.partial(sharding.canonical_hlo, ndim), expected, case)
        for shape, value in zip(case["shapes"], answer["values"], strict=True):
            same_or_both_refuse(
                lambda s=sharding, shape=shape: list(s.shard_shape(shape)),
                value["shard_shape"],
                (case, shape),
            )
            for name, ask in (
                ("blocks", sharding.devices_indices_map),
                ("local", sharding.addressable_devices_indices_map),
            ):
                same_or_both_refuse(
                    lambda ask=ask, shape=shape: blocks(ask(tuple(shape)), shape),
                    value[name],
                    (case, shape),
                )
            same_or_both_refuse(
                functools.partial(sharding.check_compatible_aval, tuple(shape)),
                value["fits"],
                (case, shape),
            )
    assert seen["errors"] > 10
    assert seen["replicas"] > 30


def test_two_of_them(answers):
    seen = {"equal": 0, "equivalent": 0, "like named": 0}
    for case, answer in answers("two"):
        if is_error(answer):
            with pytest.raises(ShardingError):
                (positional(case["one"]), positional(case["other"]))
            continue
        one, other = positional(case["one"]), positional(case["other"])
        mesh = Mesh(devices_of(case["mesh"]), ("x", "y"))
        spec = P(*(tuple(part) if isinstance(part, list) else part for part in case["spec"]))
        named = NamedSharding(mesh, spec)
        assert (one == other, other == one) == (answer["equal"],) * 2, case
        assert (one == named, named == one) == (answer["equal named"],) * 2
        if answer["equal"]:
            assert hash(one) == hash(other)
        for name, sharding, rank in (
            ("equivalent", other, one.ndim if other.is_fully_replicated else other.ndim),
            ("like named", named, max(one.ndim, len(spec))),
        ):
            if rank != one.ndim:
                continue  # Of other values: False there, or an assertion, and an error here.
            assert one.is_equivalent_to(sharding, one.ndim) == answer[name], (case, name)
            seen[name] += answer[name]
        seen["equal"] += answer["equal"]
    assert all(count > 5 for count in seen.values()), seen


def test_pmap_specs(answers):
    seen = {"errors": 0, "shapes": 0}
    for case, answer in answers("spec"):
        shape = tuple(case["shape"])
        if is_error(answer):
            seen["errors"] += 1
            same_or_both_refuse(lambda c=case: spec_of(c).indices(c["shape"]), answer, case)
            continue
        spec = spec_of(case)
        sharding = PmapSharding(devices_of(case["devices"]), spec)
        assert repr(spec) == answer["repr"]
        assert str(sharding) == answer["str"]
        assert sharding.is_fully_replicated == answer["replicated"]
        found = spec.indices(shape)
        assert list(found.shape) == answer["mesh"], case
        assert (
            blocks(dict(zip(sharding.device_order, found.flat, strict=True)), shape)
            == (answer["blocks"])
        )
        mapped = [entry for entry in case["sharding"] if entry[0] != "N"]
        if len(mapped) > 1 or (mapped and mapped[0][0] == "C" and len(mapped[0][1]) > 1):
            continue  # The old JAX looked at the first mapped dimension alone, or asserted.
        seen["shapes"] += 1
        same_or_both_refuse(
            lambda s=sharding, shape=shape: list(s.shard_shape(shape)), answer["shard_shape"], case
        )
        if not is_error(answer["shard_shape"]):
            assert blocks(sharding.devices_indices_map(shape), shape) == answer["blocks"]
    assert seen["errors"] > 10
    assert seen["shapes"] > 30


def test_pmap_default(answers):
    def ours(case):
        devices = None if case["devices"] is None else list(devices_of(case["devices"]))
        return PmapSharding.default(tuple(case["shape"]), case["dim"], devices)

    errors = 0
    for case, answer in answers("default"):
        if is_error(answer):
            errors += 1
            same_or_both_refuse(functools.partial(ours, case), answer, case)
            continue
        sharding, shape = ours(case), tuple(case["shape"])
        assert repr(sharding) == answer["repr"]
        assert str(sharding) == answer["str"]
        assert (sharding == ours(case)) == answer["equal"]
        assert list(sharding.shard_shape(shape)) == answer["shard_shape"]
        assert blocks(sharding.devices_indices_map(shape), shape) == answer["blocks"]
    assert errors > 5
