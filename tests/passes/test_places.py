"""One place for what is said of a value, whichever pass says it."""

from __future__ import annotations

from typing import Any

import pytest

from shardpass import P
from shardpass.diagnostics import Diagnostic, ShardingError
from shardpass.mlir import parse
from shardpass.passes import run_pipeline
from tests.passes.helpers import MESH

#: Lines 2 to 6: the function, its arguments and its result.
TEXT = (
    MESH
    + """\
func.func @main(
    %a: tensor<8x8xf32>,
    %b: tensor<6x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>},
    %c: tensor<8x8xf32>NAME)
    -> (tensor<6x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>}, tensor<8x8xf32>) {
  return %b, %c : tensor<6x8xf32>, tensor<8x8xf32>
}
"""
)
RULES: dict[str, Any] = {"rules": [("arg2|c$", P("y", "x"))], "mesh": {"x": 2, "y": 4}}
PLAIN = TEXT.replace("NAME", "")
#: As JAX names arguments, without a place.
NAMED = TEXT.replace("NAME", " loc(\"params['c']\")")


def reported(text: str, pipeline: str) -> tuple[Diagnostic, ...]:
    try:
        return run_pipeline(
            parse(text.encode(), "m.mlir"),
            pipeline,
            **(RULES if pipeline == "sp-annotate" else {}),
        ).diagnostics
    except ShardingError as error:
        return error.diagnostics


def places(found: tuple[Diagnostic, ...], slug: str) -> list[str]:
    return [f"{d.message.split(' (')[0]} {d.location}" for d in found if d.slug == slug]


@pytest.mark.parametrize(
    ("pipeline", "slug"),
    [
        ("sp-verify", "indivisible"),
        ("sp-propagate", "uneven-rewritten"),
        ("sp-annotate", "already-annotated"),
    ],
)
def test_every_pass_gives_an_argument_its_own_place(pipeline: str, slug: str) -> None:
    found = reported(PLAIN, pipeline)
    assert places(found, slug) == ["argument 1 m.mlir:4:5", "result 0 m.mlir:2:1"]


@pytest.mark.parametrize(("text", "place"), [(PLAIN, "m.mlir:5:5"), (NAMED, "m.mlir:2:1")])
@pytest.mark.parametrize(
    ("pipeline", "slug"),
    [("sp-propagate{warn-replicated-bytes=256}", "replicated"), ("sp-annotate", "indivisible")],
)
def test_where_an_argument_stands(text: str, place: str, pipeline: str, slug: str) -> None:
    """An argument with nothing but a name stands where its function does."""
    found = reported(text.replace("8x8", "9x8" if "annotate" in pipeline else "8x8"), pipeline)
    assert f"argument 2 {place}" in places(found, slug)
