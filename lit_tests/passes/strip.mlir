// RUN: %shardpass opt %s --split-input-file --sp-strip | %filecheck %s

// CHECK: module attributes {mhlo.num_partitions = 1 : i32} {
// CHECK-NEXT: func.func @values
module attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @mesh = <["x"=2, "y"=4]>
  func.func @values(
      // CHECK-SAME: (%arg0: tensor<8xf32> {tf.aliasing_output = 0 : i32}, %arg1: tensor<8xf32>)
      %a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>, tf.aliasing_output = 0 : i32},
      %b: tensor<8xf32> {mhlo.sharding = "{replicated}"})
      // CHECK-SAME: -> (tensor<8xf32> {jax.result_info = "result"}) {
      -> (tensor<8xf32> {jax.result_info = "result", sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
    // CHECK-NEXT: stablehlo.abs %arg0 : tensor<8xf32>
    %0 = stablehlo.abs %a {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}]>]>} : tensor<8xf32>
    // CHECK-NEXT: stablehlo.negate %0 : tensor<8xf32>
    %1 = stablehlo.negate %0 {mhlo.sharding = "{replicated}"} : tensor<8xf32>
    return %1 : tensor<8xf32>
  }
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

// CHECK-LABEL: func.func @ops_that_only_place
func.func @ops_that_only_place(%a: tensor<8xf32>) -> tensor<8xf32> {
  // CHECK-NEXT: %[[SUM:.+]] = stablehlo.add %arg0, %arg0
  // CHECK-NEXT: return %[[SUM]]
  %0 = sdy.sharding_constraint %a <@mesh, [{"x"}]> : tensor<8xf32>
  %1 = sdy.reshard %0 <@mesh, [{}]> : tensor<8xf32>
  %2 = stablehlo.custom_call @Sharding(%1) {mhlo.sharding = "{replicated}"} : (tensor<8xf32>) -> tensor<8xf32>
  %3 = stablehlo.add %2, %a : tensor<8xf32>
  sdy.sharding_group %3 group_id=0 : tensor<8xf32>
  return %3 : tensor<8xf32>
}

// -----

sdy.mesh @mesh = <["x"=2]>

// CHECK-LABEL: func.func @named_computation
// CHECK-NEXT: sdy.named_computation<"f">(%arg0) (%arg1: tensor<8xf32>) {
func.func @named_computation(%a: tensor<8xf32>) -> tensor<8xf32> {
  %0 = sdy.named_computation<"f">(%a) in_shardings=[<@mesh, [{"x"}]>] out_shardings=[<@mesh, [{}]>] (%b: tensor<8xf32>) {
    sdy.return %b : tensor<8xf32>
  } : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// Nothing to take away.

// CHECK: module {
// CHECK-NEXT: func.func @no_shardings(%arg0: tensor<8xf32> {jax.buffer_donor = true}) -> tensor<8xf32> {
// CHECK-NEXT: return %arg0
func.func @no_shardings(%a: tensor<8xf32> {jax.buffer_donor = true}) -> tensor<8xf32> {
  return %a : tensor<8xf32>
}
