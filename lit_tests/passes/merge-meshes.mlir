// RUN: %shardpass opt %s --split-input-file --sp-merge-meshes | %filecheck %s
// RUN: %shardpass opt %s --split-input-file --sp-merge-meshes > %t && %shardpass opt %t --split-input-file --sp-merge-meshes | %filecheck %s

// Equal meshes under two names, and a compatible one: the first that a user named stays.

sdy.mesh @inferred = <["_axis_0"=2, "_axis_1"=4]>
// CHECK: sdy.mesh @mesh = <["x"=8]>
sdy.mesh @mesh = <["x"=8]>
sdy.mesh @again = <["x"=8]>
sdy.mesh @empty_mesh = <[]>
// CHECK-NOT: sdy.mesh
// CHECK-LABEL: func.func @over_the_same_devices(
func.func @over_the_same_devices(
    // CHECK-SAME: %arg0: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x":(2)4}, {"x":(1)2, ?}]>}
    %a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@inferred, [{"_axis_1"}, {"_axis_0", ?}]>},
    // CHECK-SAME: %arg1: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}p1]>}
    %b: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@again, [{}, {"x"}p1]>},
    // CHECK-SAME: %arg2: tensor<2xui32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}
    %c: tensor<2xui32> {sdy.sharding = #sdy.sharding<@empty_mesh, [{}]>},
    // CHECK-SAME: %arg3: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x":(4)2}]>}
    %d: tensor<8xf32> {sdy.sharding = #sdy.sharding<mesh<["p"=4, "q"=2]>, [{"q"}]>})
    // CHECK-SAME: -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
    -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@inferred, [{"_axis_0", "_axis_1"}, {}]>}) {
  // CHECK-NEXT: %[[C:.+]] = sdy.sharding_constraint %arg0 <@mesh, [{"x":(1)2}, {}], replicated={"x":(2)4}>
  %0 = sdy.sharding_constraint %a <@inferred, [{"_axis_0"}, {}], replicated={"_axis_1"}> : tensor<8x8xf32>
  // CHECK-NEXT: %[[ADD:.+]] = stablehlo.add %[[C]], %arg1 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {"x":(2)4}]>]>}
  %1 = stablehlo.add %0, %b {sdy.sharding = #sdy.sharding_per_value<[<@inferred, [{}, {"_axis_1"}]>]>} : tensor<8x8xf32>
  // CHECK-NEXT: sdy.manual_computation(%[[ADD]]) in_shardings=[<@mesh, [{"x"}, {}]>] out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x"}
  %2 = sdy.manual_computation(%1) in_shardings=[<@inferred, [{"_axis_0", "_axis_1"}, {}]>] out_shardings=[<@inferred, [{"_axis_0", "_axis_1"}, {}]>] manual_axes={"_axis_0", "_axis_1"} (%e: tensor<1x8xf32>) {
    sdy.return %e : tensor<1x8xf32>
  } : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %2 : tensor<8x8xf32>
}

// -----

// Devices in transposed order.

// CHECK: sdy.mesh @mesh = <["x"=2, "y"=4]>
sdy.mesh @mesh = <["x"=2, "y"=4]>
sdy.mesh @columns = <["p"=4, "q"=2], device_ids=[0, 4, 1, 5, 2, 6, 3, 7]>
// CHECK-NOT: sdy.mesh
// CHECK-LABEL: func.func @transposed(
// CHECK-SAME: %arg0: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}
// CHECK-SAME: %arg1: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {"x"}]>}
func.func @transposed(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
                      %b: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@columns, [{"p"}, {"q"}]>}) {
  return
}

// -----

// A manual axis has to be whole, so that neither of the two can stay.

// CHECK: sdy.mesh @a = <["p"=2, "_axis_0"=2, "y"=2]>
sdy.mesh @a = <["x"=4, "y"=2]>
sdy.mesh @b = <["p"=2, "q"=4]>
// CHECK-NOT: sdy.mesh
// CHECK-LABEL: func.func @refined(
func.func @refined(%a: tensor<8xf32>) -> tensor<8xf32> {
  // CHECK: manual_axes={"p", "_axis_0"}
  %0 = sdy.manual_computation(%a) in_shardings=[<@a, [{"x"}]>] out_shardings=[<@a, [{"x"}]>] manual_axes={"x"} (%c: tensor<2xf32>) {
    sdy.return %c : tensor<2xf32>
  } : (tensor<8xf32>) -> tensor<8xf32>
  // CHECK: manual_axes={"p"}
  %1 = sdy.manual_computation(%0) in_shardings=[<@b, [{"p", "q"}]>] out_shardings=[<@b, [{"p", "q"}]>] manual_axes={"p"} (%c: tensor<4xf32>) {
    sdy.return %c : tensor<4xf32>
  } : (tensor<8xf32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}

// -----

// Nothing changes: a single device, and another number of devices that nothing is on.

// CHECK: sdy.mesh @mesh = <["x"=8]>
// CHECK-NEXT: sdy.mesh @four = <["x"=4]>
// CHECK-NEXT: sdy.mesh @maximal_mesh_3 = <[], device_ids=[3]>
sdy.mesh @mesh = <["x"=8]>
sdy.mesh @four = <["x"=4]>
sdy.mesh @maximal_mesh_3 = <[], device_ids=[3]>
// CHECK-NEXT: func.func @apart(
// CHECK-SAME: #sdy.sharding<@mesh, [{"x":(2)2}]>
// CHECK-SAME: #sdy.sharding<@maximal_mesh_3, []>
func.func @apart(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x":(2)2}]>},
                 %b: tensor<f32> {sdy.sharding = #sdy.sharding<@maximal_mesh_3, []>}) {
  return
}
