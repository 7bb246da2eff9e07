// RUN: %shardpass opt %s --sp-strip --split-input-file --verify-diagnostics

sdy.mesh @mesh = <["x"=2, "y"=4]>

func.func @manual_computation(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
  // expected-error @+1 {{error[not-supported]: a manual computation cannot be stripped: its body is written in local shapes}}
  %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"x"}, {}]>]
      out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x"} (%b: tensor<4x8xf32>) {
    sdy.return %b : tensor<4x8xf32>
  } : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}

// -----

func.func @manual_region(%a: tensor<8xf32>) -> tensor<8xf32> {
  // expected-error @+1 {{error[not-supported]: a manual computation cannot be stripped}}
  %0 = stablehlo.custom_call @SPMDFullToShardShape(%a) {mhlo.sharding = "{manual}"} : (tensor<8xf32>) -> tensor<1xf32>
  // expected-error @+1 {{error[not-supported]: a manual computation cannot be stripped}}
  %1 = stablehlo.custom_call @SPMDShardToFullShape(%0) {mhlo.sharding = "{devices=[8]<=[8]}"} : (tensor<1xf32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}
