"""Whom gloo misses, from what it says."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from shardpass.runtime.processes.work import _missed


@dataclass(frozen=True)
class Device:
    id: int
    process_index: int


DEVICES = [Device(0, 0), Device(1, 0), Device(2048, 1), Device(2049, 1), Device(4096, 2)]


@pytest.mark.parametrize(
    ("text", "missed"),
    [
        ("GetKeyValue() timed out with key: cpu:gloo/0,1,2048,2049/2 and duration: 29.9s", 1),
        ("GetKeyValue() timed out with key: cpu:gloo/1,4096/1 and duration: 29.9s", 2),
        ("GetKeyValue() timed out with key: cpu:gloo/4096,0/1 and duration: 29.9s", 0),
        ("GetKeyValue() timed out with key: cpu:gloo/0,1/7 and duration: 29.9s", None),
        ("GetKeyValue() timed out with key: cpu:gloo/9,8/0 and duration: 29.9s", None),
        ("GetKeyValue() timed out with key: shardpass/meeting/0/go", None),
        ("Gloo all-reduce failed: Timed out waiting 2000ms", None),
    ],
)
def test_the_process_of_the_device_that_gloo_names(text: str, missed: int | None):
    assert _missed(f"UNKNOWN: {text}", DEVICES) == missed
