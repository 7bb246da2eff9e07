// RUN: %shardpass opt %s --sp-verify --verify-diagnostics

sdy.mesh @mesh = <["x"=2, "y"=4]>

// expected-error @+1 {{6 elements into 4 pieces}}
func.func @main(%a: tensor<6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}]>}) {
  return
}
