"""Every row of what XLA's converters answer, through the passes, on whole modules.

Rows of ``mhlo_to_sdy`` that are modules themselves are in ``test_import_mhlo``.
"""

import pytest
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy, stablehlo

from shardpass import ShardingError, run_pipeline
from shardpass.canon import HloSharding, MeshShape, TensorSharding, is_equivalent, to_hlo
from shardpass.mlir import Module, Shardings, argument_attributes, collect, load, meshes_of
from shardpass.passes.export_mhlo import ExportMhlo
from shardpass.passes.import_mhlo import ImportMhlo
from tests.cases import Row, each
from tests.passes.helpers import attribute_of, shardings

#: A size that the tiles of every row divide.
SIZE = 5760


def kind_of(rank: int) -> str:
    return f"tensor<{f'{SIZE}x' * rank}f32>"


def mesh_of(row: Row) -> str:
    return f"sdy.mesh @mesh = {row['mesh'].removeprefix('#sdy.mesh')}\n"


def one_value(row: Row) -> str:
    """A module that has the row's sharding on its argument, or where the axes are manual."""
    kind = kind_of(0 if row["sharding"].endswith("[]>") else row["rank"])
    if not row["manual_axes"]:
        return (
            f"{mesh_of(row)}func.func @main(%a: {kind} {{sdy.sharding = {row['sharding']}}}) {{\n"
            "  return\n}\n"
        )
    axes = ", ".join(f'"{axis}"' for axis in row["manual_axes"])
    whole = f"<@mesh, [{', '.join(['{}'] * row['rank'])}]>"
    return (
        f"{mesh_of(row)}func.func @main(%a: {kind}) -> {kind} {{\n"
        f"  %0 = sdy.manual_computation(%a) in_shardings=[{whole}] out_shardings=[{whole}]"
        f" manual_axes={{{axes}}} (%b: {kind}) {{\n"
        f"    %1 = sdy.sharding_constraint %b {row['sharding'].removeprefix('#sdy.sharding')}"
        f" : {kind}\n"
        f"    %2 = stablehlo.abs %1 : {kind}\n"
        f"    sdy.return %2 : {kind}\n"
        f"  }} : ({kind}) -> {kind}\n  return %0 : {kind}\n}}\n"
    )


def exported(row: Row, module: str, **options: bool) -> str:
    found = run_pipeline(module, ExportMhlo(**options)).module
    if not row["manual_axes"]:
        (text,) = attribute_of(found, "mhlo.sharding")
        return (text or "").strip('"')
    (abs_,) = collect(found.root, stablehlo.AbsOp)
    return ir.StringAttr(abs_.operands[0].owner.attributes["mhlo.sharding"]).value


def is_one(row: Row) -> bool:
    return row["tier"] == "core" and "sharding" in row


@each("sdy_to_mhlo", is_one)
def test_export_as_xla_does(row: Row) -> None:
    assert exported(row, one_value(row)) == row["mhlo"]


@each("sdy_to_mhlo", lambda row: is_one(row) and row["v3"] is not None)
def test_export_by_name_as_xla_0_12_does(row: Row) -> None:
    assert exported(row, one_value(row), v3=True) == row["v3"]


@each("sdy_to_mhlo", lambda row: is_one(row) and not row["manual_axes"])
def test_by_name_everything_but_priorities_comes_back(row: Row) -> None:
    before = load(one_value(row))
    module = run_pipeline(run_pipeline(before, ExportMhlo(v3=True)).module, ImportMhlo()).module
    (first,) = placed(before)
    (again,) = placed(module)
    if first.mesh.size == 1 and not first.mesh.is_maximal and first.mesh.axes == ():
        assert again is None or again.is_fully_replicated
        return
    dims = tuple((dim.axes, dim.open) for dim in first.dims)
    assert again is not None
    assert tuple((dim.axes, dim.open) for dim in again.dims) == dims
    assert again.mesh == first.mesh
    assert (again.replicated, again.unreduced) == (first.replicated, first.unreduced)


def placed(module: Module) -> list[TensorSharding]:
    read = Shardings(module.root)
    return [
        read.read(entries["sdy.sharding"]) if "sdy.sharding" in entries else None
        for entries in argument_attributes(module.main)
    ]


@each("sdy_to_mhlo", lambda row: row["tier"] == "core" and "shardings" in row)
def test_export_of_several_results(row: Row) -> None:
    parts = [text.removeprefix("#sdy.sharding") for text in row["shardings"]]
    kinds = ", ".join("tensor<f32>" if "[]" in text else kind_of(2) for text in parts)
    module = (
        f"{mesh_of(row)}func.func @main() {{\n  %0:{len(parts)} = stablehlo.custom_call @f() "
        f"{{sdy.sharding = #sdy.sharding_per_value<[{', '.join(parts)}]>}} : () -> ({kinds})\n"
        "  return\n}\n"
    )
    found = run_pipeline(module, ExportMhlo()).module
    (call,) = collect(found.root, stablehlo.CustomCallOp)
    assert ir.StringAttr(call.attributes["mhlo.sharding"]).value == row["mhlo"]
    back = run_pipeline(found, ImportMhlo()).module
    (call,) = collect(back.root, stablehlo.CustomCallOp)
    again = Shardings(back.root).read_per_value(call.attributes["sdy.sharding"])
    for sharding, element in zip(again, HloSharding.parse(row["mhlo"]).elements, strict=True):
        assert is_equivalent(to_hlo(sharding), element, sharding.rank)


@each("sdy_to_mhlo", lambda row: row["tier"] == "differs")
def test_dimensions_on_one_device_are_refused_with_the_place(row: Row) -> None:
    with pytest.raises(ShardingError) as caught:
        load(one_value(row))
    assert caught.value.diagnostics[0].location is not None
    assert "argument 0" in str(caught.value)


# The other way -----------------------------------------------------------------------------------


def one_argument(text: str, rank: int, devices: int | None = None) -> str:
    head = f"module attributes {{mhlo.num_partitions = {devices} : i32}}" if devices else "module"
    return (
        f"{head} {{\nfunc.func @main(%a: {kind_of(rank)} "
        f'{{mhlo.sharding = "{text}"}}) {{\n  return\n}}\n}}\n'
    )


@each("mhlo_to_sdy", lambda row: row["kind"] == "module" and row["tier"] == "differs")
def test_unreduced_axes_are_those_that_are_said(row: Row) -> None:
    """jaxlib 0.10 drops them; 0.12 makes them of the replicas too, which are whole."""
    (argument,) = row["args"]
    rank = len(argument["shape"])
    module = run_pipeline(one_argument(argument["mhlo"], rank, row["n_devices"]), ImportMhlo())
    (sharding,) = placed(module.module)
    assert is_equivalent(to_hlo(sharding), HloSharding.parse(argument["mhlo"]), rank)
    said = "{unreduced}" in argument["mhlo"]
    assert str(sharding.mesh) == row["mesh"]
    assert [axis.name for axis in sharding.unreduced] == ["_axis_1"]
    assert said == (shardings(module.module) == [as_attribute(row["sdy"][0])])


@each("mhlo_to_sdy", lambda row: row["kind"] == "given_mesh")
def test_import_on_a_given_mesh(row: Row) -> None:
    text = one_argument(row["mhlo"], row["rank"])
    mesh = MeshShape.parse(row["mesh"])
    if "=max" in row["sdy"] and not max_is_known():
        with pytest.raises(ShardingError) as caught:
            run_pipeline(text, ImportMhlo(mesh=mesh))
        assert caught.value.slug == "not-supported"
        return
    module = run_pipeline(text, ImportMhlo(mesh=mesh)).module
    assert list(meshes_of(module.root).values()) == [mesh]
    # All manual is what a value in a region is, and there the axes are not said.
    manual = row["mhlo"].endswith("manual}")
    assert shardings(module) == [None if manual else as_attribute(row["sdy"])]


def as_attribute(text: str) -> str:
    """``@mesh [{}], unreduced=...`` of a row as MLIR prints it."""
    return f"<{text.replace(' [', ', [', 1)}>"


def max_is_known() -> bool:
    """Whether the installed Shardy has other reductions than the sum."""
    text = 'sdy.mesh @mesh = <["x"=2]>\nfunc.func @main(%a: tensor<8xf32> {sdy.sharding = '
    try:
        load(text + '#sdy.sharding<@mesh, [{}], unreduced=max{"x"}>}) { return }')
    except ShardingError:
        return False
    return True


@each("mhlo_to_sdy", lambda row: row["kind"] == "inline")
def test_import_on_an_op(row: Row) -> None:
    kinds = ", ".join(f"tensor<{'x'.join(map(str, shape))}xf32>" for shape in row["shapes"])
    module = run_pipeline(
        f"func.func @main() {{\n  %0:{len(row['shapes'])} = stablehlo.custom_call @f() "
        f'{{mhlo.sharding = "{row["mhlo"]}"}} : () -> ({kinds})\n  return\n}}\n',
        ImportMhlo(),
    ).module
    (call,) = collect(module.root, stablehlo.CustomCallOp)
    if row["mhlo"] == "{replicated}":  # Of nothing else in the module: there is no mesh to say.
        assert "sdy.sharding" not in call.attributes
        return
    found = Shardings(module.root).read_per_value(call.attributes["sdy.sharding"])
    texts = ", ".join(s.to_sdy().removeprefix("#sdy.sharding") for s in found)
    assert f"#sdy.sharding_per_value<[{texts}]>" == row["text"]


@each("mhlo_to_sdy", lambda row: row["kind"] == "v3_single")
def test_import_of_a_named_sharding(row: Row) -> None:
    module = run_pipeline(one_argument(row["mhlo"], 2), ImportMhlo()).module
    (mesh,) = meshes_of(module.root).values()
    (sharding,) = placed(module)
    assert f"{mesh} {sharding.dims_text()}" == row["sdy"]


# Kinds of faults that people have reported -------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rank", "dims"),
    [
        ("{devices=[2,1,2,2]<=[8] last_tile_dims={manual, manual}}", 2, '[{"_axis_0"}, {}]'),
        ("{devices=[1,1,8]<=[8] last_tile_dim_replicate}", 2, None),
        ("{devices=[1,1,8]<=[8] last_tile_dims={manual}}", 2, None),
        (
            "{devices=[2,1,2,2]<=[2,4]T(1,0) last_tile_dims={manual, replicated}}",
            2,
            '[{"_axis_1"}, {}]',
        ),
        ("{devices=[4,2]0,4,1,5,2,6,3,7}", 2, '[{"_axis_1"}, {"_axis_0"}]'),
        ("{mesh['x'=8,'y'=4], [{'y'}, {'x':(2)2}]}", 2, '[{"y"}, {"x":(2)2}]'),
        (
            "{devices=[6,35]<=[7,10,3]T(2,1,0)}",
            2,
            '[{"_axis_3", "_axis_1"}, {"_axis_2", "_axis_0"}]',
        ),
        ("{maximal device=3}", 2, "[]"),
    ],
    ids=["E12", "E13", "E13 manual", "E14", "E15", "E20", "E22", "E26"],
)
def test_what_people_have_reported(text: str, rank: int, dims: str | None) -> None:
    size = 210 if "35" in text else 64
    module = run_pipeline(
        one_argument(text, rank, 8 if "manual}" in text else None).replace(f"{SIZE}", f"{size}"),
        ImportMhlo(),
    ).module
    (sharding,) = placed(module)
    assert (sharding and sharding.dims_text()) == dims


@pytest.mark.parametrize(
    "text",
    [
        "{devices=[2,2]<=[16]}",
        "{devices=[2,2]0,1,2}",
        "replicated",
        "{replicated} and more",
        "{devices=[2,2]<=[2,2]T(1,0,2)}",
        "{devices=[banana",
    ],
)
def test_text_that_xla_takes_in_silence_is_refused_with_the_place(text: str) -> None:
    for pipeline in ("sp-import-mhlo", "sp-verify"):
        with pytest.raises(ShardingError) as caught:
            run_pipeline(one_argument(text, 2), pipeline)
        (fault,) = caught.value.diagnostics
        assert fault.slug in ("syntax", "trailing-text", "bad-tile-assignment", "rank-mismatch")
        assert fault.location is not None
        assert fault.location.line == 2
        assert fault.excerpt is not None


def test_tokens_and_scalars_have_no_dimensions() -> None:
    text = (
        'func.func @main(%t: !stablehlo.token {mhlo.sharding = "{replicated}"}, '
        '%s: tensor<i32> {mhlo.sharding = "{replicated}"}, '
        '%a: tensor<8xf32> {mhlo.sharding = "{devices=[8]<=[8]}"}) {\n  return\n}\n'
    )
    module = run_pipeline(text, ImportMhlo()).module
    assert shardings(module) == ["<@mesh, []>", "<@mesh, []>", '<@mesh, [{"_axis_0"}]>']
    back = run_pipeline(module, ExportMhlo()).module
    assert attribute_of(back, "mhlo.sharding") == [
        '"{replicated}"',
        '"{replicated}"',
        '"{devices=[8]<=[8]}"',
    ]


@pytest.mark.parametrize(
    ("text", "rank", "mesh", "dims"),
    [
        ("{devices=[4,2]<=[8]}", 2, {"x": 2, "y": 4}, '[{"x", "y":(1)2}, {"y":(2)2}]'),
        (
            "{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}",
            2,
            {"x": 2, "y": 4},
            '[{"y":(2)2}, {}]',
        ),
        ("{devices=[2,4]<=[8]}", 2, {"a": 8}, '[{"a":(1)2}, {"a":(2)4}]'),
        ("{devices=[4,2]<=[8]}", 2, {"a": 2, "b": 2, "c": 2}, '[{"a", "b"}, {"c"}]'),
    ],
)
def test_names_come_back_with_sub_axes_where_needed(
    text: str, rank: int, mesh: dict[str, int], dims: str
) -> None:
    module = run_pipeline(one_argument(text, rank), ImportMhlo(mesh=mesh)).module
    assert [sharding.dims_text() for sharding in placed(module)] == [dims]


MESH_2X4 = 'sdy.mesh @mesh = <["x"=2, "y"=4]>\n'


@pytest.mark.parametrize(
    "sharding",
    [
        '[{"y":(1)2, "y":(2)2}, {}]',
        '[{"x":(1)2}, {}]',
        '[{}, {}], replicated={"y", "x"}',
        "[{}p1, {}]",
        '[{"x"}]',
        '[{"x"}, {}], replicated={"x"}',
    ],
)
def test_what_shardys_verifier_refuses_is_passed_through_with_its_place(sharding: str) -> None:
    text = (
        f"{MESH_2X4}func.func @main(%a: tensor<8x8xf32> "
        f"{{sdy.sharding = #sdy.sharding<@mesh, {sharding}>}}) {{\n  return\n}}\n"
    )
    with pytest.raises(ShardingError) as caught:
        run_pipeline(text, ExportMhlo())
    assert caught.value.diagnostics[0].location is not None


@pytest.mark.parametrize("sharding", ['[{"y":(2)2, "y":(1)2}, {}]', "[{?}p1, {}]"])
def test_what_it_takes_is_exported(sharding: str) -> None:
    text = (
        f"{MESH_2X4}func.func @main(%a: tensor<8x8xf32> "
        f"{{sdy.sharding = #sdy.sharding<@mesh, {sharding}>}}) {{\n  return\n}}\n"
    )
    (found,) = attribute_of(run_pipeline(text, ExportMhlo()).module, "mhlo.sharding")
    meshes = {"mesh": MeshShape.of(x=2, y=4)}
    wanted = to_hlo(TensorSharding.parse(f"#sdy.sharding<@mesh, {sharding}>", meshes))
    assert found == f'"{wanted}"'


def test_device_ids_in_order_are_no_device_ids() -> None:
    text = MESH_2X4.replace("]>", "], device_ids=[0, 1, 2, 3, 4, 5, 6, 7]>") + (
        'func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) '
        "{\n  return\n}\n"
    )
    found = attribute_of(run_pipeline(text, ExportMhlo()).module, "mhlo.sharding")
    assert found == ['"{devices=[2,4]<=[8] last_tile_dim_replicate}"']


@pytest.mark.parametrize(
    "text",
    [
        f"{MESH_2X4}func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {{\n  %0 = stablehlo.abs %a"
        ' {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>} : tensor<8xf32>\n'
        "  return %0 : tensor<8xf32>\n}\n",
        f"{MESH_2X4}func.func @main(%a: tensor<8xf32> "
        '{sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}]>]>}) {\n  return\n}\n',
    ],
    ids=["one on an op", "a list on an argument"],
)
def test_attributes_of_the_wrong_kind_are_refused_with_the_place(text: str) -> None:
    with pytest.raises(ShardingError) as caught:
        run_pipeline(text, ExportMhlo())
    assert caught.value.diagnostics[0].location is not None


def test_dynamic_dimensions_are_exported_and_not_imported() -> None:
    """The attribute says nothing of sizes; to cut a dimension there must be one."""
    text = (
        f"{MESH_2X4}func.func @main(%a: tensor<?x16xf32> "
        '{sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {\n  return\n}\n'
    )
    module = run_pipeline(text, ExportMhlo()).module
    assert attribute_of(module, "mhlo.sharding") == [
        '"{devices=[2,1,4]<=[8] last_tile_dim_replicate}"'
    ]
    with pytest.raises(ShardingError) as caught:
        run_pipeline(module, ImportMhlo())
    assert caught.value.slug == "dynamic-shape"
    assert caught.value.diagnostics[0].location is not None


def test_the_rows_are_as_many_as_there_were() -> None:
    from tests.cases import load as rows

    assert len(rows("sdy_to_mhlo")) == 80
    kinds = {"module", "given_mesh", "inline", "v3_single", "v3_dedup"}
    assert len(rows("mhlo_to_sdy", lambda row: row["kind"] in kinds)) == 36
    tiers = {row["tier"] for row in rows("mhlo_to_sdy", lambda row: row["kind"] == "module")}
    assert tiers == {"core", "differs", "unsupported"}


def test_constraints_in_a_region_name_the_axes_that_are_manual() -> None:
    """As XLA's notation has it: what is inside is said of the whole mesh."""
    text = f"""{MESH_2X4}
func.func @main(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {{
  %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{{"x"}}, {{}}]>]
      out_shardings=[<@mesh, [{{"x"}}, {{}}]>] manual_axes={{"x"}} (%b: tensor<4x8xf32>) {{
    %1 = sdy.sharding_constraint %b <@mesh, [{{}}, {{"y"}}]> : tensor<4x8xf32>
    %2 = stablehlo.abs %1 : tensor<4x8xf32>
    sdy.return %2 : tensor<4x8xf32>
  }} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}}"""
    for options in ({}, {"v3": True}):
        back = run_pipeline(
            run_pipeline(text, ExportMhlo(**options)).module, ImportMhlo(mesh={"x": 2, "y": 4})
        ).module
        (constraint,) = collect(back.root, sdy.ShardingConstraintOp)
        assert '[{}, {"y"}]>' in str(constraint.attributes["sharding"])
        (region,) = collect(back.root, sdy.ManualComputationOp)
        assert str(region.attributes["manual_axes"]) == '#sdy<manual_axes{"x"}>'
