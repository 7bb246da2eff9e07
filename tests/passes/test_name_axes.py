"""``sp-name-axes``: renamed, grouped anew, or refused with what would fit."""

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpass import MeshShape, run, run_pipeline
from shardpass.canon import TensorSharding, is_equivalent
from shardpass.diagnostics import ShardingError
from shardpass.mlir import Module, Shardings, argument_attributes, load, meshes_of
from shardpass.passes.name_axes import NameAxes
from tests.passes.helpers import attribute_of, faults, said, shardings
from tests.passes.manual import A, B, lowered, product
from tests.passes.test_merge_meshes import KIND, meshes, program, region
from tests.strategies import attempt, factorisations, mesh_shapes, tensor_shardings


def named(text: Any, mesh: Any, before: str = "") -> Module:
    steps = [*([before] if before else []), NameAxes(mesh=mesh)]
    module = run_pipeline(text, steps).module
    assert load(module.text()).root.verify()
    return module


@pytest.mark.parametrize(
    ("mesh", "given", "names", "expected"),
    [
        pytest.param(
            '<["_axis_0"=2, "_axis_1"=4]>',
            ['[{"_axis_0"}, {"_axis_1", ?}p1]', '[{"_axis_1", "_axis_0"}, {}]'],
            {"data": 2, "model": 4},
            ['[{"data"}, {"model", ?}p1]', '[{"model", "data"}, {}]'],
            id="renamed",
        ),
        pytest.param(
            '<["_axis_0"=8]>',
            ['[{"_axis_0"}, {}]', '[{}, {"_axis_0":(2)2}]'],
            {"data": 2, "model": 4},
            ['[{"data", "model"}, {}]', '[{}, {"model":(1)2}]'],
            id="a row of the user's axes",
        ),
        pytest.param(
            '<["_axis_0"=2, "_axis_1"=2, "_axis_2"=2]>',
            ['[{"_axis_1", "_axis_2"}, {"_axis_0"}]', '[{"_axis_2"}, {"_axis_1"}]'],
            {"data": 2, "model": 4},
            ['[{"model"}, {"data"}]', '[{"model":(2)2}, {"model":(1)2}]'],
            id="parts of the user's axes",
        ),
        pytest.param(
            '<["_axis_0"=2, "_axis_1"=4]>',
            ['[{"_axis_0"}, {"_axis_1"}]'],
            {"model": 4, "data": 2},
            ['[{"model":(1)2}, {"model":(2)2, "data"}]'],
            id="the order of the axes is that of the devices",
        ),
        pytest.param(
            '<["_axis_0"=4], device_ids=[3, 1, 0, 2]>',
            ['[{"_axis_0"}, {}]'],
            {"data": 2, "model": 2},
            ['[{"data", "model"}, {}]'],
            id="devices in an order of their own",
        ),
        pytest.param(
            '<["data"=2, "model"=4]>',
            ['[{"data"}, {"model"}]'],
            {"data": 2, "model": 4},
            ['[{"data"}, {"model"}]'],
            id="named already",
        ),
        pytest.param(
            '<["_axis_0"=8, "one"=1]>',
            ['[{"one", "_axis_0"}, {}]'],
            {"data": 8, "model": 1},
            ['[{"model", "data"}, {}]'],
            id="an axis of size 1",
        ),
    ],
)
def test_named(mesh: str, given: list[str], names: dict[str, int], expected: list[str]) -> None:
    before = MeshShape.parse(mesh)
    module = named(program({"mesh": mesh}, *(f"<@mesh, {text}>" for text in given)), names)
    assert meshes_of(module.root) == {"mesh": MeshShape(tuple(names.items()), before.device_ids)}
    assert shardings(module) == [f"<@mesh, {text}>" for text in expected]
    assert named(module.clone(), names).text() == module.text()


def test_an_order_of_devices_from_python() -> None:
    """Which the axes must then be able to say."""
    text = program({"mesh": '<["_axis_0"=2, "_axis_1"=2]>'}, '<@mesh, [{"_axis_0"}, {"_axis_1"}]>')
    wanted = MeshShape((("a", 2), ("b", 2)), (0, 2, 1, 3))
    module = named(text, wanted)
    assert meshes(module) == {"mesh": '<["a"=2, "b"=2], device_ids=[0, 2, 1, 3]>'}
    assert shardings(module) == ['<@mesh, [{"b"}, {"a"}]>']
    (fault,) = faults(text, NameAxes(mesh=MeshShape((("a", 4),), (3, 1, 0, 2))))
    assert fault.slug == "device-order"
    assert fault.location is not None


def test_meshes_that_have_become_equal_are_one() -> None:
    declared = {"a": '<["_axis_0"=8]>', "b": '<["_axis_0"=2, "_axis_1"=4]>', "four": '<["f"=4]>'}
    given = ['<@a, [{"_axis_0"}, {}]>', '<@b, [{"_axis_1"}, {}]>', '<@four, [{"f"}, {}]>']
    result = run_pipeline(program(declared, *given), "sp-name-axes{mesh=data=2,model=4}")
    assert meshes(result.module) == {"a": '<["data"=2, "model"=4]>', "four": '<["f"=4]>'}
    assert shardings(result.module) == [
        '<@a, [{"data", "model"}, {}]>',
        '<@a, [{"model"}, {}]>',
        '<@four, [{"f"}, {}]>',
    ]
    assert said(result.diagnostics) == [
        (
            "warning",
            "mesh-mismatch",
            "@four (f=4) has 4 devices and keeps its axes, since data=2, model=4 has 8",
        )
    ]


def test_without_a_mesh_there_is_nothing_to_name() -> None:
    text = "func.func @main(%a: tensor<8xf32>) { return }"
    result = run_pipeline(text, "sp-name-axes{mesh=data=8}")
    assert said(result.diagnostics) == [
        ("warning", "mesh-mismatch", "sp-name-axes: the module has no mesh with axes to name")
    ]
    assert result.module.text() == load(text).text()


@pytest.mark.parametrize(
    ("mesh", "given", "names", "slug", "message", "help"),
    [
        (
            '<["_axis_0"=2, "_axis_1"=3]>',
            '<@mesh, [{"_axis_0"}, {}]>',
            "data=3,model=2",
            "not-expressible",
            'argument 0 ("arg0"): "_axis_0" of _axis_0=2, _axis_1=3 does not cut "data"=3 into '
            "whole sub-axes",
            "in another order the axes say everything: model=2, data=3",
        ),
        (
            '<["_axis_0"=2, "_axis_1"=6]>',
            '<@mesh, [{"_axis_1"}, {}]>',
            "data=3,model=4",
            "not-expressible",
            'argument 0 ("arg0"): "_axis_1" of _axis_0=2, _axis_1=6 does not cut "data"=3 into '
            "whole sub-axes",
            "in another order the axes say everything: model=4, data=3",
        ),
        (
            '<["_axis_0"=4, "_axis_1"=9]>',
            '<@mesh, [{"_axis_0"}, {"_axis_1"}]>',
            "data=6,model=6",
            "not-expressible",
            'argument 0 ("arg0"): "_axis_0" of _axis_0=4, _axis_1=9 does not cut "data"=6 into '
            "whole sub-axes",
            "give axes of the sizes 4 x 9, in this order, or of products of neighbours",
        ),
        (
            '<["_axis_0"=8]>',
            '<@mesh, [{"_axis_0"}, {}]>',
            "data=2,model=2",
            "device-count",
            "data=2, model=2 has 4 devices, and @mesh (_axis_0=8) has 8",
            "give axes for as many devices; sp-retarget changes their number",
        ),
    ],
)
def test_what_the_axes_cannot_say(
    mesh: str, given: str, names: str, slug: str, message: str, help: str
) -> None:
    module = load(program({"mesh": mesh}, given))
    before = module.text()
    fault = faults(module, f"sp-name-axes{{mesh={names}}}")[0]
    assert (fault.slug, fault.message, fault.help) == (slug, message, help)
    assert fault.location is not None
    assert module.text() == before


def test_a_part_of_an_axis_cannot_be_manual() -> None:
    text = program(
        {"mesh": '<["_axis_0"=2, "_axis_1"=4]>'},
        '<@mesh, [{"_axis_0"}, {}]>',
        body=region("r", "mesh", "_axis_0", 16),
    )
    (fault,) = faults(text, "sp-name-axes{mesh=model=4,data=2}")
    assert fault.slug == "not-expressible"
    assert fault.help == "in another order the axes say everything: data=2, model=4"
    assert fault.location is not None


@pytest.mark.parametrize(
    ("options", "slug", "message"),
    [
        ({}, "bad-option", "sp-name-axes has no mesh"),
        ({"mesh": MeshShape()}, "bad-option", "sp-name-axes: the mesh without axes has no axes"),
        ({"mesh": 8}, "abstract-type", "a mesh is needed, not int 8"),
    ],
)
def test_bad_options(options: dict[str, Any], slug: str, message: str) -> None:
    text = program({"mesh": '<["x"=8]>'}, '<@mesh, [{"x"}, {}]>')
    (fault,) = faults(text, NameAxes(**options))
    assert (fault.slug, fault.message) == (slug, message)


def test_a_module_in_the_other_notation() -> None:
    text = f'func.func @main(%a: {KIND} {{mhlo.sharding = "{{devices=[8,1]<=[8]}}"}}) {{ return }}'
    (fault,) = faults(text, "sp-name-axes{mesh=data=8}")
    assert fault.slug == "already-annotated"
    assert fault.help
    assert "sp-import-mhlo" in fault.help


# Laws --------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    mesh_shapes(max_axes=3, max_devices=24).flatmap(
        lambda mesh: st.lists(tensor_shardings(st.just(mesh)), min_size=1, max_size=3)
    ),
    st.data(),
)
def test_the_placement_stays(values: list[TensorSharding], data: st.DataObject) -> None:
    """As the export to GSPMD's notation has it, by XLA's own form of tiles."""
    mesh = values[0].mesh
    sizes = data.draw(factorisations(mesh.size)) if mesh.size > 1 else [1]
    names = {f"n{index}": size for index, size in enumerate(sizes)}
    arguments = ", ".join(
        f"%a{i}: tensor<{'576x' * s.rank}f32> {{sdy.sharding = {s.to_sdy('mesh')}}}"
        for i, s in enumerate(values)
    )
    text = f"sdy.mesh @mesh = {mesh}\nfunc.func @main({arguments}) {{\n  return\n}}\n"
    module = attempt(lambda: named(text, names))
    if isinstance(module, ShardingError):
        assert {fault.slug for fault in module.diagnostics} == {"not-expressible"}
        return
    assert meshes_of(module.root) == {"mesh": MeshShape(tuple(names.items()), mesh.device_ids)}
    read = Shardings(module.root).read
    for value, entries in zip(values, argument_attributes(module.main), strict=True):
        found = read(entries["sdy.sharding"])
        assert found.tiles() == value.tiles()
        if not value.unreduced:
            assert is_equivalent(found, value, value.rank)


# Programs ----------------------------------------------------------------------------------------


def test_after_an_import_the_program_is_that_of_jax() -> None:
    """JAX's own lowering for GSPMD, imported onto inferred axes, named, and run."""
    function = product({"x", "y"})
    text = lowered(function, "gspmd")
    inferred = run_pipeline(text, "sp-import-mhlo").module
    assert all(name.startswith("_axis_") for name in meshes_of(inferred.root)["mesh"].names)
    module = named(inferred, {"data": 2, "model": 4})
    assert 'manual_axes={"data", "model"}' in module.text(debug_info=False)
    found = run(module, devices=8, inputs={"a": A, "b": B})
    for mine, wanted in zip(found.arrays, jax.jit(function)(A, B), strict=True):
        np.testing.assert_allclose(mine, np.asarray(wanted), rtol=1e-5)


def test_export_gives_back_what_was_imported() -> None:
    texts = ["{devices=[2,4]<=[8]}", "{devices=[4,2]<=[2,4]T(1,0)}", "{devices=[8,1]<=[8]}"]
    arguments = ", ".join(
        f'%a{index}: {KIND} {{mhlo.sharding = "{text}"}}' for index, text in enumerate(texts)
    )
    module = f"func.func @main({arguments}) {{ return }}"
    back = run_pipeline(
        module, "sp-import-mhlo,sp-name-axes{mesh=data=2,model=4},sp-export-mhlo"
    ).module
    assert attribute_of(back, "mhlo.sharding") == [f'"{text}"' for text in texts]
