"""``sp-verify``: every fault of the annotations in one run, each with its place and remedy."""

from typing import Any

import pytest

from shardpass.diagnostics import Diagnostic
from shardpass.mlir import load
from shardpass.passes import run_pipeline
from tests.passes.helpers import MESH, faults, said


def verify(text: Any) -> tuple[Diagnostic, ...]:
    """What a module that is not at fault is told."""
    module = load(text)
    result = run_pipeline(module, "sp-verify")
    assert result.module.text() == module.text()
    return result.diagnostics


def mhlo(sharding: str, kind: str = "tensor<8x8xf32>", partitions: int = 8) -> str:
    return (
        f"module attributes {{mhlo.num_partitions = {partitions} : i32}} {{\n"
        f'  func.func @main(%a: {kind} {{mhlo.sharding = "{sharding}"}} loc("p[\'w\']")) {{\n'
        "    return\n  }\n}\n"
    )


@pytest.mark.parametrize(
    "sharding",
    [
        "{replicated}",
        "{maximal device=7}",
        "{devices=[2,4]<=[8]}",
        "{devices=[2,4]0,4,1,5,2,6,3,7}",
        "{devices=[2,1,4]<=[8] last_tile_dim_replicate}",
        "{mesh['x'=2,'y'=4], [{'x'}, {}]}",
        "{unknown}",
    ],
)
def test_good_text(sharding: str) -> None:
    assert verify(mhlo(sharding)) == ()


@pytest.mark.parametrize(
    ("sharding", "slug"),
    [
        ("{devices=[banana", "syntax"),
        ("replicated", "syntax"),
        ("{replicated} x", "trailing-text"),
        ("{devices=[2,4]0,0,1,2,3,4,5,6}", "duplicate-device"),
        ("{devices=[2,4]<=[16]}", "bad-tile-assignment"),
        ("{devices=[2,4]<=[2,4]T(1,0,2)}", "bad-tile-assignment"),
        ("{devices=[0,8]<=[8]}", "bad-tile-assignment"),
    ],
)
def test_text_that_xla_would_ignore(sharding: str, slug: str) -> None:
    (fault,) = faults(mhlo(sharding), "sp-verify")
    assert fault.slug == slug
    assert fault.message.startswith('argument 0 ("p.w"): mhlo.sharding cannot be read: ')
    assert fault.notes[-1] == "XLA would ignore it and run the value unsharded"
    assert fault.excerpt is not None
    assert fault.excerpt.text == sharding
    assert fault.path == "p.w"
    assert str(fault.location).startswith("<text>:2")


@pytest.mark.parametrize(
    ("sharding", "slug", "message"),
    [
        ("{devices=[8]<=[8]}", "rank-mismatch", "1"),
        ("{devices=[2,2,2]<=[8]}", "rank-mismatch", "3"),
        ("{devices=[2,2]<=[4]}", "device-count", "is for 4 devices, there are 8"),
        ("{maximal device=8}", "device-count", "names a device beyond the 8 that there are"),
        ("{{replicated}, {replicated}}", "not-expressible", ""),
    ],
)
def test_shardings_that_do_not_fit_the_value(sharding: str, slug: str, message: str) -> None:
    (fault,) = faults(mhlo(sharding), "sp-verify")
    assert fault.slug == slug
    assert fault.message.startswith('argument 0 ("p.w"): ')
    assert message in fault.message
    assert fault.notes[-1] == f"sharding is {sharding} on tensor<8x8xf32>"


def test_device_counts_that_differ_where_the_module_states_none() -> None:
    text = (
        'func.func @main(%a: tensor<8xf32> {mhlo.sharding = "{devices=[2]<=[2]}"},\n'
        '                %b: tensor<8xf32> {mhlo.sharding = "{devices=[4]<=[4]}"},\n'
        '                %c: tensor<8xf32> {mhlo.sharding = "{maximal device=3}"}) { return }'
    )
    (fault,) = faults(text, "sp-verify")
    assert said([fault]) == [
        (
            "error",
            "device-count",
            'argument 0 ("arg0"): {devices=[2]<=[2]} is for 2 devices, there are 4',
        )
    ]
    assert verify(text.replace("{devices=[2]<=[2]}", "{replicated}")) == ()


def test_a_mesh_of_another_size_than_the_module() -> None:
    text = (
        "module attributes {mhlo.num_partitions = 4 : i32} {\n"
        '  sdy.mesh @a = <["x"=2, "y"=4]>\n'
        '  sdy.mesh @b = <["x"=4]>\n'
        "  sdy.mesh @empty = <[]>\n"
        "  sdy.mesh @one = <[], device_ids=[3]>\n"
        "  func.func @main() { return }\n}\n"
    )
    (fault,) = faults(text, "sp-verify")
    assert said([fault]) == [
        (
            "error",
            "device-count",
            "mesh @a (x=2, y=4) has 8 devices, and the module is for 4 (mhlo.num_partitions)",
        )
    ]
    assert str(fault.location) == "<text>:2:3"


def sdy(sharding: str, kind: str) -> str:
    return (
        f"{MESH}func.func @main(%a: {kind} {{sdy.sharding = #sdy.sharding<@mesh, {sharding}>}})"
        f" -> ({kind} {{sdy.sharding = #sdy.sharding<@mesh, {sharding}>}}) {{\n"
        f"  return %a : {kind}\n}}\n"
    )


def test_dimensions_of_arguments_and_results_that_do_not_divide() -> None:
    found = faults(sdy('[{"x"}, {"y"}]', "tensor<7x19xf32>"), "sp-verify")
    assert said(found) == [
        ("error", "indivisible", f"{value}, dimension {dim}: {size} elements into {pieces} pieces")
        for value in ('argument 0 ("arg0")', 'result 0 ("result")')
        for dim, size, pieces in ((0, 7, 2), (1, 19, 4))
    ]
    assert found[1].help == "pad to 20 (nearest sizes that work: 16 and 20), or drop an axis"
    assert found[1].notes == ('sharding is [{"x"}, {"y"}] on mesh x=2, y=4',)
    assert str(found[0].location) == "<text>:2:17"
    (fault,) = faults(mhlo("{devices=[2,4]<=[8]}", "tensor<8x19xf32>"), "sp-verify")
    assert fault.message == 'argument 0 ("p.w"), dimension 1: 19 elements into 4 pieces'
    assert fault.notes == ("sharding is {devices=[2,4]<=[8]}",)


def test_dynamic_dimensions_cannot_be_cut() -> None:
    found = faults(sdy('[{"x"}, {}]', "tensor<?x8xf32>"), "sp-verify")
    assert [(d.slug, d.path) for d in found] == [
        ("dynamic-shape", "arg0"),
        ("dynamic-shape", "result"),
    ]
    assert verify(sdy("[{}, {}]", "tensor<?x8xf32>")) == ()


@pytest.mark.parametrize(
    ("op", "name"),
    [
        (
            'stablehlo.abs %a {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"y"}]>]>}'
            " : tensor<6xf32>",
            "stablehlo.abs",
        ),
        (
            'stablehlo.abs %a {mhlo.sharding = "{devices=[4,2]<=[8] last_tile_dim_replicate}"}'
            " : tensor<6xf32>",
            "stablehlo.abs",
        ),
        ('sdy.sharding_constraint %a <@mesh, [{"y"}]> : tensor<6xf32>', "sdy.sharding_constraint"),
        ('sdy.reshard %a <@mesh, [{"y"}]> : tensor<6xf32>', "sdy.reshard"),
        (
            "stablehlo.custom_call @Sharding(%a) {mhlo.sharding = "
            '"{devices=[4,2]<=[8] last_tile_dim_replicate}"} : (tensor<6xf32>) -> tensor<6xf32>',
            "stablehlo.custom_call",
        ),
    ],
)
def test_inside_the_program_uneven_is_a_warning(op: str, name: str) -> None:
    found = verify(f"{MESH}func.func @main(%a: tensor<6xf32>) {{\n  %0 = {op}\n  return\n}}\n")
    assert said(found) == [
        (
            "warning",
            "indivisible",
            f"the result of {name}, dimension 0: 6 elements into 4 pieces, so XLA pads each "
            "device's piece",
        )
    ]
    assert str(found[0].location) == "<text>:3:8"
    assert found[0].help == "a size of 8 needs no padding"


def test_both_notations_on_one_value() -> None:
    text = (
        MESH
        + """\
func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>,
                                   mhlo.sharding = "{replicated}"}) {
  %0 = stablehlo.abs %a {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}]>]>,
                         mhlo.sharding = "{replicated}"} : tensor<8xf32>
  return
}
"""
    )
    found = faults(text, "sp-verify")
    assert said(found) == [
        (
            "error",
            "mixed-notations",
            f"{what} carries both sdy.sharding and mhlo.sharding",
        )
        for what in ('argument 0 ("arg0")', "stablehlo.abs")
    ]
    assert found[0].help == "remove one; XLA would take sdy.sharding and ignore the other"


def donated(given: str, returned: str, kind: str = "tensor<8x8xf32>") -> str:
    return (
        f"{MESH}func.func @main(%a: {kind} {{tf.aliasing_output = 0 : i32, "
        f"sdy.sharding = #sdy.sharding<@mesh, {given}>}}) -> ({kind} "
        f"{{sdy.sharding = #sdy.sharding<@mesh, {returned}>}}) {{\n  return %a : {kind}\n}}\n"
    )


def test_a_donated_argument_whose_result_has_another_shard() -> None:
    (fault,) = faults(donated('[{"x"}, {}]', '[{"x"}, {"y"}]'), "sp-verify")
    assert said([fault]) == [
        (
            "error",
            "alias-layout",
            'result 0 ("result") takes over the buffer of argument 0 ("arg0"), and their shards '
            "differ in size: 4x8 and 4x2",
        )
    ]
    assert fault.help == "give both one sharding, or do not donate the argument"


def test_a_donated_argument_whose_result_lies_otherwise() -> None:
    (found,) = verify(donated('[{"x", "y"}, {}]', '[{"y", "x"}, {}]'))
    assert (found.severity.value, found.slug) == ("warning", "alias-layout")
    assert found.message.endswith("under another layout: the array is moved in every step")


@pytest.mark.parametrize(
    ("given", "returned"),
    [('[{"x"}, {}]', '[{"x"}, {}]'), ('[{"x"}, {}]', '[{"x", ?}, {?}]')],
)
def test_a_donated_argument_and_its_result_in_one_layout(given: str, returned: str) -> None:
    assert verify(donated(given, returned)) == ()


def test_a_dynamic_donated_argument_is_told_of_once() -> None:
    found = faults(donated('[{"x"}, {}]', '[{"y"}, {}]', "tensor<?x8xf32>"), "sp-verify")
    assert [(d.slug, d.path) for d in found] == [
        ("dynamic-shape", "arg0"),
        ("dynamic-shape", "result"),
    ]


@pytest.mark.parametrize("target", ["Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"])
def test_calls_that_must_carry_a_sharding(target: str) -> None:
    text = (
        "func.func @main(%a: tensor<8xf32>) {\n"
        f"  %0 = stablehlo.custom_call @{target}(%a) : (tensor<8xf32>) -> tensor<8xf32>\n"
        "  return\n}\n"
    )
    found = [d for d in faults(text, "sp-verify") if d.slug == "missing-sharding"]
    assert said(found) == [
        (
            "error",
            "missing-sharding",
            f"the custom call @{target} carries no mhlo.sharding",
        )
    ]
    assert str(found[0].location) == "<text>:2:8"


def manual(enter: bool, leave: bool) -> str:
    lines = ["module attributes {mhlo.num_partitions = 8 : i32} {"]
    lines.append("func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {")
    value, kind = "%a", "tensor<8xf32>"
    if enter:
        lines.append(
            "  %0 = stablehlo.custom_call @SPMDFullToShardShape(%a) {mhlo.sharding = "
            '"{manual}"} : (tensor<8xf32>) -> tensor<1xf32>'
        )
        value, kind = "%0", "tensor<1xf32>"
    lines.append(f"  %1 = stablehlo.abs {value} : {kind}")
    value = "%1"
    if leave:
        lines.append(
            "  %2 = stablehlo.custom_call @SPMDShardToFullShape(%1) {mhlo.sharding = "
            f'"{{devices=[8]<=[8]}}"}} : ({kind}) -> tensor<8xf32>'
        )
        value, kind = "%2", "tensor<8xf32>"
    if kind != "tensor<8xf32>":
        lines[1] = lines[1].replace("-> tensor<8xf32>", f"-> {kind}")
    lines.append(f"  return {value} : {kind}\n}}\n}}")
    return "\n".join(lines)


def test_manual_regions_in_pairs() -> None:
    assert verify(manual(True, True)) == ()
    assert verify(manual(False, False)) == ()
    (fault,) = faults(manual(True, False), "sp-verify")
    assert fault.slug == "unpaired-manual"
    assert fault.message == (
        "the manual region entered by this @SPMDFullToShardShape is not left before the function "
        "returns"
    )
    assert str(fault.location) == "<text>:3:8"
    (fault,) = faults(manual(False, True), "sp-verify")
    assert (fault.slug, fault.message) == (
        "unpaired-manual",
        "@SPMDShardToFullShape leaves a manual region that was not entered",
    )


def test_one_sharding_for_each_result() -> None:
    text = (
        "module attributes {mhlo.num_partitions = 8 : i32} {\n"
        "func.func @main(%a: tensor<8xf32>) {\n"
        "  %0:2 = stablehlo.custom_call @f(%a) {mhlo.sharding = "
        '"{{devices=[8]<=[8]}, {replicated}, {replicated}}"}'
        " : (tensor<8xf32>) -> (tensor<8xf32>, tensor<f32>)\n  return\n}\n}\n"
    )
    (fault,) = faults(text, "sp-verify")
    assert fault.slug == "rank-mismatch"
    assert "has 2 results" in fault.message
    assert "has 3 elements" in fault.message
    assert verify(text.replace(", {replicated}, {replicated}}", ", {replicated}}")) == ()


def test_every_fault_in_one_run() -> None:
    text = (
        "module attributes {mhlo.num_partitions = 8 : i32} {\n"
        'sdy.mesh @mesh = <["x"=2, "y"=2]>\n'
        "func.func @main(\n"
        '    %a: tensor<8xf32> {mhlo.sharding = "{devices=[banana"},\n'
        '    %b: tensor<8xf32> {mhlo.sharding = "{devices=[2,4]<=[8]}"},\n'
        '    %c: tensor<9xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {\n'
        "  %0 = stablehlo.custom_call @Sharding(%a) : (tensor<8xf32>) -> tensor<8xf32>\n"
        "  return\n}\n"
        'func.func private @f(%a: tensor<7xf32> {mhlo.sharding = "{devices=[8]<=[8]}"})\n}\n'
    )
    found = faults(load(text, name="m.mlir"), "sp-verify")
    assert [(d.slug, str(d.location)) for d in found] == [
        ("device-count", "m.mlir:2:1"),
        ("syntax", "m.mlir:4:5"),
        ("rank-mismatch", "m.mlir:5:5"),
        ("indivisible", "m.mlir:6:5"),
        ("missing-sharding", "m.mlir:7:8"),
        ("indivisible", "m.mlir:10:1"),
    ]
    assert all(d.help or d.notes for d in found)


def test_a_module_without_annotations() -> None:
    assert verify("func.func @main(%a: tensor<7xf32>) { return }") == ()


def test_who_says_how_many_devices_there_are() -> None:
    (fault,) = faults(
        'sdy.mesh @grid = <["x"=8]>\n'
        'func.func @main(%a: tensor<8xf32> {mhlo.sharding = "{maximal device=9}"}) { return }',
        "sp-verify",
    )
    assert fault.message == (
        'argument 0 ("arg0"): {maximal device=9} names a device beyond the 8 that there are'
    )
    assert fault.notes[0] == "line 1: mesh @grid (x=8) has 8 devices"


def test_a_mesh_of_a_device_that_is_not_there() -> None:
    (fault,) = faults(
        'sdy.mesh @grid = <["x"=8]>\nsdy.mesh @single = <[], device_ids=[9]>\n'
        "func.func @main() { return }",
        "sp-verify",
    )
    assert fault.slug == "device-count"
    assert fault.message == "device 9 is beyond the 8 that there are"
    assert fault.location is not None
    assert fault.location.line == 2
