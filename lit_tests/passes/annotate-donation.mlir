// RUN: %shardpass opt %s --split-input-file --sp-annotate="rules='"%S/Inputs/annotate-donation.toml"'" | %filecheck %s

// CHECK-LABEL: func.func @result_follows_its_donated_argument
func.func @result_follows_its_donated_argument(
    // CHECK-SAME: %arg0: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>, tf.aliasing_output = 1 : i32}
    %w: tensor<8x16xf32> {tf.aliasing_output = 1 : i32} loc("state['w']"))
    // CHECK-SAME: -> (tensor<f32>, tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>})
    -> (tensor<f32>, tensor<8x16xf32>) {
  %0 = stablehlo.constant dense<0.0> : tensor<f32>
  return %0, %w : tensor<f32>, tensor<8x16xf32>
}

// -----

// CHECK-LABEL: func.func @rule_for_the_result_wins
func.func @rule_for_the_result_wins(
    // CHECK-SAME: %arg0: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>
    %w: tensor<8x16xf32> {tf.aliasing_output = 0 : i32} loc("state['w']"))
    // CHECK-SAME: -> (tensor<8x16xf32> {jax.result_info = "result['named']", sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>})
    -> (tensor<8x16xf32> {jax.result_info = "result['named']"}) {
  return %w : tensor<8x16xf32>
}

// -----

// Nothing to follow: the argument is not donated.

// CHECK-LABEL: func.func @result_without_donation
// CHECK-SAME: -> tensor<8x16xf32> {
func.func @result_without_donation(%w: tensor<8x16xf32> loc("state['w']")) -> tensor<8x16xf32> {
  return %w : tensor<8x16xf32>
}
