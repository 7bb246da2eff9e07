// RUN: %shardpass opt %s | %filecheck %s
// RUN: %shardpass opt --emit=hlo-proto -o %t.pb %s && %shardpass opt %t.pb | %filecheck %s
// RUN: %shardpass opt --emit=hlo %s > %t.hlo && %shardpass opt %t.hlo | %filecheck %s
// RUN: %shardpass opt --sp-import-mhlo --emit=portable=1.9.0 -o %t.vhlo %s
// RUN: %shardpass opt %t.vhlo | %filecheck %s --check-prefix=IMPORTED

HloModule step, input_output_alias={ {0}: (0, {}, may-alias) }, entry_computation_layout={(f32[8,4]{1,0})->(f32[8,4]{1,0}, f32[])}, num_partitions=8

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

// CHECK: module @step attributes {mhlo.num_partitions = 8 : i32
// CHECK: func.func @main
// CHECK-SAME: %arg0: tensor<8x4xf32> {mhlo.sharding = "{devices=[2,4]<=[8]}", tf.aliasing_output = 0 : i32}
// CHECK-SAME: -> (tensor<8x4xf32> {mhlo.sharding = "{devices=[2,4]<=[8]}"}, tensor<f32> {mhlo.sharding = "{replicated}"})
// CHECK: stablehlo.tanh %arg0 {mhlo.sharding = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"}
// CHECK: stablehlo.reduce
// CHECK-SAME: applies stablehlo.add across dimensions = [0, 1]
// IMPORTED: sdy.mesh @mesh = <["_axis_0"=2, "_axis_1"=4]>
// IMPORTED: %arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"_axis_0"}, {"_axis_1"}]>
ENTRY main {
  p = f32[8,4]{1,0} parameter(0), sharding={devices=[2,4]<=[8]}
  t = f32[8,4]{1,0} tanh(p), sharding={devices=[2,1,4]<=[8] last_tile_dim_replicate}
  z = f32[] constant(0)
  r = f32[] reduce(t, z), dimensions={0,1}, to_apply=sum
  ROOT o = (f32[8,4]{1,0}, f32[]) tuple(t, r), sharding={{devices=[2,4]<=[8]}, {replicated}}
}
