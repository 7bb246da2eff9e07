// RUN: not %shardpass opt %s --split-input-file --verify-diagnostics 2>&1 | %filecheck %s

// CHECK: verify-diagnostics-errors.mlir:[[#]]:1: error[unmet-expectation]: expected error was not reported: nothing is wrong here
// expected-error @+1 {{nothing is wrong here}}
func.func @expected_and_not_reported() {
  return
}

// -----

// CHECK: error[unmet-expectation]: unexpected error[mlir]: use of undeclared SSA value name
func.func @reported_and_not_expected() {
  return %a : tensor<8xf32>
}

// -----

// CHECK: error[unmet-expectation]: unexpected error[mlir]: use of undeclared SSA value name
// CHECK: error[unmet-expectation]: expected error was not reported: use of undeclared
// expected-error @+1 {{use of undeclared}}
func.func @reported_on_another_line() {
  return %a : tensor<8xf32>
}

// CHECK: 4 errors
