// RUN: %shardpass opt %s --split-input-file '--pass-pipeline=sp-retarget{mesh=data=4,model=2}' | %filecheck %s
// RUN: %shardpass opt %s --split-input-file '--pass-pipeline=sp-retarget{mesh=data=3,model=2 indivisible=replicate}' 2>/dev/null | %filecheck %s --check-prefix WHOLE
// RUN: %shardpass opt %s --split-input-file '--pass-pipeline=sp-retarget{mesh=model=2 missing=replicate}' 2>/dev/null | %filecheck %s --check-prefix GONE

// What was cut along an axis is cut along it, into as many pieces as that now has.

// CHECK: module attributes {mhlo.num_partitions = 8 : i32}
// WHOLE: module attributes {mhlo.num_partitions = 6 : i32}
// GONE: module attributes {mhlo.num_partitions = 2 : i32}
module attributes {mhlo.num_partitions = 16 : i32} {
// CHECK: sdy.mesh @mesh = <["data"=4, "model"=2]>
// WHOLE: sdy.mesh @mesh = <["data"=3, "model"=2]>
// GONE: sdy.mesh @mesh = <["model"=2]>
sdy.mesh @mesh = <["data"=8, "model"=2]>
// CHECK-NEXT: sdy.mesh @maximal_mesh_1 = <[], device_ids=[1]>
sdy.mesh @maximal_mesh_1 = <[], device_ids=[1]>
// CHECK-LABEL: func.func @by_name(
// CHECK-SAME: %arg0: tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data", ?}p1, {"model"}]>}
// CHECK-SAME: -> (tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {"data"}]>})
// WHOLE-LABEL: func.func @by_name(
// WHOLE-SAME: %arg0: tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}p1, {"model"}]>}
// WHOLE-SAME: -> (tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {}]>})
// GONE-LABEL: func.func @by_name(
// GONE-SAME: %arg0: tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}p1, {"model"}]>}
// GONE-SAME: -> (tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {}]>})
func.func @by_name(%a: tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data", ?}p1, {"model"}]>})
    -> (tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {"data"}]>}) {
  // CHECK-NEXT: %[[C:.+]] = sdy.sharding_constraint %arg0 <@mesh, [{}, {"model"}]>
  // WHOLE-NEXT: %[[C:.+]] = sdy.sharding_constraint %arg0 <@mesh, [{}, {"model"}]>
  // GONE-NEXT: %[[C:.+]] = sdy.sharding_constraint %arg0 <@mesh, [{}, {"model"}]>
  %0 = sdy.sharding_constraint %a <@mesh, [{}, {"model"}]> : tensor<16x8xf32>
  // CHECK-NEXT: sdy.manual_computation(%[[C]]) in_shardings=[<@mesh, [{"model"}, {}]>] out_shardings=[<@mesh, [{"model"}, {}]>] manual_axes={"model"} (%{{.*}}: tensor<8x8xf32>)
  %1 = sdy.manual_computation(%0) in_shardings=[<@mesh, [{"model"}, {}]>] out_shardings=[<@mesh, [{"model"}, {}]>] manual_axes={"model"} (%b: tensor<8x8xf32>) {
    sdy.return %b : tensor<8x8xf32>
  } : (tensor<16x8xf32>) -> tensor<16x8xf32>
  // CHECK: stablehlo.negate %{{.*}} {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"data"}, {}]>]>}
  // WHOLE: stablehlo.negate %{{.*}} {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {}]>]>}
  %2 = stablehlo.negate %1 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"data"}, {}]>]>} : tensor<16x8xf32>
  return %2 : tensor<16x8xf32>
}
}

// -----

// Nothing changes but the number of devices: there is no mesh.

// CHECK: module attributes {mhlo.num_partitions = 8 : i32}
// CHECK-NEXT: func.func @plain(%arg0: tensor<8xf32>)
func.func @plain(%a: tensor<8xf32>) {
  return
}
