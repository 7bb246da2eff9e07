// RUN: %shardpass opt %s --sp-annotate="rules='"%S/Inputs/annotate-errors.toml"' mesh=x=2,y=4" --split-input-file --verify-diagnostics

// Every rule that has no part in an example is reported as one that matched nothing, in the rules'
// own file.

// expected-error @+5 {{error[indivisible]: argument 0 ("uneven"), dimension 0: 19 elements into 4 pieces}}
// expected-warning @unknown {{warning[unused-rule]: rule 2}}
// expected-warning @unknown {{warning[unused-rule]: rule 3}}
// expected-warning @unknown {{warning[unused-rule]: rule 4}}
// expected-warning @unknown {{warning[unused-rule]: rule 5}}
func.func @main(%a: tensor<19x8xf32> loc("uneven")) {
  return
}

// -----

// expected-error @+7 {{error[rank-mismatch]: argument 0 ("long")}}
// expected-error @+6 {{error[scalar-spec]: argument 1 ("scalar")}}
// expected-error @+5 {{error[dynamic-shape]: argument 2 ("dynamic")}}
// expected-warning @+4 {{warning[unmatched]: no rule matches 1 argument: other}}
// expected-warning @unknown {{warning[unused-rule]: rule 1}}
// expected-warning @unknown {{warning[unused-rule]: rule 5}}

func.func @main(%a: tensor<8x8xf32> loc("long"), %b: tensor<i32> loc("scalar"), %c: tensor<?xf32> loc("dynamic"), %d: tensor<4xf32> loc("other")) {
  return
}

// -----

// expected-warning @unknown {{warning[unused-rule]: rule 1}}
// expected-warning @unknown {{warning[unused-rule]: rule 2}}
// expected-warning @unknown {{warning[unused-rule]: rule 3}}
// expected-warning @unknown {{warning[unused-rule]: rule 4}}
// expected-error @+2 {{error[already-annotated]: argument 0 ("old") carries an mhlo.sharding, and sp-annotate writes sdy.sharding}}

func.func @main(%a: tensor<8x7xf32> {mhlo.sharding = "{replicated}"} loc("old")) {
  // expected-error @+1 {{error[indivisible]: the result of stablehlo.abs, dimension 1: 7 elements into 4 pieces}}
  %0 = stablehlo.abs %a : tensor<8x7xf32>
  return
}

// -----

// expected-error @+2 {{error[no-entry-function]: the module has no function @main and not exactly one other public one (public: @f, @g)}}
func.func @f() { return }
func.func @g() { return }
