"""Element sizes, in MLIR's spelling and in XLA's."""

import jax
import jax.numpy as jnp
import pytest

from shardpass.mlir.element_types import array_bytes, element_bytes


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("pred", 1),
        ("s8", 1),
        ("u16", 2),
        ("s32", 4),
        ("u64", 8),
        ("bf16", 2),
        ("f16", 2),
        ("f64", 8),
        ("c64", 8),
        ("c128", 16),
        ("f8e4m3fn", 1),
        ("f8e4m3b11fnuz", 1),
        ("f8e5m2", 1),
        ("f8e8m0fnu", 1),
        ("f6e2m3fn", 1),
        ("f4e2m1fn", 1),
        ("s4", 1),
        ("u2", 1),
        ("s1", 1),
        ("token", 0),
        ("opaque", 0),
        ("i1", 1),
        ("i32", 4),
        ("ui8", 1),
        ("f8E4M3FN", 1),
        ("complex<f32>", 8),
        ("!quant.uniform<i8:f32, 2.0:15>", 1),
        ("!quant.uniform<u16<0:9>:f32:0, {2.0:15,1.0}>", 2),
        ("complex<f64>", 16),
        ("!stablehlo.token", 0),
    ],
)
def test_sizes(name: str, size: int) -> None:
    assert element_bytes(name) == size


WHOLE_BYTES = ["bool", "int8", "uint16", "int32", "bfloat16", "float16", "float32", "complex64"]
SMALL_FLOATS = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e8m0fnu"]
PACKED = ["int2", "uint2", "int4", "uint4", "float4_e2m1fn"]


@pytest.mark.parametrize("dtype", [*WHOLE_BYTES, *SMALL_FLOATS, *PACKED])
def test_agrees_with_the_compiler(dtype: str) -> None:
    """The oracle is what XLA says that an argument of 21 elements takes."""
    given = jax.ShapeDtypeStruct((7, 3), jnp.dtype(dtype))
    lowered = jax.jit(lambda x: x).lower(given)
    type_name = str(lowered.compiler_ir("stablehlo").body.operations[0].type.inputs[0].element_type)
    stats = lowered.compile().memory_analysis()
    assert array_bytes((7, 3), type_name) == stats.argument_size_in_bytes
