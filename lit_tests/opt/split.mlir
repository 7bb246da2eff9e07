// RUN: %shardpass opt %s --split-input-file --cse | %filecheck %s
// RUN: %shardpass opt %s --split-input-file --cse -o %t && %filecheck %s < %t
// RUN: not %shardpass opt %s --split-input-file --emit=bytecode -o %t.bc 2>&1 | %filecheck %s --check-prefix=BYTECODE

// Each part is a module of its own, and comes out as one; an empty one as mlir-opt prints it.
// BYTECODE: error[usage]: bytecode holds one module, and the file has 3 parts

// CHECK: module {
// CHECK-LABEL: func.func @first
// CHECK-NEXT: %[[A:.+]] = stablehlo.abs %arg0
// CHECK-NEXT: stablehlo.add %[[A]], %[[A]]
// CHECK: // -----
func.func @first(%a: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.abs %a : tensor<8xf32>
  %1 = stablehlo.abs %a : tensor<8xf32>
  %2 = stablehlo.add %0, %1 : tensor<8xf32>
  return %2 : tensor<8xf32>
}

// -----

// CHECK: module {
// CHECK-LABEL: func.func @second
// CHECK-NEXT: return %arg0
func.func @second(%a: tensor<8xf32>) -> tensor<8xf32> {
  return %a : tensor<8xf32>
}
// CHECK: // -----
// CHECK-NEXT: module {
// CHECK-NEXT: }

// -----
