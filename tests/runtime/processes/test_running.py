"""A module on the devices of several processes gives what it gives on those of one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from shardpass.diagnostics import ShardingError
from shardpass.mlir import load
from shardpass.runtime import CheckResult, RunResult, check, run
from shardpass.runtime.npz import NpzWriter
from shardpass.runtime.processes.group import Group
from shardpass.runtime.processes.running import run_on_processes
from tests.runtime.processes import meetings
from tests.runtime.processes.launch import launch

#: Element types of every size, blocks of every kind: cut, cut in part, whole, of no dimension.
TYPES = """
module @types {
  sdy.mesh @mesh = <["x"=2, "y"=4]>
  func.func public @main(
      %a: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {"x"}]>},
      %w: tensor<16x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>})
      -> (tensor<8x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>},
          tensor<8x32xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>},
          tensor<8x32xf64> {sdy.sharding = #sdy.sharding<@mesh, [{"y", "x"}, {}]>},
          tensor<8x32xi1> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
          tensor<f32>, tensor<0x4xf32>) {
    %0 = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
    %1 = stablehlo.convert %0 : (tensor<8x32xf32>) -> tensor<8x32xbf16>
    %2 = stablehlo.convert %0 : (tensor<8x32xf32>) -> tensor<8x32xf64>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %zeros = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<8x32xf32>
    %3 = stablehlo.compare GT, %0, %zeros : (tensor<8x32xf32>, tensor<8x32xf32>) -> tensor<8x32xi1>
    %4 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0, 1]
      : (tensor<8x32xf32>, tensor<f32>) -> tensor<f32>
    %5 = stablehlo.slice %w [0:0, 0:4] : (tensor<16x32xf32>) -> tensor<0x4xf32>
    return %0, %1, %2, %3, %4, %5 : tensor<8x32xf32>, tensor<8x32xbf16>, tensor<8x32xf64>,
      tensor<8x32xi1>, tensor<f32>, tensor<0x4xf32>
  }
}
"""

#: Nineteen elements in eight pieces, the last of which is padding alone, the last but one in part.
UNEVEN = """
module @uneven {
  func.func public @main(
      %a: tensor<19x4xf32> {mhlo.sharding = "{devices=[8,1]<=[8]}"},
      %w: tensor<4x8xf32> {
        mhlo.sharding = "{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}"})
      -> (tensor<19x8xf32> {mhlo.sharding = "{devices=[8,1]<=[8]}"}) {
    %0 = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0]
      : (tensor<19x4xf32>, tensor<4x8xf32>) -> tensor<19x8xf32>
    return %0 : tensor<19x8xf32>
  }
}
"""


def several(count: int) -> Group:
    return Group.of(count, None, None, 60)


@pytest.mark.parametrize(("module", "count"), [(TYPES, 2), (UNEVEN, 4)], ids=["types", "uneven"])
def test_a_run_gives_the_same_to_the_bit(module: str, count: int, tmp_path: Path):
    # Integers, whose sums are exact in whatever order the processes add.
    random = np.random.default_rng(0)
    shapes = [value.shape for value in load(module).arguments]
    inputs = {
        f"arg{number}": random.integers(-8, 9, size=shape).astype(np.float32)
        for number, shape in enumerate(shapes)
    }
    one = run(module, devices=8, inputs=inputs, save=tmp_path / "one.npz")
    steps: list[str] = []
    found = run_on_processes(
        module,
        several(count),
        inputs=inputs,
        save=str(tmp_path / "all.npz"),
        progress=steps.append,
    )
    assert isinstance(found, RunResult)
    assert (found.devices, found.partitioner, found.rows) == (8, one.partitioner, one.rows)
    assert steps == ["join the other processes", "compile and run", "leave"]
    # What is written is written once, and whole.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.npz", "one.npz"]
    with np.load(tmp_path / "one.npz") as expected, np.load(tmp_path / "all.npz") as written:
        assert sorted(written) == sorted(expected)
        for name in expected:
            assert written[name].dtype == expected[name].dtype
            assert written[name].tobytes() == expected[name].tobytes()


def test_a_check_finds_the_same(tmp_path: Path):
    module = UNEVEN.replace("19", "24")
    random = np.random.default_rng(0)
    with NpzWriter(tmp_path / "in.npz") as inputs:
        inputs.write("arg0", random.normal(size=(24, 4)).astype(np.float32))
        inputs.write("arg1", random.normal(size=(4, 8)).astype(np.float32))
    path = str(tmp_path / "in.npz")
    one = check(module, devices=8, inputs=path)
    found = run_on_processes(module, several(2), check=True, inputs=path)
    assert isinstance(found, CheckResult)
    assert found.ok
    assert dataclasses.replace(found, seconds={}) == dataclasses.replace(one, seconds={})


def test_the_processes_of_a_library_user_check_together():
    """``jax.distributed`` is somebody else's, and every process asks for the same."""
    first, second = launch(meetings.check_everywhere, UNEVEN, count=2)
    assert first == second
    assert first[0] is True
    assert len(first[1]) == 1


def test_another_program_in_one_process_is_found_before_it_is_run():
    with pytest.raises(ShardingError) as caught:
        launch(meetings.run_another_program, TYPES, UNEVEN, count=2)
    assert caught.value.slug == "processes-differ"
    told = "process 1 of 2 is about to compile another program than process 0"
    assert caught.value.diagnostic.message == told


def test_a_process_that_does_not_come_is_named():
    with pytest.raises(
        ShardingError, match=r"process 1 of 2 \(pid \d+\) does not answer"
    ) as caught:
        launch(meetings.come_late, count=2)
    assert caught.value.slug == "process-lost"


def test_what_is_wrong_with_a_module_is_said_before_a_process_starts():
    with pytest.raises(ShardingError) as caught:
        run_on_processes(TYPES, several(2), devices=6)
    assert caught.value.slug == "device-count"
    with pytest.raises(ShardingError, match="8 devices cannot be shared out evenly among 3"):
        run_on_processes(TYPES, several(3))
