"""Modules that do and do not survive being written and read."""

from __future__ import annotations

import pytest

from shardpass.cli.opt.output import Printing
from shardpass.cli.opt.roundtrip import check_roundtrip, with_numbered_resources
from shardpass.diagnostics import ShardingError
from shardpass.mlir.module import parse
from tests.cli.test_opt_reproducer import WITH_RESOURCES


@pytest.mark.parametrize(
    "text",
    [
        b"",
        WITH_RESOURCES,
        b'sdy.mesh @m = <["x"=2]>\nfunc.func @f(%a: tensor<2xf32> loc("w")) {\n  return\n}\n',
        b'"acme.op"() {a = #acme.b} : () -> ()',
    ],
)
def test_what_mlir_writes_it_reads(text: bytes) -> None:
    module = parse(text, "m.mlir", needs_function=False, allow_unregistered=True)
    check_roundtrip(module, allow_unregistered=True)


def test_a_module_that_changes_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """We know of none in MLIR, so that what is written is tampered with."""
    module = parse(b"func.func @f() {\n  return\n}\n", "m.mlir")
    other = parse(b"func.func @g() {\n  return\n}\n", "m.mlir")
    monkeypatch.setattr(type(module), "bytecode", lambda _: Printing().text(other).encode())
    with pytest.raises(ShardingError, match="writing this one as bytecode") as caught:
        check_roundtrip(module, allow_unregistered=False)
    assert (caught.value.slug, str(caught.value.diagnostic.location)) == ("roundtrip", "m.mlir")


def test_resources_go_by_their_order() -> None:
    text = (
        "a dense_resource<x_1> dense_resource<y> dense_resource<x_1>\n{-#\n"
        '  x_1: "0x1",\n  y: "0x2"'
    )
    assert with_numbered_resources(text) == (
        'a dense_resource<#0> dense_resource<#1> dense_resource<#0>\n{-#\n  #0: "0x1",\n  #1: "0x2"'
    )
