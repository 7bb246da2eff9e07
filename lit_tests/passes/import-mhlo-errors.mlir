// RUN: %shardpass opt %s --sp-import-mhlo --split-input-file --verify-diagnostics

func.func @every_one_is_reported(%a: tensor<8xf32>) -> tensor<8xf32> {
  // expected-error @+1 {{error[syntax]: @Sharding with backend_config = "dims=[0]", which is not understood}}
  %0 = stablehlo.custom_call @Sharding(%a) {backend_config = "dims=[0]", mhlo.sharding = "{devices=[8]<=[8]}"} : (tensor<8xf32>) -> tensor<8xf32>
  // expected-error @+1 {{error[syntax]: @Sharding with backend_config = "x", which is not understood}}
  %1 = stablehlo.custom_call @Sharding(%0) {backend_config = "x", mhlo.sharding = "{devices=[8]<=[8]}"} : (tensor<8xf32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}

// -----

func.func @enters_without_a_sharding(%a: tensor<8xf32>) -> tensor<8xf32> {
  // expected-error @+1 {{error[missing-sharding]: what enters a manual region by @SPMDFullToShardShape carries no mhlo.sharding}}
  %0 = stablehlo.custom_call @SPMDFullToShardShape(%a) {mhlo.sharding = "{manual}"} : (tensor<8xf32>) -> tensor<1xf32>
  %1 = stablehlo.custom_call @SPMDShardToFullShape(%0) {mhlo.sharding = "{devices=[8]<=[8]}"} : (tensor<1xf32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}

// -----

// expected-note @+2 {{argument 0 ("arg0") is {devices=[3,4]<=[12]}}}
// expected-note @+2 {{argument 1 ("arg1") is {devices=[4,3]<=[12]}}}
func.func @no_common_mesh(%a: tensor<12x12xf32> {mhlo.sharding = "{devices=[3,4]<=[12]}"},
                          %b: tensor<12x12xf32> {mhlo.sharding = "{devices=[4,3]<=[12]}"}) {
  // expected-error @-1 {{error[not-expressible]: argument 1 ("arg1") and argument 0 ("arg0"): no mesh has both {devices=[4,3]<=[12]} and {devices=[3,4]<=[12]} for axes: one cuts the 12 devices into runs of 3, the other into runs of 4}}
  return
}

// -----

// expected-error @+1 {{error[syntax]: argument 0 ("arg0"): mhlo.sharding cannot be read}}
func.func @not_a_sharding(%a: tensor<8xf32> {mhlo.sharding = "{devices=[banana"}) {
  return
}

// -----

// Nothing is wrong here.

func.func @plain(%a: tensor<8xf32> {mhlo.sharding = "{devices=[8]<=[8]}"}) {
  return
}

// -----

func.func @round_trip_entries(%a: tensor<8xf32>) -> tensor<8xf32> {
  // expected-error @+1 {{error[not-supported]: @xla.sdy.PropagationBarrier with xla.sdy.allowed_direction = 9, which is no direction}}
  %0 = stablehlo.custom_call @xla.sdy.PropagationBarrier(%a) {mhlo.frontend_attributes = {xla.sdy.allowed_direction = "9 : i32"}} : (tensor<8xf32>) -> tensor<8xf32>
  // expected-error @+1 {{error[missing-sharding]: the custom call @xla.sdy.FuncResultSharding carries no xla.sdy.sharding}}
  %1 = stablehlo.custom_call @xla.sdy.FuncResultSharding(%0) : (tensor<8xf32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}

// -----

func.func @half_a_region(%a: tensor<8xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{error[unpaired-manual]: @xla.sdy.GlobalToLocalShape stands at no call of a function that is the body of a manual computation}}
  %0 = stablehlo.custom_call @xla.sdy.GlobalToLocalShape(%a) : (tensor<8xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-error @+1 {{error[misplaced-sharding]: func.func carries an mhlo.sharding, and has no value that it could lay out}}
func.func @of_a_function() attributes {mhlo.sharding = "{devices=[8]<=[8]}"} {
  // expected-error @+1 {{error[misplaced-sharding]: func.return carries an mhlo.sharding}}
  return {mhlo.sharding = "{devices=[8]<=[8]}"}
}

// -----

// expected-error @+1 {{error[dynamic-shape]: argument 0 ("arg0") is tensor<?xf32>: a dimension without a static size cannot be cut}}
func.func @dynamic(%a: tensor<?xf32> {mhlo.sharding = "{devices=[8]<=[8]}"}) {
  return
}

// -----

module attributes {mhlo.num_partitions = 4 : i32} {
// expected-error @+1 {{error[device-count]: argument 0 ("arg0"): {devices=[8]<=[8]} is for 8 devices, there are 4}}
func.func @another_count(%a: tensor<8xf32> {mhlo.sharding = "{devices=[8]<=[8]}"}) {
  return
}
}

// -----

// expected-error @+1 {{error[indivisible]: argument 0 ("arg0"), dimension 0: 6 elements into 4 pieces}}
func.func @uneven(%a: tensor<6xf32> {mhlo.sharding = "{devices=[4]<=[4]}"}) {
  return
}

// -----

// expected-remark @+1 {{remark[mesh-mismatch]: the module has the mesh @grid (x=3, y=4) already, and what is imported is on another (_axis_0=4, _axis_1=3): propagation stops between the two}}
sdy.mesh @grid = <["x"=3, "y"=4]>
func.func @a_second_mesh(%a: tensor<12x12xf32> {sdy.sharding = #sdy.sharding<@grid, [{"x"}, {"y"}]>},
                         %b: tensor<12x12xf32> {mhlo.sharding = "{devices=[4,3]<=[12]}"}) {
  return
}

// -----

// What names a device that is not there is at fault, not what is over all that are.

// expected-note @+1 {{argument 0 ("arg0") is {devices=[8]<=[8]}}}
func.func @beyond(%a: tensor<8xf32> {mhlo.sharding = "{devices=[8]<=[8]}"},
                  // expected-error @+1 {{error[device-count]: argument 1 ("arg1"): {maximal device=9} names a device beyond the 8 that there are}}
                  %b: tensor<8xf32> {mhlo.sharding = "{maximal device=9}"}) {
  return
}

// -----

// Local shapes that are not what a device holds.

func.func @local_shapes(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = stablehlo.custom_call @Sharding(%a) {mhlo.sharding = "{devices=[4,1]<=[4]}"} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  // expected-error @+1 {{error[shape-mismatch]: @SPMDFullToShardShape: tensor<4x8xf32> is inside of the manual region and tensor<8x8xf32> outside, of which a device holds tensor<2x8xf32>}}
  %1 = stablehlo.custom_call @SPMDFullToShardShape(%0) {mhlo.sharding = "{manual}"} : (tensor<8x8xf32>) -> tensor<4x8xf32>
  %2 = stablehlo.custom_call @Sharding(%1) {mhlo.sharding = "{manual}"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  // expected-error @+1 {{error[shape-mismatch]: @SPMDShardToFullShape: tensor<4x8xf32> is inside of the manual region and tensor<8x8xf32> outside, of which a device holds tensor<8x2xf32>}}
  %3 = stablehlo.custom_call @SPMDShardToFullShape(%2) {mhlo.sharding = "{devices=[1,4]<=[4]}"} : (tensor<4x8xf32>) -> tensor<8x8xf32>
  return %3 : tensor<8x8xf32>
}
