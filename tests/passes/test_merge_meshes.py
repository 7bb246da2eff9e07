"""``sp-merge-meshes``: which mesh stays, what is said on it, and what does not go together."""

import math
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpass import run, run_pipeline
from shardpass.canon import MeshShape, TensorSharding, device_blocks, device_ids
from shardpass.diagnostics import ShardingError
from shardpass.mlir import Module, Shardings, argument_attributes, load, meshes_of
from shardpass.passes.merge_meshes import MergeMeshes
from tests.passes.helpers import faults, said, shardings
from tests.strategies import attempt, factorisations, mesh_shapes, tensor_shardings

KIND = "tensor<32x32xf32>"


def program(meshes: dict[str, str], *arguments: str, body: str = "", kind: str = KIND) -> str:
    """A module with these meshes, and arguments with these shardings."""
    declared = "\n".join(f"sdy.mesh @{name} = {mesh}" for name, mesh in meshes.items())
    given = ", ".join(
        f"%a{index}: {kind} {{sdy.sharding = #sdy.sharding{text}}}"
        for index, text in enumerate(arguments)
    )
    return f"{declared}\nfunc.func @main({given}) {{\n{body}\n  return\n}}\n"


def merged(text: Any, **options: Any) -> Module:
    result = run_pipeline(text, MergeMeshes(**options))
    assert load(result.module.text()).root.verify()
    return result.module


def meshes(module: Module) -> dict[str, str]:
    return {name: str(mesh) for name, mesh in meshes_of(module.root).items()}


@pytest.mark.parametrize(
    ("declared", "given", "left", "expected"),
    [
        pytest.param(
            {"a": '<["x"=8]>', "b": '<["x"=8]>'},
            ['<@a, [{"x"}, {}]>', '<@b, [{}, {"x", ?}]>'],
            {"a": '<["x"=8]>'},
            ['<@a, [{"x"}, {}]>', '<@a, [{}, {"x", ?}]>'],
            id="equal under two names",
        ),
        pytest.param(
            {"a": '<["x"=2, "y"=4]>', "b": '<["data"=2, "model"=4]>'},
            ['<@a, [{"x"}, {}]>', '<@b, [{"model"}, {"data"}]>'],
            {"a": '<["x"=2, "y"=4]>'},
            ['<@a, [{"x"}, {}]>', '<@a, [{"y"}, {"x"}]>'],
            id="other names",
        ),
        pytest.param(
            {"a": '<["x"=8]>', "b": '<["a"=2, "b"=4]>'},
            ['<@a, [{"x"}, {}]>', '<@b, [{"b"}, {"a"}]>', '<@b, [{"a", "b"}p2, {?}]>'],
            {"a": '<["x"=8]>'},
            ['<@a, [{"x"}, {}]>', '<@a, [{"x":(2)4}, {"x":(1)2}]>', '<@a, [{"x"}p2, {?}]>'],
            id="parts of an axis",
        ),
        pytest.param(
            {"i": '<["_axis_0"=2, "_axis_1"=4]>', "j": '<["axis_0"=8]>', "u": '<["x"=8]>'},
            ['<@i, [{"_axis_1"}, {}]>', '<@j, [{"axis_0"}, {}]>', '<@u, [{"x"}, {}]>'],
            {"u": '<["x"=8]>'},
            ['<@u, [{"x":(2)4}, {}]>', '<@u, [{"x"}, {}]>', '<@u, [{"x"}, {}]>'],
            id="a user's names before inferred ones",
        ),
        pytest.param(
            {"idle": '<["q"=8]>', "a": '<["x"=8]>'},
            ['<@a, [{"x"}, {}]>'],
            {"a": '<["x"=8]>'},
            ['<@a, [{"x"}, {}]>'],
            id="one in use before one that is not",
        ),
        pytest.param(
            {"e": "<[]>", "a": '<["x"=8]>', "four": '<["x"=4]>'},
            ["<@e, [{?}, {}]>", '<@a, [{"x"}, {}]>'],
            {"a": '<["x"=8]>', "four": '<["x"=4]>'},
            ["<@a, [{?}, {}]>", '<@a, [{"x"}, {}]>'],
            id="the empty one",
        ),
        pytest.param(
            {"a": '<["x"=2, "y"=4]>', "t": '<["p"=4, "q"=2], device_ids=[0, 4, 1, 5, 2, 6, 3, 7]>'},
            ['<@a, [{"x"}, {}]>', '<@t, [{"p"}, {"q"}]>'],
            {"a": '<["x"=2, "y"=4]>'},
            ['<@a, [{"x"}, {}]>', '<@a, [{"y"}, {"x"}]>'],
            id="devices in transposed order",
        ),
        pytest.param(
            {"a": '<["x"=4, "one"=1]>', "b": '<["y"=4]>', "c": '<["z"=2, "one"=1, "w"=2]>'},
            ['<@a, [{"one", "x"}, {}]>', '<@b, [{"y"}, {}]>', '<@c, [{"one", "w"}, {"z"}]>'],
            {"a": '<["x"=4, "one"=1]>'},
            [
                '<@a, [{"one", "x"}, {}]>',
                '<@a, [{"x"}, {}]>',
                '<@a, [{"one", "x":(2)2}, {"x":(1)2}]>',
            ],
            id="axes of size 1",
        ),
        pytest.param(
            {"a": '<["x"=8]>'},
            ['<mesh<["x"=8]>, [{"x"}, {}]>', '<mesh<["p"=2, "q"=4]>, [{"q"}, {}]>'],
            {"a": '<["x"=8]>'},
            ['<@a, [{"x"}, {}]>', '<@a, [{"x":(2)4}, {}]>'],
            id="inlined beside a declared one",
        ),
        pytest.param(
            {},
            ['<mesh<["x"=8]>, [{"x"}, {}]>', '<mesh<["p"=2, "q"=4]>, [{"q"}, {}]>'],
            {"mesh": '<["x"=8]>'},
            ['<@mesh, [{"x"}, {}]>', '<@mesh, [{"x":(2)4}, {}]>'],
            id="inlined ones alone",
        ),
        pytest.param(
            {
                "a": '<["x"=2, "y"=2], device_ids=[3, 1, 0, 2]>',
                "b": '<["z"=4], device_ids=[3, 1, 0, 2]>',
            },
            ['<@a, [{"x"}, {"y"}]>', '<@b, [{"z"}, {}]>'],
            {"a": '<["x"=2, "y"=2], device_ids=[3, 1, 0, 2]>'},
            ['<@a, [{"x"}, {"y"}]>', '<@a, [{"x", "y"}, {}]>'],
            id="the same odd order",
        ),
        pytest.param(
            {"a": '<["x"=4]>', "odd": '<["y"=4], device_ids=[3, 1, 0, 2]>'},
            ['<@a, [{"x"}, {}]>'],
            {"a": '<["x"=4]>'},
            ['<@a, [{"x"}, {}]>'],
            id="an order that nothing is on",
        ),
    ],
)
def test_merged(
    declared: dict[str, str], given: list[str], left: dict[str, str], expected: list[str]
) -> None:
    module = merged(program(declared, *given))
    assert meshes(module) == left
    assert shardings(module) == expected
    assert merged(module.clone()).text() == module.text()  # There is nothing left to merge.


def test_meshes_of_single_devices_stay_but_equal_ones() -> None:
    declared = {"a": '<["x"=4]>', "m": "<[], device_ids=[3]>", "n": "<[], device_ids=[3]>"}
    text = program(declared, "<@m, []>", "<@n, []>", kind="tensor<i32>")
    module = merged(text)
    assert meshes(module) == {"a": '<["x"=4]>', "m": "<[], device_ids=[3]>"}
    assert shardings(module) == ["<@m, []>"] * 2
    several = program({"e": "<[]>", "f": "<[]>"}, "<@f, [{}, {}]>")
    assert meshes(merged(several)) == {"e": "<[]>"}


REGION = """
  %{r}:1 = sdy.manual_computation(%a0) in_shardings=[<@{mesh}, [{{"{axis}"}}, {{}}]>]
      out_shardings=[<@{mesh}, [{{"{axis}"}}, {{}}]>] manual_axes={{"{axis}"}}
      (%b: tensor<{rows}x32xf32>) {{
    sdy.return %b : tensor<{rows}x32xf32>
  }} : (tensor<32x32xf32>) -> tensor<32x32xf32>"""


def region(r: str, mesh: str, axis: str, rows: int) -> str:
    return REGION.format(r=r, mesh=mesh, axis=axis, rows=rows)


def test_a_manual_axis_has_to_be_whole() -> None:
    """So that the mesh stays that has it, though another comes first."""
    declared = {"a": '<["x"=8]>', "b": '<["p"=2, "q"=4]>'}
    module = merged(program(declared, '<@a, [{"x"}, {}]>', body=region("r", "b", "p", 16)))
    assert meshes(module) == {"b": '<["p"=2, "q"=4]>'}
    assert shardings(module) == ['<@b, [{"p", "q"}, {}]>']


def test_a_mesh_that_refines_all() -> None:
    declared = {"a": '<["x"=4, "y"=2]>', "b": '<["p"=2, "q"=4]>'}
    body = region("r", "a", "x", 8) + region("s", "b", "p", 16)
    module = merged(program(declared, '<@b, [{"q"}, {}]>', body=body))
    assert meshes(module) == {"a": '<["p"=2, "_axis_0"=2, "y"=2]>'}
    assert shardings(module) == ['<@a, [{"_axis_0", "y"}, {}]>']
    text = module.text(debug_info=False)
    assert 'manual_axes={"p", "_axis_0"}' in text
    assert 'manual_axes={"p"}' in text


def test_the_mesh_to_keep() -> None:
    declared = {"a": '<["x"=8]>', "b": '<["p"=2, "q"=4]>', "c": '<["x"=8]>'}
    text = program(declared, '<@a, [{"x"}, {}]>', '<@b, [{"q"}, {}]>')
    assert meshes(merged(text, keep="b")) == {"b": '<["p"=2, "q"=4]>'}
    assert shardings(merged(text, keep="c")) == ['<@c, [{"x"}, {}]>', '<@c, [{"x":(2)4}, {}]>']
    with_manual = program(declared, '<@a, [{"x"}, {}]>', body=region("r", "b", "p", 16))
    assert [fault.slug for fault in faults(with_manual, MergeMeshes(keep="a"))] == [
        "not-expressible"
    ]


def test_another_number_of_devices_stays_apart_with_a_warning() -> None:
    declared = {"four": '<["f"=4]>', "a": '<["x"=8]>', "b": '<["y"=8]>', "idle": '<["z"=2]>'}
    text = program(declared, '<@four, [{"f"}, {}]>', '<@a, [{"x"}, {}]>', '<@b, [{"y"}, {}]>')
    result = run_pipeline(text, "sp-merge-meshes")
    assert meshes(result.module) == {
        "four": '<["f"=4]>',
        "a": '<["x"=8]>',
        "idle": '<["z"=2]>',
    }
    assert said(result.diagnostics) == [
        (
            "warning",
            "mesh-mismatch",
            "@four (f=4) has 4 devices and stays apart from @a, which has 8: propagation stops "
            "between the two",
        )
    ]
    assert result.diagnostics[0].location is not None


@pytest.mark.parametrize(
    "text",
    [
        "func.func @main(%a: tensor<8xf32>) { return }",
        program({"mesh": '<["x"=8]>'}, '<@mesh, [{"x"}, {?}]>'),
        program({"e": "<[]>"}, "<@e, [{}, {}]>"),
        'func.func @main(%a: tensor<8xf32> {mhlo.sharding = "{devices=[8]<=[8]}"}) { return }',
    ],
)
def test_nothing_to_merge(text: str) -> None:
    assert merged(text).text() == load(text).text()


@pytest.mark.parametrize(
    ("declared", "given", "expected"),
    [
        (
            {"a": '<["x"=2, "y"=3]>', "b": '<["p"=3, "q"=2]>'},
            ['<@a, [{"x"}, {}]>', '<@b, [{"p"}, {}]>', '<@b, [{}, {"p"}]>'],
            [
                ("not-expressible", 'argument 1 ("arg1"): "p" of p=3, q=2 does not cut "y"=3 into'),
                ("not-expressible", 'argument 2 ("arg2"): "p" of p=3, q=2 does not cut "y"=3 into'),
            ],
        ),
        (
            {"a": '<["x"=4]>', "b": '<["y"=4], device_ids=[3, 1, 0, 2]>'},
            ['<@a, [{"x"}, {}]>', '<@b, [{"y"}, {}]>'],
            [("device-order", "@b: the devices of y=4 stand in an order that no axes of x=4 have")],
        ),
    ],
)
def test_what_cannot_be_reconciled(
    declared: dict[str, str], given: list[str], expected: list[tuple[str, str]]
) -> None:
    module = load(program(declared, *given, kind="tensor<12x12xf32>"))
    before = module.text()
    found = faults(module, "sp-merge-meshes")
    assert [fault.slug for fault in found] == [slug for slug, _ in expected]
    for fault, (_, message) in zip(found, expected, strict=True):
        assert fault.message.startswith(message)
        assert fault.location is not None
        assert "no mesh has axes for all that is on @a, @b" in fault.notes
    assert module.text() == before


@pytest.mark.parametrize(
    ("keep", "message", "help"),
    [
        ("mush", "there is no mesh @mush, the module has @mesh, @one", 'did you mean "mesh"?'),
        ("one", "@one has no axes for others to go to", "name a mesh with axes"),
    ],
)
def test_a_mesh_to_keep_that_is_none(keep: str, message: str, help: str) -> None:
    text = program({"mesh": '<["x"=8]>', "one": "<[], device_ids=[1]>"})
    (fault,) = faults(text, MergeMeshes(keep=keep))
    assert (fault.slug, fault.help) == ("bad-option", help)
    assert message in fault.message


def test_a_function_with_the_name_of_a_mesh() -> None:
    text = """
      func.func @mesh(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<mesh<["x"=8]>, [{"x"}]>}) {
        return
      }
      func.func @other(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<mesh<["y"=8]>, [{"y"}]>}) {
        return
      }"""
    module = merged(text)
    assert meshes(module) == {"mesh_0": '<["x"=8]>'}
    assert module.text(debug_info=False).count('<@mesh_0, [{"x"}]>') == 2


# Laws --------------------------------------------------------------------------------------------


@st.composite
def modules(draw: st.DrawFn) -> tuple[list[TensorSharding], str]:
    """Arguments on several meshes over the same devices, in the same order or a transposed one."""
    first = draw(mesh_shapes(max_axes=3, max_devices=24, permuted=False))
    shapes = [first]
    for _ in range(draw(st.integers(1, 2))):
        sizes = draw(factorisations(first.size)) if first.size > 1 else [1]
        axes = tuple((f"{draw(st.sampled_from('abc'))}{i}", size) for i, size in enumerate(sizes))
        ids = first.device_array().reshape(sizes)
        if draw(st.integers(0, 2)) == 0:
            ids = ids.transpose(order := draw(st.permutations(range(len(sizes)))))
            axes = tuple(axes[index] for index in order)
        shapes.append(MeshShape(axes, tuple(ids.ravel().tolist())))
    values = [
        draw(tensor_shardings(st.just(mesh), min_rank=2, max_rank=2, unreduced=False))
        for mesh in shapes
    ]
    declared = {f"m{index}": str(mesh) for index, mesh in enumerate(shapes)}
    given = [value.to_sdy(f"m{i}").removeprefix("#sdy.sharding") for i, value in enumerate(values)]
    return values, program(declared, *given, kind="tensor<576x576xf32>")


def blocks(sharding: TensorSharding) -> dict[int, Any]:
    rows = device_blocks(sharding, (576, 576)).tolist()
    return dict(zip(device_ids(sharding).tolist(), rows, strict=True))


@settings(max_examples=40, deadline=None)
@given(modules())
def test_every_device_holds_what_it_held(case: tuple[list[TensorSharding], str]) -> None:
    values, text = case
    module = attempt(lambda: merged(text))
    if isinstance(module, ShardingError):
        assert {fault.slug for fault in module.diagnostics} <= {"not-expressible", "device-order"}
        assert math.log2(values[0].mesh.size) % 1  # Powers of two always go together.
        return
    assert len(meshes(module)) == 1
    read = Shardings(module.root).read
    for value, entries in zip(values, argument_attributes(module.main), strict=True):
        assert blocks(read(entries["sdy.sharding"])) == blocks(value)


def test_two_meshes_in_one_jax_program_then_propagate() -> None:
    """What JAX lowers for constraints on two meshes over the same devices, merged and run."""
    devices = np.array(jax.devices()[:8])
    one = jax.sharding.Mesh(devices.reshape(2, 4), ("x", "y"))
    other = jax.sharding.Mesh(devices, ("all",))

    def place(value: Any, mesh: Any, *spec: Any) -> Any:
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
        return jax.lax.with_sharding_constraint(value, sharding)

    def f(a: Any, b: Any) -> Any:
        c = place(a, one, "x", "y") @ place(b, one, "y")
        return place(jax.numpy.sin(c), other, "all").sum(axis=1)

    a = np.arange(256, dtype=np.float32).reshape(16, 16) / 97
    b = np.arange(128, dtype=np.float32).reshape(16, 8) / 31
    module = load(jax.jit(f).lower(a, b))
    assert sorted(str(mesh) for mesh in meshes_of(module.root).values()) == [
        '<["all"=8]>',
        '<["x"=2, "y"=4]>',
    ]
    found = run_pipeline(module, "sp-merge-meshes,sp-propagate").module
    assert len(meshes(found)) == 1
    ran = run(found, devices=8, inputs={"a": a, "b": b})
    np.testing.assert_allclose(ran.arrays[0], np.asarray(jax.jit(f)(a, b)), rtol=1e-5)
