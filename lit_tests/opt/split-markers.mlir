// RUN: %shardpass opt %s "--split-input-file=// =====" "--output-split-marker=// ~~~~~" | %filecheck %s
// RUN: not %shardpass opt %s "-split-input-file=// =====" --sp-verify 2>&1 | %filecheck %s --check-prefix=LINES

// Borders of one's own; every part runs though one fails, and lines are those of the file.

// CHECK: func.func @first
// CHECK: {{^}}// ~~~~~{{$}}
// CHECK-NEXT: module {
// CHECK-NEXT: func.func @second
// CHECK: {{^}}// ~~~~~{{$}}
// CHECK-NEXT: module {
// CHECK-NEXT: func.func @third
// LINES: split-markers.mlir:15:3: error[missing-sharding]
func.func @first() {
  stablehlo.custom_call @Sharding() {has_side_effect = true} : () -> ()
  return
}
// =====
// -----
func.func @second() {
  return
}
// =====
// LINES: split-markers.mlir:26:3: error[missing-sharding]
func.func @third() {
  stablehlo.custom_call @Sharding() {has_side_effect = true} : () -> ()
  return
}
// LINES: 2 errors
