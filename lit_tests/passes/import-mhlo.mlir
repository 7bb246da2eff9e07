// RUN: %shardpass opt %s --split-input-file --sp-import-mhlo | %filecheck %s
// RUN: %shardpass opt %s --split-input-file '--pass-pipeline=sp-import-mhlo,sp-export-mhlo' | %filecheck %s --check-prefix BACK

// One mesh refines the three.

// CHECK: sdy.mesh @mesh = <["_axis_0"=2, "_axis_1"=4, "_axis_2"=4]>
// CHECK-LABEL: func.func @common_mesh(
// BACK-LABEL: func.func @common_mesh(
module attributes {mhlo.num_partitions = 32 : i32} {
func.func @common_mesh(
    // CHECK-SAME: %arg0: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"_axis_2"}, {"_axis_0", "_axis_1"}]>, tf.aliasing_output = 0 : i32}
    // BACK-SAME: %arg0: tensor<8x8xf32> {mhlo.sharding = "{devices=[4,8]<=[8,4]T(1,0)}", tf.aliasing_output = 0 : i32}
    %a: tensor<8x8xf32> {mhlo.sharding = "{devices=[4,8]<=[8,4]T(1,0)}", tf.aliasing_output = 0 : i32},
    // CHECK-SAME: %arg1: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"_axis_0"}]>}
    // BACK-SAME: %arg1: tensor<8x8xf32> {mhlo.sharding = "{devices=[1,2,16]<=[32] last_tile_dim_replicate}"}
    %b: tensor<8x8xf32> {mhlo.sharding = "{devices=[1,2,16]<=[32] last_tile_dim_replicate}"},
    // CHECK-SAME: %arg2: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"_axis_1"}, {"_axis_2"}]>}
    // BACK-SAME: %arg2: tensor<8x16xf32> {mhlo.sharding = "{devices=[4,4,2]<=[2,16]T(1,0) last_tile_dim_replicate}"}
    %c: tensor<8x16xf32> {mhlo.sharding = "{devices=[4,4,2]<=[2,16]T(1,0) last_tile_dim_replicate}"},
    // CHECK-SAME: %arg3: tensor<i32> {sdy.sharding = #sdy.sharding<@mesh, []>}
    %d: tensor<i32> {mhlo.sharding = "{replicated}"},
    // CHECK-SAME: %arg4: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}]>}
    %e: tensor<8xf32> {mhlo.sharding = "{unknown}"},
    // CHECK-SAME: %arg5: tensor<8xf32>)
    %f: tensor<8xf32>)
    // CHECK-SAME: -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"_axis_2"}, {"_axis_0", "_axis_1"}]>})
    -> (tensor<8x8xf32> {mhlo.sharding = "{devices=[4,8]<=[8,4]T(1,0)}"}) {
  return %a : tensor<8x8xf32>
}
}

// -----

// An order of devices that no formula has, and single devices.

// CHECK-DAG: sdy.mesh @mesh = <["_axis_0"=4], device_ids=[3, 1, 2, 0]>
// CHECK-DAG: sdy.mesh @maximal_mesh_3 = <[], device_ids=[3]>
// CHECK-LABEL: func.func @device_ids(
// CHECK-SAME: #sdy.sharding<@mesh, [{"_axis_0"}]>
// CHECK-SAME: #sdy.sharding<@maximal_mesh_3, []>
// BACK-LABEL: func.func @device_ids(
// BACK-SAME: "{devices=[4]3,1,2,0}"
// BACK-SAME: "{maximal device=3}"
func.func @device_ids(%a: tensor<8xf32> {mhlo.sharding = "{devices=[4]3,1,2,0}"},
                      %b: tensor<8xf32> {mhlo.sharding = "{maximal device=3}"}) {
  return
}

// -----

// CHECK-LABEL: func.func @ops(
// BACK-LABEL: func.func @ops(
func.func @ops(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
  // CHECK-NEXT: %[[OPEN:.+]] = sdy.sharding_constraint %arg0 <@mesh, [{"_axis_0"}, {?}]> : tensor<8x8xf32>
  // BACK-NEXT: %[[OPEN:.+]] = stablehlo.custom_call @Sharding(%arg0) {backend_config = "unspecified_dims=[1]", mhlo.sharding = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"}
  %0 = stablehlo.custom_call @Sharding(%a) {backend_config = "unspecified_dims=[1]", mhlo.sharding = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  // CHECK-NEXT: %[[ABS:.+]] = stablehlo.abs %[[OPEN]] {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {"_axis_0", "_axis_1"}]>]>}
  // BACK-NEXT: %[[ABS:.+]] = stablehlo.abs %[[OPEN]] {mhlo.sharding = "{devices=[1,8]<=[8]}"}
  %1 = stablehlo.abs %0 {mhlo.sharding = "{devices=[1,8]<=[8]}"} : tensor<8x8xf32>
  // CHECK-NEXT: stablehlo.custom_call @two(%[[ABS]]) {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"_axis_0"}, {}]>, <@mesh, []>]>}
  // BACK-NEXT: stablehlo.custom_call @two(%[[ABS]])
  // BACK-SAME: mhlo.sharding = "{{[{][{]}}devices=[2,1,4]<=[8] last_tile_dim_replicate}, {replicated}}"
  %2:2 = stablehlo.custom_call @two(%1) {mhlo.sharding = "{{devices=[2,1,4]<=[8] last_tile_dim_replicate}, {replicated}}"} : (tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<f32>)
  return %2#0 : tensor<8x8xf32>
}

// -----

// Nothing is tiled, and so there is nothing that a mesh would say.

// CHECK-LABEL: func.func @whole(
// CHECK-SAME: %arg0: tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT: return %arg0
func.func @whole(%a: tensor<8xf32> {mhlo.sharding = "{replicated}"}) -> tensor<8xf32> {
  %0 = stablehlo.custom_call @Sharding(%a) {mhlo.sharding = "{replicated}"} : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// Named shardings bring their mesh, and the others go onto it.

// CHECK: sdy.mesh @mesh = <["x"=2, "y"=4]>
// CHECK-LABEL: func.func @named(
// CHECK-SAME: #sdy.sharding<@mesh, [{"y"}, {?}]>
// CHECK-SAME: #sdy.sharding<@mesh, [{"x", "y"}]>
func.func @named(%a: tensor<8x8xf32> {mhlo.sharding = "{mesh['x'=2,'y'=4], [{'y'}, {?}]}"},
                 %b: tensor<8xf32> {mhlo.sharding = "{devices=[8]<=[8]}"}) {
  return
}

// -----

// CHECK-LABEL: func.func @manual_region(
func.func @manual_region(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
  // CHECK: %[[RESULT:.+]] = sdy.manual_computation(%arg0)
  // CHECK-SAME: in_shardings=[<@mesh, [{"_axis_0"}, {}]>]
  // CHECK-SAME: out_shardings=[<@mesh, [{"_axis_0"}, {}]>]
  // CHECK-SAME: manual_axes={"_axis_0", "_axis_1"} (%[[SHARD:.+]]: tensor<4x8xf32>)
  // CHECK-NEXT: %[[ABS:.+]] = stablehlo.abs %[[SHARD]] : tensor<4x8xf32>
  // CHECK-NEXT: sdy.return %[[ABS]]
  // CHECK: return %[[RESULT]]
  %0 = stablehlo.custom_call @Sharding(%a) {mhlo.sharding = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = stablehlo.custom_call @SPMDFullToShardShape(%0) {mhlo.sharding = "{manual}"} : (tensor<8x8xf32>) -> tensor<4x8xf32>
  %2 = stablehlo.abs %1 : tensor<4x8xf32>
  %3 = stablehlo.custom_call @Sharding(%2) {mhlo.sharding = "{manual}"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %4 = stablehlo.custom_call @SPMDShardToFullShape(%3) {mhlo.sharding = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"} : (tensor<4x8xf32>) -> tensor<8x8xf32>
  return %4 : tensor<8x8xf32>
}

// -----

// CHECK-LABEL: func.func @sharding_group(
func.func @sharding_group(%a: tensor<8xf32>) -> tensor<8xf32> {
  // CHECK-NEXT: sdy.sharding_group %arg0 group_id=3
  %0 = stablehlo.custom_call @Sharding(%a) {mhlo.sharding = "{unknown shard_as 3}"} : (tensor<8xf32>) -> tensor<8xf32>
  // CHECK-NEXT: return %arg0
  return %0 : tensor<8xf32>
}

// -----

// A mesh that is there and has the axes is taken, with parts of axes where need be.

// CHECK-NOT: sdy.mesh @mesh
// CHECK: sdy.mesh @grid = <["x"=2, "y"=4]>
// CHECK-LABEL: func.func @both_notations(
// BACK-LABEL: func.func @both_notations(
sdy.mesh @grid = <["x"=2, "y"=4]>
func.func @both_notations(
    // CHECK-SAME: %arg0: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@grid, [{"x"}, {}]>}
    %a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@grid, [{"x"}, {}]>},
    // CHECK-SAME: %arg1: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@grid, [{"y"}, {"x"}]>}
    %b: tensor<8x8xf32> {mhlo.sharding = "{devices=[4,2]<=[2,4]T(1,0)}"},
    // CHECK-SAME: %arg2: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@grid, [{"x", "y":(1)2}, {"y":(2)2}]>}
    // BACK-SAME: %arg2: tensor<8x8xf32> {mhlo.sharding = "{devices=[4,2]<=[8]}"}
    %c: tensor<8x8xf32> {mhlo.sharding = "{devices=[4,2]<=[8]}"}) {
  return
}
