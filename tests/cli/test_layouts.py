"""What the command line says of layouts that XLA did not apply, and of arguments without proof."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run

UNEVEN = """\
module attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @mesh = <["data"=2, "model"=4]>
  func.func @main(%x: tensor<19x1000xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {}]>})
      -> (tensor<19x1000xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {}]>}) {
    %0 = stablehlo.add %x, %x : tensor<19x1000xf32>
    return %0 : tensor<19x1000xf32>
  }
}
"""


def test_reported(shardpass: Run, folder: Path):
    (folder / "uneven.mlir").write_text(UNEVEN)
    for options in ((), ("--compile",)):
        done = shardpass("report", "uneven.mlir", "--json", *options)
        assert done.returncode == 0
        record = json.loads(done.stdout)
        assert record["arguments"][0]["bytes_per_device"] == 76000
        assert record["results"][0]["shard_shape"] == [19, 1000]
        assert done.stderr.count("warning[layout-not-applied]") == 2


def test_run_and_checked(shardpass: Run, folder: Path):
    (folder / "uneven.mlir").write_text(UNEVEN)
    ran = shardpass("run", "uneven.mlir")
    assert ran.returncode == 0
    assert ran.stderr.count("warning[layout-not-applied]") == 2
    checked = shardpass("run", "uneven.mlir", "--check")
    assert checked.returncode == 1
    assert "check FAILED" in checked.stdout
    assert checked.stderr.count("error[layout-not-applied]") == 2


def test_a_check_says_what_it_is_worth(shardpass: Run, folder: Path):
    (folder / "even.mlir").write_text(UNEVEN.replace("19x", "20x"))
    done = shardpass("run", "even.mlir", "--check")
    assert done.returncode == 0
    assert "would show for 1 of 1 sharded arguments\n" in done.stdout
