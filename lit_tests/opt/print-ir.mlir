// RUN: %shardpass opt %s --cse --sp-strip --mlir-print-ir-after=sp-strip 2>&1 | %filecheck %s --check-prefix=OURS
// RUN: %shardpass opt %s --cse --sp-strip --mlir-print-ir-before=cse -o %t 2>&1 | %filecheck %s --check-prefix=NATIVE
// RUN: %shardpass opt %s -cse -sp-strip -cse -mlir-print-ir-after-change -o %t 2>&1 | %filecheck %s --check-prefix=CHANGE
// RUN: %shardpass opt %s -cse -sp-strip -mlir-print-ir-before-all -mlir-print-ir-after-all -o %t 2>&1 | %filecheck %s --check-prefix=ALL
// RUN: %shardpass opt %s -sdy-drop-sharding-rules -mlir-print-ir-after-all -o %t 2>&1 | %filecheck %s --check-prefix=FUNCTION
// RUN: %shardpass opt %s -sdy-drop-sharding-rules -mlir-print-ir-after-all -mlir-print-ir-module-scope -o %t 2>&1 | %filecheck %s --check-prefix=SCOPE
// RUN: %shardpass opt %s -cse -mlir-print-ir-after-all -mlir-print-op-generic -mlir-print-debuginfo -o %t 2>&1 | %filecheck %s --check-prefix=GENERIC
// RUN: rm -rf %t.tree && %shardpass opt %s -cse -mlir-print-ir-after-all -mlir-print-ir-tree-dir=%t.tree -o %t && %filecheck %s --check-prefix=TREE < %t.tree/builtin_module_no-symbol-name/0_cse.mlir
// RUN: not %shardpass opt %s --mlir-print-ir-after=sp-stripp 2>&1 | %filecheck %s --check-prefix=UNKNOWN

// The module before and behind passes, on standard error in front of the result; the passes of ours
// and native ones go by the same names as in a pipeline.

// OURS-NOT: CSEPass
// OURS: // -----// IR Dump After sp-strip: sp-strip //----- //
// OURS-NEXT: module {
// OURS-NEXT: func.func @main
// OURS-NOT: IR Dump
// OURS: {{^}}module {

// NATIVE: // -----// IR Dump Before CSEPass: cse //----- //
// NATIVE-NEXT: module {
// NATIVE-NEXT: sdy.mesh @mesh
// NATIVE-NOT: IR Dump

// CHANGE-NOT: CSEPass
// CHANGE: IR Dump After sp-strip
// CHANGE-NOT: IR Dump

// ALL: IR Dump Before CSEPass: cse
// ALL: IR Dump After CSEPass: cse
// ALL: IR Dump Before sp-strip: sp-strip
// ALL: IR Dump After sp-strip: sp-strip
// ALL-NOT: IR Dump

// FUNCTION: IR Dump After DropShardingRulesPass: sdy-drop-sharding-rules //
// FUNCTION-NEXT: func.func @main

// SCOPE: IR Dump After DropShardingRulesPass: sdy-drop-sharding-rules {{.*}}@main
// SCOPE-NEXT: module {

// GENERIC: "func.func"() <{
// GENERIC: loc(

// TREE: IR Dump After CSEPass: cse
// TREE-NEXT: module {

// UNKNOWN: error[unknown-pass]: there is no pass "sp-stripp"
// UNKNOWN: help: did you mean "sp-strip"?

sdy.mesh @mesh = <["x"=2]>
func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<8xf32> {
  return %a : tensor<8xf32>
}
