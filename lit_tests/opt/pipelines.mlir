// RUN: %shardpass opt %s --cse --canonicalize | %filecheck %s
// RUN: %shardpass opt %s --pass-pipeline="cse,canonicalize" | %filecheck %s
// RUN: %shardpass opt %s --pass-pipeline="builtin.module(func.func(cse),canonicalize)" | %filecheck %s
// RUN: %shardpass opt %s --pass-pipeline="func.func(cse,canonicalize)" | %filecheck %s
// RUN: %shardpass opt %s --cse --canonicalize="max-iterations=3" | %filecheck %s
// RUN: %shardpass opt %s --sdy-populate-op-sharding-rules | %filecheck %s --check-prefix=RULES
// RUN: %shardpass opt %s --sdy-populate-op-sharding-rules --sdy-drop-sharding-rules | %filecheck %s --check-prefix=DROPPED

// Passes run in the order in which they stand; which op a native pass runs on is looked up.

// CHECK-LABEL: func.func @main
// CHECK-NEXT: %[[A:.+]] = stablehlo.abs %arg0
// CHECK-NEXT: stablehlo.add %[[A]], %[[A]]
// CHECK-NEXT: return
// RULES: stablehlo.abs %arg0 {sdy.sharding_rule = #sdy.op_sharding_rule<([i])->([i]) {i=8}>}
// DROPPED: stablehlo.abs %arg0 : tensor<8xf32>
func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.abs %a : tensor<8xf32>
  %1 = stablehlo.abs %a : tensor<8xf32>
  %2 = stablehlo.add %0, %1 : tensor<8xf32>
  return %2 : tensor<8xf32>
}
