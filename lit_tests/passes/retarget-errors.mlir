// RUN: %shardpass opt %s '--pass-pipeline=sp-retarget{mesh=data=3,model=2}' --split-input-file --verify-diagnostics
// RUN: not %shardpass opt %s '--pass-pipeline=sp-retarget{mesh=data=3 indivisible=pad}' 2>&1 | %filecheck %s --check-prefix OPTION

// OPTION: error[bad-option]: option "indivisible" of sp-retarget: 'pad' is not one of error, replicate

sdy.mesh @mesh = <["data"=4, "model"=2]>
// expected-error @+3 {{error[indivisible]: argument 0 ("arg0"), dimension 0: 16 elements into 3 pieces}}
// expected-error @+2 {{error[indivisible]: argument 1 ("arg1"), dimension 1: 8 elements into 3 pieces}}
// expected-error @+1 {{error[indivisible]: result 0 ("result"), dimension 0: 16 elements into 3 pieces}}
func.func @no_longer_divides(%a: tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}, %b: tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"data"}]>}) -> (tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}) {
  // expected-error @+1 {{error[indivisible]: sdy.sharding_constraint, dimension 0: 16 elements into 6 pieces}}
  %0 = sdy.sharding_constraint %a <@mesh, [{"data", "model"}, {}]> : tensor<16x8xf32>
  // expected-error @+1 {{error[indivisible]: the result of stablehlo.negate, dimension 0: 16 elements into 3 pieces}}
  %1 = stablehlo.negate %0 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"data"}, {}]>]>} : tensor<16x8xf32>
  return %1 : tensor<16x8xf32>
}

// -----

sdy.mesh @mesh = <["data"=4, "pipe"=2]>
// expected-error @+1 {{error[unknown-axis]: argument 0 ("arg0"): axis "pipe" is not in the mesh data=3, model=2}}
func.func @an_axis_that_is_gone(%a: tensor<12xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"pipe"}]>}) -> tensor<12xf32> {
  // expected-error @+1 {{error[bad-sub-axis]: sdy.sharding_constraint: "data":(1)2 of "data"=4 has no like in "data"=3}}
  %0 = sdy.sharding_constraint %a <@mesh, [{"data":(1)2}]> : tensor<12xf32>
  return %0 : tensor<12xf32>
}

// -----

sdy.mesh @mesh = <["data"=4, "model"=2]>
func.func @baked_in(%a: tensor<12xf32>) -> tensor<12xf32> {
  // expected-error @+1 {{error[not-supported]: manual_axes of sdy.manual_computation: the region is manual over "data", whose size goes from 4 to 3: its body is written for the shapes of one device}}
  %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"data"}]>] out_shardings=[<@mesh, [{"data"}]>] manual_axes={"data"} (%b: tensor<3xf32>) {
    // expected-error @+1 {{error[not-supported]: stablehlo.partition_id asks for the number of the device, out of as many as there were}}
    %1 = stablehlo.partition_id : tensor<ui32>
    // expected-error @+1 {{error[not-supported]: stablehlo.collective_permute lists the devices that send and receive (source_target_pairs)}}
    %2 = "stablehlo.collective_permute"(%b) {source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<3xf32>) -> tensor<3xf32>
    // expected-error @+1 {{error[not-supported]: stablehlo.all_reduce lists the devices that take part (replica_groups)}}
    %3 = "stablehlo.all_reduce"(%2) ({
    ^bb0(%c: tensor<f32>, %d: tensor<f32>):
      %4 = stablehlo.add %c, %d : tensor<f32>
      stablehlo.return %4 : tensor<f32>
    }) {replica_groups = dense<[[0, 2, 4, 6], [1, 3, 5, 7]]> : tensor<2x4xi64>} : (tensor<3xf32>) -> tensor<3xf32>
    sdy.return %3 : tensor<3xf32>
  } : (tensor<12xf32>) -> tensor<12xf32>
  return %0 : tensor<12xf32>
}

// -----

// expected-error @+2 {{error[mesh-mismatch]: the module has several meshes, x=8 and y=8 among them, and one is to take their place}}
sdy.mesh @a = <["x"=8]>
sdy.mesh @b = <["y"=8]>
// expected-error @+1 {{error[device-count]: values are on device 7, and data=3, model=2 has 6 devices}}
sdy.mesh @maximal_mesh_7 = <[], device_ids=[7]>
func.func @several_meshes(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@a, [{"x"}]>},
                          %b: tensor<8xf32> {sdy.sharding = #sdy.sharding<@b, [{"y"}]>}) {
  return
}

// -----

module attributes {mhlo.num_partitions = 4 : i32} {
// expected-error @+1 {{error[device-count]: the mesh data=4, model=2 has 8 devices, and the module is for 4 (mhlo.num_partitions)}}
sdy.mesh @mesh = <["data"=4, "model"=2]>
func.func @another_count(%a: tensor<12xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}]>}) {
  return
}
}

// -----

// expected-error @+1 {{error[already-annotated]: the module is annotated in GSPMD's notation already}}
func.func @not_imported(%a: tensor<12xf32> {mhlo.sharding = "{devices=[4]<=[4]}"}) {
  return
}

// -----

sdy.mesh @mesh = <["data"=4, "model"=2]>
// expected-warning @+1 {{warning[dynamic-shape]: argument 0 ("arg0"), dimension 0: whether its size, which is not static, goes into 3 pieces is not known}}
func.func @not_known(%a: tensor<?xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}]>}) {
  return
}

// -----

// expected-warning @+1 {{warning[device-order]: the mesh data=4 lists its devices in an order of its own, which goes with it}}
sdy.mesh @mesh = <["data"=4], device_ids=[3, 1, 0, 2]>
func.func @an_order_of_its_own(%a: tensor<12xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}]>}) {
  return
}

// -----

// Nothing is wrong here.

sdy.mesh @mesh = <["data"=4, "model"=2]>
func.func @divides(%a: tensor<12xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}]>}) {
  return
}
