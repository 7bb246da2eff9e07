"""``sp-export-mhlo`` where axes are manual, against JAX's own lowering for GSPMD, and run."""

import itertools
from typing import Any

import jax
import numpy as np
import pytest
from jax.extend.mlir.dialects import sdy, stablehlo

from shardpass import run, run_pipeline
from shardpass.canon import AxisRef, MeshShape
from shardpass.mlir import Module, collect, load
from shardpass.passes.meshes.replica_groups import groups_along
from tests.passes.helpers import MESH, faults
from tests.passes.manual import A, B, lowered, nested, product

PROGRAMS = [(product, {"x", "y"}), (product, {"x"}), (nested, {"x", "y"})]
each_program = pytest.mark.parametrize(
    ("program", "names"), PROGRAMS, ids=["full", "partial", "nested"]
)


def calls(module: Module) -> list[tuple[str, str, str]]:
    """Target, sharding and open dimensions of each call that lays a value out, in any order."""
    found = []
    for op in collect(module.root, stablehlo.CustomCallOp):
        if "mhlo.sharding" in op.attributes:
            config = op.attributes.get("backend_config")
            text = str(op.attributes["mhlo.sharding"]).strip('"')
            found.append((op.call_target_name.value, text, str(config or "").strip('"')))
    return sorted(found)


@each_program
def test_the_calls_are_those_of_jaxs_own_lowering(program: Any, names: set[str]) -> None:
    module = run_pipeline(lowered(program(names), "shardy"), "sp-export-mhlo").module
    assert collect(module.root, sdy.ManualComputationOp) == []
    assert "sdy." not in module.text(debug_info=False)
    mine, theirs = calls(module), calls(load(lowered(program(names), "gspmd")))
    if program is nested:  # Between the borders jax 0.12 writes constraints for Shardy alone.
        mine, theirs = ([c for c in found if c[0] != "Sharding"] for found in (mine, theirs))
    assert mine == theirs


@pytest.mark.parametrize("pipeline", ["sp-export-mhlo", "sp-propagate,sp-export-mhlo"])
@each_program
def test_the_numbers_are_those_of_jax(program: Any, names: set[str], pipeline: str) -> None:
    function = program(names)
    module = run_pipeline(lowered(function, "shardy"), pipeline).module
    found = run(module, devices=8, inputs={"a": A, "b": B})
    assert found.partitioner == "gspmd"
    for mine, wanted in zip(found.arrays, jax.jit(function)(A, B), strict=True):
        np.testing.assert_allclose(mine, np.asarray(wanted), rtol=1e-5)


MANUAL = """\
  %{n} = sdy.manual_computation(%{arg}) in_shardings=[<@mesh, [{{"x"}}, {{"y"}}]>]
      out_shardings=[<@mesh, [{{"x"}}, {{?}}]>] manual_axes={{"x"}} (%b: tensor<4x8xf32>) {{
    {body}
    sdy.return %c : tensor<4x8xf32>
  }} : (tensor<8x8xf32>) -> tensor<8x8xf32>
"""


def program(*lines: str, functions: str = "") -> str:
    return (
        f"{MESH}func.func @main(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {{\n"
        + "".join(lines)
        + f"  return %r : tensor<8x8xf32>\n}}\n{functions}"
    )


def test_what_is_cut_within_keeps_its_cut() -> None:
    text = program(MANUAL.format(n="r", arg="a", body="%c = stablehlo.abs %b : tensor<4x8xf32>"))
    module = run_pipeline(text, "sp-export-mhlo").module
    assert calls(module) == [
        ("SPMDFullToShardShape", "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dims={manual}}", ""),
        (
            "SPMDShardToFullShape",
            "{devices=[2,1,4]<=[8] last_tile_dim_replicate}",
            "unspecified_dims=[1]",
        ),
        ("Sharding", "{devices=[1,1,2,4]<=[8] last_tile_dims={manual, replicated}}",
         "unspecified_dims=[1]"),
        ("Sharding", "{devices=[2,4]<=[8]}", ""),
    ]  # fmt: skip


FUNCTION = """\
func.func private @f(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = sdy.sharding_constraint %a <@mesh, [{}, {"y"}]> : tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}
"""
CALL = "%c = func.call @f(%b) : (tensor<4x8xf32>) -> tensor<4x8xf32>"


def test_a_function_that_is_called_within() -> None:
    text = program(MANUAL.format(n="r", arg="a", body=CALL), functions=FUNCTION)
    module = run_pipeline(text, "sp-export-mhlo").module
    assert (
        "Sharding",
        "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dims={manual}}",
        "",
    ) in calls(module)


def test_a_function_that_is_called_within_and_without() -> None:
    text = program(
        "  %0 = stablehlo.slice %a [0:4, 0:8] : (tensor<8x8xf32>) -> tensor<4x8xf32>\n",
        "  %1 = func.call @f(%0) : (tensor<4x8xf32>) -> tensor<4x8xf32>\n",
        MANUAL.format(n="r", arg="a", body=CALL),
        functions=FUNCTION,
    )
    (fault,) = faults(text, "sp-export-mhlo")
    assert fault.slug == "not-supported"
    assert fault.message == ('@f holds shardings and is called where none and where "x" are manual')
    bare = text.replace('sdy.sharding_constraint %a <@mesh, [{}, {"y"}]>', "stablehlo.abs %a")
    assert "sdy" not in run_pipeline(bare, "sp-export-mhlo").module.text(debug_info=False)


def test_members_of_a_group() -> None:
    text = f"""{MESH}func.func @main(%a: tensor<8x8xf32>, %b: tensor<8x8xf32>)
        -> tensor<8x8xf32> {{
      sdy.sharding_group %a group_id=3 : tensor<8x8xf32>
      sdy.sharding_group %b group_id=3 : tensor<8x8xf32>
      %0 = stablehlo.add %a, %b : tensor<8x8xf32>
      return %0 : tensor<8x8xf32>
    }}"""
    module = run_pipeline(text, "sp-export-mhlo").module
    assert calls(module) == [("Sharding", "{unknown shard_as 3}", "")] * 2
    (add,) = collect(module.root, stablehlo.AddOp)
    made = collect(module.root, stablehlo.CustomCallOp)
    assert [value.owner for value in add.operands] == [op.operation for op in made]


# Groups of devices by axes -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("axes", "groups"),
    [
        ([AxisRef("x")], [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ([AxisRef("y")], [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ([AxisRef("y"), AxisRef("x")], [[0, 4, 1, 5, 2, 6, 3, 7]]),
        ([AxisRef("y", 1, 2)], [[0, 2], [1, 3], [4, 6], [5, 7]]),
        ([AxisRef("y", 2, 2), AxisRef("x")], [[0, 4, 1, 5], [2, 6, 3, 7]]),
        ([], [[0], [1], [2], [3], [4], [5], [6], [7]]),
    ],
)
def test_groups_along_axes(axes: list[AxisRef], groups: list[list[int]]) -> None:
    assert groups_along(MeshShape.of(x=2, y=4), axes).tolist() == groups


def test_groups_of_a_mesh_with_an_order_of_its_own() -> None:
    mesh = MeshShape((("x", 2), ("y", 2)), (3, 1, 2, 0))
    assert groups_along(mesh, [AxisRef("x")]).tolist() == [[3, 2], [1, 0]]


@pytest.mark.parametrize("axes", [("x",), ("y",), ("x", "y"), ("y", "x")])
def test_groups_are_those_that_jax_wrote_as_lists(axes: tuple[str, ...]) -> None:
    ids = np.arange(8).reshape(2, 4)
    found = groups_along(MeshShape.of(x=2, y=4), [AxisRef(axis) for axis in axes])
    others = [axis for axis in ("x", "y") if axis not in axes]
    for group in found:
        places = [np.argwhere(ids == device)[0] for device in group]
        for axis in others:
            assert len({int(place["xy".index(axis)]) for place in places}) == 1
        digits = [tuple(int(place["xy".index(axis)]) for axis in axes) for place in places]
        assert digits == list(itertools.product(*(range(ids.shape["xy".index(a)]) for a in axes)))


@pytest.mark.parametrize("pipeline", ["sp-export-mhlo{v3=true}", "sp-export-mhlo"])
@each_program
def test_either_text_runs_under_gspmd(program: Any, names: set[str], pipeline: str) -> None:
    """GSPMD aborts on names beside manual axes, so that it is handed tiles."""
    function = program(names)
    module = run_pipeline(lowered(function, "shardy"), pipeline).module
    assert ("mesh[" in module.text(debug_info=False)) == ("v3" in pipeline)
    found = run(module, devices=8, inputs={"a": A, "b": B})
    assert found.partitioner == "gspmd"
    for mine, wanted in zip(found.arrays, jax.jit(function)(A, B), strict=True):
        np.testing.assert_allclose(mine, np.asarray(wanted), rtol=1e-5)
