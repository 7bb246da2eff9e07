// RUN: %shardpass opt %s --split-input-file '--pass-pipeline=sp-name-axes{mesh=data=2,model=4}' | %filecheck %s

// The same sizes in the same order: other names.

// CHECK: sdy.mesh @mesh = <["data"=2, "model"=4]>
sdy.mesh @mesh = <["_axis_0"=2, "_axis_1"=4]>
// CHECK-LABEL: func.func @renamed(
// CHECK-SAME: %arg0: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"model":(1)2}, {"data", ?}p1], replicated={"model":(2)2}>}
func.func @renamed(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"_axis_1":(1)2}, {"_axis_0", ?}p1], replicated={"_axis_1":(2)2}>}) -> tensor<8x8xf32> {
  // CHECK-NEXT: sdy.manual_computation(%arg0) in_shardings=[<@mesh, [{"data"}, {}]>] out_shardings=[<@mesh, [{"data"}, {}]>] manual_axes={"data"}
  %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"_axis_0"}, {}]>] out_shardings=[<@mesh, [{"_axis_0"}, {}]>] manual_axes={"_axis_0"} (%b: tensor<4x8xf32>) {
    // CHECK-NEXT: sdy.sharding_constraint %{{.*}} <@mesh, [{"model"}, {}]> : tensor<4x8xf32>
    %1 = sdy.sharding_constraint %b <@mesh, [{"_axis_1"}, {}]> : tensor<4x8xf32>
    sdy.return %1 : tensor<4x8xf32>
  } : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}

// -----

// Other sizes: rows of the user's axes, and parts of them.

// CHECK: sdy.mesh @mesh = <["data"=2, "model"=4]>
sdy.mesh @mesh = <["_axis_0"=4, "_axis_1"=2]>
// CHECK-LABEL: func.func @grouped_anew(
// CHECK-SAME: %arg0: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data", "model":(1)2}, {"model":(2)2}]>}
// CHECK-SAME: %arg1: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data", "model"}, {}]>}
func.func @grouped_anew(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"_axis_0"}, {"_axis_1"}]>},
                        %b: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"_axis_0", "_axis_1"}, {}]>}) -> tensor<8x8xf32> {
  // CHECK-NEXT: sdy.all_gather [{"model":(1)2}, {"model":(2)2}] %arg0 out_sharding=<@mesh, [{"data"}, {}]>
  %0 = sdy.all_gather [{"_axis_0":(2)2}, {"_axis_1"}] %a out_sharding=<@mesh, [{"_axis_0":(1)2}, {}]> : tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}

// -----

// The devices keep their order.

// CHECK: sdy.mesh @mesh = <["data"=2, "model"=4], device_ids=[7, 6, 5, 4, 3, 2, 0, 1]>
sdy.mesh @mesh = <["_axis_0"=8], device_ids=[7, 6, 5, 4, 3, 2, 0, 1]>
// CHECK-LABEL: func.func @order_of_devices(
// CHECK-SAME: #sdy.sharding<@mesh, [{"data", "model"}]>
func.func @order_of_devices(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"_axis_0"}]>}) {
  return
}

// -----

// Nothing changes: the names are there already.

// CHECK: sdy.mesh @mesh = <["data"=2, "model"=4]>
// CHECK-NEXT: sdy.mesh @maximal_mesh_3 = <[], device_ids=[3]>
sdy.mesh @mesh = <["data"=2, "model"=4]>
sdy.mesh @maximal_mesh_3 = <[], device_ids=[3]>
// CHECK-NEXT: func.func @named(
// CHECK-SAME: #sdy.sharding<@mesh, [{"data"}, {"model":(2)2}]>
// CHECK-SAME: #sdy.sharding<@maximal_mesh_3, []>
func.func @named(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {"model":(2)2}]>},
                 %b: tensor<f32> {sdy.sharding = #sdy.sharding<@maximal_mesh_3, []>}) {
  return
}
