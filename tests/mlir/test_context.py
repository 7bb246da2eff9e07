"""What a context reads, and what stands around the ops of a file."""

import pytest

from shardpass.diagnostics import ShardingError
from shardpass.mlir import load, parse
from shardpass.mlir.context import dialects_of, load_quantized_types, make_context

FUNCTION = "func.func @main() {\n  return\n}\n"
HLO = "HloModule m\nENTRY e {\n  ROOT p = f32[8] parameter(0)\n}\n"


def test_the_dialects_of_a_context() -> None:
    context = make_context()
    found = dialects_of(context)
    assert found == sorted(found)
    assert {"builtin", "chlo", "func", "mhlo", "sdy", "stablehlo", "vhlo"} <= {*found}
    load_quantized_types(context)
    assert {*dialects_of(context)} - {*found} == {"quant"}


@pytest.mark.parametrize(
    "data",
    [
        f"module {{\n{FUNCTION}}}\n".encode(),
        load(FUNCTION).bytecode(),
        HLO.encode(),  # It is a module of XLA's.
    ],
)
def test_a_module_of_its_own(data: bytes) -> None:
    module = parse(data, "f", implicit_module=False)
    assert "func.func" in module.text()


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        (
            f"\n{FUNCTION}",
            "f holds a func.func where a builtin.module has to stand: passes run on modules",
            2,
        ),
        (2 * FUNCTION, "source must contain a single top-level operation, found: 2", None),
    ],
)
def test_no_module_of_its_own(text: str, message: str, line: int | None) -> None:
    text = text.replace("@main", "@a", text.count("@main") - 1)
    with pytest.raises(ShardingError) as caught:
        parse(text.encode(), "f", implicit_module=False)
    place = caught.value.diagnostic.location
    assert (caught.value.diagnostic.message, place and place.line) == (message, line)
    assert parse(text.encode(), "f")
