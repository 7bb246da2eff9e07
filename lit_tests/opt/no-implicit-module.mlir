// RUN: not %shardpass opt %s --split-input-file --no-implicit-module --cse 2>&1 | %filecheck %s
// RUN: %shardpass opt %s --split-input-file --cse | %filecheck %s --check-prefix=IMPLICIT

// The ops of a file have to stand in a module that is written there.

// CHECK: no-implicit-module.mlir:9:1: error[unreadable]: {{.*}} holds a func.func where a builtin.module has to stand
// IMPLICIT: module {
// IMPLICIT-NEXT: func.func @alone
func.func @alone() {
  return
}

// -----

// CHECK: no-implicit-module.mlir:15: error[mlir]: source must contain a single top-level operation, found: 2
func.func @first() {
  return
}
func.func @second() {
  return
}

// -----

// CHECK-NOT: error[
// CHECK: 2 errors
// CHECK: module @explicit {
// IMPLICIT: module @explicit {
// IMPLICIT-NEXT: func.func @inside
module @explicit {
  func.func @inside() {
    return
  }
}
