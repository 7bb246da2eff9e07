module @m attributes {mhlo.cross_program_prefetches = [], mhlo.input_output_alias = [], mhlo.is_dynamic = false, mhlo.use_auto_spmd_partitioning = false} {
  func.func private @xla.sdy.manual_computation_body.1(%arg0: tensor<4x2xf32>) -> tensor<4x2xf32> {
    %0 = stablehlo.abs %arg0 : tensor<4x2xf32>
    return %0 : tensor<4x2xf32>
  }
  func.func private @xla.sdy.manual_computation_body_0.2(%arg0: tensor<4x8xf32>) -> (tensor<4x8xf32> {mhlo.sharding = "{mesh['a'=2,'b'=4], [{}, {'b'}]}"}) {
    %0 = stablehlo.custom_call @Sharding(%arg0) {backend_config = "", mhlo.sharding = "{mesh['a'=2,'b'=4], [{'b'}, {?}]}"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %1 = stablehlo.custom_call @Sharding(%0) {backend_config = "", has_side_effect = true, mhlo.sharding = "{mesh['a'=2,'b'=4], [{}, {'b'}]}"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %2 = stablehlo.custom_call @xla.sdy.GlobalToLocalShape(%1) {backend_config = "", has_side_effect = true, mhlo.sharding = "{mesh['a'=2,'b'=4], [{}, {}], manual={'b'}}"} : (tensor<4x8xf32>) -> tensor<4x2xf32>
    %3 = call @xla.sdy.manual_computation_body.1(%2) {mhlo.frontend_attributes = {inlineable = "xla_late"}, mhlo.sharding = "{mesh['a'=2,'b'=4], [{}, {}], manual={'b'}}"} : (tensor<4x2xf32>) -> tensor<4x2xf32>
    %4 = stablehlo.custom_call @xla.sdy.LocalToGlobalShape(%3) {backend_config = "", has_side_effect = true, mhlo.sharding = "{mesh['a'=2,'b'=4], [{}, {'b'}]}"} : (tensor<4x2xf32>) -> tensor<4x8xf32>
    return %4 : tensor<4x8xf32>
  }
  func.func private @g.3(%arg0: tensor<8x8xf32> {mhlo.sharding = "{mesh['a'=2,'b'=4], [{'b'}, {}]}"}) -> (tensor<8x8xf32> {mhlo.sharding = "{mesh['a'=2,'b'=4], [{}, {'a'}]}"}) {
    %0 = stablehlo.custom_call @Sharding(%arg0) {backend_config = "", has_side_effect = true, mhlo.sharding = "{mesh['a'=2,'b'=4], [{'a', ?}, {}]}"} : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %1 = stablehlo.custom_call @xla.sdy.GlobalToLocalShape(%0) {backend_config = "", has_side_effect = true, mhlo.sharding = "{mesh['a'=2,'b'=4], [{?}, {}], manual={'a'}}"} : (tensor<8x8xf32>) -> tensor<4x8xf32>
    %2 = call @xla.sdy.manual_computation_body_0.2(%1) {mhlo.frontend_attributes = {inlineable = "xla_late"}, mhlo.sharding = "{mesh['a'=2,'b'=4], [{}, {}], manual={'a'}}"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %3 = stablehlo.custom_call @xla.sdy.LocalToGlobalShape(%2) {backend_config = "", has_side_effect = true, mhlo.sharding = "{mesh['a'=2,'b'=4], [{'a'}, {}]}"} : (tensor<4x8xf32>) -> tensor<8x8xf32>
    return %3 : tensor<8x8xf32>
  }
  func.func @main(%arg0: tensor<8x8xf32> {mhlo.sharding = "{mesh['a'=2,'b'=4], [{'a', ?}, {}], replicated={'b'}}"}) -> (tensor<8x8xf32> {mhlo.sharding = "{mesh['a'=2,'b'=4], [{'b'}, {}]}"}, tensor<8x8xf32> {mhlo.sharding = "{replicated}"}) {
    %0 = stablehlo.custom_call @Sharding(%arg0) {backend_config = "", mhlo.sharding = "{mesh['a'=2,'b'=4], [{'b'}, {?}]}"} : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %1 = stablehlo.custom_call @xla.sdy.ShardingGroup(%0) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {xla.sdy.sharding_group_id = "12 : i64"}, xla_shape = "()"} : (tensor<8x8xf32>) -> tuple<>
    %2 = stablehlo.custom_call @xla.sdy.PropagationBarrier(%0) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {xla.sdy.allowed_direction = "2 : i32"}} : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %3 = stablehlo.abs %2 : tensor<8x8xf32>
    %4 = stablehlo.reshape %3 {mhlo.sharding = "{mesh['a'=2,'b'=4], [{'b'}, {}]}"} : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %5 = stablehlo.custom_call @Sharding(%3) {backend_config = "", mhlo.sharding = "{mesh['a'=2,'b'=4], [{'b':(2)2}, {?}]}"} : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %6 = call @g.3(%5) : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %7 = stablehlo.reshape %6 : (tensor<8x8xf32>) -> tensor<8x8xf32>
    return %3, %6 : tensor<8x8xf32>, tensor<8x8xf32>
  }
}

