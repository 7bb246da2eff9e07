// RUN: %shardpass opt %s --sp-import-mhlo=mesh=x=3,y=4 --split-input-file --verify-diagnostics

// Every value that the mesh asked for has no axes for.

func.func @misfits(%a: tensor<12x12xf32> {mhlo.sharding = "{devices=[3,4]<=[12]}"},
                   // expected-error @+1 {{error[not-expressible]: argument 1 ("arg1"): {devices=[4,3]<=[12]} does not cut "y"=4 into whole sub-axes}}
                   %b: tensor<12x12xf32> {mhlo.sharding = "{devices=[4,3]<=[12]}"}) -> tensor<12x12xf32> {
  // expected-error @+1 {{error[not-expressible]: the result of stablehlo.custom_call @Sharding: {devices=[2,6]<=[12]} does not cut "x"=3 into whole sub-axes}}
  %0 = stablehlo.custom_call @Sharding(%a) {mhlo.sharding = "{devices=[2,6]<=[12]}"} : (tensor<12x12xf32>) -> tensor<12x12xf32>
  return %0 : tensor<12x12xf32>
}

// -----

// Another number of devices.

// expected-error @+1 {{error[not-expressible]: argument 0 ("arg0"): {devices=[8]<=[8]} is for 8 devices, the mesh x=3, y=4 has 12}}
func.func @another_count(%a: tensor<8xf32> {mhlo.sharding = "{devices=[8]<=[8]}"}) {
  return
}

// -----

// Nothing is wrong here.

func.func @fits(%a: tensor<12xf32> {mhlo.sharding = "{devices=[12]<=[12]}"}) {
  return
}
