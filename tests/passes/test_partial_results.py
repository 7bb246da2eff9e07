"""Arguments that are partial results, in front of propagation: an error where Shardy aborts."""

import pytest

from shardpass import run_pipeline
from shardpass.mlir import load
from tests.passes.helpers import MESH, faults, said

KIND = "tensor<8x8xf32>"


def module(body: str, unreduced: str = '"x"') -> str:
    return f"""{MESH}func.func @main(
    %a: {KIND} {{sdy.sharding = #sdy.sharding<@mesh, [{{}}, {{}}], unreduced={{{unreduced}}}>}}) {{
  {body}
  return
}}
"""


CALL = f"stablehlo.custom_call @f(%a) {{has_side_effect = true}} : ({KIND}) -> ()"
OTHER = f'%0 = sdy.sharding_constraint %a <@mesh, [{{}}, {{}}], unreduced={{"y"}}> : {KIND}'
PART = f'%0 = sdy.sharding_constraint %a <@mesh, [{{}}, {{}}], unreduced={{"y":(2)2}}> : {KIND}'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            module(CALL),
            'stablehlo.custom_call takes partial results over "x", and gives nothing that they '
            "could be reduced in",
        ),
        (
            module(OTHER),
            'sdy.sharding_constraint asks for partial results over "y" of a value whose partial '
            'results are over "x"',
        ),
        (
            module(PART, '"y":(1)2'),
            'sdy.sharding_constraint asks for partial results over "y":(2)2 of a value whose '
            'partial results are over "y":(1)2',
        ),
    ],
)
def test_what_shardy_would_abort_on(text: str, told: str) -> None:
    given = load(text)
    before = given.text()
    found = faults(given, "sp-propagate")
    assert said(found) == [("error", "not-supported", told)]
    assert found[0].location is not None
    assert found[0].location.line == 4
    assert given.text() == before


@pytest.mark.parametrize(
    ("asked", "given"),
    [("", '"x"'), (', unreduced={"y"}', '"y"'), (', unreduced={"y"}', '"x", "y"')],
)
def test_what_is_reduced_is_propagated(asked: str, given: str) -> None:
    body = f"%0 = sdy.sharding_constraint %a <@mesh, [{{}}, {{}}]{asked}> : {KIND}"
    assert "unreduced" in run_pipeline(module(body, given), "sp-propagate").module.text()
