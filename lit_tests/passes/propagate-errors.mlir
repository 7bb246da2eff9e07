// RUN: %shardpass opt %s --sp-propagate="warn-replicated-bytes=256" --split-input-file --verify-diagnostics

sdy.mesh @mesh = <["x"=2, "y"=4]>

// expected-warning @+2 {{warning[uneven-rewritten]: argument 0 ("arg0"), dimension 0: 6 elements into 4 pieces is uneven, and Shardy makes [{"y":(1)2}, {}] of [{"y"}, {}]}}
// expected-warning @+1 {{warning[uneven-rewritten]: result 0 ("result"), dimension 0: 6 elements into 4 pieces is uneven}}
func.func @main(%a: tensor<6x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>})
    -> (tensor<6x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>}) {
  return %a : tensor<6x8xf32>
}

// -----

sdy.mesh @a = <["x"=4]>
sdy.mesh @b = <["z"=2, "w"=2]>

func.func @main(%a: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@a, [{"x"}, {}]>},
                %b: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@b, [{"z"}, {}]>})
    -> tensor<8x4xf32> {
  // expected-warning @+1 {{warning[propagation-stopped]: propagation stops at stablehlo.add: its operands lie on different meshes, (x=4) and (z=2, w=2)}}
  %0 = stablehlo.add %a, %b : tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

// expected-warning @+2 {{warning[replicated]: argument 0 ("arg0"), 256 B, stays whole on every device}}
// expected-warning @+1 {{warning[replicated]: result 0 ("result"), 256 B, stays whole on every device}}
func.func @main(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
  // expected-warning @+1 {{warning[replicated]: the result of stablehlo.abs, 256 B, stays whole on every device}}
  %0 = stablehlo.abs %a : tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}

// -----

// Nothing to warn of: all of it is small or cut.

sdy.mesh @mesh = <["x"=2, "y"=4]>

func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
                %small: tensor<7xf32>) -> tensor<8x8xf32> {
  %0 = stablehlo.abs %a : tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}

// -----

func.func @main(%a: tensor<?xf32>) -> tensor<?xf32> {
  // expected-error @+1 {{error[mlir]: Shardy propagation only supports ranked tensors with a static shape}}
  %0 = stablehlo.abs %a : tensor<?xf32>
  return %0 : tensor<?xf32>
}

// -----

// Partial results that nothing could reduce, on which Shardy ends the process.

sdy.mesh @mesh = <["x"=2, "y"=4]>

func.func @partial_results(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}], unreduced={"x"}>}) {
  // expected-error @+1 {{error[not-supported]: stablehlo.custom_call takes partial results over "x", and gives nothing that they could be reduced in}}
  stablehlo.custom_call @f(%a) {has_side_effect = true} : (tensor<8x8xf32>) -> ()
  return
}
