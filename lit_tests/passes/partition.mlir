// RUN: %shardpass opt %s --split-input-file --sp-propagate --sp-partition | %filecheck %s
// RUN: %shardpass opt %s --split-input-file --sp-propagate --sp-partition="wrap=true" | %filecheck %s --check-prefix=WRAP

sdy.mesh @mesh = <["x"=2, "y"=4]>

// CHECK: module attributes {mhlo.num_partitions = 8 : i32}
// CHECK-NOT: sdy.
// CHECK-LABEL: func.func @product_over_a_cut_dimension
// CHECK-SAME: %arg0: tensor<8x8xf32>, %arg1: tensor<8x64xf32>) -> (tensor<8x64xf32> {jax.result_info = "out"})
// WRAP-LABEL: func.func @product_over_a_cut_dimension
// WRAP-SAME: %arg0: tensor<16x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>}
// WRAP-SAME: -> (tensor<16x64xf32> {jax.result_info = "out", sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
func.func @product_over_a_cut_dimension(
    %a: tensor<16x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>},
    %b: tensor<32x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>})
    -> (tensor<16x64xf32> {jax.result_info = "out"}) {
  // CHECK: %[[DOT:.+]] = stablehlo.dot_general %arg0, %arg1
  // CHECK-SAME: (tensor<8x8xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
  // CHECK: %[[SUM:.+]] = "stablehlo.all_reduce"(%[[DOT]])
  // CHECK-SAME: replica_groups = dense<{{\[\[}}0, 1, 2, 3], [4, 5, 6, 7]]>
  // CHECK: return %[[SUM]]
  // CHECK-NOT: sdy.
  // WRAP: sdy.manual_computation(%arg0, %arg1)
  // WRAP-SAME: in_shardings=[<@mesh, [{"x"}, {"y"}]>, <@mesh, [{"y"}, {}]>]
  // WRAP-SAME: out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x", "y"}
  // WRAP-SAME: (%arg2: tensor<8x8xf32>, %arg3: tensor<8x64xf32>) {
  // WRAP: "stablehlo.all_reduce"
  // WRAP: sdy.return %{{.+}} : tensor<8x64xf32>
  // WRAP: return %{{.+}} : tensor<16x64xf32>
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<16x32xf32>, tensor<32x64xf32>) -> tensor<16x64xf32>
  return %0 : tensor<16x64xf32>
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

// CHECK-LABEL: func.func @attributes_of_arguments_stay
// CHECK-SAME: %arg0: tensor<4x8xf32> {tf.aliasing_output = 0 : i32}
// CHECK-SAME: %arg1: tensor<8xf32> {jax.buffer_donor = true}
// WRAP-LABEL: func.func @attributes_of_arguments_stay
// WRAP-SAME: {sdy.sharding = {{.*}}tf.aliasing_output = 0 : i32}
func.func @attributes_of_arguments_stay(
    %a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>,
                         tf.aliasing_output = 0 : i32},
    %b: tensor<8xf32> {jax.buffer_donor = true}) -> tensor<8x8xf32> {
  // CHECK-NEXT: stablehlo.abs %arg0 : tensor<4x8xf32>
  %0 = stablehlo.abs %a : tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

// CHECK-LABEL: func.func @each_collective
// WRAP-LABEL: func.func @each_collective
func.func @each_collective(
    %a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", "y"}, {}]>},
    %b: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>},
    %c: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>},
    %d: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>})
    -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y", "x"}, {}]>},
        tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>},
        tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>},
        tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
  // CHECK-DAG: "stablehlo.collective_permute"(%arg0){{.*}} : (tensor<1x8xf32>) -> tensor<1x8xf32>
  // CHECK-DAG: "stablehlo.all_to_all"(%arg1){{.*}} : (tensor<2x8xf32>) -> tensor<8x2xf32>
  // CHECK-DAG: "stablehlo.all_gather"(%arg2){{.*}} : (tensor<8x4xf32>) -> tensor<8x8xf32>
  // CHECK-DAG: stablehlo.partition_id
  // CHECK-DAG: stablehlo.dynamic_slice %arg3, {{.*}} -> tensor<4x8xf32>
  return %a, %b, %c, %d : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

// CHECK-LABEL: func.func @chlo_stays
// WRAP-LABEL: func.func @chlo_stays
func.func @chlo_stays(
    %a: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>})
    -> tensor<8x3xf32> {
  // CHECK: %[[ERF:.+]] = chlo.erf %arg0 : tensor<4x4xf32> -> tensor<4x4xf32>
  // CHECK: %[[ROWS:.+]] = "stablehlo.all_gather"(%[[ERF]])
  // CHECK: chlo.top_k(%[[ROWS]], k = 3) : tensor<4x16xf32> -> (tensor<4x3xf32>, tensor<4x3xi32>)
  %0 = chlo.erf %a : tensor<8x16xf32> -> tensor<8x16xf32>
  %1, %2 = chlo.top_k(%0, k = 3) : tensor<8x16xf32> -> (tensor<8x3xf32>, tensor<8x3xi32>)
  return %1 : tensor<8x3xf32>
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

// CHECK-LABEL: func.func @own_regions_are_taken_apart
// WRAP-LABEL: func.func @own_regions_are_taken_apart
func.func @own_regions_are_taken_apart(
    %a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> tensor<8x8xf32> {
  // CHECK-NEXT: stablehlo.abs %arg0 : tensor<4x8xf32>
  // CHECK-NEXT: stablehlo.negate %{{.+}} : tensor<4x8xf32>
  %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"x"}, {}]>]
      out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x", "y"} (%b: tensor<4x8xf32>) {
    %2 = stablehlo.abs %b : tensor<4x8xf32>
    sdy.return %2 : tensor<4x8xf32>
  } : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = stablehlo.negate %0 : tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}

// -----

// Nothing is cut, so that each device runs what there is.

// CHECK: module {
// CHECK-LABEL: func.func @without_a_mesh(%arg0: tensor<8x8xf32>) -> tensor<8x8xf32> {
// CHECK-NEXT: %0 = stablehlo.abs %arg0 : tensor<8x8xf32>
// CHECK-NEXT: return %0 : tensor<8x8xf32>
// WRAP-LABEL: func.func @without_a_mesh(%arg0: tensor<8x8xf32>) -> tensor<8x8xf32> {
// WRAP-NEXT: %0 = stablehlo.abs %arg0 : tensor<8x8xf32>
func.func @without_a_mesh(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = stablehlo.abs %a : tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
