"""What XLA dies of and can be told beforehand: a clear error, and no process that ends."""

from typing import Any

import pytest

from shardpass.diagnostics import ShardingError
from shardpass.mlir import load
from shardpass.passes import run_pipeline
from shardpass.report import build_report
from shardpass.runtime import compile_module, run
from tests.passes.test_shardy_entry import ODD

HUGE = "tensor<9223372036854775800x9223372036854775800xf32>"
#: As many bytes as 64 bits with a sign count, and one more.
LARGE, TOO_LARGE = "tensor<9223372036854775807xi8>", "tensor<4611686018427387904xi16>"


def refusal(text: str) -> ShardingError:
    with pytest.raises(ShardingError) as caught:
        compile_module(load(text), devices=1)
    return caught.value


def identity(kind: str, head: str = "") -> str:
    body = f"func.func @main(%x: {kind}) -> {kind} {{\n  return %x : {kind}\n}}\n"
    return f"module {head} {{\n{body}}}\n"


def test_recursion() -> None:
    text = """\
func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = func.call @b(%x) : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
func.func private @b(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = func.call @main(%x) : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
"""
    error = refusal(text)
    assert error.slug == "not-supported"
    assert (
        error.diagnostic.message == "@main calls @b, which calls @main: StableHLO has no recursion"
    )
    with pytest.raises(ShardingError, match="has no recursion"):
        run(load(text), devices=1)


@pytest.mark.parametrize(
    ("kind", "size"),
    [(HUGE, 340282366920938462873078797073062560000), (TOO_LARGE, 2**63)],
)
def test_more_bytes_than_64_bits_count(kind: str, size: int) -> None:
    error = refusal(identity(kind))
    assert error.slug == "not-supported"
    assert error.diagnostic.message == (
        f'argument 0 ("arg0") is {kind}: {size} bytes, more than the 9223372036854775807 that XLA '
        "counts"
    )
    assert len(error.diagnostics) == 1


def test_more_bytes_than_64_bits_count_inside() -> None:
    error = refusal(f"""\
func.func @main(%x: tensor<f32>) -> tensor<f32> {{
  %0 = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> {HUGE}
  return %x : tensor<f32>
}}
""")
    assert error.diagnostic.message.startswith(
        f"the result of stablehlo.broadcast_in_dim is {HUGE}: 340282366920938462873078797073062560"
    )


def test_the_largest_that_can_be_counted_is_left_to_xla() -> None:
    executable = compile_module(load(identity(LARGE)), devices=1)
    assert executable.arguments[0].shape == (2**63 - 1,)


@pytest.mark.parametrize("name", ["mhlo.num_replicas", "mhlo.num_partitions"])
@pytest.mark.parametrize("stated", ['"x"', "-1 : i32", "1.5 : f32"])
def test_counts_that_are_none(name: str, stated: str) -> None:
    error = refusal(identity("tensor<8xf32>", f"attributes {{{name} = {stated}}}"))
    assert error.slug == "device-count"
    assert error.diagnostic.message.startswith(f"the module says {name} = ")
    assert error.diagnostic.help == f"write {name} = 1 : i32, or remove it"


def test_a_report_says_so_too() -> None:
    text = identity("tensor<8xf32>", 'attributes {mhlo.num_partitions = "x"}')
    with pytest.raises(ShardingError) as caught:
        build_report(load(text))
    assert caught.value.slug == "device-count"


@pytest.mark.parametrize("odd", [odd for odd in ODD if odd != "composite"])
def test_any_entry_function_runs(odd: str) -> None:
    module: Any = run_pipeline(load(ODD[odd]), "sp-propagate").module
    executable = compile_module(module, devices=8)
    assert executable.argument_layouts[0].shard_shape == (4, 8)


FOREIGN = {
    "collectives": (
        'sdy.mesh @mesh = <["x"=2]>\n'
        'func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) '
        "-> tensor<8xf32> {\n"
        '  %0 = sdy.all_gather [{"x"}] %a out_sharding=<@mesh, [{}]> : tensor<8xf32>\n'
        "  return %0 : tensor<8xf32>\n}\n",
        "not-supported",
        "Shardy's collectives are for reading, and XLA takes none (sdy.all_gather)",
        3,
    ),
    "optimized": (
        "func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {\n"
        '  %0 = "mhlo.bitcast"(%a) : (tensor<8xf32>) -> tensor<8xf32>\n'
        '  %1 = "mhlo.bitcast"(%0) : (tensor<8xf32>) -> tensor<8xf32>\n'
        "  return %1 : tensor<8xf32>\n}\n",
        "not-supported",
        "this is what XLA has made of a program, and not what it takes (mhlo.bitcast, with 1 more)",
        2,
    ),
    "strings": (
        "func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {\n"
        "  %0 = stablehlo.custom_call @xla.sdy.FuncResultSharding(%a) : "
        "(tensor<8xf32>) -> tensor<8xf32>\n"
        "  return %0 : tensor<8xf32>\n}\n",
        "already-annotated",
        "the module has Shardy's notation in the form that XLA carries through HLO "
        "(the custom call @xla.sdy.FuncResultSharding)",
        2,
    ),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_what_is_written_for_somebody_else(kind: str) -> None:
    text, slug, message, line = FOREIGN[kind]
    with pytest.raises(ShardingError) as caught:
        compile_module(load(text), devices=2)
    fault = caught.value.diagnostics[0]
    assert (fault.slug, fault.message) == (slug, message)
    assert fault.location is not None
    assert fault.location.line == line
    assert fault.help
