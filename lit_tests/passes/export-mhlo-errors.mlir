// RUN: %shardpass opt %s --sp-export-mhlo --split-input-file --verify-diagnostics

sdy.mesh @mesh = <["x"=2, "y"=4]>

func.func @every_one_is_reported(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
  // expected-error @+1 {{error[not-supported]: a manual computation (sdy.manual_computation) cannot be exported to mhlo.sharding yet}}
  %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"x"}, {}]>]
      out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x"} (%b: tensor<4x8xf32>) {
    sdy.return %b : tensor<4x8xf32>
  } : (tensor<8x8xf32>) -> tensor<8x8xf32>
  // expected-error @+1 {{error[not-supported]: a named computation (sdy.named_computation) cannot}}
  %1 = sdy.named_computation<"f">(%0) (%b: tensor<8x8xf32>) {
    sdy.return %b : tensor<8x8xf32>
  } : (tensor<8x8xf32>) -> tensor<8x8xf32>
  // expected-error @+1 {{error[not-supported]: a sharding group (sdy.sharding_group) cannot}}
  sdy.sharding_group %1 group_id=1 : tensor<8x8xf32>
  // expected-error @+1 {{error[mixed-notations]: stablehlo.abs carries both sdy.sharding and mhlo.sharding}}
  %2 = stablehlo.abs %1 {mhlo.sharding = "{replicated}", sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {}]>]>} : tensor<8x8xf32>
  return %2 : tensor<8x8xf32>
}

// -----

// Nothing is wrong here.

sdy.mesh @mesh = <["x"=2, "y"=4]>

func.func @plain(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
  return
}
