// RUN: %shardpass opt %s '--pass-pipeline=sp-name-axes{mesh=data=3,model=4}' --split-input-file --verify-diagnostics
// RUN: not %shardpass opt %s --split-input-file --sp-name-axes 2>&1 | %filecheck %s --check-prefix NONE

// NONE: error[bad-option]: sp-name-axes has no mesh

sdy.mesh @mesh = <["_axis_0"=4, "_axis_1"=3]>
// expected-error @+1 {{error[not-expressible]: argument 0 ("arg0"): "_axis_0" of _axis_0=4, _axis_1=3 does not cut "model"=4 into whole sub-axes}}
func.func @another_order(%a: tensor<12xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"_axis_0"}]>}) {
  // expected-error @+1 {{error[not-expressible]: sdy.sharding_constraint: "_axis_1" of _axis_0=4, _axis_1=3 does not cut "model"=4}}
  %0 = sdy.sharding_constraint %a <@mesh, [{"_axis_1"}]> : tensor<12xf32>
  return
}

// -----

sdy.mesh @mesh = <["_axis_0"=6, "_axis_1"=2]>
func.func @part_of_an_axis(%a: tensor<12xf32>) -> tensor<12xf32> {
  // expected-error @+1 {{error[not-expressible]: manual_axes of sdy.manual_computation: "_axis_1" of _axis_0=6, _axis_1=2 is "model":(2)2 of data=3, model=4, and only whole axes can be manual}}
  %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"_axis_1"}]>] out_shardings=[<@mesh, [{"_axis_1"}]>] manual_axes={"_axis_1"} (%b: tensor<6xf32>) {
    sdy.return %b : tensor<6xf32>
  } : (tensor<12xf32>) -> tensor<12xf32>
  return %0 : tensor<12xf32>
}

// -----

// expected-error @+1 {{error[device-count]: data=3, model=4 has 12 devices, and @mesh (_axis_0=8) has 8}}
sdy.mesh @mesh = <["_axis_0"=8]>
func.func @another_number_of_devices(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"_axis_0"}]>}) {
  return
}

// -----

// expected-error @+1 {{error[already-annotated]: the module is annotated in GSPMD's notation already}}
func.func @not_imported(%a: tensor<12xf32> {mhlo.sharding = "{devices=[12]<=[12]}"}) {
  return
}

// -----

// Nothing is wrong here.

sdy.mesh @mesh = <["_axis_0"=12]>
func.func @expressible(%a: tensor<12xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"_axis_0"}]>}) {
  return
}
