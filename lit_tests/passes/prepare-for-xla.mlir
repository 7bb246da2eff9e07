// RUN: %shardpass opt %s --sp-prepare-for-xla | %filecheck %s

// CHECK-NOT: @empty_mesh
// CHECK: sdy.mesh @mesh = <["x"=2, "y"=4]>
// CHECK-NOT: @empty_mesh
sdy.mesh @mesh = <["x"=2, "y"=4]>
sdy.mesh @empty_mesh = <[]>

// CHECK-LABEL: func.func @main
// CHECK-SAME: %[[A:.+]]: tensor<8x8xf32>
func.func @main(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
  // CHECK-NEXT: %[[C:.+]] = sdy.sharding_constraint %[[A]] <@mesh, [{"x"}, {}]>
  // CHECK-NEXT: return %[[C]]
  %0 = sdy.reshard %a <@mesh, [{"x"}, {}]> : tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}

// CHECK-LABEL: func.func private @collectives
// CHECK-SAME: %[[A:.+]]: tensor<8x8xf32>
func.func private @collectives(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
    -> tensor<8x8xf32> {
  // CHECK-NEXT: %[[G:.+]] = sdy.sharding_constraint %[[A]] <@mesh, [{}, {}]>
  // CHECK-NEXT: %[[R:.+]] = sdy.sharding_constraint %[[G]] <@mesh, [{}, {"y"}]>
  // CHECK-NEXT: return %[[R]]
  %0 = sdy.all_gather [{"x"}, {}] %a out_sharding=<@mesh, [{}, {}]> : tensor<8x8xf32>
  %1 = sdy.reduce_scatter [{}, {"y"}] %0 out_sharding=<@mesh, [{}, {"y"}]> : tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}

// CHECK-LABEL: func.func private @loop
func.func private @loop(%a: tensor<8xf32>, %n: tensor<i32>) -> tensor<8xf32> {
  // CHECK: stablehlo.while
  // CHECK-NOT: sdy.sharding
  // CHECK: cond
  %0:2 = stablehlo.while(%i = %n, %x = %a) : tensor<i32>, tensor<8xf32>
    attributes {sdy.sharding = #sdy.sharding_per_value<[<@mesh, []>, <@mesh, [{"x"}]>]>}
    cond {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %more = stablehlo.compare NE, %i, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.subtract %i, %one : tensor<i32>
    stablehlo.return %j, %x : tensor<i32>, tensor<8xf32>
  }
  return %0#1 : tensor<8xf32>
}

// CHECK-LABEL: func.func private @rule
func.func private @rule(%a: tensor<8xf32>) -> tensor<8xf32> {
  // CHECK-NEXT: stablehlo.abs %{{.+}} : tensor<8xf32>
  %0 = stablehlo.abs %a {sdy.sharding_rule = #sdy.op_sharding_rule<([i])->([i]) {i=8}>}
    : tensor<8xf32>
  return %0 : tensor<8xf32>
}

// CHECK-LABEL: func.func private @typed_key
// CHECK-SAME: sdy.sharding = #sdy.sharding<@mesh, [{}]>
func.func private @typed_key(%k: tensor<2xui32> {sdy.sharding = #sdy.sharding<@empty_mesh, [{}]>})
    -> tensor<2xui32> {
  // CHECK-NEXT: sdy.sharding_constraint %{{.+}} <@mesh, [{?}]>
  %0 = sdy.sharding_constraint %k <@empty_mesh, [{?}]> : tensor<2xui32>
  return %0 : tensor<2xui32>
}

// CHECK-LABEL: func.func private @stretched
func.func private @stretched(%a: tensor<1x4xf32>) -> tensor<8x4xf32> {
  // CHECK-NEXT: %[[R:.+]] = stablehlo.reshape %{{.+}} : (tensor<1x4xf32>) -> tensor<4xf32>
  // CHECK-NEXT: stablehlo.broadcast_in_dim %[[R]], dims = [1] {mhlo.sharding = "{devices=[8,1]<=[8]}"} : (tensor<4xf32>) -> tensor<8x4xf32>
  %0 = stablehlo.broadcast_in_dim %a, dims = [0, 1] {mhlo.sharding = "{devices=[8,1]<=[8]}"} : (tensor<1x4xf32>) -> tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}

// CHECK-LABEL: func.func private @broadcasts_that_stay
func.func private @broadcasts_that_stay(%a: tensor<1x4xf32>) -> tensor<8x4xf32> {
  // CHECK-NEXT: stablehlo.broadcast_in_dim %{{.+}}, dims = [1, 2]
  // CHECK-NEXT: stablehlo.broadcast_in_dim %{{.+}}, dims = [0, 1]
  %0 = stablehlo.broadcast_in_dim %a, dims = [1, 2] {mhlo.sharding = "{devices=[8,1,1]<=[8]}"} : (tensor<1x4xf32>) -> tensor<8x1x4xf32>
  %1 = stablehlo.broadcast_in_dim %a, dims = [0, 1] {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>} : (tensor<1x4xf32>) -> tensor<8x4xf32>
  return %1 : tensor<8x4xf32>
}

// CHECK-LABEL: func.func private @nothing_to_change
// CHECK-SAME: sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>
func.func private @nothing_to_change(
    %a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>}) -> tensor<8x8xf32> {
  // CHECK-NEXT: %[[S:.+]] = stablehlo.add {{.*}}sharding_per_value<[<@mesh, [{"x"}, {"y"}]>]>
  // CHECK-NEXT: %[[C:.+]] = sdy.sharding_constraint %[[S]] <@mesh, [{}, {"y"}]>
  // CHECK-NEXT: return %[[C]]
  %0 = stablehlo.add %a, %a
    {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {"y"}]>]>} : tensor<8x8xf32>
  %1 = sdy.sharding_constraint %0 <@mesh, [{}, {"y"}]> : tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}
