// RUN: %shardpass opt %s --sp-propagate | %filecheck %s --check-prefixes=BOTH,PLAIN
// RUN: %shardpass opt %s --sp-propagate=conservative | %filecheck %s --check-prefixes=BOTH,CONSERVATIVE
// RUN: %shardpass opt %s --pass-pipeline="sp-propagate{keep-sharding-rules debug-sharding-origins}" | %filecheck %s --check-prefix=NOTED

sdy.mesh @mesh = <["x"=4]>

// BOTH-LABEL: func.func @split_by_a_reshape
// BOTH-SAME: #sdy.sharding<@mesh, [{}, {"x"}]>
func.func @split_by_a_reshape(
    %a: tensor<2x30720xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>})
    -> tensor<2x6x5120xf32> {
  // PLAIN: stablehlo.reshape %arg0 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {"x":(1)2}, {}]>]>}
  // CONSERVATIVE: stablehlo.reshape %arg0 : (tensor<2x30720xf32>)
  // NOTED: stablehlo.reshape
  // NOTED-SAME: sdy.sharding_origins = [{"x:(1)2" = "input: 0"}]
  // NOTED-SAME: sdy.sharding_rule = #sdy.op_sharding_rule<
  %0 = stablehlo.reshape %a : (tensor<2x30720xf32>) -> tensor<2x6x5120xf32>
  return %0 : tensor<2x6x5120xf32>
}
