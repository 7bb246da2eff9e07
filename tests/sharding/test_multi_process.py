"""Two processes of four devices each: what is addressable, and arrays from local pieces.

Both run ``multi_process_worker`` and write down what our objects say there; the tests read it. What
is expected is worked out here by hand, from the places of the devices: 0 to 3 are of process 0.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

REPOSITORY = Path(__file__).parents[2]
WORKER = Path(__file__).with_name("multi_process_worker.py")
SECONDS = 120
X = np.arange(64, dtype=np.float32).reshape(8, 8)

Bounds = list[list[int]]


@dataclass(frozen=True)
class Layout:
    """What a sharding of the worker must say: its devices in order, and the block of each."""

    order: tuple[int, ...]
    block: Callable[[int], Bounds]
    mhlo: str
    replicated: bool = False

    def __post_init__(self) -> None:
        assert len(set(self.order)) == len(self.order)

    def local(self, process: int) -> list[int]:
        """The devices of the process, in order."""
        return [place for place in self.order if place // 4 == process]

    def index_map(self, places: Any) -> list[Any]:
        """Each of the places with its block."""
        return [[place, self.block(place)] for place in places]

    def shards(self, process: int, whole: np.ndarray) -> list[Any]:
        """What the process holds of ``whole``: place, block, and the sum of its elements."""
        found = []
        for place in self.local(process):
            (top, bottom), (left, right) = self.block(place)
            found.append([place, self.block(place), float(whole[top:bottom, left:right].sum())])
        return found


def _span(number: int, width: int) -> list[int]:
    return [number * width, (number + 1) * width]


ALL = [0, 8]
IN_ORDER = tuple(range(8))
MIXED = (0, 4, 1, 5, 2, 6, 3, 7)
TWO_BY_FOUR = "{devices=[2,4]<=[8]}"

LAYOUTS = {
    "named": Layout(IN_ORDER, lambda n: [_span(n // 4, 4), _span(n % 4, 2)], TWO_BY_FOUR),
    "named-columns": Layout(
        IN_ORDER,
        lambda n: [ALL, _span(n % 4, 2)],
        "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
    ),
    "named-rows": Layout(
        IN_ORDER, lambda n: [_span(n % 4 * 2 + n // 4, 1), ALL], "{devices=[8,1]<=[2,4]T(1,0)}"
    ),
    "named-replicated": Layout(IN_ORDER, lambda n: [ALL, ALL], "{replicated}", replicated=True),
    "named-mixed": Layout(
        MIXED,
        lambda n: [_span(MIXED.index(n) // 4, 4), _span(MIXED.index(n) % 4, 2)],
        TWO_BY_FOUR,
    ),
    "named-of-process-0": Layout(
        (0, 1, 2, 3), lambda n: [_span(n, 2), ALL], "{devices=[4,1]<=[4]}"
    ),
    "named-of-process-1": Layout(
        (4, 5, 6, 7), lambda n: [_span(n - 4, 2), ALL], "{devices=[4,1]<=[4]}"
    ),
    "gspmd": Layout(
        IN_ORDER, lambda n: [_span(n % 4, 2), _span(n // 4, 4)], "{devices=[4,2]<=[2,4]T(1,0)}"
    ),
    "gspmd-replicated": Layout(IN_ORDER, lambda n: [ALL, ALL], "{replicated}", replicated=True),
    "gspmd-of-process-1": Layout(
        (4, 5, 6, 7), lambda n: [_span(n // 2 - 2, 4), _span(n % 2, 4)], "{devices=[2,2]<=[4]}"
    ),
    "positional": Layout(IN_ORDER, lambda n: [_span(n // 4, 4), _span(n % 4, 2)], TWO_BY_FOUR),
    "positional-turned": Layout(
        IN_ORDER, lambda n: [_span(n % 4, 2), _span(n // 4, 4)], "{devices=[4,2]<=[2,4]T(1,0)}"
    ),
    "positional-partly": Layout(
        IN_ORDER,
        lambda n: [ALL, _span(n % 4, 2)],
        "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
    ),
    "positional-of-process-0": Layout(
        (0, 1, 2, 3), lambda n: [_span(n, 2), ALL], "{devices=[4,1]<=[4]}"
    ),
    "pmap": Layout(IN_ORDER, lambda n: [_span(n, 1), ALL], "{devices=[8,1]<=[8]}"),
    "pmap-columns": Layout(
        MIXED, lambda n: [ALL, _span(MIXED.index(n), 1)], "{devices=[1,8]<=[8]}"
    ),
    "single-of-process-0": Layout((2,), lambda n: [ALL, ALL], "{replicated}", replicated=True),
    "single-of-process-1": Layout((7,), lambda n: [ALL, ALL], "{replicated}", replicated=True),
}
CLASSES = {
    "named": "NamedSharding",
    "gspmd": "GSPMDSharding",
    "positional": "PositionalSharding",
    "pmap": "PmapSharding",
}
OF_BOTH = [name for name in LAYOUTS if "-of-process-" not in name]


# Running the two ------------------------------------------------------------------------------


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "JAX_PLATFORMS": "cpu",
        "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
    }


def _run_once(folder: Path) -> tuple[list[int | None], list[str]]:
    """Both processes to their end, or to the end of the time; exit codes and what they printed."""
    port = str(_free_port())
    logs = [folder / f"process-{process}.log" for process in range(2)]
    running: list[subprocess.Popen[bytes]] = []
    try:
        for process, log in enumerate(logs):
            report = folder / f"process-{process}.json"
            with log.open("wb") as output:
                running.append(
                    subprocess.Popen(
                        [sys.executable, "-W", "error", WORKER, str(process), port, report],
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        stdin=subprocess.DEVNULL,
                        cwd=REPOSITORY,
                        env=_environment(),
                    )
                )
        end = time.monotonic() + SECONDS
        while any(child.poll() is None for child in running) and time.monotonic() < end:
            if any(child.poll() not in (None, 0) for child in running):
                # The other one waits for it; give it a moment to say so itself.
                end = min(end, time.monotonic() + 5)
            time.sleep(0.05)
        codes = [child.poll() for child in running]
    finally:
        for child in running:
            if child.poll() is None:
                child.kill()
            child.wait()
    return codes, [log.read_text(errors="replace") for log in logs]


def _run_both(folder: Path) -> list[Any]:
    for attempt in range(3):
        codes, printed = _run_once(folder)
        if codes == [0, 0]:
            return [
                json.loads((folder / f"process-{process}.json").read_text()) for process in (0, 1)
            ]
        # Between finding the port free and taking it, another program may have taken it.
        if attempt == 2 or not any("in use" in text.lower() for text in printed):
            break
    ends = [
        f"process {process} " + ("was still running" if code is None else f"ended with {code}")
        for process, code in enumerate(codes)
    ]
    pytest.fail("\n".join([*ends, *printed]), pytrace=False)


@pytest.fixture(scope="session")
def reports(tmp_path_factory):
    """What the two processes wrote; they run once, for all the workers of pytest-xdist."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "multi-process"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = folder / "reports.json"
        if not kept.exists():
            kept.write_text(json.dumps(_run_both(folder)))
        return json.loads(kept.read_text())


@pytest.fixture(params=[0, 1], ids=["process 0", "process 1"])
def process(request):
    return request.param


@pytest.fixture
def report(reports, process):
    return reports[process]


# What they say --------------------------------------------------------------------------------


def test_there_are_two_processes_of_four_devices(report, process):
    assert report["process"] == process
    assert report["local"] == [4 * process + number for number in range(4)]
    assert sorted(report["layouts"]) == sorted(LAYOUTS)
    assert sorted(report["computed"]) == sorted(OF_BOTH)


def test_the_default_of_pmap_is_over_the_devices_of_the_process(report, process):
    assert report["pmap_default"] == [4 * process + number for number in range(4)]


@pytest.mark.parametrize("name", LAYOUTS)
def test_members(report, process, name):
    layout, said = LAYOUTS[name], report["layouts"][name]
    local = layout.local(process)
    assert said["device_set"] == sorted(layout.order)
    assert said["device_order"] == list(layout.order)
    assert said["num_devices"] == len(layout.order)
    assert said["addressable_devices"] == sorted(local)
    assert said["is_fully_addressable"] == (len(local) == len(layout.order))
    assert said["is_fully_replicated"] == layout.replicated
    assert said["memory_kind"] == "device"
    assert said["mhlo"] == layout.mhlo
    (top, bottom), (left, right) = layout.block(layout.order[0])
    assert said["shard_shape"] == [bottom - top, right - left]


@pytest.mark.parametrize("name", LAYOUTS)
def test_index_maps(report, process, name):
    """The global one everywhere the same; the addressable one a part of it, in its order."""
    layout, said = LAYOUTS[name], report["layouts"][name]
    assert sorted(said["devices_indices_map"]) == sorted(layout.index_map(layout.order))
    local = layout.index_map(layout.local(process))
    assert sorted(said["addressable_devices_indices_map"]) == sorted(local)
    assert said["addressable_devices_indices_map"] == [
        entry for entry in said["devices_indices_map"] if entry in local
    ]


@pytest.mark.parametrize("name", OF_BOTH)
@pytest.mark.parametrize("way", ["callback", "single_device_arrays", "process_local_data"])
def test_arrays_from_local_pieces(report, process, name, way):
    said = report["computed"][name]
    assert said["built"][way] == LAYOUTS[name].shards(process, X)
    assert said["sums"][way] == 2016


@pytest.mark.parametrize("name", OF_BOTH)
def test_programs_over_both(report, process, name):
    layout, said = LAYOUTS[name], report["computed"][name]
    assert said["rows"] == X.sum(axis=1).tolist()
    assert said["moved"] == X.tolist()
    assert said["turned"] == layout.shards(process, X.T + 1)
    assert said["doubled"] == layout.shards(process, X * 2)
    assert said["doubled_is_ours"]
    assert said["doubled_class"] == CLASSES[name.split("-")[0]]


@pytest.mark.parametrize(
    ("name", "devices", "multi", "local_shape"),
    [
        ("rows", IN_ORDER, (True, True), {"x": 1, "y": 4}),
        ("columns", MIXED, (True, True), {"y": 4, "x": 1}),
        ("made", IN_ORDER, (True, True), {"x": 1, "y": 4}),
        ("of-process-0", (0, 1, 2, 3), (False, True), {"y": 4}),
        ("of-process-1", (4, 5, 6, 7), (True, False), {"y": 4}),
        ("scattered", (0, 4, 5, 1), (True, True), {"y": 2}),
    ],
)
def test_meshes(report, process, name, devices, multi, local_shape):
    said = report["meshes"][name]
    local = [place for place in devices if place // 4 == process]
    assert said["devices"] == list(devices)
    assert said["size"] == len(devices)
    assert said["local_devices"] == local
    assert said["is_multi_process"] == multi[process]
    if not local:
        slug, words = said["local_mesh"]
        assert slug == "not-local"
        assert "holds 0 of 4 devices" in words
    elif name == "scattered" and process == 0:
        slug, words = said["local_mesh"]
        assert slug == "not-local"
        assert "holds 2 of 4 devices of the mesh, and they form no block" in words
    else:
        assert said["local_mesh"] == {"shape": local_shape, "devices": local, "types_kept": True}
