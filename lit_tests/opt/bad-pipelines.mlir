// RUN: not %shardpass opt %s --sp-anotate 2>&1 | %filecheck %s --check-prefix=UNKNOWN
// RUN: not %shardpass opt %s --sp-propagate="strategy=best" 2>&1 | %filecheck %s --check-prefix=OPTION
// RUN: not %shardpass opt %s --pass-pipeline="cse,sp-strip{a=1" 2>&1 | %filecheck %s --check-prefix=TEXT
// RUN: not %shardpass opt %s --pass-pipeline="func.func(sdy-propagation-pipeline)" 2>&1 | %filecheck %s --check-prefix=ANCHOR
// RUN: not %shardpass opt %s --pass-pipeline="func.fucn(cse)" 2>&1 | %filecheck %s --check-prefix=OP
// RUN: not %shardpass opt %s --cse --pass-pipeline=cse 2>&1 | %filecheck %s --check-prefix=BOTH
// RUN: not %shardpass opt %s %s 2>&1 | %filecheck %s --check-prefix=FILES
// RUN: not %shardpass opt %t.none 2>&1 | %filecheck %s --check-prefix=MISSING
// RUN: not %shardpass opt %s -o %t.none/out.mlir 2>&1 | %filecheck %s --check-prefix=FOLDER

// UNKNOWN: error[unknown-pass]: there is no pass "sp-anotate"
// UNKNOWN-NEXT: sp-anotate
// UNKNOWN-NEXT: ^^^^^^^^^^
// UNKNOWN-NEXT: help: did you mean "sp-annotate"?

// OPTION: error[bad-option]: option "strategy" of sp-propagate: 'best' is not one of aggressive, basic

// TEXT: error[bad-pipeline]: the options of "sp-strip" are not closed
// TEXT-NEXT: cse,sp-strip{a=1
// TEXT-NEXT: {{^            \^}}

// ANCHOR: error[bad-pipeline]: "sdy-propagation-pipeline" runs on the whole module, not under func.func
// OP: error[bad-pipeline]: there is no op "func.fucn" to run passes on
// BOTH: passes come as flags or as --pass-pipeline, not both
// FILES: one file at most, not 2
// MISSING: error[unreadable]: cannot read
// MISSING-SAME: no such file or directory
// FOLDER: error[unwritable]: cannot write
// FOLDER-SAME: does not exist
func.func @main() {
  return
}
