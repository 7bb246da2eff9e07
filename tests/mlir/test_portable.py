"""Portable artifacts: of a version, with Shardy beside StableHLO, and never with others' ops."""

from __future__ import annotations

import pytest

from shardpass.diagnostics import ShardingError
from shardpass.mlir import Module, load
from shardpass.mlir.context import make_context

SHARDED = """\
module {
  sdy.mesh @mesh = <["x"=2, "y"=4]>
  func.func @main(
      %arg0: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<8xf32> {
    %0 = sdy.sharding_constraint %arg0 <@mesh, [{"y"}]> : tensor<8xf32>
    %1 = chlo.erf_inv %0 : tensor<8xf32> -> tensor<8xf32>
    return %1 : tensor<8xf32>
  }
}
"""


def refused(module: Module, emit: str) -> ShardingError:
    with pytest.raises(ShardingError) as caught:
        module.to_bytes(emit)
    assert caught.value.slug == "not-expressible"
    return caught.value


def test_a_version_of_stablehlo(module: Module) -> None:
    for version in ("1.9.0", "0.9.0"):
        data = module.to_bytes(f"portable={version}")
        assert data[5:].startswith(b"StableHLO_v" + version.encode())
        # What is the default need not be said.
        plain = module.text(debug_info=True).replace(", precision = [DEFAULT, DEFAULT]", "")
        assert load(data).text().replace(", precision = [DEFAULT, DEFAULT]", "") == plain
    assert load(module.to_bytes("portable")).form == "portable"


def test_shardy_goes_along() -> None:
    again = load(load(SHARDED).to_bytes("portable=1.9.0"))
    assert again.text(debug_info=False) == load(SHARDED).text(debug_info=False)


def test_a_version_that_is_not_known(module: Module) -> None:
    error = refused(module, "portable=999.0.0")
    assert "999.0.0 is greater than current version" in "".join(error.diagnostic.notes)
    assert "the installed StableHLO writes 0.9.0 to " in str(error)


def test_ops_that_no_artifact_has() -> None:
    copied = "func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> { " + (
        "%0 = mhlo.copy %a : tensor<8xf32>\n return %0 : tensor<8xf32> }"
    )
    error = refused(load(copied, name="a.mlir"), "portable")
    assert str(error).startswith(
        "a.mlir holds ops that a portable artifact has no form for: mhlo.copy (1)"
    )


def test_ops_that_nobody_registered(module: Module) -> None:
    context = make_context()
    context.allow_unregistered_dialects = True
    with context:
        unknown = module.ir.parse('func.func @main() { "acme.op"() : () -> () return }')
    assert "acme.op (1)" in str(refused(load(unknown), "portable"))
