// RUN: %shardpass opt %s --sp-strip | %filecheck %s

// CHECK-NOT: sdy.
// CHECK-LABEL: func.func @constrained
// CHECK-NEXT: %[[ABS:.+]] = stablehlo.abs %arg0
// CHECK-NEXT: return %[[ABS]]
sdy.mesh @mesh = <["x"=8]>

func.func @constrained(%a: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.abs %a : tensor<8xf32>
  %1 = sdy.sharding_constraint %0 <@mesh, [{"x"}]> : tensor<8xf32>
  return %1 : tensor<8xf32>
}
