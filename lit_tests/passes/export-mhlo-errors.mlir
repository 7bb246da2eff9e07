// RUN: %shardpass opt %s --sp-export-mhlo --split-input-file --verify-diagnostics

sdy.mesh @mesh = <["x"=2, "y"=4]>

func.func @every_one_is_reported(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
  // expected-error @+1 {{error[mixed-notations]: stablehlo.abs carries both sdy.sharding and mhlo.sharding}}
  %0 = stablehlo.abs %a {mhlo.sharding = "{replicated}", sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {}]>]>} : tensor<8x8xf32>
  // expected-error @+1 {{error[mixed-notations]: stablehlo.negate carries both sdy.sharding and mhlo.sharding}}
  %1 = stablehlo.negate %0 {mhlo.sharding = "{replicated}", sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {}]>]>} : tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

func.func @inside_and_outside(%a: tensor<8x8xf32>, %s: tensor<4x8xf32>) -> tensor<8x8xf32> {
  %0 = func.call @f(%s) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"x"}, {}]>]
      out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x"} (%b: tensor<4x8xf32>) {
    // expected-error @+1 {{error[not-supported]: @f holds shardings and is called where none and where "x" are manual}}
    %2 = func.call @f(%b) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    sdy.return %2 : tensor<4x8xf32>
  } : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}
func.func private @f(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = sdy.sharding_constraint %a <@mesh, [{}, {"y"}]> : tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

// Nothing is wrong here.

sdy.mesh @mesh = <["x"=2, "y"=4]>

func.func @plain(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
  return
}

// -----

// Tiles over another number of devices than the first.

sdy.mesh @mesh = <["x"=2, "y"=4]>
sdy.mesh @half = <["x"=4]>

func.func @two_meshes(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
  // expected-note @+1 {{{devices=[2,1,4]<=[8] last_tile_dim_replicate} is here}}
  %0 = stablehlo.abs %a {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>} : tensor<8x8xf32>
  // expected-error @+1 {{error[device-count]: {devices=[4,1]<=[4]} is for 4 devices, and {devices=[2,1,4]<=[8] last_tile_dim_replicate} is for 8}}
  %1 = stablehlo.abs %0 {sdy.sharding = #sdy.sharding_per_value<[<@half, [{"x"}, {}]>]>} : tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}

// -----

// A single device that is not there.

sdy.mesh @mesh = <["x"=2, "y"=4]>
sdy.mesh @maximal_mesh_9 = <[], device_ids=[9]>

func.func @beyond(%a: tensor<8x8xf32>) {
  // expected-error @+1 {{error[device-count]: {maximal device=9} names a device beyond the 8 that there are}}
  stablehlo.custom_call @f(%a) {has_side_effect = true, sdy.sharding = #sdy.sharding_per_value<[<@maximal_mesh_9, []>]>} : (tensor<8x8xf32>) -> ()
  return
}
