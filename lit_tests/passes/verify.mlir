// RUN: %shardpass opt %s --split-input-file --sp-verify --verify-diagnostics | %filecheck %s

// A module that passes comes out as it went in, and a warning does not stop it.

sdy.mesh @mesh = <["x"=2, "y"=4]>

// CHECK-LABEL: func.func @uneven_inside
// CHECK-SAME: #sdy.sharding<@mesh, [{"x"}, {}]>
func.func @uneven_inside(%a: tensor<6x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> tensor<6x8xf32> {
  // CHECK-NEXT: sdy.sharding_constraint %arg0 <@mesh, [{"y"}, {}]>
  // expected-warning @+1 {{warning[indivisible]: the result of sdy.sharding_constraint, dimension 0: 6 elements into 4 pieces, so XLA pads each device's piece}}
  %0 = sdy.sharding_constraint %a <@mesh, [{"y"}, {}]> : tensor<6x8xf32>
  return %0 : tensor<6x8xf32>
}

// -----

// CHECK-LABEL: func.func @no_shardings(%arg0: tensor<7xf32>)
func.func @no_shardings(%a: tensor<7xf32>) {
  return
}
