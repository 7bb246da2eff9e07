// RUN: not %shardpass opt %s 2>&1 | %filecheck %s

HloModule step

// CHECK: hlo-errors.mlir:8:21: error[unreadable]: XLA cannot read this HLO text: expects opcode but sees: tahn
ENTRY main {
  p = f32[8,4]{1,0} parameter(0)
  ROOT t = f32[8,4] tahn(p)
}
