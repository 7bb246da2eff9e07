// RUN: %shardpass opt %s -cse -sp-strip -sdy-drop-sharding-rules -sdy-populate-op-sharding-rules -mlir-timing -o %t 2>&1 | %filecheck %s
// RUN: not %shardpass opt %s -cse -sp-verify -mlir-timing 2>&1 | %filecheck %s --check-prefix=FAILED
// RUN: %shardpass opt %s -sdy-drop-sharding-rules -cse -sp-strip -sdy-drop-sharding-rules -sdy-populate-op-sharding-rules --dump-pass-pipeline -mlir-disable-threading -o %t 2>&1 | %filecheck %s --check-prefix=PIPELINE
// RUN: %shardpass opt %s -cse -mlir-pass-statistics -o %t 2>&1 | %filecheck %s --check-prefix=STATISTICS
// RUN: %shardpass opt %s -mlir-timing -mlir-timing-display=tree -mlir-pass-statistics -dump-pass-pipeline -o %t 2>&1 | %filecheck %s --check-prefix=NO-PASS
// RUN: not %shardpass opt %s -cse -mlir-timing -mlir-timing-display=list 2>&1 | %filecheck %s --check-prefix=LIST
// RUN: %shardpass opt %s -cse -mlir-timing=false 2>&1 | %filecheck %s --check-prefix=NOTHING

// How long each pass took, ours and native ones; functions go through adjacent passes together.

// CHECK: Execution time report
// CHECK: ----Name----
// CHECK: CSEPass
// CHECK: sp-strip
// CHECK: 'func.func' Pipeline
// CHECK: DropShardingRulesPass
// CHECK-NEXT: PopulateOpShardingRulesPass
// CHECK: Total

// A pass that fails is timed as well.
// FAILED: error[indivisible]
// FAILED: Execution time report
// FAILED: sp-verify

// PIPELINE: builtin.module(func.func(sdy-drop-sharding-rules),cse,sp-strip,func.func(sdy-drop-sharding-rules,sdy-populate-op-sharding-rules{{.*}}))

// STATISTICS: Pass statistics report

// Without passes the reports are there all the same.
// NO-PASS: {{^}}builtin.module(){{$}}
// NO-PASS: Pass statistics report
// NO-PASS: Execution time report
// NO-PASS: Total

// LIST: --mlir-timing-display=list of mlir-opt cannot be asked for from Python

// NOTHING: func.func @main
// NOTHING-NOT: Execution time

sdy.mesh @mesh = <["x"=4]>
func.func @main(%a: tensor<6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<6xf32> {
  return %a : tensor<6xf32>
}
