// RUN: %shardpass opt %s | %filecheck %s
// RUN: %shardpass opt < %s | %filecheck %s
// RUN: %shardpass opt - < %s | %filecheck %s
// RUN: %shardpass opt %s -o %t && %shardpass opt %t | %filecheck %s
// RUN: %shardpass opt %s --emit=bytecode -o %t && %shardpass opt %t | %filecheck %s
// RUN: %shardpass opt %s --emit=bytecode > %t && %shardpass opt - < %t | %filecheck %s
// RUN: %shardpass opt %s --mlir-print-debuginfo | %filecheck %s --check-prefix=PLACES

// Without any pass a module is parsed, verified and printed, whatever form it comes in.

// CHECK: module {
// CHECK-NEXT: func.func @main(%arg0: tensor<8xf32>) -> tensor<8xf32> {
// CHECK-NEXT: %0 = stablehlo.abs %arg0 : tensor<8xf32>
// CHECK-NEXT: return %0 : tensor<8xf32>
// CHECK-NEXT: }
// CHECK-NEXT: }
// CHECK-NOT: {{.}}

// PLACES: func.func @main(%arg0: tensor<8xf32> loc("params['w']")) -> tensor<8xf32> {
func.func @main(%a: tensor<8xf32> loc("params['w']")) -> tensor<8xf32> {
  %0 = stablehlo.abs %a : tensor<8xf32>
  return %0 : tensor<8xf32>
}
