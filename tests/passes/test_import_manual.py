"""``sp-import-mhlo`` where axes are manual, on what JAX lowers for GSPMD, and run."""

from typing import Any

import jax
import numpy as np
import pytest
from jax.extend.mlir.dialects import sdy, stablehlo

from shardpass import MeshShape, run, run_pipeline
from shardpass.mlir import Module, collect, load
from shardpass.passes.import_mhlo import ImportMhlo
from tests.passes.helpers import faults
from tests.passes.manual import A, B, lowered, nested, product
from tests.passes.test_export_manual import calls, each_program

MESH = MeshShape.of(x=2, y=4)


def regions(module: Module) -> list[tuple[str, str, str]]:
    """What every manual computation says, in program order, without the mesh's name."""
    return [
        tuple(
            str(op.attributes[name]).replace("@mesh_0", "@mesh")
            for name in ("in_shardings", "out_shardings", "manual_axes")
        )
        for op in collect(module.root, sdy.ManualComputationOp)
    ]


def imported(text: str) -> Module:
    module = run_pipeline(text, ImportMhlo(mesh=MESH)).module
    assert "mhlo.sharding" not in module.text(debug_info=False)
    assert "SPMD" not in module.text(debug_info=False)
    assert load(module.text()).root.verify()
    return module


@each_program
def test_the_regions_are_those_of_jaxs_own_lowering(program: Any, names: set[str]) -> None:
    module = imported(lowered(program(names), "gspmd"))
    theirs = load(lowered(program(names), "shardy"))
    assert sorted(regions(module)) == sorted(regions(theirs))


@pytest.mark.parametrize("pipeline", ["sp-import-mhlo", "sp-import-mhlo,sp-propagate"])
@each_program
def test_the_numbers_are_those_of_jax(program: Any, names: set[str], pipeline: str) -> None:
    function = program(names)
    module = run_pipeline(lowered(function, "gspmd"), pipeline).module
    found = run(module, devices=8, inputs={"a": A, "b": B})
    assert found.partitioner == "shardy"
    for mine, wanted in zip(found.arrays, jax.jit(function)(A, B), strict=True):
        np.testing.assert_allclose(mine, np.asarray(wanted), rtol=1e-5)


@each_program
def test_export_after_import_gives_the_calls_back(program: Any, names: set[str]) -> None:
    text = lowered(program(names), "gspmd")
    back = run_pipeline(imported(text), "sp-export-mhlo").module
    mine, first = calls(back), calls(load(text))
    if program is nested:  # A constraint that repeats what the border says goes.
        mine, first = ([c for c in found if c[0] != "Sharding"] for found in (mine, first))
    assert mine == first


@each_program
def test_import_after_export_gives_the_regions_back(program: Any, names: set[str]) -> None:
    text = lowered(program(names), "shardy")
    back = imported(run_pipeline(text, "sp-export-mhlo").module.text())
    assert regions(back) == regions(load(text))


# Written by hand ---------------------------------------------------------------------------------

HALVES = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"
ENTER = f"""
  %0 = stablehlo.custom_call @Sharding(%a) {{mhlo.sharding = "{HALVES}"}}
    : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = stablehlo.custom_call @SPMDFullToShardShape(%0) {{mhlo.sharding = "{{manual}}"}}
    : (tensor<8x8xf32>) -> tensor<4x8xf32>"""
LEAVE = f"""
  %r = stablehlo.custom_call @SPMDShardToFullShape(%l) {{mhlo.sharding = "{HALVES}"}}
    : (tensor<4x8xf32>) -> tensor<8x8xf32>"""


def program(body: str, *, devices: int = 8) -> str:
    return (
        f"module attributes {{mhlo.num_partitions = {devices} : i32}} {{\n"
        "func.func @main(%a: tensor<8x8xf32>, %s: tensor<f32>) -> tensor<8x8xf32> {"
        f"{body}\n  return %r : tensor<8x8xf32>\n}}\n}}\n"
    )


def test_constants_go_with_who_uses_them() -> None:
    module = imported(
        program(f"""
  %c = stablehlo.constant dense<2.0> : tensor<f32>
  %b = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<4x8xf32>
  %w = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<8x8xf32>{ENTER}
  %l = stablehlo.multiply %1, %b : tensor<4x8xf32>{LEAVE.replace("%r", "%q")}
  %r = stablehlo.add %q, %w : tensor<8x8xf32>""")
    )
    (region,) = collect(module.root, sdy.ManualComputationOp)
    assert [op.operation.name for op in region.regions[0].blocks[0].operations] == [
        "stablehlo.constant",
        "stablehlo.broadcast_in_dim",
        "stablehlo.multiply",
        "sdy.return",
    ]
    found = run(module, devices=8, inputs={"arg0": A, "arg1": np.float32(0)})
    np.testing.assert_allclose(found.arrays[0], A * 2 + 2)


def test_a_constant_within_a_loop_in_the_region() -> None:
    module = imported(
        program(f"""
  %c = stablehlo.constant dense<3.0> : tensor<4x8xf32>
  %n = stablehlo.constant dense<0> : tensor<i32>{ENTER}
  %l, %i = stablehlo.while(%x = %1, %k = %n) : tensor<4x8xf32>, tensor<i32>
   cond {{
    %two = stablehlo.constant dense<2> : tensor<i32>
    %t = stablehlo.compare LT, %k, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  }} do {{
    %one = stablehlo.constant dense<1> : tensor<i32>
    %y = stablehlo.add %x, %c : tensor<4x8xf32>
    %m = stablehlo.add %k, %one : tensor<i32>
    stablehlo.return %y, %m : tensor<4x8xf32>, tensor<i32>
  }}{LEAVE}""")
    )
    found = run(module, devices=8, inputs={"arg0": A, "arg1": np.float32(0)})
    np.testing.assert_allclose(found.arrays[0], A + 6)


def test_a_region_that_nothing_enters() -> None:
    module = imported(
        program(f"""
  %c = stablehlo.constant dense<5.0> : tensor<4x8xf32>
  %l = stablehlo.custom_call @Sharding(%c) {{mhlo.sharding = "{{manual}}"}}
    : (tensor<4x8xf32>) -> tensor<4x8xf32>{LEAVE}""")
    )
    ((ins, outs, axes),) = regions(module)
    assert ins == "#sdy.sharding_per_value<[]>"
    assert outs == '#sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>'
    assert axes == '#sdy<manual_axes{"x", "y"}>'
    found = run(module, devices=8, inputs={"arg0": A, "arg1": np.float32(0)})
    np.testing.assert_allclose(found.arrays[0], np.full((8, 8), 5.0, np.float32))


def test_two_regions_one_behind_the_other() -> None:
    again = ENTER.replace("%a", "%q").replace("%0", "%2").replace("%1", "%3")
    module = imported(
        program(
            f"{ENTER}\n  %l = stablehlo.negate %1 : tensor<4x8xf32>{LEAVE.replace('%r', '%q')}"
            f"{again}\n  %k = stablehlo.abs %3 : tensor<4x8xf32>{LEAVE.replace('%l', '%k')}"
        )
    )
    assert len(regions(module)) == 2
    assert collect(module.root, stablehlo.CustomCallOp) == []


def test_all_devices_hold_the_whole() -> None:
    """Nothing is tiled: the number of devices that the module states makes the mesh."""
    text = program(f"{ENTER}\n  %l = stablehlo.abs %1 : tensor<4x8xf32>{LEAVE}")
    text = text.replace(HALVES, "{replicated}").replace("4x8", "8x8")
    module = run_pipeline(text, "sp-import-mhlo").module
    ((_, _, axes),) = regions(module)
    assert axes == '#sdy<manual_axes{"_axis_0"}>'


@pytest.mark.parametrize(
    ("body", "slug", "said"),
    [
        (
            f"{ENTER}\n  %m = stablehlo.broadcast_in_dim %s, dims = []"
            " : (tensor<f32>) -> tensor<4x8xf32>"
            f"\n  %l = stablehlo.multiply %1, %m : tensor<4x8xf32>{LEAVE}",
            "not-supported",
            "stablehlo.multiply in or at a manual region: it uses a value that has not entered",
        ),
        (
            ENTER.replace("%0)", "%a)") + f"\n  %l = stablehlo.abs %1 : tensor<4x8xf32>{LEAVE}",
            "missing-sharding",
            "what enters a manual region by @SPMDFullToShardShape carries no mhlo.sharding",
        ),
        (
            f"{ENTER}\n  %l = stablehlo.abs %1 : tensor<4x8xf32>{LEAVE.replace('%r', '%q')}"
            + ENTER.replace("%a", "%q").replace("%0", "%2").replace("%1", "%3")
            + f"\n  %k = stablehlo.add %3, %1 : tensor<4x8xf32>{LEAVE.replace('%l', '%k')}",
            "not-supported",
            "it is entered again after a value has left it",
        ),
    ],
)
def test_borders_that_do_not_fit(body: str, slug: str, said: str) -> None:
    found = faults(program(body), "sp-import-mhlo")
    assert slug in [fault.slug for fault in found]
    assert any(said in fault.message for fault in found), found
    assert all(fault.location for fault in found)


def test_a_group() -> None:
    text = """
        func.func @main(
            %a: tensor<8xf32> {mhlo.sharding = "{devices=[8]<=[8] shard_as 1}"},
            %b: tensor<8xf32>)
            -> (tensor<8xf32> {mhlo.sharding = "{devices=[8]<=[8] shard_as 1}"}) {
          %0 = stablehlo.custom_call @Sharding(%b) {mhlo.sharding = "{unknown shard_as 1}"}
            : (tensor<8xf32>) -> tensor<8xf32>
          %1 = stablehlo.abs %0 {mhlo.sharding = "{devices=[8]<=[8] shard_like 2}"} : tensor<8xf32>
          return %1 : tensor<8xf32>
        }"""
    module = run_pipeline(text, "sp-import-mhlo").module
    groups = collect(module.root, sdy.ShardingGroupOp)
    assert [str(op.attributes["group_id"]).split()[0] for op in groups] == ["1", "1", "2", "1"]
    assert groups[2].operands[0] == groups[3].operands[0]


def test_jax_product_under_both_partitioners_takes_the_same_axes() -> None:
    text = lowered(product({"x"}), "gspmd")
    found = run_pipeline(text, "sp-import-mhlo").module
    ((_, _, axes),) = regions(found)
    assert axes == '#sdy<manual_axes{"_axis_0"}>'


def test_a_function_that_is_called_twice_within() -> None:
    """Each call gets the body, and the function goes, since nobody calls it any more."""
    body = f"{ENTER}\n  %k = func.call @f(%1) : (tensor<4x8xf32>) -> tensor<4x8xf32>" + (
        f"\n  %l = func.call @f(%k) : (tensor<4x8xf32>) -> tensor<4x8xf32>{LEAVE}"
    )
    function = """
func.func private @f(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = func.call @g(%a) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}
func.func private @g(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = stablehlo.add %a, %a : tensor<4x8xf32>
  %1 = stablehlo.custom_call @Sharding(%0) {mhlo.sharding = "{manual}"}
    : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}
}
"""
    module = imported(program(body).rstrip().removesuffix("}") + function)
    assert len(collect(module.root, stablehlo.AddOp)) == 2
    assert "call @" not in module.text(debug_info=False)
    assert "@f" not in module.text(debug_info=False)
    found = run(module, devices=8, inputs={"arg0": A, "arg1": np.float32(0)})
    np.testing.assert_allclose(found.arrays[0], A * 4)


def region(whole: str, local: str, *, target: str = "{devices=[4,1]<=[4]}") -> str:
    """A region that ``whole`` enters and leaves, and is ``local`` inside of."""
    return f"""
        func.func @main(%a: {whole}) -> {whole} {{
          %0 = stablehlo.custom_call @Sharding(%a) {{mhlo.sharding = "{target}"}}
            : ({whole}) -> {whole}
          %1 = stablehlo.custom_call @SPMDFullToShardShape(%0) {{mhlo.sharding = "{{manual}}"}}
            : ({whole}) -> {local}
          %2 = stablehlo.custom_call @SPMDShardToFullShape(%1) {{mhlo.sharding = "{target}"}}
            : ({local}) -> {whole}
          return %2 : {whole}
        }}"""


@pytest.mark.parametrize(
    ("whole", "local", "holds"),
    [
        ("tensor<8x8xf32>", "tensor<4x8xf32>", "tensor<2x8xf32>"),
        ("tensor<8x8xf32>", "tensor<8xf32>", "tensor<2x8xf32>"),
        ("tensor<8x8xf32>", "tensor<2x8xbf16>", "tensor<2x8xf32>"),
    ],
)
def test_local_shapes_are_what_a_device_holds(whole: str, local: str, holds: str) -> None:
    module = load(region(whole, local))
    before = module.text()
    found = faults(module, "sp-import-mhlo")
    assert [fault.slug for fault in found] == ["shape-mismatch"] * 2  # On the way in, and out.
    assert all(f"{local} is inside" in fault.message for fault in found)
    assert all(f"of which a device holds {holds}" in fault.message for fault in found)
    assert [fault.location and fault.location.line for fault in found] == [5, 7]
    assert module.text() == before
    assert len(regions(run_pipeline(region(whole, holds), "sp-import-mhlo").module)) == 1


def test_what_a_region_takes_is_in_equal_pieces() -> None:
    found = faults(region("tensor<6x8xf32>", "tensor<2x8xf32>"), "sp-import-mhlo")
    errors = [fault.message for fault in found if fault.severity.value == "error"]
    assert [message.split(" and ")[0] for message in errors] == [
        "@SPMDFullToShardShape, dimension 0: 6 elements into 4 pieces,",
        "@SPMDShardToFullShape, dimension 0: 6 elements into 4 pieces,",
    ]


def test_the_regions_of_a_module_are_all_looked_at() -> None:
    text = region("tensor<8x8xf32>", "tensor<4x8xf32>")
    both = text + text.replace("@main", "@other")
    assert [fault.location and fault.location.line for fault in faults(both, "sp-import-mhlo")] == [
        5,
        7,
        14,
        16,
    ]
