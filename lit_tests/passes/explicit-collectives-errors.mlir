// RUN: %shardpass opt %s --sp-explicit-collectives --split-input-file --verify-diagnostics

sdy.mesh @mesh = <["x"=2, "y"=4]>

// expected-error @+1 {{error[not-propagated]: argument 0 ("arg0") of @main: [{"x", ?}, {}] has open dimensions, and of 1 more values, which propagation closes}}
func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}, {}]>})
    -> tensor<8x8xf32> {
  // expected-error @+1 {{error[not-propagated]: sdy.sharding_group is still there, which propagation consumes}}
  sdy.sharding_group %a group_id=0 : tensor<8x8xf32>
  %0 = sdy.sharding_constraint %a <@mesh, [{?}, {?}]> : tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

// expected-warning @+1 {{warning[not-propagated]: argument 0 ("arg0") of @main is cut, and stablehlo.abs, which takes it, has no sharding}}
func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
    -> tensor<8x8xf32> {
  %0 = stablehlo.abs %a : tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}

// -----

sdy.mesh @a = <["x"=4]>
sdy.mesh @b = <["z"=2, "w"=2]>

// expected-error @+2 {{error[mesh-mismatch]: argument 1 ("arg1") of @main is on mesh z=2, w=2, and others are on x=4}}
func.func @main(%a: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@a, [{"x"}, {}]>},
                %b: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@b, [{"z"}, {}]>})
    -> tensor<8x4xf32> {
  %0 = stablehlo.add %a, %b : tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>
sdy.mesh @one = <[], device_ids=[3]>

// expected-error @+2 {{error[not-supported]: argument 1 ("arg1") of @main is on the single device 3}}
func.func @main(%a: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
                %b: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@one, []>})
    -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
  return %a : tensor<8x4xf32>
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

// expected-error @+1 {{error[dynamic-shape]: func.func has a value of type tensor<?x8xf32>}}
func.func @main(%a: tensor<?x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>})
    -> tensor<?x8xf32> {
  // expected-error @+1 {{error[dynamic-shape]: stablehlo.abs has a value of type tensor<?x8xf32>: a dimension without a static size cannot be cut}}
  %0 = stablehlo.abs %a : tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// -----

// expected-error @+1 {{error[already-annotated]: the module is annotated in GSPMD's notation already}}
func.func @main(%a: tensor<8x8xf32> {mhlo.sharding = "{devices=[2,1]<=[2]}"}) -> tensor<8x8xf32> {
  return %a : tensor<8x8xf32>
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

// expected-warning @+4 {{warning[not-expressible]: sdy.all_reduce stands for a combination by stablehlo.multiply, which it cannot say}}
func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
    -> tensor<8xf32> {
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %0 = stablehlo.reduce(%a init: %one) applies stablehlo.multiply across dimensions = [0]
    : (tensor<8x8xf32>, tensor<f32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
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
