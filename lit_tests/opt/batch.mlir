// RUN: rm -rf %t && mkdir %t && %shardpass opt --batch %s %S/split.mlir --cse -split-input-file -o %t
// RUN: %filecheck %s < %t/batch.mlir
// RUN: %filecheck %S/split.mlir < %t/split.mlir
// RUN: rm -rf %t && mkdir %t && not %shardpass opt --batch %S/none.mlir %s --cse -split-input-file -o %t 2>&1 | %filecheck %s --check-prefix=MISSING
// RUN: %filecheck %s < %t/batch.mlir
// RUN: not %shardpass opt --batch %s %s -o %t 2>&1 | %filecheck %s --check-prefix=CLASH

// Many files in one process, each by itself.

// MISSING: error[unreadable]: cannot read {{.*}}none.mlir
// CLASH: error[usage]: {{.*}} would both be written to {{.*}}batch.mlir

// CHECK-LABEL: func.func @main
// CHECK-NEXT: %[[A:.+]] = stablehlo.abs %arg0
// CHECK-NEXT: return %[[A]], %[[A]]
func.func @main(%a: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %0 = stablehlo.abs %a : tensor<8xf32>
  %1 = stablehlo.abs %a : tensor<8xf32>
  return %0, %1 : tensor<8xf32>, tensor<8xf32>
}

// -----

// CHECK: // -----
// CHECK: func.func @second
func.func @second() {
  return
}
