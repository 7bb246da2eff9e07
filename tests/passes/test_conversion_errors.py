"""Input that neither converter can do right by: one clear error with its place, and no change."""

from typing import Any

import pytest

from shardpass import ShardingError, load, run_pipeline
from shardpass.mlir import Module, meshes_of
from tests.passes.helpers import attribute_of, faults, shardings

MESH = 'sdy.mesh @mesh = <["x"=2, "y"=4]>\n'
X = '#sdy.sharding<@mesh, [{"x"}, {}]>'
KIND = "tensor<8x8xf32>"
HALVES = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"


def untouched(text: str, pipeline: str) -> list[tuple[str, str]]:
    """Slug and message of each fault; every one has a place, and the module stays as it is."""
    module = load(text)
    before = module.text()
    found = faults(module, pipeline)
    assert module.text() == before
    assert all(fault.location for fault in found), found
    return [(fault.slug, fault.message) for fault in found]


def exported(text: Any) -> Module:
    return run_pipeline(text, "sp-export-mhlo").module


def imported(text: Any) -> Module:
    return run_pipeline(text, "sp-import-mhlo").module


# What has no entry, or several, is converted: every function is on its own ------------------------


@pytest.mark.parametrize("visibility", ["", "private "])
def test_functions_are_converted_whoever_may_call_them(visibility: str) -> None:
    text = MESH + "".join(
        f"func.func {visibility}@{name}(%a: {KIND} {{sdy.sharding = {X}}}) {{\n  return\n}}\n"
        for name in ("f", "g")
    )
    there = exported(text)
    assert there.text().count(HALVES) == 2
    assert imported(there).text().count("sdy.sharding = ") == 2


def test_a_module_without_functions_is_no_module() -> None:
    for pipeline in ("sp-export-mhlo", "sp-import-mhlo"):
        with pytest.raises(ShardingError) as caught:
            run_pipeline(MESH, pipeline)
        assert caught.value.slug == "unreadable"


WITH_ENTRY = ("sp-partition", "sp-explicit-collectives", "sp-propagate")
EACH = (
    "sp-import-mhlo",
    "sp-export-mhlo",
    "sp-merge-meshes",
    "sp-name-axes{mesh=a=2,b=4}",
    "sp-retarget{mesh=x=4,y=2}",
    *WITH_ENTRY,
)


@pytest.mark.parametrize("pipeline", EACH)
def test_modules_without_an_entry(pipeline: str) -> None:
    (none,) = faults("module {\n}\n", pipeline)
    assert none.slug == "unreadable"
    assert none.location is not None
    private = f"{MESH}func.func private @f(%a: {KIND}) -> {KIND} {{\n  return %a : {KIND}\n}}\n"
    several = private.replace("private ", "") + (
        f"func.func @g(%a: {KIND}) -> {KIND} {{\n  return %a : {KIND}\n}}\n"
    )
    if pipeline not in WITH_ENTRY:  # Each function is on its own.
        run_pipeline(private, pipeline)
        run_pipeline(several, pipeline)
        return
    for text, line, public, help in (
        (private, 2, "none", 'make the function to start at public, without "private" (@f?)'),
        (several, 5, "@f, @g", "name the function to shard @main, or make the others private"),
    ):
        module = load(text)
        before = module.text()
        (fault,) = faults(module, pipeline)
        assert fault.slug == "no-entry-function"
        assert f"(public: {public})" in fault.message
        assert fault.location is not None
        assert (fault.location.line, fault.help) == (line, help)
        assert module.text() == before


def test_declarations_have_shardings_too() -> None:
    text = f"{MESH}func.func private @f({KIND} {{sdy.sharding = {X}}}) -> {KIND}\n" + (
        f"func.func @main(%a: {KIND}) {{\n  return\n}}\n"
    )
    there = exported(text)
    assert f'@f({KIND} {{mhlo.sharding = "{HALVES}"}})' in there.text()
    assert "mhlo.sharding" not in imported(there).text()


# Symbols -----------------------------------------------------------------------------------------


def test_a_function_with_the_name_of_the_mesh() -> None:
    text = (
        f'func.func @main(%a: {KIND} {{mhlo.sharding = "{HALVES}"}}) {{\n  return\n}}\n'
        "func.func private @mesh() {\n  return\n}\nfunc.func private @mesh_0() {\n  return\n}\n"
    )
    module = imported(text)
    assert list(meshes_of(module.root)) == ["mesh_1"]
    assert shardings(module) == ['<@mesh_1, [{"_axis_0"}, {}]>']


def test_another_mesh_of_that_name() -> None:
    text = f'sdy.mesh @mesh = <["a"=2]>\nfunc.func @main(%a: {KIND} {{mhlo.sharding = "{HALVES}"}})'
    module = imported(text + " {\n  return\n}\n")
    assert set(meshes_of(module.root)) == {"mesh", "mesh_0"}
    assert shardings(module) == ['<@mesh_0, [{"_axis_0"}, {}]>']


# Attributes in the wrong place -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (f'module attributes {{mhlo.sharding = "{HALVES}"}} {{\n'
         "func.func @main() {\n  return\n}\n}\n", "builtin.module"),
        (f'func.func @main() attributes {{mhlo.sharding = "{HALVES}"}} {{\n  return\n}}\n',
         "func.func"),
        (f'sdy.mesh @mesh = <["x"=8]> {{mhlo.sharding = "{HALVES}"}}\n'
         "func.func @main() {\n  return\n}\n", "sdy.mesh"),
        (f'func.func @main(%a: {KIND}) -> {KIND} {{\n  return {{mhlo.sharding = "{HALVES}"}} %a'
         f" : {KIND}\n}}\n", "func.return"),
    ],
)  # fmt: skip
def test_shardings_on_what_is_no_value(text: str, what: str) -> None:
    for pipeline in ("sp-import-mhlo", "sp-verify"):
        assert untouched(text, pipeline) == [
            (
                "misplaced-sharding",
                f"{what} carries an mhlo.sharding, and has no value that it could lay out",
            )
        ]


@pytest.mark.parametrize("held", ["3 : i32", "#stablehlo.bounds<8>", "[]"])
def test_shardings_that_are_no_strings(held: str) -> None:
    text = f"func.func @main(%a: {KIND} {{mhlo.sharding = {held}}}) {{\n  return\n}}\n"
    ((slug, message),) = untouched(text, "sp-import-mhlo")
    assert slug == "syntax"
    assert message.startswith('argument 0 ("arg0"): mhlo.sharding cannot be read: a sharding is a')


def test_every_misplaced_one_is_reported() -> None:
    text = (
        f'func.func @main() attributes {{mhlo.sharding = "{HALVES}"}} {{\n'
        f'  return {{mhlo.sharding = "{HALVES}"}}\n}}\n'
    )
    assert len(untouched(text, "sp-import-mhlo")) == 2


# Device counts -----------------------------------------------------------------------------------


def two_meshes(first: int, second: int, dims: str = '{"x"}, {}') -> str:
    return (
        f'sdy.mesh @one = <["x"={first}]>\nsdy.mesh @other = <["x"={second}]>\n'
        f"func.func @main(%a: {KIND} {{sdy.sharding = #sdy.sharding<@one, [{dims}]>}},\n"
        f"    %b: {KIND} {{sdy.sharding = #sdy.sharding<@other, [{dims}]>}}) {{\n  return\n}}\n"
    )


def test_meshes_that_cannot_be_one() -> None:
    assert untouched(two_meshes(8, 4), "sp-export-mhlo") == [
        (
            "device-count",
            "{devices=[4,1]<=[4]} is for 4 devices, and {devices=[8,1]<=[8]} is for 8",
        )
    ]


def test_meshes_of_other_sizes_on_which_nothing_is_cut() -> None:
    module = exported(two_meshes(8, 4, "{}, {}"))
    assert attribute_of(module, "mhlo.sharding") == ['"{replicated}"'] * 2


def test_tiles_that_cannot_be_on_one_mesh() -> None:
    text = (
        f'func.func @main(%a: {KIND} {{mhlo.sharding = "{{devices=[8,1]<=[8]}}"}}, '
        f'%b: {KIND} {{mhlo.sharding = "{{devices=[4,1]<=[4]}}"}}) {{\n  return\n}}\n'
    )
    ((slug, message),) = untouched(text, "sp-import-mhlo")
    assert slug == "device-count"
    assert 'argument 1 ("arg1")' in message
    assert "is for 4 devices, there are 8" in message


def test_the_module_is_for_another_number() -> None:
    head = "module attributes {mhlo.num_partitions = 4 : i32} {\n"
    shardy = f"{head}{MESH}func.func @main(%a: {KIND} {{sdy.sharding = {X}}}) {{\n  return\n}}\n}}"
    assert untouched(shardy, "sp-export-mhlo") == [
        (
            "device-count",
            f"{HALVES} is for 8 devices, and the module is for 4 (mhlo.num_partitions)",
        )
    ]
    gspmd = f'{head}func.func @main(%a: {KIND} {{mhlo.sharding = "{HALVES}"}}) {{\n  return\n}}\n}}'
    ((slug, message),) = untouched(gspmd, "sp-import-mhlo")
    assert slug == "device-count"
    assert "is for 8 devices, there are 4" in message


def test_a_constraint_for_another_number() -> None:
    text = (
        f'{MESH}sdy.mesh @half = <["x"=4]>\nfunc.func @main(%a: {KIND} {{sdy.sharding = {X}}}) -> '
        f'{KIND} {{\n  %0 = sdy.sharding_constraint %a <@half, [{{"x"}}, {{}}]> : {KIND}\n'
        f"  return %0 : {KIND}\n}}\n"
    )
    ((slug, message),) = untouched(text, "sp-export-mhlo")
    assert slug == "device-count"
    assert "{devices=[4,1]<=[4]} is for 4 devices" in message


@pytest.mark.parametrize("pipeline", ["sp-name-axes{mesh=a=2,b=4}", "sp-explicit-collectives"])
def test_a_mesh_of_another_size_than_the_module_is_for(pipeline: str) -> None:
    text = (
        f"module attributes {{mhlo.num_partitions = 4 : i32}} {{\n{MESH}"
        f"func.func @main(%a: {KIND} {{sdy.sharding = {X}}}) {{\n  return\n}}\n}}"
    )
    ((slug, message),) = untouched(text, pipeline)
    assert slug == "device-count"
    assert message.startswith("mesh @mesh (x=2, y=4) has 8 devices, and the module is for 4")


@pytest.mark.parametrize("count", ['"8"', "8.0 : f32", "-1 : i32"])
def test_a_count_that_is_none(count: str) -> None:
    text = (
        f"module attributes {{mhlo.num_partitions = {count}}} {{\n"
        f'func.func @main(%a: {KIND} {{mhlo.sharding = "{HALVES}"}}) {{\n  return\n}}\n}}\n'
    )
    for pipeline in ("sp-import-mhlo", "sp-export-mhlo"):
        (fault,) = faults(text, pipeline)
        assert fault.slug == "device-count"
        assert "which is no count" in fault.message
        assert fault.location is not None
        assert fault.location.line == 1


# Shapes ------------------------------------------------------------------------------------------


def test_a_dynamic_dimension_that_would_be_cut() -> None:
    text = f'func.func @main(%a: tensor<?x8xf32> {{mhlo.sharding = "{HALVES}"}}) {{\n  return\n}}\n'
    ((slug, message),) = untouched(text, "sp-import-mhlo")
    assert slug == "dynamic-shape"
    assert "a dimension without a static size cannot be cut" in message


def test_a_dynamic_dimension_that_is_whole() -> None:
    text = (
        'func.func @main(%a: tensor<?x8xf32> {mhlo.sharding = "{replicated}"}, '
        f'%b: {KIND} {{mhlo.sharding = "{HALVES}"}}) {{\n  return\n}}\n'
    )
    assert shardings(imported(text)) == ["<@mesh, [{}, {}]>", '<@mesh, [{"_axis_0"}, {}]>']


def test_host_offload_and_other_markers_are_left_alone() -> None:
    """They say in which memory a value is, in frontend attributes and calls of their own."""
    marks = (
        "  %0 = stablehlo.custom_call @annotate_device_placement(%a) {has_side_effect = true, "
        'mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : '
        f"({KIND}) -> {KIND}\n"
        f"  %1 = stablehlo.custom_call @MoveToHost(%0) : ({KIND}) -> {KIND}\n"
        '  %2 = stablehlo.abs %1 {mhlo.frontend_attributes = {_xla_compute_type = "host"}, '
        f'mhlo.memory_kind = "pinned_host"}} : {KIND}\n'
    )
    text = (
        f"{MESH}func.func @main(%a: {KIND} {{sdy.sharding = {X}, "
        f'mhlo.memory_kind = "pinned_host"}}) -> {KIND} {{\n{marks}  return %2 : {KIND}\n}}\n'
    )
    there = exported(text)
    back = run_pipeline(there, "sp-import-mhlo{mesh='x=2,y=4'}").module
    for module in (there, back):
        said = module.text(debug_info=False)
        for mark in (
            "@annotate_device_placement(%arg0) {has_side_effect = true, "
            'mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}}',
            "@MoveToHost(%0)",
            'mhlo.frontend_attributes = {_xla_compute_type = "host"}, '
            'mhlo.memory_kind = "pinned_host"',
        ):
            assert mark in said
        assert attribute_of(module, "mhlo.memory_kind") == ['"pinned_host"']
    assert shardings(back) == ['<@mesh, [{"x"}, {}]>']
