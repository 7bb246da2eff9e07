// RUN: %shardpass opt %s --sdy-populate-op-sharding-rules --verify-diagnostics

// The note in which Shardy prints the op again is not held against the file, as in mlir-opt.

func.func @main(%a: tensor<8x2xf32>) -> tensor<8x2xf32> {
  // expected-warning @+1 {{custom call @acme_op is unknown to SDY sharding rule registry}}
  %0 = stablehlo.custom_call @acme_op(%a) : (tensor<8x2xf32>) -> tensor<8x2xf32>
  return %0 : tensor<8x2xf32>
}
