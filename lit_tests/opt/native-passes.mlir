// RUN: %shardpass opt %s --sdy-close-shardings --split-input-file | %filecheck %s
// RUN: %shardpass opt %s -sdy-close-shardings -split-input-file -- | %filecheck %s

// A native pass that is named runs on the module as it is: no function has to be @main.

sdy.mesh @mesh = <["x"=2]>

// CHECK-LABEL: func.func @first
// CHECK-SAME: [{"x"}, {}]>
func.func @first(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}, {?}]>}) {
  return
}

// CHECK-LABEL: func.func @second
// CHECK-SAME: [{}, {"x"}]>
func.func @second(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}, {"x", ?}]>}) {
  return
}

// -----

sdy.mesh @mesh = <["x"=2]>

// A module with nothing to do.
// CHECK-LABEL: func.func @closed_already
// CHECK-SAME: [{"x"}, {}]>
func.func @closed_already(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
  return
}

// -----

// CHECK: sdy.mesh @alone = <["x"=2]>
sdy.mesh @alone = <["x"=2]>

// -----

// Quantized types are read and printed as any others.
// CHECK-LABEL: func.func @quantized
// CHECK-SAME: tensor<8x!quant.uniform<i8:f32, 2.000000e+00:15>>
func.func @quantized(%a: tensor<8x!quant.uniform<i8:f32, 2.0:15>>) {
  return
}
