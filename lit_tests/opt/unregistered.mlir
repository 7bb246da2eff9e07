// RUN: %shardpass opt %s --allow-unregistered-dialect --cse | %filecheck %s
// RUN: not %shardpass opt %s --cse 2>&1 | %filecheck %s --check-prefix=REFUSED
// RUN: %shardpass opt %s -allow-unregistered-dialect -verify-roundtrip -emit-bytecode -o %t && %shardpass opt %t -allow-unregistered-dialect | %filecheck %s

// Ops and attributes that nobody knows, in MLIR's generic form.

// CHECK-LABEL: func.func @main
// CHECK-NEXT: "acme.op"(%arg0) {a = #acme.attribute<x>} : (tensor<8xf32>) -> ()
// REFUSED: unregistered.mlir:[[#]]:{{[0-9]+}}: error[mlir]: {{.*}}-allow-unregistered-dialect
func.func @main(%a: tensor<8xf32>) {
  "acme.op"(%a) {a = #acme.attribute<x>} : (tensor<8xf32>) -> ()
  return
}
