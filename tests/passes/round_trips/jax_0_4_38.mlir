module @jit_f2 attributes {jax.uses_shape_polymorphism = false, mhlo.frontend_attributes = {xla.sdy.meshes = "{mesh = #sdy.mesh<[\\\22x\\\22=2, \\\22y\\\22=4]>}"}, mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<8x8xf32> {mhlo.frontend_attributes = {xla.sdy.sharding = "#sdy.sharding<@mesh, [{\\\22x\\\22}, {\\\22y\\\22}]>"}, mhlo.sharding = "{devices=[2,4]<=[8]}"}, %arg1: tensor<8x16xf32> {mhlo.frontend_attributes = {xla.sdy.sharding = "#sdy.sharding<@mesh, [{}, {\\\22y\\\22}]>"}, mhlo.sharding = "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}"}) -> (tensor<8x16xf32> {jax.result_info = "[0]", mhlo.sharding = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"}, tensor<2xf32> {jax.result_info = "[1]"}) {
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %0 = stablehlo.custom_call @Sharding(%arg0) {mhlo.frontend_attributes = {xla.sdy.sharding = "#sdy.sharding_per_value<[<@mesh, [{\\\22x\\\22}, {?}]>]>"}, mhlo.sharding = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"} : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %1:2 = stablehlo.custom_call @xla.sdy.GlobalToLocalShape(%0, %arg1) : (tensor<8x8xf32>, tensor<8x16xf32>) -> (tensor<8x4xf32>, tensor<4x16xf32>)
    %2:2 = call @xla.sdy.manual_computation_body(%1#0, %1#1) {mhlo.frontend_attributes = {xla.sdy.in_shardings = "#sdy.sharding_per_value<[<@mesh, [{}, {\\\22x\\\22}]>, <@mesh, [{\\\22x\\\22}, {}]>]>", xla.sdy.manual_axes = "#sdy<manual_axes{\\\22x\\\22, \\\22y\\\22}>", xla.sdy.out_shardings = "#sdy.sharding_per_value<[<@mesh, [{}, {}]>, <@mesh, [{\\\22x\\\22}]>]>"}} : (tensor<8x4xf32>, tensor<4x16xf32>) -> (tensor<8x16xf32>, tensor<1xf32>)
    %3:2 = stablehlo.custom_call @xla.sdy.LocalToGlobalShape(%2#0, %2#1) : (tensor<8x16xf32>, tensor<1xf32>) -> (tensor<8x16xf32>, tensor<2xf32>)
    %4 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<8x16xf32>
    %5 = stablehlo.add %3#0, %4 : tensor<8x16xf32>
    %6 = stablehlo.custom_call @xla.sdy.FuncResultSharding(%5) {has_side_effect = true, mhlo.frontend_attributes = {xla.sdy.sharding = "#sdy.sharding_per_value<[<@mesh, [{\\\22x\\\22}, {}]>]>"}} : (tensor<8x16xf32>) -> tensor<8x16xf32>
    return %6, %3#1 : tensor<8x16xf32>, tensor<2xf32>
  }
  func.func @xla.sdy.manual_computation_body(%arg0: tensor<8x4xf32>, %arg1: tensor<4x16xf32>) -> (tensor<8x16xf32>, tensor<1xf32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
    %1 = "stablehlo.all_reduce"(%0) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 4], [1, 5], [2, 6], [3, 7]]> : tensor<4x2xi64>, use_global_device_ids}> ({
    ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
      %4 = stablehlo.add %arg2, %arg3 : tensor<f32>
      stablehlo.return %4 : tensor<f32>
    }) : (tensor<8x16xf32>) -> tensor<8x16xf32>
    %2 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<8x4xf32>, tensor<f32>) -> tensor<f32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<f32>) -> tensor<1xf32>
    return %1, %3 : tensor<8x16xf32>, tensor<1xf32>
  }
}

