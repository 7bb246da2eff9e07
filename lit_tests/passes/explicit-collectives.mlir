// RUN: %shardpass opt %s --split-input-file --sp-propagate --sp-explicit-collectives | %filecheck %s

sdy.mesh @mesh = <["x"=2, "y"=4]>

// What is summed is cut, so that each device has a part of every sum.

// CHECK-LABEL: func.func @partial_sums_are_reduced
func.func @partial_sums_are_reduced(
    %a: tensor<16x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>},
    %b: tensor<32x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>})
    -> tensor<16x64xf32> {
  // CHECK: %[[DOT:.+]] = stablehlo.dot_general
  // CHECK-NEXT: %[[SUM:.+]] = sdy.all_reduce {"y"} %[[DOT]] out_sharding=<@mesh, [{"x"}, {}]>
  // CHECK-NEXT: return %[[SUM]]
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<16x32xf32>, tensor<32x64xf32>) -> tensor<16x64xf32>
  return %0 : tensor<16x64xf32>
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

// CHECK-LABEL: func.func @partial_sums_are_reduced_and_scattered
func.func @partial_sums_are_reduced_and_scattered(
    %a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>},
    %b: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>})
    -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>}) {
  // CHECK: stablehlo.dot_general
  // CHECK-NEXT: sdy.reduce_scatter {{\[}}{"y"}, {}] %{{.+}} out_sharding=<@mesh, [{"y"}, {}]>
  // CHECK-NOT: sdy.all_reduce
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

// CHECK-LABEL: func.func @other_order_of_axes
// CHECK-NOT: all_gather
func.func @other_order_of_axes(
    %a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", "y"}, {}]>})
    -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y", "x"}, {}]>}) {
  // CHECK: %[[MOVED:.+]] = sdy.collective_permute %arg0 out_sharding=<@mesh, [{"y", "x"}, {}]>
  // CHECK-NEXT: return %[[MOVED]]
  return %a : tensor<8x8xf32>
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

// CHECK-LABEL: func.func @from_one_dimension_to_another
func.func @from_one_dimension_to_another(
    %a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>})
    -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>}) {
  // CHECK: sdy.all_to_all [{"y"}: 0->1] %arg0 out_sharding=<@mesh, [{}, {"y"}]>
  return %a : tensor<8x8xf32>
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

// CHECK-LABEL: func.func @whole_and_cut
func.func @whole_and_cut(
    %a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>},
    %b: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>})
    -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>},
        tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>}) {
  // CHECK-DAG: sdy.all_gather {{\[}}{"y"}, {}] %arg0 out_sharding=<@mesh, [{}, {}]>
  // CHECK-DAG: sdy.all_slice {{\[}}{"x"}, {"y"}] %arg1 out_sharding=<@mesh, [{"x"}, {"y"}]>
  return %a, %b : tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

// Rows are looked up where they are, and the answers are added up; the table stays.

// CHECK-LABEL: func.func @rows_of_a_table
// CHECK-NOT: all_gather
func.func @rows_of_a_table(
    %table: tensor<32x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
    %rows: tensor<4x1xi32>) -> tensor<4x16xf32> {
  // CHECK: stablehlo.gather
  // CHECK: sdy.all_reduce {"x"} %{{.+}} out_sharding=<@mesh, [{}, {}]> : tensor<4x16xf32>
  %0 = "stablehlo.gather"(%table, %rows) <{
    dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
      start_index_map = [0], index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 16>}> : (tensor<32x16xf32>, tensor<4x1xi32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

// CHECK-LABEL: func.func @elements_of_a_row
func.func @elements_of_a_row(
    %a: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>})
    -> tensor<8x4xf32> {
  // CHECK: %[[ROWS:.+]] = sdy.all_gather {{\[}}{}, {"y"}] %arg0 out_sharding=<@mesh, [{"x"}, {}]>
  // CHECK-NEXT: chlo.top_k(%[[ROWS]], k = 4)
  // CHECK-NOT: sdy.sharding_rule
  %0, %1 = chlo.top_k(%a, k = 4) : tensor<8x16xf32> -> (tensor<8x4xf32>, tensor<8x4xi32>)
  return %0 : tensor<8x4xf32>
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

// CHECK-LABEL: func.func @within_a_loop
func.func @within_a_loop(
    %a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>}, %n: tensor<i32>)
    -> tensor<8x8xf32> {
  // CHECK: stablehlo.while
  // CHECK: do {
  // CHECK: sdy.all_gather
  // CHECK: stablehlo.dot_general
  %0:2 = stablehlo.while(%i = %n, %x = %a) : tensor<i32>, tensor<8x8xf32>
    cond {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %more = stablehlo.compare GT, %i, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %next = stablehlo.subtract %i, %one : tensor<i32>
    %square = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0]
      : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    stablehlo.return %next, %square : tensor<i32>, tensor<8x8xf32>
  }
  return %0#1 : tensor<8x8xf32>
}

// -----

sdy.mesh @mesh = <["x"=2, "y"=4]>

// Nothing moves.

// CHECK-LABEL: func.func @each_device_by_itself
// CHECK-SAME: sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>
func.func @each_device_by_itself(
    %a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>}) -> tensor<8x8xf32> {
  // CHECK-NEXT: %[[ABS:.+]] = stablehlo.abs %arg0 {sdy.sharding = {{.*}}[{"x"}, {"y"}]
  // CHECK-NEXT: return %[[ABS]]
  %0 = stablehlo.abs %a : tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
