"""Where ops were written, what values are called, and which function a run starts at."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardpass.diagnostics import Diagnostic, Excerpt, Severity, ShardingError, SourceLocation
from shardpass.mlir import (
    EntryValue,
    Module,
    aliases_of,
    argument_attributes,
    at_place,
    collect,
    file_positions,
    load,
    locate,
    location_names,
    operations,
    result_attributes,
    set_argument_attributes,
    where,
    with_attribute,
    with_entry,
)
from shardpass.mlir.element_types import tensor_bytes

LOCATED = """\
module {
  func.func @main(
      %a: tensor<8xf32> loc("p['w'].value"("/x/model.py":3:4)),
      %b: tensor<8xf32> loc("q"),
      %c: tensor<8xf32>) -> tensor<8xf32> {
    %0 = stablehlo.add %a, %b : tensor<8xf32>
      loc(fused["jit(f)/add"("/x/model.py":3:4), callsite("g"("/in.py":1:2) at "h"("/out.py":5:6))])
    %1 = stablehlo.abs %0 : tensor<8xf32> loc(unknown)
    return %1 : tensor<8xf32>
  }
}
"""


def ops_named(module: Module) -> dict[str, ir.OpView]:
    return {op.operation.name: op for op in operations(module.root)}


def test_places_and_names_of_written_locations() -> None:
    ops = ops_named(load(LOCATED))
    add = ops["stablehlo.add"].location
    assert [str(place) for place in file_positions(add)] == [
        "/x/model.py:3:4",
        "/in.py:1:2",
        "/out.py:5:6",
    ]
    assert list(location_names(add)) == ["jit(f)/add", "g", "h"]
    assert locate(ops["stablehlo.add"]) == SourceLocation("/x/model.py", 3, 4)
    assert locate(ops["stablehlo.abs"]) is None
    assert locate(ops["func.return"]) == SourceLocation("-", 9, 5)


def test_names_of_arguments_come_from_locations() -> None:
    named = [(value.raw, value.path) for value in load(LOCATED).arguments]
    assert named == [("p['w'].value", "p.w"), ("q", "q"), ("arg2", "arg2")]


def test_the_python_line_of_an_op() -> None:
    def layer(x: jax.Array) -> jax.Array:
        return jnp.sin(x)

    def step(x: jax.Array) -> jax.Array:
        return layer(x) * 2

    module = load(jax.jit(step).lower(jnp.zeros(3)))
    sine = ops_named(module)["stablehlo.sine"]
    first_line = layer.__code__.co_firstlineno
    assert locate(sine) == SourceLocation(str(Path(__file__)), first_line + 1, 15)
    frames = [place.line for place in file_positions(sine.location)]
    assert frames[:2] == [first_line + 1, step.__code__.co_firstlineno + 1]
    assert "jit(step)/sin" in list(location_names(sine.location))
    # As well after a trip through bytecode, which is how a module is cloned.
    assert locate(ops_named(load(module.bytecode()))["stablehlo.sine"]) == locate(sine)


def test_ops_inside_regions_come_behind_their_parents() -> None:
    def step(x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, x))[1]

    root = load(jax.jit(step).lower(jnp.zeros(3))).root
    names = [op.operation.name for op in operations(root)]
    loop = names.index("stablehlo.while")
    assert names[0] == "func.func"
    assert names[loop + 1 : loop + 3] == ["stablehlo.constant", "stablehlo.compare"]
    assert names[-1] == "func.return"
    assert [op.operation.name for op in collect(root, stablehlo.MulOp, stablehlo.AddOp)] == [
        "stablehlo.add",
        "stablehlo.multiply",
    ]
    assert [op.operation.name for op in with_attribute(root, "comparison_direction")] == [
        "stablehlo.compare"
    ]
    several = where(root, lambda op: len(op.results) > 1)
    assert [op.operation.name for op in several] == ["stablehlo.while"]


FUNCTION = "func.func {kind}@{name}(%a: tensor<4xf32>) -> tensor<4xf32> {{ return %a : {t} }}\n"


def functions(*names: str) -> Module:
    lines = []
    for name in names:
        kind, _, bare = name.rpartition(" ")
        space = f"{kind} " if kind else ""
        lines.append(FUNCTION.format(kind=space, name=bare, t="tensor<4xf32>"))
    return load("".join(lines))


@pytest.mark.parametrize(
    ("names", "entry"),
    [
        (["main"], "main"),
        (["f", "main", "g"], "main"),
        (["private main"], "main"),
        (["private f", "step"], "step"),
        (["private f", "public step"], "step"),
    ],
)
def test_the_entry_function(names: list[str], entry: str) -> None:
    assert functions(*names).main.name.value == entry


@pytest.mark.parametrize(
    ("names", "found"),
    [(["f", "g"], "@f, @g"), (["private f"], "none"), (["private f", "private g"], "none")],
)
def test_no_entry_function(names: list[str], found: str) -> None:
    with pytest.raises(ShardingError) as caught:
        _ = functions(*names).main
    assert caught.value.slug == "no-entry-function"
    assert f"(public: {found})" in caught.value.diagnostic.message


def test_a_declaration_is_no_entry() -> None:
    module = load(
        "func.func private @main(tensor<4xf32>)\n"
        + FUNCTION.format(kind="", name="step", t="tensor<4xf32>")
    )
    assert module.main.name.value == "step"


def test_entry_values(module: Module) -> None:
    weight, x = module.arguments
    (out,) = module.results
    assert (weight.index, weight.raw, weight.path) == (0, "params['w']", "params.w")
    assert (weight.shape, weight.sizes, weight.size) == ((8, 4), (8, 4), 32)
    assert weight.element_type == "f32"
    assert weight.is_tensor
    assert str(weight) == 'argument 0 ("params.w")'
    assert str(x) == 'argument 1 ("x")'
    assert str(out) == 'result 0 ("result.out")'
    assert out.shape == (2, 4)


def test_tokens_and_dynamic_shapes() -> None:
    module = load(
        "func.func @main(%t: !stablehlo.token, %d: tensor<?x8xf32>, %s: tensor<i32>)"
        " -> !stablehlo.token { return %t : !stablehlo.token }"
    )
    token, dynamic, scalar = module.arguments
    assert (token.is_tensor, token.shape, token.sizes, token.element_type) == (False, (), (), "")
    assert dynamic.sizes == (-1, 8)
    assert (scalar.shape, scalar.size) == ((), 1)
    with pytest.raises(ShardingError) as caught:
        _ = dynamic.shape
    assert caught.value.slug == "dynamic-shape"
    assert caught.value.diagnostic.path == "arg1"
    assert "tensor<?x8xf32>" in caught.value.diagnostic.message


def test_aliases() -> None:
    def step(state: Any, x: jax.Array) -> Any:
        return x.sum(), jax.tree.map(lambda leaf: leaf + 1, state)

    state = {"a": jnp.zeros((4, 2)), "b": jnp.zeros(3)}
    module = load(jax.jit(step, donate_argnums=0).lower(state, jnp.zeros(5)))
    assert aliases_of(module.main) == {1: 0, 2: 1}


def test_dictionaries_of_values(module: Module) -> None:
    function = module.main
    name = ir.StringAttr.get("v", context=function.context)
    entries = argument_attributes(function)
    assert [len(e) for e in entries] == [0, 0]
    entries[1] = with_entry(entries[1], "a.b", name)
    set_argument_attributes(function, entries)
    assert [{a.name: str(a.attr) for a in e} for e in argument_attributes(function)] == [
        {},
        {"a.b": '"v"'},
    ]
    assert len(with_entry(argument_attributes(function)[1], "a.b", None)) == 0
    assert len(with_entry(entries[1], "not.there", None)) == 1
    assert [a.name for a in result_attributes(function)[0]] == ["jax.result_info"]


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("tensor<2x3xf32>", 24),
        ("tensor<3xbf16>", 6),
        ("tensor<3xi1>", 3),
        ("tensor<3xi4>", 2),
        ("tensor<5xf8E4M3FN>", 5),
        ("tensor<2xcomplex<f64>>", 32),
        ("tensor<ui32>", 4),
        ("tensor<0x4xf32>", 0),
        ("tensor<?x4xf32>", 0),
        ("!stablehlo.token", 0),
    ],
)
def test_sizes_of_values(kind: str, size: int, module: Module) -> None:
    with module.ir.context:
        assert tensor_bytes(ir.Type.parse(kind)) == size


def test_entry_values_are_values(module: Module) -> None:
    assert module.arguments == module.arguments
    assert isinstance(module.arguments[0], EntryValue)
    assert module.arguments[0] != module.arguments[1]


def test_a_place_is_a_name_where_there_is_no_line() -> None:
    text = (
        "func.func @main(%a: tensor<8xf32>) {\n"
        '  %0 = stablehlo.abs %a : tensor<8xf32> loc("my_op")\n'
        "  %1 = stablehlo.abs %0 : tensor<8xf32> loc(unknown)\n"
        '  %2 = stablehlo.abs %1 : tensor<8xf32> loc("other"("/x.py":3:4))\n  return\n}\n'
    )
    assert [locate(op) for op in collect(load(text).root, stablehlo.AbsOp)] == [
        SourceLocation("-", name="my_op"),
        None,
        SourceLocation("/x.py", 3, 4),
    ]


def test_notes_are_placed_by_name_where_there_is_no_line() -> None:
    assert at_place("it is", SourceLocation("-", name="my_op")) == '"my_op": it is'
    assert at_place("it is", SourceLocation("m.hlo", name="my_op")) == 'm.hlo: "my_op": it is'
    assert at_place("it is", None) == "it is"


def test_a_diagnostic_without_a_place_is_about_the_file() -> None:
    module = load("func.func @main() {\n  return\n}\n", name="m.mlir")
    told = Diagnostic(Severity.WARNING, "mesh-mismatch", "there is no mesh")
    assert module.place(told).location == SourceLocation("m.mlir")
    quoting = replace(told, excerpt=Excerpt("rules"))
    assert module.place(quoting).location is None
    assert module.place(replace(told, slug="bad-option")).location is None
