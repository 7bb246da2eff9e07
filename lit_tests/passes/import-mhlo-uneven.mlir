// RUN: %shardpass opt %s --split-input-file --sp-import-mhlo=indivisible=replicate --verify-diagnostics | %filecheck %s

// CHECK-LABEL: func.func @left_whole_on_the_border(
// CHECK-SAME: %arg0: tensor<6x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"_axis_1"}]>}
// CHECK-SAME: -> (tensor<6x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>})
// expected-warning @+2 {{warning[replicated]: result 0 ("result"), dimension 0: 6 elements into 4 pieces; left whole}}
// expected-warning @+1 {{warning[replicated]: argument 0 ("arg0"), dimension 0: 6 elements into 4 pieces; left whole}}
func.func @left_whole_on_the_border(%a: tensor<6x8xf32> {mhlo.sharding = "{devices=[4,2]<=[8]}"})
    -> (tensor<6x8xf32> {mhlo.sharding = "{devices=[4,1,2]<=[8] last_tile_dim_replicate}"}) {
  // CHECK-NEXT: %[[IN:.+]] = sdy.sharding_constraint %arg0 <@mesh, [{"_axis_0"}, {"_axis_1"}]>
  // CHECK-NEXT: %[[ABS:.+]] = stablehlo.abs %[[IN]]
  %0 = stablehlo.abs %a : tensor<6x8xf32>
  // CHECK-NEXT: %[[OUT:.+]] = sdy.sharding_constraint %[[ABS]] <@mesh, [{"_axis_0"}, {}]>
  // CHECK-NEXT: return %[[OUT]]
  return %0 : tensor<6x8xf32>
}

// -----

// What divides stays cut, and gets no constraint.

// CHECK-LABEL: func.func @divides(
// CHECK-SAME: %arg0: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"_axis_0"}]>}
func.func @divides(%a: tensor<8xf32> {mhlo.sharding = "{devices=[8]<=[8]}"}) -> tensor<8xf32> {
  // CHECK-NEXT: return %arg0
  return %a : tensor<8xf32>
}
