"""``sp-import-mhlo``: XLA's answers, laws against the export, and what no mesh can hold."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy
from jax.extend.sharding import get_hlo_sharding_from_serialized_proto

from shardpass import ShardingError
from shardpass.canon import HloSharding, MeshShape, TensorSharding, is_equivalent, to_hlo
from shardpass.mlir import (
    Module,
    Shardings,
    argument_attributes,
    collect,
    load,
    meshes_of,
    num_partitions,
)
from shardpass.passes import run_pipeline
from shardpass.passes.import_mhlo import ImportMhlo
from tests.cases import Row, each
from tests.passes.helpers import faults, said
from tests.strategies import mesh_shapes, tensor_shardings


def kind_of(rank: int, size: int = 64) -> str:
    return f"tensor<{f'{size}x' * rank}f32>"


def module_of(shardings: list[tuple[str, str]], devices: int | None = None) -> str:
    """A module whose arguments have these ``(type, mhlo.sharding)``."""
    arguments = ", ".join(
        f'%a{i}: {kind} {{mhlo.sharding = "{text}"}}' for i, (kind, text) in enumerate(shardings)
    )
    head = f" attributes {{mhlo.num_partitions = {devices} : i32}}" if devices else ""
    return f"module{head} {{\nfunc.func @main({arguments}) {{\n  return\n}}\n}}\n"


def imported(text: Any, **options: Any) -> Module:
    result = run_pipeline(text, ImportMhlo(**options))
    assert "mhlo.sharding" not in result.module.text(debug_info=False)
    assert load(result.module.text()).root.verify()
    return result.module


def placed(module: Module) -> list[TensorSharding | None]:
    """What the arguments carry."""
    shardings = Shardings(module.root)
    return [
        shardings.read(entries["sdy.sharding"]) if "sdy.sharding" in entries else None
        for entries in argument_attributes(module.main)
    ]


def shape_text(shape: list[int]) -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}f32>"


@each("mhlo_to_sdy", lambda row: row["kind"] == "module" and row["tier"] == "core")
def test_what_xlas_importer_makes(row: Row) -> None:
    values = [(shape_text(a["shape"]), a["mhlo"]) for a in row["args"]]
    module = imported(module_of(values, row["n_devices"]))
    meshes = meshes_of(module.root)
    if "mesh" not in row or row["mesh"] is None:
        assert meshes == {}
        assert placed(module) == [None] * len(values)
        return
    assert str(meshes.pop("mesh")) == row["mesh"]
    others = {text.split()[0][1:]: text for text in row["sdy"] if not text.startswith("@mesh ")}
    assert sorted(str(mesh) for mesh in meshes.values()) == sorted(
        row["other_meshes"][name] for name in others
    )
    found = [f"{sharding.dims_text()}" for sharding in placed(module) if sharding]
    assert found == [text.split(" ", 1)[1] for text in row["sdy"]]


@each("mhlo_to_sdy", lambda row: row["kind"] == "module" and row["tier"] == "unsupported")
def test_what_xlas_importer_aborts_on(row: Row) -> None:
    values = [(shape_text(a["shape"]), a["mhlo"]) for a in row["args"]]
    text = module_of(values, row["n_devices"])
    if row["id"] in ("m2s022", "m2s023", "m2s042"):  # Runs of 3 and of 4 of 12, 2 and 3 of 6.
        (fault,) = faults(text, "sp-import-mhlo")
        assert fault.slug == "not-expressible"
        assert "no mesh has both" in fault.message
        return
    module = imported(text)
    for (kind, mhlo), sharding in zip(values, placed(module), strict=True):
        assert sharding is not None
        assert is_equivalent(to_hlo(sharding), HloSharding.parse(mhlo), kind.count("x"))


@each("mhlo_to_sdy", lambda row: row["kind"] == "v3_dedup")
def test_named_shardings_share_the_first_mesh(row: Row) -> None:
    ranks = [len(HloSharding.parse(text).data_tiles) for text in row["args"]]
    values = [(kind_of(rank), text) for rank, text in zip(ranks, row["args"], strict=True)]
    module = imported(module_of(values))
    assert [str(mesh) for mesh in meshes_of(module.root).values()] == [row["mesh"]]
    assert [s.dims_text() for s in placed(module) if s] == row["sdy"]


def test_one_of_a_users_mesh() -> None:
    values = [(kind_of(2), "{devices=[4,2]<=[2,4]T(1,0)}"), (kind_of(1), "{devices=[8]<=[8]}")]
    module = imported(module_of(values), mesh=MeshShape.of(data=2, model=4))
    assert meshes_of(module.root) == {"mesh": MeshShape.of(data=2, model=4)}
    assert [s.dims_text() for s in placed(module) if s] == [
        '[{"model"}, {"data"}]',
        '[{"data", "model"}]',
    ]
    assert num_partitions(module.root) == 8


def test_sub_axes_of_a_users_mesh() -> None:
    module = imported(module_of([(kind_of(2), "{devices=[4,4]<=[16]}")]), mesh={"x": 16})
    assert [s.dims_text() for s in placed(module) if s] == ['[{"x":(1)4}, {"x":(4)4}]']


def test_a_users_mesh_that_does_not_fit() -> None:
    text = module_of([("tensor<12xf32>", "{devices=[3,2]<=[2,3]T(1,0) last_tile_dim_replicate}")])
    with pytest.raises(ShardingError) as caught:
        run_pipeline(text, ImportMhlo(mesh={"x": 3, "y": 2}))
    assert caught.value.slug == "not-expressible"
    assert 'does not cut "x"=3 into whole sub-axes' in str(caught.value)


def test_each_value_that_a_users_mesh_does_not_fit() -> None:
    values = [(kind_of(2), f"{{devices={tiles}}}") for tiles in ("[2,4]<=[8]", "[8,1]<=[8]")]
    found = faults(module_of(values), ImportMhlo(mesh={"x": 4}))
    assert [fault.message for fault in found] == [
        'argument 0 ("arg0"): {devices=[2,4]<=[8]} is for 8 devices, the mesh x=4 has 4',
        'argument 1 ("arg1"): {devices=[8,1]<=[8]} is for 8 devices, the mesh x=4 has 4',
    ]
    assert {fault.help for fault in found} == {
        "give axes of the sizes 2 x 4, in this order, or of products of neighbours"
    }


ORDERS = """
func.func @main(%w: tensor<8x8xf32> {mhlo.sharding = "{devices=[2,4]0,1,2,7,3,4,5,6}"},
                %s: tensor<8x8xf32> {mhlo.sharding = "{replicated}"}) -> tensor<8x8xf32> {
  %0 = stablehlo.custom_call @Sharding(%w) {mhlo.sharding = "{devices=[8,1]<=[8]}"}
    : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
"""


def test_the_two_values_that_clash_are_pointed_at() -> None:
    module = load(ORDERS)
    before = module.text()
    (fault,) = faults(module, "sp-import-mhlo")
    assert fault.message.startswith("the result of stablehlo.custom_call @Sharding and argument 0")
    assert fault.location is not None
    assert fault.location.line == 4
    assert [(note.message, note.location and note.location.line) for note in fault.attached] == [
        ("the result of stablehlo.custom_call @Sharding is {devices=[8,1]<=[8]}", 4),
        ('argument 0 ("arg0") is {devices=[2,4]0,1,2,7,3,4,5,6}', 2),
    ]
    assert fault.notes == tuple(
        f"line {note.location and note.location.line}: {note.message}" for note in fault.attached
    )
    assert module.text() == before


def test_a_mesh_that_is_there_is_used() -> None:
    text = module_of([(kind_of(1), "{devices=[8]<=[8]}")])
    text = text.replace("func.func", 'sdy.mesh @grid = <["_axis_0"=8]>\nfunc.func', 1)
    module = imported(text)
    assert list(meshes_of(module.root)) == ["grid"]
    assert "#sdy.sharding<@grid, " in module.text()


def both_notations(mesh: str, mhlo: str) -> str:
    shardy = '{sdy.sharding = #sdy.sharding<@grid, [{"x"}, {}]>}'
    return f"""
        {mesh}
        func.func @main(%a: tensor<12x12xf32> {shardy},
                        %b: tensor<12x12xf32> {{mhlo.sharding = "{mhlo}"}}) {{
          return
        }}"""


@pytest.mark.parametrize(
    ("meshes", "mhlo", "dims"),
    [
        pytest.param(
            '@grid = <["x"=3, "y"=4]>',
            "{devices=[4,3]<=[3,4]T(1,0)}",
            '<@grid, [{"y"}, {"x"}]>',
            id="whole axes",
        ),
        pytest.param(
            '@grid = <["x"=3, "y"=4]>',
            "{devices=[6,2]<=[12]}",
            '<@grid, [{"x", "y":(1)2}, {"y":(2)2}]>',
            id="parts of axes",
        ),
        pytest.param(
            '@grid = <["x"=12]>\nsdy.mesh @other = <["a"=4, "b"=3]>',
            "{devices=[4,3]<=[12]}",
            '<@other, [{"a"}, {"b"}]>',
            id="rather whole ones than parts",
        ),
    ],
)
def test_a_mesh_of_the_module_is_taken_where_it_has_axes(meshes: str, mhlo: str, dims: str) -> None:
    result = run_pipeline(both_notations(f"sdy.mesh {meshes}", mhlo), "sp-import-mhlo")
    assert f"#sdy.sharding{dims}" in result.module.text()
    assert "@mesh" not in result.module.text()


def test_a_second_mesh_is_told_of() -> None:
    text = both_notations('sdy.mesh @grid = <["x"=3, "y"=4]>', "{devices=[4,3]<=[12]}")
    result = run_pipeline(text, "sp-import-mhlo")
    assert list(meshes_of(result.module.root)) == ["mesh", "grid"]
    (remark,) = result.diagnostics
    assert said([remark]) == [
        (
            "remark",
            "mesh-mismatch",
            "the module has the mesh @grid (x=3, y=4) already, and what is imported is on another "
            "(_axis_0=4, _axis_1=3): propagation stops between the two",
        )
    ]
    assert remark.location is not None
    assert remark.location.line == 2
    assert remark.help == "make one of them: sp-merge-meshes"


def test_a_users_mesh_beside_that_of_the_module() -> None:
    text = both_notations('sdy.mesh @grid = <["x"=3, "y"=4]>', "{devices=[3,4]<=[12]}")
    fitting = run_pipeline(text, "sp-import-mhlo", mesh={"x": 3, "y": 4})
    assert fitting.diagnostics == ()
    other = run_pipeline(text, "sp-import-mhlo", mesh={"a": 3, "b": 2, "c": 2})
    assert [d.severity.value for d in other.diagnostics] == ["remark"]


def test_a_manual_axis_is_a_whole_one() -> None:
    module = imported("""
        sdy.mesh @grid = <["x"=8]>
        func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
          %0 = stablehlo.custom_call @Sharding(%a) {
            mhlo.sharding = "{devices=[2,4]<=[8] last_tile_dim_replicate}"}
            : (tensor<8xf32>) -> tensor<8xf32>
          %1 = stablehlo.custom_call @SPMDFullToShardShape(%0) {
            mhlo.sharding = "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dims={replicated, manual}}"}
            : (tensor<8xf32>) -> tensor<4xf32>
          %2 = stablehlo.custom_call @SPMDShardToFullShape(%1) {
            mhlo.sharding = "{devices=[2,4]<=[8] last_tile_dim_replicate}"}
            : (tensor<4xf32>) -> tensor<8xf32>
          return %2 : tensor<8xf32>
        }""")
    assert meshes_of(module.root)["mesh"] == MeshShape.of(_axis_0=2, _axis_1=4)


def test_constraints_and_open_dimensions() -> None:
    module = imported("""
        func.func @main(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
          %0 = stablehlo.custom_call @Sharding(%a) {backend_config = "unspecified_dims=[1]",
            mhlo.sharding = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"}
            : (tensor<8x8xf32>) -> tensor<8x8xf32>
          %1 = stablehlo.custom_call @Sharding(%0) {mhlo.sharding = "{replicated}"}
            : (tensor<8x8xf32>) -> tensor<8x8xf32>
          return %1 : tensor<8x8xf32>
        }""")
    constraints = collect(module.root, sdy.ShardingConstraintOp)
    assert [str(op.attributes["sharding"]) for op in constraints] == [
        '#sdy.sharding<@mesh, [{"_axis_0"}, {?}]>',
        "#sdy.sharding<@mesh, [{}, {}]>",
    ]


def test_without_a_mesh_constraints_say_nothing() -> None:
    module = imported("""
        func.func @main(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
          %0 = stablehlo.custom_call @Sharding(%a) {mhlo.sharding = "{replicated}"}
            : (tensor<8x8xf32>) -> tensor<8x8xf32>
          return %0 : tensor<8x8xf32>
        }""")
    assert module.text(debug_info=False).count("custom_call") == 0


@pytest.mark.parametrize(
    ("text", "slug", "said"),
    [
        (
            module_of([("tensor<12x12xf32>", "{devices=[3,4]<=[12]}")] * 1)
            .replace("{\n  return", "{\n  return")
            .replace(
                "@main(",
                '@main(%b: tensor<12x12xf32> {mhlo.sharding = "{devices=[4,3]<=[12]}"}, ',
            ),
            "not-expressible",
            'argument 0 ("arg0") and argument 1 ("arg1"): no mesh has both',
        ),
        (module_of([(kind_of(1), "{devices=[banana")]), "syntax", "mhlo.sharding cannot be read"),
        (module_of([(kind_of(1), "{devices=[2,2]<=[4]}")]), "rank-mismatch", "argument 0"),
        (
            """
            func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
              %0 = stablehlo.custom_call @Sharding(%a) {backend_config = "dims=[1]",
                mhlo.sharding = "{devices=[8]<=[8]}"} : (tensor<8xf32>) -> tensor<8xf32>
              return %0 : tensor<8xf32>
            }""",
            "syntax",
            'backend_config = "dims=[1]", which is not understood',
        ),
        (
            module_of([(kind_of(1), "{devices=[8]<=[8]}")]).replace(
                "mhlo.sharding =",
                'sdy.sharding = #sdy.sharding<mesh<["x"=8]>, [{"x"}]>, mhlo.sharding =',
            ),
            "mixed-notations",
            "carries both",
        ),
    ],
)
def test_bad_input(text: str, slug: str, said: str) -> None:
    module = load(text)
    before = module.text()
    with pytest.raises(ShardingError) as caught:
        run_pipeline(module, "sp-import-mhlo")
    assert slug in [fault.slug for fault in caught.value.diagnostics]
    assert said in "\n".join(str(fault) for fault in caught.value.diagnostics)
    assert module.text() == before


def as_protos(text: str) -> str:
    """``text`` with a serialized proto, written by XLA, for the text of each sharding."""
    by_xla = type(get_hlo_sharding_from_serialized_proto(b""))

    def proto(match: re.Match[str]) -> str:
        data = by_xla.from_string(match[1]).to_proto().SerializeToString()
        escaped = "".join("\\" + f"{byte:02X}" for byte in data)
        return f'mhlo.sharding = "{escaped}"'

    return re.sub(r'mhlo\.sharding = "([^"]*)"', proto, text)


CONSTRAINED = """
module attributes {mhlo.num_partitions = 8 : i32} {
func.func @main(%a: tensor<8x8xf32> {mhlo.sharding = "{devices=[4,2]<=[2,4]T(1,0)}"})
    -> (tensor<8x8xf32> {mhlo.sharding = "{replicated}"}) {
  %0 = stablehlo.custom_call @Sharding(%a) {backend_config = "unspecified_dims=[1]",
    mhlo.sharding = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"}
    : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %1:2 = stablehlo.custom_call @f(%0) {
    mhlo.sharding = "{{devices=[8,1]<=[8]}, {maximal device=3}}"}
    : (tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8xf32>)
  return %1#0 : tensor<8x8xf32>
}
}"""


def test_serialized_protos_are_read_like_text() -> None:
    protos = as_protos(CONSTRAINED)
    assert "devices" not in protos
    assert imported(protos).text() == imported(CONSTRAINED).text()


def test_serialized_protos_are_verified_like_text() -> None:
    bad = CONSTRAINED.replace(
        'tensor<8x8xf32> {mhlo.sharding = "{dev', 'tensor<6x8xf32> {mhlo.sharding = "{dev'
    )
    bad = bad.replace("@Sharding(%a)", "@Sharding(%b)").replace(
        "%a: tensor", "%b: tensor<8x8xf32>, %a: tensor"
    )
    (fault,) = faults(as_protos(bad), "sp-verify")
    assert (fault.slug, fault.message) == (
        "indivisible",
        'argument 1 ("arg1"), dimension 0: 6 elements into 4 pieces',
    )
    broken = CONSTRAINED.replace("{replicated}", "\\08\\63")
    (fault,) = faults(broken, "sp-verify")
    assert fault.slug == "syntax"
    assert "result 0" in fault.message


# Laws --------------------------------------------------------------------------------------------


def annotated(shardings: list[TensorSharding]) -> str:
    """A module whose arguments carry these, all on one mesh."""
    mesh = shardings[0].mesh
    arguments = ", ".join(
        f"%a{i}: {kind_of(s.rank, 576)} {{sdy.sharding = {s.to_sdy('mesh')}}}"
        for i, s in enumerate(shardings)
    )
    return f"sdy.mesh @mesh = {mesh}\nfunc.func @main({arguments}) {{\n  return\n}}\n"


one_mesh = mesh_shapes(max_axes=3, max_devices=24).flatmap(
    lambda mesh: st.lists(
        tensor_shardings(st.just(mesh), sub_axes=False, unreduced=False), min_size=1, max_size=3
    )
)


@settings(max_examples=100)
@given(one_mesh)
def test_import_after_export_is_the_same_layout(shardings: list[TensorSharding]) -> None:
    exported = run_pipeline(annotated(shardings), "sp-export-mhlo").module
    module = imported(exported.clone())
    for sharding, back in zip(shardings, placed(module), strict=True):
        again = to_hlo(back) if back else HloSharding.replicated()
        assert is_equivalent(again, to_hlo(sharding), sharding.rank)
    once_more = run_pipeline(module, "sp-export-mhlo").module
    if meshes_of(module.root):
        for mine, first, s in zip(texts(once_more), texts(exported), shardings, strict=True):
            assert is_equivalent(HloSharding.parse(mine), HloSharding.parse(first), s.rank)
    assert imported(module.clone()).text() == module.text()  # There is nothing left to import.


def texts(module: Module) -> list[str]:
    return [
        ir.StringAttr(entries["mhlo.sharding"]).value
        for entries in argument_attributes(module.main)
    ]


def test_deterministic() -> None:
    texts = ["{devices=[4,2]<=[2,4]T(1,0)}", "{devices=[8,1]<=[8]}", "{maximal device=5}"]
    values = [(kind_of(2), text) for text in texts]
    found = {imported(module_of(values)).text() for _ in range(3)}
    assert len(found) == 1
    shuffled = imported(module_of(values[::-1]))
    assert placed(shuffled)[::-1] == placed(imported(module_of(values)))
    assert np.prod(meshes_of(shuffled.root)["mesh"].sizes) == 8
