// RUN: %shardpass opt %s --sp-annotate="rules='"%S/Inputs/rules.toml"'" --sp-propagate | %filecheck %s

// The plan cuts the arguments; propagation finds that the hidden values are cut along both axes.

// CHECK: sdy.mesh @mesh = <["data"=2, "model"=4]>
// CHECK-LABEL: func.func public @main
// CHECK-SAME: %arg0: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}
// CHECK-SAME: %arg1: tensor<16x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>}
// CHECK-SAME: %arg2: tensor<64x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {}]>}
func.func public @main(
    %tokens: tensor<8x16xf32> loc("tokens"),
    %up: tensor<16x64xf32> loc("up"),
    %down: tensor<64x16xf32> loc("down")) -> tensor<8x16xf32> {
  // CHECK: %[[HIDDEN:.+]] = stablehlo.dot_general %arg0, %arg1
  // CHECK-SAME: <@mesh, [{"data"}, {"model"}]>
  %0 = stablehlo.dot_general %tokens, %up, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x64xf32>) -> tensor<8x64xf32>
  // CHECK-NEXT: stablehlo.dot_general %[[HIDDEN]], %arg2
  // CHECK-SAME: <@mesh, [{"data"}, {}]>
  %1 = stablehlo.dot_general %0, %down, contracting_dims = [1] x [0] : (tensor<8x64xf32>, tensor<64x16xf32>) -> tensor<8x16xf32>
  return %1 : tensor<8x16xf32>
}
