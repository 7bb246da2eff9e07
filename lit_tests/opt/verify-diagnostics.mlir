// RUN: %shardpass opt %s --split-input-file --sp-verify --verify-diagnostics

// What is reported is held against the comments, in each part by itself, at the lines of the file.

func.func @main() {
  // expected-error @+1 {{error[mlir]: use of undeclared SSA value name}}
  return %a : tensor<8xf32>
}

// -----

func.func @wrong_type(%a: tensor<8xf32>) -> tensor<9xf32> {
  // expected-error-re @below {{error[mlir]: {{.*}}type of return operand 0}}
  return %a : tensor<8xf32>
}

// -----

// Notes have places of their own, and above and below pass over other comments.

sdy.mesh @mesh = <["x"=2]>
// expected-note @above {{see existing symbol definition here}}
// expected-error @below {{redefinition of symbol named 'mesh'}}
sdy.mesh @mesh = <["x"=4]>

// -----

// Help may be expected, as a note.

func.func @main() {
  // expected-error @+2 {{the custom call @Sharding carries no mhlo.sharding}}
  // expected-note @+1 {{help: add mhlo.sharding}}
  stablehlo.custom_call @Sharding() {has_side_effect = true} : () -> ()
  return
}

// -----

func.func @good() {
  return
}
