// RUN: %shardpass opt %s --split-input-file --sp-export-mhlo | %filecheck %s

// The meshes go, and the module is for their devices.

// CHECK: module attributes {mhlo.num_partitions = 8 : i32}
// CHECK-NEXT: func.func @arguments_and_results
sdy.mesh @mesh = <["x"=2, "y"=4]>

func.func @arguments_and_results(
    // CHECK-SAME: %arg0: tensor<8x8xf32> {mhlo.sharding = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"}
    %a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {?}]>},
    // CHECK-SAME: %arg1: tensor<8x8xf32> {mhlo.sharding = "{devices=[4,2]<=[2,4]T(1,0)}", tf.aliasing_output = 0 : i32}
    %b: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {"x"}]>, tf.aliasing_output = 0 : i32},
    // CHECK-SAME: %arg2: tensor<i32> {mhlo.sharding = "{replicated}"}
    %c: tensor<i32> {sdy.sharding = #sdy.sharding<@mesh, []>},
    // CHECK-SAME: %arg3: tensor<8xf32>)
    %d: tensor<8xf32>)
    // CHECK-SAME: -> (tensor<8x8xf32> {mhlo.sharding = "{devices=[4,2]<=[2,4]T(1,0)}"})
    -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {"x"}]>}) {
  return %b : tensor<8x8xf32>
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

// CHECK-LABEL: func.func @sub_axes
// CHECK-SAME: "{devices=[2,4]<=[2,2,2]T(1,0,2)}"
func.func @sub_axes(
    %a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y":(1)2}, {"x", "y":(2)2}]>}) {
  return
}

// -----

sdy.mesh @mesh = <["x"=4], device_ids=[3, 1, 2, 0]>
sdy.mesh @maximal = <[], device_ids=[3]>

// CHECK-LABEL: func.func @device_ids
// CHECK-SAME: "{devices=[4]3,1,2,0}"
// CHECK-SAME: "{maximal device=3}"
func.func @device_ids(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>},
                      %b: tensor<8xf32> {sdy.sharding = #sdy.sharding<@maximal, []>}) {
  return
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

// CHECK-LABEL: func.func @several_results
func.func @several_results(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
  // CHECK: stablehlo.custom_call @f(%arg0)
  // CHECK-SAME: mhlo.sharding = "{{[{][{]}}devices=[2,1,4]<=[8] last_tile_dim_replicate}, {replicated}}"
  %0:2 = stablehlo.custom_call @f(%a) {sdy.sharding = #sdy.sharding_per_value<[
      <@mesh, [{"x"}, {}]>, <@mesh, []>]>} : (tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<f32>)
  return %0#0 : tensor<8x8xf32>
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

// CHECK-LABEL: func.func @constraints
func.func @constraints(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
  // CHECK-NEXT: %[[CLOSED:.+]] = stablehlo.custom_call @Sharding(%arg0) {mhlo.sharding = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"}
  %0 = sdy.sharding_constraint %a <@mesh, [{"x"}, {}]> : tensor<8x8xf32>
  // CHECK-NEXT: %[[OPEN:.+]] = stablehlo.custom_call @Sharding(%[[CLOSED]])
  // CHECK-SAME: backend_config = "unspecified_dims=[1]"
  %1 = sdy.sharding_constraint %0 <@mesh, [{"x"}, {?}]> : tensor<8x8xf32>
  // CHECK-NEXT: %[[MOVED:.+]] = stablehlo.custom_call @Sharding(%[[OPEN]]) {mhlo.sharding = "{replicated}"}
  %2 = sdy.reshard %1 <@mesh, [{}, {}]> : tensor<8x8xf32>
  // CHECK-NEXT: return %[[MOVED]]
  return %2 : tensor<8x8xf32>
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

// CHECK-LABEL: func.func @constant
// CHECK-NEXT: stablehlo.constant {mhlo.sharding = "{devices=[2,4]<=[8] last_tile_dim_replicate}"} dense<1.000000e+00>
func.func @constant() -> tensor<8xf32> {
  %0 = sdy.constant {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}]>]>} dense<1.0> : tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// Nothing to export.

// CHECK: module {
// CHECK-NEXT: func.func @no_shardings(%arg0: tensor<8xf32>) -> tensor<8xf32> {
// CHECK-NEXT: %0 = stablehlo.abs %arg0 : tensor<8xf32>
// CHECK-NEXT: return %0
func.func @no_shardings(%a: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.abs %a : tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

// CHECK-LABEL: func.func @manual_computation(
func.func @manual_computation(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
  // CHECK-NEXT: %[[WHOLE:.+]] = stablehlo.custom_call @Sharding(%arg0) {mhlo.sharding = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  // CHECK-NEXT: %[[SHARD:.+]] = stablehlo.custom_call @SPMDFullToShardShape(%[[WHOLE]]) {mhlo.sharding = "{manual}"} : (tensor<8x8xf32>) -> tensor<4x8xf32>
  %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"x"}, {}]>]
      out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x", "y"} (%b: tensor<4x8xf32>) {
    // CHECK-NEXT: %[[ABS:.+]] = stablehlo.abs %[[SHARD]]
    %1 = stablehlo.abs %b : tensor<4x8xf32>
    sdy.return %1 : tensor<4x8xf32>
  } : (tensor<8x8xf32>) -> tensor<8x8xf32>
  // CHECK-NEXT: %[[BACK:.+]] = stablehlo.custom_call @Sharding(%[[ABS]]) {mhlo.sharding = "{manual}"}
  // CHECK-NEXT: %[[RESULT:.+]] = stablehlo.custom_call @SPMDShardToFullShape(%[[BACK]]) {mhlo.sharding = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"} : (tensor<4x8xf32>) -> tensor<8x8xf32>
  // CHECK-NEXT: return %[[RESULT]]
  return %0 : tensor<8x8xf32>
}

// -----

// CHECK-LABEL: func.func @sharding_group(
func.func @sharding_group(%a: tensor<8xf32>) -> tensor<8xf32> {
  // CHECK-NEXT: %[[MEMBER:.+]] = stablehlo.custom_call @Sharding(%arg0) {has_side_effect = true, mhlo.sharding = "{unknown shard_as 3}"}
  sdy.sharding_group %a group_id=3 : tensor<8xf32>
  // CHECK-NEXT: return %[[MEMBER]]
  return %a : tensor<8xf32>
}
