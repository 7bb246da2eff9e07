"""A small step, and ``sp-annotate`` on it."""

from typing import Any

from jax.sharding import PartitionSpec

from shardpass.canon import MeshShape
from shardpass.passes import run_pipeline

P = PartitionSpec
MESH = MeshShape.of(data=2, model=4)

TEXT = """\
module attributes {mhlo.num_partitions = 1 : i32} {
  func.func @main(%arg0: tensor<8x16xf32> loc("params['w'].value"),
                  %arg1: tensor<16xf32> loc("params['b'].value"),
                  %arg2: tensor<i32> loc("count"),
                  %arg3: tensor<4x8xf32> loc("batch"))
      -> (tensor<4x16xf32> {jax.result_info = "result[0]"}, tensor<i32>) {
    %0 = stablehlo.dot_general %arg3, %arg0, contracting_dims = [1] x [0]
      : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32> loc("jit(step)/mlp/dot_general")
    %1 = stablehlo.add %0, %0 : tensor<4x16xf32> loc("jit(step)/head/add"("/src/model.py":12:3))
    return %1, %arg2 : tensor<4x16xf32>, tensor<i32>
  }
}
"""


EVERY = ("", P())


def annotate(text: Any, rules: Any, pipeline: str = "sp-annotate", mesh: Any = MESH) -> Any:
    return run_pipeline(text, pipeline, rules=rules, mesh=mesh)
