// RUN: not %shardpass opt %s -cse -sp-verify -mlir-print-ir-after-failure 2>&1 | %filecheck %s
// RUN: not %shardpass opt %s -cse -sdy-basic-propagate -mlir-print-ir-after-failure 2>&1 | %filecheck %s --check-prefix=NATIVE

// Only what failed is printed, in front of what is wrong with it.

// CHECK-NOT: IR Dump After CSEPass
// CHECK: // -----// IR Dump After sp-verify Failed: sp-verify //----- //
// CHECK-NEXT: module {
// CHECK: func.func @main
// CHECK-NOT: IR Dump
// CHECK: print-ir-failure.mlir:[[#]]:{{[0-9]+}}: error[indivisible]

// NATIVE-NOT: IR Dump After CSEPass
// NATIVE: // -----// IR Dump After BasicPropagationPass Failed: sdy-basic-propagate
// NATIVE: func.func @main
// NATIVE: print-ir-failure.mlir:[[#]]:{{[0-9]+}}: error[mlir]: {{.*}}static shape

sdy.mesh @mesh = <["x"=4]>
func.func @main(%a: tensor<6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}, %b: tensor<?xf32>) -> tensor<?xf32> {
  %0 = stablehlo.abs %b : tensor<?xf32>
  return %0 : tensor<?xf32>
}
