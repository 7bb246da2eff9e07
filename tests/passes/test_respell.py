"""Every place where an axis can be named follows its mesh: there, and back to the same text."""

import pytest

from shardpass import MeshShape
from shardpass.mlir import load, num_partitions
from shardpass.passes import run_pipeline
from shardpass.passes.meshes.mesh_plan import spoken_of
from tests.passes.helpers import faults, said

MESH = 'sdy.mesh @mesh = <["x"=2, "y"=4, "z"=4]>\n'
T = "tensor<32x32xf32>"

#: Kind of place -> the body of a function of ``%a`` that ends in ``%r``.
PLACES = {
    "constraint": f'%r = sdy.sharding_constraint %a <@mesh, [{{"x", ?}}p1, {{"y":(2)2}}]> : {T}',
    "explicitly replicated and unreduced": (
        f'%r = sdy.sharding_constraint %a <@mesh, [{{?}}, {{}}], replicated={{"x"}}, '
        f'unreduced={{"y", "z":(1)2}}> : {T}'
    ),
    "reshard": f'%r = sdy.reshard %a <@mesh, [{{"z", "x"}}, {{}}]> : {T}',
    "result of an op": (
        '%r = stablehlo.add %a, %a {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, '
        f'{{"z"}}]>]>}} : {T}'
    ),
    "results of an op": (
        '%0:2 = "stablehlo.optimization_barrier"(%a, %p) {sdy.sharding = #sdy.sharding_per_value<['
        f'<@mesh, [{{"x"}}, {{}}]>, <@mesh, [{{}}, {{"z"}}]>]>}} : ({T}, {T}) -> ({T}, {T})\n'
        f"%r = stablehlo.add %0#0, %0#1 : {T}"
    ),
    "loop": (
        "%c = stablehlo.constant dense<true> : tensor<i1>\n"
        f"%r = stablehlo.while(%i = %a) : {T} attributes {{sdy.sharding = "
        '#sdy.sharding_per_value<[<@mesh, [{"y"}, {}]>]>}\n'
        "cond { stablehlo.return %c : tensor<i1> }\n"
        f'do {{ %n = sdy.sharding_constraint %i <@mesh, [{{"x"}}, {{}}]> : {T}\n'
        f"stablehlo.return %n : {T} }}"
    ),
    "edge": f"%0 = stablehlo.add %a, %a : {T}\n%r = sdy.data_flow_edge %0 "
    f'sharding=<@mesh, [{{"x"}}, {{}}]> : {T}',
    "named computation": (
        '%r = sdy.named_computation<"f">(%a) in_shardings=[<@mesh, [{"x"}, {}]>] '
        f'out_shardings=[<@mesh, [{{}}, {{"z"}}]>] (%b: {T}) {{ sdy.return %b : {T} }} '
        f": ({T}) -> {T}"
    ),
    "manual computation": (
        '%r = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"y"}, {"x"}]>] '
        'out_shardings=[<@mesh, [{"y"}, {"x", "z"}]>] manual_axes={"x", "y"} '
        '(%b: tensor<8x16xf32>) { %0 = sdy.sharding_constraint %b <@mesh, [{}, {"z"}]> : '
        f"tensor<8x16xf32>\nsdy.return %0 : tensor<8x16xf32> }} : ({T}) -> {T}"
    ),
    "manual computation that nothing goes into": (
        'sdy.manual_computation() in_shardings=[] out_shardings=[] manual_axes={"x"} () '
        f"{{ sdy.return }} : () -> ()\n%r = stablehlo.add %a, %a : {T}"
    ),
    "all_gather": (
        '%0 = sdy.sharding_constraint %a <@mesh, [{"x", "y"}, {"z":(1)2}]> : '
        f'{T}\n%r = sdy.all_gather [{{"y"}}, {{"z":(1)2}}] %0 '
        f'out_sharding=<@mesh, [{{"x"}}, {{}}]> : {T}'
    ),
    "all_slice": (
        f'%r = sdy.all_slice [{{"x", "y":(1)2}}, {{"z"}}] %a out_sharding=<@mesh, '
        f'[{{"x", "y":(1)2}}, {{"z"}}]> : {T}'
    ),
    "all_to_all": (
        f'%0 = sdy.sharding_constraint %a <@mesh, [{{"x", "y":(1)2}}, {{"z"}}]> : {T}\n'
        '%r = sdy.all_to_all [{"y":(1)2}: 0->1] %0 out_sharding=<@mesh, [{"x"}, {"z", "y":(1)2}]> '
        f": {T}"
    ),
    "all_reduce": (
        f'%0 = sdy.sharding_constraint %a <@mesh, [{{}}, {{}}], unreduced={{"x", "y"}}> : {T}\n'
        f'%r = sdy.all_reduce {{"x", "y"}} %0 out_sharding=<@mesh, [{{}}, {{}}]> : {T}'
    ),
    "reduce_scatter": (
        f'%0 = sdy.sharding_constraint %a <@mesh, [{{}}, {{}}], unreduced={{"y"}}> : {T}\n'
        f'%r = sdy.reduce_scatter [{{}}, {{"y"}}] %0 out_sharding=<@mesh, [{{}}, {{"y"}}]> : {T}'
    ),
    "collective_permute": (
        f'%0 = sdy.sharding_constraint %a <@mesh, [{{"y"}}, {{}}]> : {T}\n'
        f'%r = sdy.collective_permute %0 out_sharding=<@mesh, [{{"z"}}, {{}}]> : {T}'
    ),
    "replicated_to_unreduced": (
        f"%0 = sdy.sharding_constraint %a <@mesh, [{{}}, {{}}]> : {T}\n"
        f'%r = sdy.replicated_to_unreduced {{"y"}} %0 out_sharding=<@mesh, [{{}}, {{}}], '
        f'unreduced={{"y"}}> : {T}'
    ),
    "sharded_to_unreduced": (
        f'%0 = sdy.sharding_constraint %a <@mesh, [{{"x"}}, {{"y"}}]> : {T}\n'
        f'%r = sdy.sharded_to_unreduced [{{}}, {{"y"}}] %0 out_sharding=<@mesh, [{{"x"}}, {{}}], '
        f'unreduced={{"y"}}> : {T}'
    ),
    "somebody's attribute": (
        '%r = stablehlo.add %a, %a {acme.kept = [{layout = #sdy.sharding<@mesh, [{"x"}]>}, 1 : i32]'
        f', acme.text = "\\"x\\" of #sdy.sharding<@mesh>", acme.mesh = @mesh}} : {T}'
    ),
    "constant": (
        '%0 = sdy.constant {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>} '
        f"dense<1.0> : {T}\n%r = stablehlo.add %a, %0 : {T}"
    ),
    "barrier and group": (
        f"%0 = sdy.propagation_barrier %a allowed_direction=NONE : {T}\n"
        f"sdy.sharding_group %0 group_id=3 : {T}\n%r = stablehlo.add %0, %0 : {T}"
    ),
}


def program(body: str, result: str = "") -> str:
    return (
        f"{MESH}func.func @main(%a: {T}, "
        f'%p: {T} {{sdy.sharding = #sdy.sharding<@mesh, [{{"y"}}, {{?}}]>}}) -> ({T}{result}) {{\n'
        f"{body}\nreturn %r : {T}\n}}\n"
    )


@pytest.mark.parametrize("body", PLACES.values(), ids=list(PLACES))
@pytest.mark.parametrize("names", ["a=2,b=4,c=4", "a=2,b=2,c=2,d=2,e=2"])
def test_there_and_back(body: str, names: str) -> None:
    module = load(program(body))
    there = run_pipeline(module, f"sp-name-axes{{mesh={names}}}").module
    text = there.text(debug_info=False).replace("\\22x\\22 of", "").replace('\\"x\\" of', "")
    assert '"a"' in text or '"b"' in text
    assert not any(f'"{name}"' in text for name in "xyz")
    assert there.root.verify()
    back = run_pipeline(there, "sp-name-axes{mesh=x=2,y=4,z=4}").module
    assert back.text() == module.text()


@pytest.mark.parametrize("place", [place for place in PLACES if place != "collective_permute"])
def test_another_size_there_and_back(place: str) -> None:
    """By the names, of which nothing is lost where a size doubles and is halved again."""
    module = load(program(PLACES[place]))
    there = run_pipeline(module, "sp-retarget{mesh=z=8,y=4,x=2}").module
    assert there.root.verify()
    assert num_partitions(there.root) == 64
    back = run_pipeline(there, "sp-retarget{mesh=x=2,y=4,z=4}").module
    assert num_partitions(back.root) == 32
    count = "module attributes {mhlo.num_partitions = 32 : i32} {"
    assert back.text().replace(count, "module {") == module.text()


def test_a_permute_between_axes_that_differ_in_size_now() -> None:
    """Shardy's verifier has the last word."""
    (fault,) = faults(program(PLACES["collective_permute"]), "sp-retarget{mesh=z=8,y=4,x=2}")
    assert "sharded size of result doesn't match operand on dimension 0: 8 != 4" in fault.message
    assert fault.location


@pytest.mark.parametrize("body", PLACES.values(), ids=list(PLACES))
def test_the_mesh_is_followed_under_its_new_symbol(body: str) -> None:
    text = program(body) + 'sdy.mesh @kept = <["x"=2, "y"=4, "z"=4]>\n'
    merged = run_pipeline(text, "sp-merge-meshes{keep=kept}").module
    said = merged.text(debug_info=False).replace("of #sdy.sharding<@mesh>", "")
    assert "@mesh" not in said
    assert merged.root.verify()
    assert said.count("@kept") >= 2


def test_results_of_functions() -> None:
    text = program(
        "%r = stablehlo.add %a, %p : " + T, ' {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}'
    )
    found = run_pipeline(text, "sp-name-axes{mesh=a=2,b=16}").module.text(debug_info=False)
    assert '[{"b":(1)4}, {?}]' in found
    assert '-> (tensor<32x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}]>})' in found


def test_names_that_need_escapes() -> None:
    text = program(PLACES["all_gather"]).replace('"y"', '"d\\22\\\\ {"')
    found = run_pipeline(text, "sp-name-axes{mesh=a=2,b=4,c=4}").module.text(debug_info=False)
    assert 'sdy.all_gather [{"b"}, {"c":(1)2}]' in found
    module = load(text)
    named = run_pipeline(module, "sp-name-axes", mesh=MeshShape((('o"', 2), ("ö{", 4), ("c", 4))))
    assert spoken_of(named.module.root) == {MeshShape((('o"', 2), ("ö{", 4), ("c", 4))): False}


NOTES = """
sdy.mesh @mesh = <["x"=2, "y"=4]>
func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>,
    sdy.sharding_origins = {x = "self"}}) -> tensor<8x8xf32> {
  %0 = stablehlo.add %a, %a {
    sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>,
    sdy.propagation_edges = #sdy.propagation_edges<[{step-0 = [{"x" = operand-0 -> [result-0]}]}]>}
    : tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
"""


def test_what_propagation_noted_goes_with_the_names() -> None:
    found = run_pipeline(NOTES, "sp-name-axes{mesh=a=2,b=4}")
    assert "origins" not in found.module.text()
    assert "edges" not in found.module.text()
    assert said(found.diagnostics) == [
        (
            "remark",
            "not-supported",
            "2 notes of propagation (origins and edges of shardings) are dropped: they name axes "
            "that are no more",
        )
    ]
    kept = run_pipeline(f'{NOTES}sdy.mesh @other = <["x"=2, "y"=4]>', "sp-merge-meshes")
    assert kept.module.text(debug_info=False) == load(NOTES).text(debug_info=False)
    assert not kept.diagnostics


GROUPS = """
sdy.mesh @mesh = <["x"=2, "y"=4]>
func.func @main(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"x"}, {}]>]
      out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x", "y"} (%b: tensor<4x8xf32>) {
    %1 = "stablehlo.all_reduce"(%b) <{
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
        replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [
        #stablehlo.axis_ref<name = "y", sub_axis_info = (2)2>, #stablehlo.axis_ref<name = "x">]>,
        use_global_device_ids}> ({
    ^bb0(%c: tensor<f32>, %d: tensor<f32>):
      %2 = stablehlo.add %c, %d : tensor<f32>
      stablehlo.return %2 : tensor<f32>
    }) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    sdy.return %1 : tensor<4x8xf32>
  } : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
"""


def test_groups_of_replicas_by_axes() -> None:
    """In their order, which says who comes first in a group."""
    found = run_pipeline(GROUPS, "sp-name-axes{mesh=a=2,b=2,c=2}").module
    assert (
        'replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "c">, '
        '#stablehlo.axis_ref<name = "a">]>' in found.text(debug_info=False)
    )
    back = run_pipeline(found, "sp-name-axes{mesh=x=2,y=4}").module
    assert back.text() == load(GROUPS).text()
    # What only groups speak of is in use, as JAX 0.12 writes it.
    text = (
        GROUPS.replace("<mesh = @mesh,", "<mesh = @other,") + 'sdy.mesh @other = <["x"=2, "y"=4]>'
    )
    merged = run_pipeline(text, "sp-merge-meshes").module
    assert merged.text(debug_info=False) == load(GROUPS).text(debug_info=False)


def test_several_faults_are_told_each_with_its_place() -> None:
    body = (
        f'%0 = sdy.sharding_constraint %a <@mesh, [{{"y"}}, {{}}]> : {T}\n'
        f'%1 = sdy.sharding_constraint %0 <@mesh, [{{}}, {{"y"}}]> : {T}\n'
        '%r = sdy.manual_computation(%1) in_shardings=[<@mesh, [{}, {"x"}]>] '
        'out_shardings=[<@mesh, [{}, {"x"}]>] manual_axes={"x"} '
        f"(%b: tensor<32x16xf32>) {{ sdy.return %b : tensor<32x16xf32> }} : ({T}) -> {T}"
    )
    found = faults(program(body), "sp-name-axes{mesh=d=8,e=4}")
    assert [(fault.slug, fault.location and fault.location.line) for fault in found] == [
        ("not-expressible", 5)
    ]
    assert "manual_axes of sdy.manual_computation" in found[0].message
    text = program(body).replace('"x"=2, "y"=4, "z"=4', '"x"=2, "y"=3, "z"=4')
    found = faults(text, "sp-name-axes{mesh=d=3,e=8}")
    assert [fault.location and fault.location.line for fault in found] == [2, 3, 4, 5, 5, 5]
    assert found[0].message == (
        'argument 1 ("arg1"): "y" of x=2, y=3, z=4 does not cut "d"=3 into whole sub-axes'
    )
