// RUN: %shardpass opt %s --sp-verify --verify-diagnostics=only-expected
// RUN: not %shardpass opt %s --sp-verify --verify-diagnostics 2>&1 | %filecheck %s
// RUN: not %shardpass opt %s --sp-verify --verify-diagnostics=all 2>&1 | %filecheck %s
// RUN: not %shardpass opt %s --sp-verify --verify-diagnostics=none 2>&1 | %filecheck %s --check-prefix=LEVEL

// By default what no comment expects is a fault as well.

// CHECK-NOT: @Sharding
// CHECK: verify-diagnostics-levels.mlir:[[#]]:8: error[unmet-expectation]: unexpected error[unpaired-manual]: {{.*}}@SPMDFullToShardShape
// CHECK-NOT: @Sharding
// LEVEL: 'none' is not one of 'all', 'only-expected'
func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
  // expected-error-re @+1 {{the custom call {{@Sharding}} carries}}
  %0 = stablehlo.custom_call @Sharding(%a) : (tensor<8xf32>) -> tensor<8xf32>
  %1 = stablehlo.custom_call @SPMDFullToShardShape(%a) : (tensor<8xf32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}
