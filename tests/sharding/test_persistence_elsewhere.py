"""What is loaded in another process: where JAX has not started, and among other devices."""

import copy
import json
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor

import jax
import numpy as np
import pytest

from shardpass.sharding import Mesh, NamedSharding, P, PositionalSharding, to_json
from tests.runtime.fresh import run_python
from tests.sharding.saved_examples import answers, everything, shardings

# Never had devices, and so bind() puts them on the first that there are.
FREE = {"mesh device-free", "mesh abstract device"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """All examples as pickles and as JSON, and the shapes that go with them."""
    folder = tmp_path_factory.mktemp("saved")
    (folder / "all.pickle").write_bytes(pickle.dumps(everything()))
    texts = {name: to_json(value) for name, value in everything().items()}
    (folder / "all.json").write_text(json.dumps(texts))
    shapes = {name: shape for name, (_, shape) in shardings().items()}
    (folder / "shapes.json").write_text(json.dumps(shapes))
    return folder


def elsewhere(folder, program, devices=8):
    """What a program prints as JSON, run where there are so many CPU devices."""
    start = f"""
import json, pickle
import jax
import numpy as np
from pathlib import Path
from shardpass.compat.xla_client import backends_are_initialized
from shardpass.diagnostics import ShardingError
from shardpass.sharding import *
from tests.sharding.saved_examples import answers

folder = Path({str(folder)!r})
texts = json.loads((folder / "all.json").read_text())
shapes = json.loads((folder / "shapes.json").read_text())

def load_pickles():
    return pickle.loads((folder / "all.pickle").read_bytes())

def message(call):
    try:
        return repr(call())
    except ShardingError as error:
        return f"{{error.slug}}: {{error}}"
"""
    flags = f"--xla_force_host_platform_device_count={devices}"
    return json.loads(run_python(start + program, XLA_FLAGS=flags))


def test_classes_that_nobody_has_imported(folder):
    told = run_python(f"""
        import jax, pickle
        jax.devices()
        loaded = pickle.load(open({str(folder / "all.pickle")!r}, "rb"))
        print(*sorted({{type(value).__name__ for value in loaded.values()}}))
    """)
    assert set(told.split()) >= {"GSPMDSharding", "PmapSharding", "PositionalSharding"}


# Where nothing has asked for a device yet --------------------------------------------------------


@pytest.fixture(scope="module")
def not_started(folder):
    return elsewhere(
        folder,
        """
loaded = load_pickles()
from_text = {name: from_json(text) for name, text in texts.items()}
found = {
    "equal": {name: from_text[name] == loaded[name] for name in texts},
    "types": {name: type(value).__name__ for name, value in loaded.items()},
    "again": {name: to_json(value) == texts[name] for name, value in loaded.items()},
    "pickled again": {
        name: pickle.loads(pickle.dumps(value)) == value for name, value in loaded.items()
    },
    "answers": {name: answers(loaded[name], tuple(shape)) for name, shape in shapes.items()},
    "mesh": str(loaded["named"].mesh),
    "recorded": {
        name: str(value.recorded_devices)
        for name, value in loaded.items() if hasattr(value, "recorded_devices")
    },
    "started": backends_are_initialized(),
}
# Now JAX starts.
live = {name: value.bind() for name, value in loaded.items() if hasattr(value, "bind")}
found["started by bind"] = backends_are_initialized()
found["bound"] = {
    name: [type(value).__name__, value == from_json(texts[name])] for name, value in live.items()
}
placed = jax.device_put(np.arange(32.0).reshape(4, 8), live["named"])
found["placed"] = [
    [shard.device.id, str(shard.index), float(shard.data.sum())]
    for shard in placed.addressable_shards
]
print(json.dumps(found))
""",
    )


def test_loading_starts_no_backend(not_started):
    assert not not_started["started"]
    assert not_started["started by bind"]


def test_not_started_gives_the_device_free_form(not_started):
    for name, kind in not_started["types"].items():
        if name.startswith("mesh"):
            assert kind == "Mesh"
        elif name.startswith("spec"):
            assert kind == "PartitionSpec"
        else:
            assert kind == ("NamedSharding" if name.startswith("named") else "DeviceFreeSharding")
    assert not_started["mesh"] == "Mesh('x': 2, 'y': 4, no devices)"
    assert not_started["recorded"]["mesh permuted"] == "cpu:4, 0, 5, 1, 6, 2, 7, 3"
    assert not_started["recorded"]["mesh of two"] == "cpu:5, 2"
    assert not_started["recorded"]["gspmd"] == "cpu:7..0"
    assert not_started["recorded"]["mesh device-free"] == "None"


@pytest.mark.parametrize("check", ["equal", "again", "pickled again"])
def test_pickle_and_json_agree_and_say_again_what_they_said(not_started, check):
    assert not_started[check] == dict.fromkeys(everything(), True)


@pytest.mark.parametrize("name", shardings())
def test_without_devices_the_answers_are_those_of_the_live_sharding(not_started, name):
    sharding, shape = shardings()[name]
    assert not_started["answers"][name] == answers(sharding, shape)


def test_bind_puts_everything_back(not_started):
    bound = not_started["bound"]
    assert len(bound) == len(everything()) - sum(name.startswith("spec") for name in everything())
    for name, (kind, same) in bound.items():
        assert kind == type(everything()[name]).__name__
        assert same is (name not in FREE), name


def test_device_put_takes_what_was_bound(not_started):
    x = np.arange(32.0).reshape(4, 8)
    placed = jax.device_put(x, shardings()["named"][0])
    assert not_started["placed"] == [
        [shard.device.id, str(shard.index), float(shard.data.sum())]
        for shard in placed.addressable_shards
    ]


# Where there are four devices ----------------------------------------------------------------


@pytest.fixture(scope="module")
def with_four(folder):
    return elsewhere(
        folder,
        """
devices = jax.devices()
loaded = load_pickles()
on_four = NamedSharding(Mesh(devices, "z"), P("z"))
found = {
    "equal": {name: from_json(text) == loaded[name] for name, text in texts.items()},
    "repr": {name: repr(value) for name, value in loaded.items()},
    "answers": {name: answers(loaded[name], tuple(shape)) for name, shape in shapes.items()},
    "again": {name: to_json(value) == texts[name] for name, value in loaded.items()},
    "bind": {
        name: message(value.bind) for name, value in loaded.items() if hasattr(value, "bind")
    },
    "three": message(lambda: loaded["pmap whole"].bind(devices[:3])),
    "too few": message(lambda: loaded["named"].bind(devices)),
    "other": repr(loaded["pmap whole"].bind([devices[3], devices[0]])),
    "backwards": repr(loaded["mesh of two"].bind(devices[2:]).device_ids.tolist()),
    "twice": message(lambda: loaded["pmap whole"].bind([devices[3], devices[3]])),
    "single": repr(loaded["single"].bind()),
}
print(json.dumps(found))
""",
        devices=4,
    )


def test_with_fewer_devices_the_members_that_need_none_answer(with_four):
    assert with_four["answers"] == {
        name: answers(sharding, shape) for name, (sharding, shape) in shardings().items()
    }
    assert with_four["equal"] == with_four["again"] == dict.fromkeys(everything(), True)


def test_what_has_its_devices_among_the_four_is_live(with_four):
    for name in ("mesh of one", "single", "single host", "mesh of nothing"):
        assert with_four["repr"][name] == repr(everything()[name])
    assert "DeviceFreeSharding(PmapSharding" in with_four["repr"]["pmap whole"]
    assert with_four["single"] == repr(everything()["single"])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "mesh in order",
            "missing-devices: the mesh x=2, y=4 was saved on cpu:0..7, and of those 4 are not "
            "here: cpu:4..7 (bind it to others: there are cpu:0..3)",
        ),
        (
            "mesh permuted",
            "missing-devices: the mesh y=4, x=2 was saved on cpu:4, 0, 5, 1, 6, 2, 7, 3, and of "
            "those 4 are not here: cpu:4..7 (bind it to others: there are cpu:0..3)",
        ),
        (
            "named",
            "missing-devices: the mesh x=2, y=4 was saved on cpu:0..7, and of those 4 are not "
            "here: cpu:4..7 (bind it to others: there are cpu:0..3)",
        ),
        (
            "mesh of two",
            "missing-devices: the mesh x=2 was saved on cpu:5, 2, and of those 1 are not here: "
            "cpu:5 (bind it to others: there are cpu:0..3)",
        ),
        (
            "gspmd",
            "missing-devices: the GSPMDSharding was saved on cpu:7..0, and of those 4 are not "
            "here: cpu:7..4 (bind it to others: there are cpu:0..3)",
        ),
        (
            "pmap whole",
            "missing-devices: the PmapSharding was saved on cpu:4, 1, and of those 1 are not "
            "here: cpu:4 (bind it to others: there are cpu:0..3)",
        ),
    ],
)
def test_bind_names_the_devices_that_are_missing(with_four, name, words):
    assert with_four["bind"][name] == words


def test_bind_takes_other_devices_in_their_order(with_four):
    assert with_four["other"] == (
        "PmapSharding(sharding_spec=ShardingSpec((NoSharding(), NoSharding()), "
        "(Replicated(replicas=2),)), devices=[CpuDevice(id=3) CpuDevice(id=0)])"
    )
    assert with_four["backwards"] == "[2, 3]"


def test_bind_refuses_devices_of_another_number_or_twice(with_four):
    assert with_four["three"].startswith(
        "device-count: 3 devices for a PmapSharding of 2 (pass 2, in the order"
    )
    assert with_four["too few"].startswith(
        "not-enough-devices: the mesh x=2, y=4 needs 8 devices, there are 4"
    )
    assert with_four["twice"].startswith("duplicate-device: ")


# Where there are more, and there and back --------------------------------------------------------


def test_with_more_devices_everything_is_live(folder):
    live = elsewhere(
        folder,
        """
jax.devices()
loaded = load_pickles()
print(json.dumps({
    "repr": {name: repr(value) for name, value in loaded.items()},
    "order": [d.id for d in loaded["gspmd"].device_order],
}))
""",
        devices=12,
    )
    assert live["repr"] == {name: repr(value) for name, value in everything().items()}
    assert live["order"] == [7, 6, 5, 4, 3, 2, 1, 0]


def test_a_sharding_travels_to_a_process_and_back():
    """As in a pool of workers: out live, there device-free or live, back equal to what went out."""
    sent = [
        NamedSharding(Mesh(np.array(jax.devices()).reshape(2, 4), ("x", "y")), P("y")),
        PositionalSharding(jax.devices()).reshape(4, 2).replicate(1),
    ]
    # Not a multiprocessing.Pool, which waits for ever where a worker dies of what it is sent.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        assert list(pool.map(copy.copy, sent, timeout=120)) == sent
