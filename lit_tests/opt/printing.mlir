// RUN: %shardpass opt %s --mlir-print-op-generic | %filecheck %s --check-prefix=GENERIC
// RUN: %shardpass opt %s --mlir-elide-elementsattrs-if-larger=4 | %filecheck %s --check-prefix=ELIDED
// RUN: %shardpass opt %s --mlir-elide-elementsattrs-if-larger=5 | %filecheck %s --check-prefix=WHOLE
// RUN: %shardpass opt %s --mlir-elide-resource-strings-if-larger=4 | %filecheck %s --check-prefix=RESOURCE
// RUN: %shardpass opt %s --mlir-print-debuginfo | %filecheck %s --check-prefix=ALIAS
// RUN: %shardpass opt %s --mlir-print-debuginfo --mlir-print-local-scope | %filecheck %s --check-prefix=LOCAL
// RUN: %shardpass opt %s --mlir-pretty-debuginfo | %filecheck %s --check-prefix=PRETTY
// RUN: %shardpass opt %s --mlir-use-nameloc-as-prefix | %filecheck %s --check-prefix=NAMES
// RUN: %shardpass opt %s --mlir-print-assume-verified | %filecheck %s --check-prefix=WHOLE
// RUN: %shardpass opt %s --mlir-print-skip-regions | %filecheck %s --check-prefix=OUTSIDE
// RUN: not %shardpass opt %s --mlir-print-value-users 2>&1 | %filecheck %s --check-prefix=USERS
// RUN: %shardpass opt %s --emit-bytecode > %t && %shardpass opt %t --mlir-print-op-generic | %filecheck %s --check-prefix=GENERIC
// RUN: %shardpass opt %s --emit-bytecode --emit-bytecode-version=5 -o %t && %shardpass opt %t --mlir-print-op-generic | %filecheck %s --check-prefix=GENERIC
// RUN: %shardpass opt %s -o %t.mlirbc && %shardpass opt %t.mlirbc --mlir-print-op-generic | %filecheck %s --check-prefix=GENERIC
// RUN: not %shardpass opt %s --emit-bytecode --emit-bytecode-version=99 2>&1 | %filecheck %s --check-prefix=VERSION
// RUN: %shardpass opt %s --verify-roundtrip | %filecheck %s --check-prefix=WHOLE

// MLIR's printing flags.

// GENERIC: "builtin.module"() ({
// GENERIC: "func.func"() <{
// GENERIC: "func.return"

// ELIDED: dense_resource<__elided__> : tensor<5xi32>
// WHOLE: dense<[1, 2, 3, 4, 5]> : tensor<5xi32>
// RESOURCE: return
// RESOURCE-NOT: 0x0400
// WHOLE: one: "0x040000000000803F"

// ALIAS: return {{.*}} loc(#[[L:loc[0-9]*]])
// LOCAL: return {{.*}} loc("{{.*}}printing.mlir":[[#]]:3)
// PRETTY: -:[[#]]:3
// NAMES: %weights = stablehlo.constant

// OUTSIDE: module {...}
// OUTSIDE-NOT: func
// USERS: --mlir-print-value-users of mlir-opt cannot be asked for from Python

// VERSION: error[usage]: MLIR does not write bytecode of version 99
// VERSION-NEXT: note: {{.*}}must be in range

func.func @main() -> (tensor<5xi32>, tensor<1xf32>) {
  %0 = stablehlo.constant dense<[1, 2, 3, 4, 5]> : tensor<5xi32> loc("weights")
  %1 = stablehlo.constant dense_resource<one> : tensor<1xf32>
  return %0, %1 : tensor<5xi32>, tensor<1xf32>
}

{-#
  dialect_resources: {
    builtin: {
      one: "0x040000000000803F"
    }
  }
#-}
