// RUN: %shardpass opt %s --sp-merge-meshes --split-input-file --verify-diagnostics
// RUN: not %shardpass opt %s '--pass-pipeline=sp-merge-meshes{keep=mush}' --split-input-file 2>&1 | %filecheck %s --check-prefix KEEP

// KEEP: error[bad-option]: option keep of sp-merge-meshes: there is no mesh @mush

// Runs of 3 devices in one, runs of 2 in the other.

sdy.mesh @a = <["x"=2, "y"=3]>
sdy.mesh @b = <["p"=3, "q"=2]>
// expected-error @+2 {{error[not-expressible]: argument 1 ("arg1"): "p" of p=3, q=2 does not cut "y"=3 into whole sub-axes}}
func.func @no_common_axes(%a: tensor<6x6xf32> {sdy.sharding = #sdy.sharding<@a, [{"x"}, {}]>},
                          %b: tensor<6x6xf32> {sdy.sharding = #sdy.sharding<@b, [{"p"}, {}]>}) {
  // expected-error @+1 {{error[not-expressible]: sdy.sharding_constraint: "p" of p=3, q=2 does not cut "y"=3}}
  %0 = sdy.sharding_constraint %a <@b, [{}, {"p"}]> : tensor<6x6xf32>
  return
}

// -----

sdy.mesh @a = <["x"=4]>
// expected-error @+1 {{error[device-order]: @b: the devices of y=4 stand in an order that no axes of x=4 have}}
sdy.mesh @b = <["y"=4], device_ids=[3, 1, 0, 2]>
func.func @no_common_order(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@a, [{"x"}]>},
                           %b: tensor<8xf32> {sdy.sharding = #sdy.sharding<@b, [{"y"}]>}) {
  return
}

// -----

// expected-warning @+1 {{warning[mesh-mismatch]: @four (f=4) has 4 devices and stays apart from @mesh, which has 8: propagation stops between the two}}
sdy.mesh @four = <["f"=4]>
sdy.mesh @mesh = <["x"=8]>
func.func @two_sizes(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@four, [{"f"}]>},
                     %b: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
  return
}

// -----

// Nothing is wrong here.

sdy.mesh @mesh = <["x"=8]>
func.func @one(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
  return
}
