// RUN: %shardpass opt %s --sp-partition --split-input-file --verify-diagnostics

sdy.mesh @mesh = <["x"=2, "y"=4]>

// All that does not divide, in one run.

// expected-error @+3 {{error[indivisible]: argument 0 ("arg0") of @main, dimension 0: 6 elements into 4 pieces}}
// expected-error @+2 {{error[indivisible]: result 0 ("result.0") of @main, dimension 0: 6 elements into 4 pieces}}
// expected-error @+1 {{error[indivisible]: result 1 ("result.1") of @main, dimension 1: 5 elements into 2 pieces}}
func.func @main(%a: tensor<6x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>},
                // expected-error @+1 {{error[indivisible]: the result of sdy.reshard, dimension 1: 5 elements into 2 pieces}}
                %b: tensor<3x5xf32>)
    -> (tensor<6x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>},
        tensor<3x5xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>}) {
  return %a, %b : tensor<6x8xf32>, tensor<3x5xf32>
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

// expected-error @+1 {{error[not-propagated]: argument 0 ("arg0") of @main: [{"x", ?}, {}] has open dimensions, which propagation closes}}
func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}, {}]>})
    -> tensor<8x8xf32> {
  return %a : tensor<8x8xf32>
}

// -----

module attributes {mhlo.num_partitions = 4 : i32} {
  sdy.mesh @mesh = <["x"=2, "y"=4]>
  // expected-error @+1 {{error[device-count]: the mesh x=2, y=4 has 8 devices, and the module is for 4 (mhlo.num_partitions)}}
  func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
      -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
    return %a : tensor<8x8xf32>
  }
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
    -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
  // expected-error @+1 {{error[not-partitionable]: stablehlo.custom_call: what its sharding rule says runs through it is not cut everywhere alike}}
  %0 = stablehlo.custom_call @foo(%a)
    {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>,
     sdy.sharding_rule = #sdy.op_sharding_rule<([i, j])->([k, l]) {i=8, j=8, k=8, l=8}, custom>}
    : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  // expected-error @+1 {{error[not-partitionable]: stablehlo.pad: dimension 0 is cut, and moved by as much as it is cropped}}
  %1 = stablehlo.pad %0, %zero, low = [-1, 0], high = [1, 0], interior = [0, 0]
    {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>}
    : (tensor<8x8xf32>, tensor<f32>) -> tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
    -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}) {
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  // expected-error @+1 {{error[not-partitionable]: partial results are to be combined by stablehlo.multiply, and Shardy of this jaxlib combines by}}
  %0 = stablehlo.reduce(%a init: %one) applies stablehlo.multiply across dimensions = [0]
    : (tensor<8x8xf32>, tensor<f32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

// expected-error @+1 {{error[not-partitionable]: argument 0 ("arg0") of @main holds partial results over "x"}}
func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}], unreduced={"x"}>})
    -> tensor<8x8xf32> {
  return %a : tensor<8x8xf32>
}

// -----

// Nothing to say.

sdy.mesh @mesh = <["x"=2, "y"=4]>

func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
    -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>}) {
  %0 = stablehlo.abs %a {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>}
    : tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
