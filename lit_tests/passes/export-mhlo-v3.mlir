// RUN: %shardpass opt %s --sp-export-mhlo=v3=true | %filecheck %s
// RUN: %shardpass opt %s '--pass-pipeline=sp-export-mhlo{v3=true},sp-import-mhlo' | %filecheck %s --check-prefix BACK

// Named shardings, as jaxlib 0.12 writes them, and back.

sdy.mesh @mesh = <["x"=2, "y"=4]>

// BACK: sdy.mesh @mesh = <["x"=2, "y"=4]>
// CHECK-LABEL: func.func @main(
// BACK-LABEL: func.func @main(
func.func @main(
    // CHECK-SAME: %arg0: tensor<8x8xf32> {mhlo.sharding = "{mesh['x'=2,'y'=4], [{'x', ?}, {}], replicated={'y'}}"}
    // BACK-SAME: %arg0: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}, {}], replicated={"y"}>}
    %a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}, {}], replicated={"y"}>},
    // CHECK-SAME: %arg1: tensor<8x8xf32>)
    %b: tensor<8x8xf32>) -> tensor<8x8xf32> {
  // CHECK-NEXT: stablehlo.custom_call @Sharding(%arg0) {backend_config = "unspecified_dims=[1]", mhlo.sharding = "{mesh['x'=2,'y'=4], [{'y':(2)2}, {?}]}"}
  // BACK-NEXT: sdy.sharding_constraint %arg0 <@mesh, [{"y":(2)2}, {?}]>
  %0 = sdy.sharding_constraint %a <@mesh, [{"y":(2)2}, {?}]> : tensor<8x8xf32>
  // CHECK: @SPMDFullToShardShape({{.*}}) {mhlo.sharding = "{mesh['x'=2,'y'=4], [{}, {}], manual={'x'}}"}
  // BACK-NEXT: sdy.manual_computation(%{{.*}}) in_shardings=[<@mesh, [{"x"}, {}]>] out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x"}
  %1 = sdy.manual_computation(%0) in_shardings=[<@mesh, [{"x"}, {}]>] out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x"} (%c: tensor<4x8xf32>) {
    %2 = stablehlo.abs %c : tensor<4x8xf32>
    sdy.return %2 : tensor<4x8xf32>
  } : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}
