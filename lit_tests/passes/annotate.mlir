// RUN: %shardpass opt %s --split-input-file --sp-annotate="rules='"%S/Inputs/annotate.toml"'" | %filecheck %s

// The mesh is declared in front, and the module is for all of its devices.

// CHECK: module attributes {mhlo.num_partitions = 8 : i32}
// CHECK-NEXT: sdy.mesh @mesh = <["x"=2, "y"=4]>
// CHECK-LABEL: func.func @arguments_and_results
func.func @arguments_and_results(
    // CHECK-SAME: %arg0: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>}
    %w: tensor<8x16xf32> loc("params['w'].value"),
    // CHECK-SAME: %arg1: tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {?}]>}
    %batch: tensor<4x8xf32> loc("batch['inputs']"),
    // CHECK-SAME: %arg2: tensor<16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y", "x"}]>}
    %both: tensor<16xf32> loc("both"),
    // CHECK-SAME: %arg3: tensor<i32> {sdy.sharding = #sdy.sharding<@mesh, []>}
    %count: tensor<i32> loc("count"))
    // CHECK-SAME: -> (tensor<8x16xf32> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}
    -> (tensor<8x16xf32> {jax.result_info = "result[0]"}) {
  return %w : tensor<8x16xf32>
}

// -----

// CHECK-LABEL: func.func @ops_by_name
func.func @ops_by_name(%batch: tensor<4x8xf32> loc("batch"), %row: tensor<4xf32>) -> tensor<4x8xf32> {
  // CHECK: %[[TANH:.+]] = stablehlo.tanh %arg0
  // CHECK-NEXT: %[[C:.+]] = sdy.sharding_constraint %[[TANH]] <@mesh, [{"x"}, {}]>
  // CHECK-NEXT: stablehlo.add %[[C]], %[[C]]
  %0 = stablehlo.tanh %batch : tensor<4x8xf32>
  %1 = stablehlo.add %0, %0 : tensor<4x8xf32>
  // The rule asks for two dimensions.
  // CHECK-NEXT: stablehlo.tanh %arg1
  // CHECK-NEXT: return
  %2 = stablehlo.tanh %row : tensor<4xf32>
  return %1 : tensor<4x8xf32>
}

// -----

// CHECK-LABEL: func.func @ops_by_location
func.func @ops_by_location(%batch: tensor<4x8xf32> loc("batch")) -> tensor<4x8xf32> {
  // CHECK: %[[MUL:.+]] = stablehlo.multiply
  // CHECK-NEXT: %[[C:.+]] = sdy.sharding_constraint %[[MUL]] <@mesh, [{}, {"x"}]>
  // CHECK-NEXT: %[[SUM:.+]] = stablehlo.add %[[C]], %arg0
  // CHECK-NEXT: return %[[SUM]]
  %0 = stablehlo.multiply %batch, %batch : tensor<4x8xf32> loc("jit(step)/attention/mul")
  %1 = stablehlo.add %0, %batch : tensor<4x8xf32> loc("jit(step)/mlp/add")
  return %1 : tensor<4x8xf32>
}

// -----

// CHECK-LABEL: func.func @ops_in_a_loop
func.func @ops_in_a_loop(%batch: tensor<4x8xf32> loc("batch"), %n: tensor<i32>) -> tensor<4x8xf32> {
  // CHECK: stablehlo.while
  %0:2 = stablehlo.while(%i = %n, %x = %batch) : tensor<i32>, tensor<4x8xf32>
  cond {
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    // CHECK: %[[TANH:.+]] = stablehlo.tanh
    // CHECK-NEXT: %[[C:.+]] = sdy.sharding_constraint %[[TANH]] <@mesh, [{"x"}, {}]>
    // CHECK-NEXT: stablehlo.return %{{.+}}, %[[C]]
    %t = stablehlo.tanh %x : tensor<4x8xf32>
    stablehlo.return %i, %t : tensor<i32>, tensor<4x8xf32>
  }
  return %0#1 : tensor<4x8xf32>
}

// -----

// CHECK-LABEL: func.func @main
func.func @main(%batch: tensor<4x8xf32> loc("batch")) -> tensor<4x8xf32> {
  %0 = call @ops_in_a_function_that_is_called(%batch) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}
// Its argument is not the user's.
// CHECK-LABEL: func.func private @ops_in_a_function_that_is_called(%arg0: tensor<4x8xf32>)
func.func private @ops_in_a_function_that_is_called(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // CHECK: stablehlo.tanh
  // CHECK-NEXT: sdy.sharding_constraint %{{.+}} <@mesh, [{"x"}, {}]>
  %0 = stablehlo.tanh %x : tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

// CHECK: sdy.mesh @grid = <["x"=2, "y"=4]>
// CHECK-NEXT: func.func @equal_mesh_is_used
sdy.mesh @grid = <["x"=2, "y"=4]>
// CHECK-SAME: #sdy.sharding<@grid, [{"x"}, {?}]>
func.func @equal_mesh_is_used(%batch: tensor<4x8xf32> loc("batch")) {
  return
}

// -----

// CHECK: sdy.mesh @mesh_0 = <["x"=2, "y"=4]>
// CHECK-NEXT: sdy.mesh @mesh = <["z"=8]>
sdy.mesh @mesh = <["z"=8]>
// CHECK-LABEL: func.func @sharding_is_kept
// CHECK-SAME: %arg0: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"z"}, {}]>}
// CHECK-SAME: %arg1: tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@mesh_0, [{"x"}, {?}]>}
func.func @sharding_is_kept(
    %w: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"z"}, {}]>} loc("params['w']"),
    %batch: tensor<4x8xf32> loc("batch")) {
  return
}

// -----

// Nothing to change: no tensor to speak of, and scalars in a reduction's body.

// CHECK-LABEL: func.func @nothing_to_annotate(%arg0: !stablehlo.token) -> !stablehlo.token {
// CHECK-NEXT: return %arg0
func.func @nothing_to_annotate(%t: !stablehlo.token) -> !stablehlo.token {
  return %t : !stablehlo.token
}
