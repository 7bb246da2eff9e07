"""The way of HLO text into a proto, and of StableHLO into HLO: one test per name."""

import io

import jax
import pytest
from jax.extend.mlir import hlo_to_stablehlo, ir

from shardpass.compat import hlo_import
from shardpass.mlir.context import make_context

HLO = "HloModule t\nENTRY e { ROOT p = f32[4] parameter(0), sharding={devices=[4]<=[4]} }"


def test_proto_of_text():
    """``jaxlib``'s parser: HLO text is read by no other function."""
    proto = hlo_import.proto_of_text(HLO)
    with make_context():
        text = str(ir.Module.parse(hlo_to_stablehlo(proto)))
    assert 'tensor<4xf32> {mhlo.sharding = "{devices=[4]<=[4]}"}' in text


def test_what_cannot_be_parsed_is_an_error_with_its_place():
    """``was parsing LINE:COLUMN: error: ...``: from that the place in messages comes."""
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"was parsing 2:\d+: error: "):
        hlo_import.proto_of_text(HLO.replace("parameter", "parametre"))


def test_proto_of_stablehlo_and_text_of_proto():
    """``mlir_module_to_xla_computation`` and ``HloPrintOptions``: HLO is written by them."""
    text = 'func.func @main(%a: tensor<4xf32> loc("x")) -> tensor<4xf32> {return %a: tensor<4xf32>}'
    with make_context():
        module = ir.Module.parse(text)
        buffer = io.BytesIO()
        module.operation.write_bytecode(buffer)
    written = hlo_import.text_of_proto(hlo_import.proto_of_stablehlo(buffer.getvalue()))
    assert 'parameter(0), metadata={op_name="x"}' in written
