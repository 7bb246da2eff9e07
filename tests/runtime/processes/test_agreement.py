"""What processes have to be started for in the same way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shardpass.diagnostics import ShardingError
from shardpass.runtime.processes.agreement import terms_of
from shardpass.runtime.processes.group import Group
from shardpass.runtime.processes.job import Job
from shardpass.runtime.processes.supervisor import supervise
from tests.runtime.processes import tasks

JOB = Job(module="m.mlirbc", name="m", devices=8)
GROUP = Group.of(2, 0, "node-0:1234")


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"devices": 4}, "--devices"),
        ({"check": True}, "--check"),
        ({"seed": 1}, "--seed"),
        ({"tolerance": 0.0}, "--tolerance"),
        ({"partitioner": "gspmd"}, "--partitioner"),
        ({"save": "out.npz"}, "--save-results"),
        ({"inputs": {}}, "--inputs"),
    ],
)
def test_every_option_that_matters(changed: dict[str, object], name: str):
    one = terms_of(JOB, GROUP)
    other = terms_of(replace(JOB, **changed), GROUP)  # pyright: ignore[reportArgumentType]
    assert {term for term in one if one[term] != other[term]} == {name}


def test_the_number_of_processes_and_where_the_module_lies():
    one = terms_of(JOB, GROUP)
    other = terms_of(replace(JOB, module="/mnt/m.mlirbc"), Group.of(4, 1, "node-0:1234"))
    assert {term for term in one if one[term] != other[term]} == {"--num-processes"}


def test_inputs_by_what_is_in_them(tmp_path: Path):
    def contents(name: str, **values: np.ndarray) -> str:
        path = tmp_path / name
        np.savez(path, **values)
        return terms_of(replace(JOB, inputs=str(path)), GROUP)["--inputs"]

    zeros, ones = np.zeros((2, 2)), np.ones((2, 2))
    first = contents("a.npz", x=zeros, y=ones)
    assert contents("b.npz", y=ones, x=zeros) == first
    assert contents("c.npz", x=ones, y=zeros) != first
    assert contents("d.npz", x=zeros, z=ones) != first


def test_all_processes_say_what_one_has_otherwise():
    group = Group.of(3, None, None, 60)
    with pytest.raises(ShardingError) as caught:
        supervise(tasks.join_for, ({2: "7"},), group, lambda step: None)
    assert caught.value.slug == "processes-differ"
    assert caught.value.diagnostic.message == (
        "process 2 was started for something else than process 0: --seed 7 instead of 0"
    )
    # None of them was taken along by another's end.
    assert caught.value.diagnostic.notes == ()


def test_processes_that_agree_go_on():
    group = Group.of(3, None, None, 60)
    assert supervise(tasks.join_for, ({},), group, lambda step: None) == [3, 3, 3]
