// RUN: %shardpass opt %s --sp-verify --split-input-file --verify-diagnostics

module attributes {mhlo.num_partitions = 8 : i32} {
  func.func @text(
      // JAX gives the argument a name for a place, so that the function's place has to do.
      // expected-error @-2 {{error[syntax]: argument 0 ("params.w"): mhlo.sharding cannot be read}}
      %a: tensor<8xf32> {mhlo.sharding = "{devices=[banana"} loc("params['w']"),
      // expected-error @+1 {{error[duplicate-device]: argument 1}}
      %b: tensor<8xf32> {mhlo.sharding = "{devices=[8]0,0,1,2,3,4,5,6}"},
      // expected-error @+1 {{error[rank-mismatch]: argument 2}}
      %c: tensor<8xf32> {mhlo.sharding = "{devices=[2,4]<=[8]}"},
      // expected-error @+1 {{error[device-count]: argument 3 ("arg3"): {devices=[4]<=[4]} is for 4 devices, there are 8}}
      %d: tensor<8xf32> {mhlo.sharding = "{devices=[4]<=[4]}"},
      // expected-error @+1 {{error[indivisible]: argument 4 ("arg4"), dimension 0: 19 elements into 8 pieces}}
      %e: tensor<19xf32> {mhlo.sharding = "{devices=[8]<=[8]}"},
      %fine: tensor<16xf32> {mhlo.sharding = "{devices=[8]<=[8]}"}) {
    return
  }
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

// expected-error @+1 {{error[indivisible]: result 0 ("result"), dimension 0: 7 elements into 2 pieces}}
func.func @values(
    // expected-error @+1 {{error[mixed-notations]: argument 0 ("arg0") carries both sdy.sharding and mhlo.sharding}}
    %a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>, mhlo.sharding = "{replicated}"},
    // expected-error @+1 {{error[dynamic-shape]: argument 1 ("arg1") is tensor<?xf32>: a dimension without a static size cannot be cut}}
    %b: tensor<?xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>},
    %c: tensor<7xf32>) -> (tensor<7xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
  return %c : tensor<7xf32>
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

// expected-error @+2 {{error[alias-layout]: result 0 ("result.0") takes over the buffer of argument 0 ("arg0"), and their shards differ in size: 4x8 and 8x2}}
// expected-warning @+1 {{warning[alias-layout]: result 1 ("result.1") takes over the buffer of argument 1 ("arg1") under another layout}}
func.func @donated(
    %a: tensor<8x8xf32> {tf.aliasing_output = 0 : i32, sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
    %b: tensor<8x8xf32> {tf.aliasing_output = 1 : i32, sdy.sharding = #sdy.sharding<@mesh, [{"x", "y"}, {}]>})
    -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>},
        tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y", "x"}, {}]>}) {
  return %a, %b : tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

func.func @calls(%a: tensor<8xf32>) -> tensor<1xf32> {
  // expected-error @+1 {{error[missing-sharding]: the custom call @Sharding carries no mhlo.sharding}}
  %0 = stablehlo.custom_call @Sharding(%a) : (tensor<8xf32>) -> tensor<8xf32>
  // expected-error @+1 {{error[unpaired-manual]: the manual region entered by this @SPMDFullToShardShape is not left before the function returns}}
  %1 = stablehlo.custom_call @SPMDFullToShardShape(%0) {mhlo.sharding = "{manual}"} : (tensor<8xf32>) -> tensor<1xf32>
  return %1 : tensor<1xf32>
}

// -----

module attributes {mhlo.num_partitions = 4 : i32} {
  // expected-error @+1 {{error[device-count]: mesh @mesh (x=2, y=4) has 8 devices, and the module is for 4 (mhlo.num_partitions)}}
  sdy.mesh @mesh = <["x"=2, "y"=4]>
  func.func @main() { return }
}

// -----

// What Shardy's own verifier rejects, with the same care.

sdy.mesh @mesh = <["x"=2, "y"=4]>

func.func @main(
    // expected-error @+1 {{error[mlir]: argument 0 ("w"): unknown axis name: "z"}}
    %a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"z"}]>} loc("w")) {
  return
}

// -----

// expected-error @+1 {{error[device-count]: mesh @six (x=6) has 6 devices, and there are 8}}
sdy.mesh @six = <["x"=6]>
// expected-note @+1 {{argument 0 ("arg0") is {devices=[8]<=[8]}}}
func.func @counts(%a: tensor<8xf32> {mhlo.sharding = "{devices=[8]<=[8]}"}, %b: tensor<6xf32> {sdy.sharding = #sdy.sharding<@six, [{"x"}]>}) {
  return
}
