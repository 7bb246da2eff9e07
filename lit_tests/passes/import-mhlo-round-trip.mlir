// RUN: %shardpass opt %s --split-input-file --sp-import-mhlo | %filecheck %s

// XLA's round-trip form: strings in frontend attributes, and custom calls.

// CHECK: module attributes {mhlo.num_partitions = 8 : i32}
module attributes {mhlo.frontend_attributes = {xla.sdy.meshes = "{mesh = #sdy.mesh<[\22x\22=2, \22y\22=4]>}"}} {
// CHECK: sdy.mesh @mesh = <["x"=2, "y"=4]>
// CHECK-LABEL: func.func @main(
func.func @main(
    // CHECK-SAME: %arg0: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}p1, {}], replicated={"y"}>})
    %a: tensor<8x8xf32> {mhlo.frontend_attributes = {xla.sdy.sharding = "#sdy.sharding<@mesh, [{\22x\22, ?}p1, {}], replicated={\22y\22}>"}, mhlo.sharding = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"})
    // CHECK-SAME: -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>})
    -> (tensor<8x8xf32> {mhlo.sharding = "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}"}) {
  // CHECK-NEXT: %[[CONSTRAINED:.+]] = sdy.sharding_constraint %arg0 <@mesh, [{"y"}, {?}]>
  %0 = stablehlo.custom_call @Sharding(%a) {mhlo.frontend_attributes = {xla.sdy.sharding = "#sdy.sharding_per_value<[<@mesh, [{\22y\22}, {?}]>]>"}} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  // CHECK-NEXT: sdy.sharding_group %[[CONSTRAINED]] group_id=12
  stablehlo.custom_call @xla.sdy.ShardingGroup(%0) {has_side_effect = true, mhlo.frontend_attributes = {xla.sdy.sharding_group_id = "12 : i64"}} : (tensor<8x8xf32>) -> ()
  // CHECK-NEXT: %[[BARRIER:.+]] = sdy.propagation_barrier %[[CONSTRAINED]] allowed_direction=BACKWARD
  %1 = stablehlo.custom_call @xla.sdy.PropagationBarrier(%0) {mhlo.frontend_attributes = {xla.sdy.allowed_direction = "2 : i32"}} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  // CHECK-NEXT: %[[REGION:.+]] = sdy.manual_computation(%[[BARRIER]])
  // CHECK-SAME: in_shardings=[<@mesh, [{"x"}, {}]>] out_shardings=[<@mesh, [{"x"}, {}]>]
  // CHECK-SAME: manual_axes={"x"} (%[[SHARD:.+]]: tensor<4x8xf32>)
  // CHECK-NEXT: %[[ABS:.+]] = stablehlo.abs %[[SHARD]]
  // CHECK-NEXT: sdy.return %[[ABS]]
  %2 = stablehlo.custom_call @xla.sdy.GlobalToLocalShape(%1) {mhlo.frontend_attributes = {xla.sdy.in_shardings = "#sdy.sharding_per_value<[<@mesh, [{\22x\22}, {}]>]>", xla.sdy.manual_axes = "#sdy<manual_axes{\22x\22}>"}} : (tensor<8x8xf32>) -> tensor<4x8xf32>
  %3 = func.call @xla.sdy.manual_computation_body(%2) {mhlo.frontend_attributes = {inlineable = "false"}} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %4 = stablehlo.custom_call @xla.sdy.LocalToGlobalShape(%3) {mhlo.frontend_attributes = {xla.sdy.manual_axes = "#sdy<manual_axes{\22x\22}>", xla.sdy.out_shardings = "#sdy.sharding_per_value<[<@mesh, [{\22x\22}, {}]>]>"}} : (tensor<4x8xf32>) -> tensor<8x8xf32>
  %5 = stablehlo.custom_call @xla.sdy.FuncResultSharding(%4) {has_side_effect = true, mhlo.frontend_attributes = {xla.sdy.sharding = "#sdy.sharding_per_value<[<@mesh, [{\22y\22}, {}]>]>"}} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  // CHECK: return %[[REGION]]
  return %5 : tensor<8x8xf32>
}
// CHECK-NOT: manual_computation_body
func.func private @xla.sdy.manual_computation_body(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = stablehlo.abs %a : tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}
}

// -----

// jaxlib 0.12 carries the same in named shardings.

// CHECK-LABEL: func.func @named(
// CHECK-SAME: %arg0: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}, {}]>}
func.func @named(%a: tensor<8x8xf32> {mhlo.sharding = "{mesh['x'=2,'y'=4], [{'x', ?}, {}]}"}) -> tensor<8x8xf32> {
  // CHECK-NEXT: %[[REGION:.+]] = sdy.manual_computation(%arg0)
  // CHECK-SAME: in_shardings=[<@mesh, [{"x", ?}, {}]>] out_shardings=[<@mesh, [{"x"}, {}]>]
  // CHECK-SAME: manual_axes={"x"} (%[[SHARD:.+]]: tensor<4x8xf32>)
  // CHECK: return %[[REGION]]
  %0 = stablehlo.custom_call @Sharding(%a) {has_side_effect = true, mhlo.sharding = "{mesh['x'=2,'y'=4], [{'x', ?}, {}]}"} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = stablehlo.custom_call @xla.sdy.GlobalToLocalShape(%0) {mhlo.sharding = "{mesh['x'=2,'y'=4], [{?}, {}], manual={'x'}}"} : (tensor<8x8xf32>) -> tensor<4x8xf32>
  %2 = func.call @xla.sdy.manual_computation_body(%1) {mhlo.sharding = "{mesh['x'=2,'y'=4], [{?}, {}], manual={'x'}}"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %3 = stablehlo.custom_call @xla.sdy.LocalToGlobalShape(%2) {mhlo.sharding = "{mesh['x'=2,'y'=4], [{'x'}, {}]}"} : (tensor<4x8xf32>) -> tensor<8x8xf32>
  return %3 : tensor<8x8xf32>
}
func.func private @xla.sdy.manual_computation_body(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
  return %a : tensor<4x8xf32>
}

// -----

// Nothing here is in this form.

// CHECK-LABEL: func.func @plain(
func.func @plain(%a: tensor<8xf32>) -> tensor<8xf32> {
  // CHECK-NEXT: %[[ABS:.+]] = stablehlo.abs %arg0 {mhlo.frontend_attributes = {a = "b"}}
  %0 = stablehlo.abs %a {mhlo.frontend_attributes = {a = "b"}} : tensor<8xf32>
  // CHECK-NEXT: return %[[ABS]]
  return %0 : tensor<8xf32>
}
