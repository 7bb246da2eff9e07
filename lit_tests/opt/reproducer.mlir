// RUN: not %shardpass opt %s --cse --sp-verify --mlir-pass-pipeline-crash-reproducer=%t 2>&1 | %filecheck %s
// RUN: %filecheck %s --check-prefix=FILE < %t
// RUN: not %shardpass opt %t --run-reproducer 2>&1 | %filecheck %s --check-prefix=AGAIN
// RUN: rm -rf %t.tmp && mkdir %t.tmp && env TMPDIR=%t.tmp not %shardpass opt %s --cse --sp-verify 2>&1 | %filecheck %s --check-prefix=UNASKED
// RUN: not %shardpass opt %t.tmp/* --run-reproducer 2>&1 | %filecheck %s --check-prefix=AGAIN
// RUN: not %shardpass opt %s --run-reproducer 2>&1 | %filecheck %s --check-prefix=NONE
// RUN: not %shardpass opt %t --run-reproducer --cse 2>&1 | %filecheck %s --check-prefix=BOTH

// A failure in one file: the module, and the passes that repeat it, in mlir-opt's own form.

// CHECK: error[indivisible]
// CHECK: remark[reproducer]: what failed is in {{.*}}reproducer.mlir.tmp
// CHECK-NEXT: help: to repeat it: shardpass opt {{.*}}reproducer.mlir.tmp --run-reproducer

// UNASKED: error[indivisible]
// UNASKED: remark[reproducer]: what failed is in [[F:.*reproducer.mlir.tmp.tmp/shardpass-[0-9]+-reproducer-[0-9a-f]+.mlir]]
// UNASKED-NEXT: help: to repeat it: shardpass opt [[F]] --run-reproducer

// FILE: // To repeat it in {{.*}}: shardpass opt {{.*}} --run-reproducer
// FILE: mlir_reproducer: {
// FILE-NEXT: pipeline: "builtin.module(cse,sp-verify)",
// FILE: verify_each: true

// AGAIN: error[indivisible]
// NONE: error[unreadable]: {{.*}}holds no reproducer
// BOTH: --run-reproducer takes the passes from the file

sdy.mesh @mesh = <["x"=4]>
func.func @main(%a: tensor<6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<6xf32> {
  return %a : tensor<6xf32>
}
