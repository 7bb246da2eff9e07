"""``sp-retarget``: other sizes under the same names, and what cannot follow."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import PartitionSpec as P

from shardpass import MeshShape, check, run, run_pipeline, save
from shardpass.mlir import Module, load, num_partitions
from shardpass.passes.retarget import Retarget
from tests.passes.helpers import faults, said, shardings
from tests.passes.test_merge_meshes import meshes, program, region

MESH = {"mesh": '<["x"=2, "y"=4]>'}


def retargeted(text: Any, mesh: Any, **options: Any) -> Module:
    module = run_pipeline(text, Retarget(mesh=mesh, **options)).module
    assert load(module.text()).root.verify()
    return module


@pytest.mark.parametrize(
    ("given", "mesh", "expected"),
    [
        ('[{"x"}, {"y", ?}p1]', {"x": 4, "y": 2}, '[{"x"}, {"y", ?}p1]'),
        ('[{"x", "y"}, {}]', {"y": 8, "x": 4}, '[{"x", "y"}, {}]'),
        ('[{"x"}, {}]', {"x": 4}, '[{"x"}, {}]'),  # Nothing is on y.
        ('[{"x"}, {?}]', {"x": 2, "z": 3}, '[{"x"}, {?}]'),  # An axis more.
        ('[{"y":(1)2}, {}]', {"x": 2, "y": 2}, '[{"y"}, {}]'),
        ('[{"y":(1)2}, {}]', {"x": 2, "y": 16}, '[{"y":(1)2}, {}]'),
        ('[{}, {}], replicated={"x", "y"}', {"y": 2, "x": 2}, '[{}, {}], replicated={"y", "x"}'),
    ],
)
def test_the_names_stay(given: str, mesh: dict[str, int], expected: str) -> None:
    module = retargeted(program(MESH, f"<@mesh, {given}>"), mesh)
    new = MeshShape(tuple(mesh.items()))
    assert meshes(module) == {"mesh": str(new)}
    assert shardings(module) == [f"<@mesh, {expected}>"]
    assert num_partitions(module.root) == new.size
    assert retargeted(module.clone(), mesh).text() == module.text()


def test_the_same_mesh_changes_nothing() -> None:
    text = program(MESH, '<@mesh, [{"x"}, {"y"}]>')
    assert retargeted(text, {"x": 2, "y": 4}).text() == load(text).text()


def test_equal_meshes_become_one_and_others_stay() -> None:
    """As JAX 0.12 declares them: one for the shardings, one for groups of replicas."""
    declared = {**MESH, "mesh_0": MESH["mesh"], "empty": "<[]>", "m": "<[], device_ids=[3]>"}
    text = program(declared, '<@mesh, [{"x"}, {}]>', '<@mesh_0, [{}, {"y"}]>', "<@empty, [{}, {}]>")
    module = retargeted(text, {"x": 2, "y": 2})
    assert meshes(module) == {
        "mesh": '<["x"=2, "y"=2]>',
        "empty": "<[]>",
        "m": "<[], device_ids=[3]>",
    }
    assert shardings(module) == [
        '<@mesh, [{"x"}, {}]>',
        '<@mesh, [{}, {"y"}]>',
        "<@empty, [{}, {}]>",
    ]


def test_an_inlined_mesh_is_declared() -> None:
    text = """
      func.func @mesh(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<mesh<["x"=8]>, [{"x"}]>}) {
        return
      }"""
    module = retargeted(text, {"x": 4})
    assert meshes(module) == {"mesh_0": '<["x"=4]>'}
    assert '<@mesh_0, [{"x"}]>' in module.text()


def test_without_a_mesh_only_the_count_changes() -> None:
    text = "module attributes {mhlo.num_partitions = 8 : i32} {\nfunc.func @main() { return }\n}"
    result = run_pipeline(text, "sp-retarget{mesh=x=4}")
    assert num_partitions(result.module.root) == 4
    assert meshes(result.module) == {}
    assert [(d.severity.value, d.slug) for d in result.diagnostics] == [("remark", "mesh-mismatch")]


WHOLE = """
sdy.mesh @mesh = <["x"=2, "y"=4]>
func.func @main(%a: tensor<12x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>} loc("w"),
    %b: tensor<8x12xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y", ?}]>} loc("v"))
    -> (tensor<12x8xf32> {jax.result_info = "result.out",
        sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>}) {
  %0 = sdy.sharding_constraint %a <@mesh, [{"y"}, {"x"}]> : tensor<12x8xf32>
  %1 = stablehlo.negate %0 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"y"}, {}]>]>}
    : tensor<12x8xf32>
  %2 = stablehlo.negate %1 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"y"}, {}]>]>}
    : tensor<12x8xf32>
  %3 = sdy.sharding_constraint %2 <@mesh, [{}, {"x"}]> : tensor<12x8xf32>
  return %3 : tensor<12x8xf32>
}
func.func @second(%a: tensor<12xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}]>} loc("z")) {
  return
}
"""
Y_8 = {"x": 2, "y": 8}


def test_all_that_no_longer_divides_is_told_in_one_run() -> None:
    module = load(WHOLE)
    before = module.text()
    found = faults(module, Retarget(mesh=Y_8))
    assert [(fault.slug, fault.message, fault.path) for fault in found] == [
        ("indivisible", 'argument 1 ("v"), dimension 1: 12 elements into 8 pieces', "v"),
        (
            "indivisible",
            'result 0 ("result.out"), dimension 0: 12 elements into 8 pieces',
            "result.out",
        ),
        ("indivisible", "sdy.sharding_constraint, dimension 0: 12 elements into 8 pieces", None),
        ("indivisible", 'argument 0 ("z"), dimension 0: 12 elements into 8 pieces', "z"),
        (
            "indivisible",
            "the result of stablehlo.negate, dimension 0: 12 elements into 8 pieces",
            None,
        ),
    ]
    assert all(fault.location for fault in found)
    assert found[0].help == (
        "pad to 16 (nearest sizes that work: 8 and 16), or leave it whole: indivisible=replicate"
    )
    assert found[-1].notes == (
        'sharding is [{"y"}, {}] on mesh x=2, y=8',
        "and so for 1 more value inside",
    )
    assert module.text() == before


def test_it_can_be_left_whole() -> None:
    result = run_pipeline(WHOLE, Retarget(mesh=Y_8, indivisible="replicate"))
    assert shardings(result.module) == ['<@mesh, [{"x"}, {"y"}]>', '<@mesh, [{"x"}, {?}]>']
    assert shardings(result.module, results=True) == ["<@mesh, [{}, {}]>"]
    text = result.module.text(debug_info=False)
    assert '<@mesh, [{}, {"x"}]> : tensor<12x8xf32>' in text
    assert '"y"' in text.split("@second")[0]
    assert "sdy.sharding_per_value<[<@mesh, [{}, {}]>]>" in text
    assert [(d.severity.value, d.slug, d.path) for d in result.diagnostics] == [
        ("warning", "indivisible", "v"),
        ("warning", "indivisible", "result.out"),
        ("warning", "indivisible", None),
        ("warning", "indivisible", "z"),
    ]
    assert result.diagnostics[0].message == (
        'argument 1 ("v"), dimension 1: 12 elements into 8 pieces, so it stays whole'
    )


def test_an_inner_function_is_told_of_as_such() -> None:
    text = WHOLE.replace("func.func @second", "func.func private @second")
    found = faults(text, Retarget(mesh=Y_8))
    assert [(fault.message, fault.path) for fault in found if "@second" in fault.message] == [
        ('argument 0 ("z") of @second, dimension 0: 12 elements into 8 pieces', None)
    ]
    result = run_pipeline(text, Retarget(mesh=Y_8, indivisible="replicate"))
    assert "@second(%arg0: tensor<12xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>})" in (
        result.module.text(debug_info=False)
    )
    assert "z" not in {fault.path for fault in result.diagnostics}


def test_what_was_uneven_inside_may_be() -> None:
    """XLA pads it, then as now."""
    body = '%0 = sdy.sharding_constraint %a0 <@mesh, [{"y"}, {}]> : tensor<6x6xf32>'
    text = program(MESH, "<@mesh, [{}, {}]>", body=body, kind="tensor<6x6xf32>")
    assert '<@mesh, [{"y"}, {}]>' in retargeted(text, Y_8).text()


def test_an_axis_in_use_that_is_not_there_any_more() -> None:
    text = program(MESH, '<@mesh, [{"x", "y"}, {}]>', '<@mesh, [{"y":(2)2}, {?}]>')
    found = faults(text, Retarget(mesh={"x": 2, "model": 2}))
    assert [(fault.slug, fault.message) for fault in found] == [
        ("unknown-axis", 'argument 0 ("arg0"): axis "y" is not in the mesh x=2, model=2'),
        ("unknown-axis", 'argument 1 ("arg1"): axis "y" is not in the mesh x=2, model=2'),
    ]
    found = faults(text, Retarget(mesh={"x": 2, "y": 2}))
    assert [(fault.slug, fault.message) for fault in found] == [
        ("bad-sub-axis", 'argument 1 ("arg1"): "y":(2)2 of "y"=4 has no like in "y"=2')
    ]
    result = run_pipeline(text, Retarget(mesh={"x": 2}, missing="replicate"))
    assert shardings(result.module) == ['<@mesh, [{"x"}, {}]>', "<@mesh, [{}, {?}]>"]
    assert said(result.diagnostics) == [
        (
            "warning",
            "unknown-axis",
            f'argument {i} ("arg{i}"): axis "y" is not in the mesh x=2, and cuts nothing now',
        )
        for i in range(2)
    ]


def test_a_size_that_is_not_known_is_said_to_be() -> None:
    text = program(MESH, '<@mesh, [{"y"}, {"x"}]>', kind="tensor<?x8xf32>")
    result = run_pipeline(text, Retarget(mesh=Y_8))
    assert said(result.diagnostics) == [
        (
            "warning",
            "dynamic-shape",
            'argument 0 ("arg0"), dimension 0: whether its size, which is not static, goes into 8 '
            "pieces is not known",
        )
    ]


def test_an_order_of_devices_goes_with_the_mesh() -> None:
    text = program({"mesh": '<["x"=4], device_ids=[3, 1, 0, 2]>'}, '<@mesh, [{"x"}, {}]>')
    result = run_pipeline(text, Retarget(mesh={"x": 2}))
    assert meshes(result.module) == {"mesh": '<["x"=2]>'}
    assert [(d.severity.value, d.slug) for d in result.diagnostics] == [("warning", "device-order")]
    kept = retargeted(text, MeshShape((("x", 4),), (3, 2, 1, 0)))
    assert meshes(kept) == {"mesh": '<["x"=4], device_ids=[3, 2, 1, 0]>'}


# What cannot follow ------------------------------------------------------------------------------


def test_a_region_over_an_axis_that_changes() -> None:
    text = program(MESH, '<@mesh, [{"x"}, {}]>', body=region("r", "mesh", "x", 16))
    module = retargeted(text, {"y": 2, "x": 2})
    assert 'manual_axes={"x"} (%arg1: tensor<16x32xf32>)' in module.text(debug_info=False)
    (fault,) = faults(text, Retarget(mesh={"x": 4, "y": 2}))
    assert (fault.slug, fault.message) == (
        "not-supported",
        'manual_axes of sdy.manual_computation: the region is manual over "x", whose size goes '
        "from 2 to 4: its body is written for the shapes of one device",
    )
    assert fault.location
    assert fault.location.line == 4
    gone = faults(text, Retarget(mesh={"y": 2}, missing="replicate"))
    assert "from 2 to 1" in "\n".join(fault.message for fault in gone)


BAKED = {
    "partition_id": ("%0 = stablehlo.partition_id : tensor<ui32>", "asks for the number"),
    "replica_groups": (
        '%0 = "stablehlo.all_gather"(%a0) {all_gather_dim = 0 : i64, '
        "replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<32x32xf32>) -> "
        "tensor<64x32xf32>",
        "lists the devices that take part",
    ),
    "source_target_pairs": (
        '%0 = "stablehlo.collective_permute"(%a0) {source_target_pairs = dense<[[0, 1]]> : '
        "tensor<1x2xi64>} : (tensor<32x32xf32>) -> tensor<32x32xf32>",
        "lists the devices that send and receive",
    ),
    "strings": (
        '%0 = stablehlo.negate %a0 {mhlo.frontend_attributes = {xla.sdy.sharding = "x"}} : '
        "tensor<32x32xf32>",
        "has Shardy's annotations as strings",
    ),
}


@pytest.mark.parametrize(("body", "message"), BAKED.values(), ids=list(BAKED))
def test_numbers_of_devices_in_the_program(body: str, message: str) -> None:
    (fault,) = faults(program(MESH, '<@mesh, [{"x"}, {}]>', body=body), Retarget(mesh=Y_8))
    assert fault.slug in ("not-supported", "already-annotated")
    assert message in fault.message
    assert fault.location
    assert fault.location.line == 3


def test_shardys_collectives_go_along_unless_something_stays_whole() -> None:
    body = (
        '%0 = sdy.all_gather [{"y"}, {}] %a0 out_sharding=<@mesh, [{}, {"x"}]> : tensor<32x32xf32>'
    )
    text = program(MESH, '<@mesh, [{"y"}, {"x"}]>', body=body)
    assert 'sdy.all_gather [{"y"}, {}]' in retargeted(text, Y_8).text()
    found = faults(text, Retarget(mesh={"x": 2, "y": 3}, indivisible="replicate"))
    assert [(fault.severity.value, fault.slug) for fault in found] == [
        ("warning", "indivisible"),
        ("error", "not-supported"),
    ]
    found = faults(text, Retarget(mesh={"x": 2}, missing="replicate"))
    assert [(fault.severity.value, fault.slug) for fault in found] == [
        ("warning", "unknown-axis"),
        ("error", "unknown-axis"),
        ("error", "not-supported"),
    ]


def test_a_donated_buffer_whose_shards_come_apart() -> None:
    """As large as each other on two by two, not on four by two."""
    text = """
      sdy.mesh @mesh = <["x"=2, "y"=2]>
      func.func @main(%a: tensor<8x8xf32> {tf.aliasing_output = 0 : i32,
          sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
          -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>}) {
        return %a : tensor<8x8xf32>
      }"""
    assert meshes(retargeted(text, {"x": 4, "y": 4})) == {"mesh": '<["x"=4, "y"=4]>'}
    (fault,) = faults(text, Retarget(mesh={"x": 4, "y": 2}))
    assert fault.slug == "alias-layout"
    assert "their shards differ in size: 2x8 and 4x8" in fault.message


def test_shardings_that_cannot_be_read() -> None:
    """Shardy takes them, though no split of the axis holds both."""
    text = program({"mesh": '<["a"=6]>'}, '<@mesh, [{"a":(1)2}, {"a":(3)2}]>')
    (fault,) = faults(text, Retarget(mesh={"a": 12}))
    assert fault.slug == "duplicate-axis"
    assert fault.message.startswith('argument 0 ("arg0"): axes')


@pytest.mark.parametrize(
    ("text", "mesh", "slug", "message"),
    [
        (
            program({"a": '<["x"=8]>', "b": '<["y"=8]>'}, '<@a, [{"x"}, {}]>', '<@b, [{"y"}, {}]>'),
            {"x": 4},
            "mesh-mismatch",
            "the module has several meshes, x=8 and y=8 among them",
        ),
        (
            program({**MESH, "m": "<[], device_ids=[5]>"}, "<@m, []>", kind="tensor<f32>"),
            {"x": 4},
            "device-count",
            "values are on device 5, and x=4 has 4 devices",
        ),
        (
            "module attributes {mhlo.num_partitions = 4 : i32} {\n"
            + program(MESH, '<@mesh, [{"x"}, {}]>')
            + "}",
            {"x": 4},
            "device-count",
            "the mesh x=2, y=4 has 8 devices, and the module is for 4 (mhlo.num_partitions)",
        ),
        (
            'func.func @main(%a: tensor<8xf32> {mhlo.sharding = "{devices=[8]<=[8]}"}) { return }',
            {"x": 4},
            "already-annotated",
            "the module is annotated in GSPMD's notation already",
        ),
    ],
)
def test_modules_that_are_refused(text: str, mesh: Any, slug: str, message: str) -> None:
    module = load(text)
    before = module.text()
    (fault,) = faults(module, Retarget(mesh=mesh))
    assert fault.slug == slug
    assert fault.message.startswith(message)
    assert fault.location is not None
    assert fault.help
    assert module.text() == before


@pytest.mark.parametrize(
    ("options", "slug"),
    [("", "bad-option"), ("{mesh=x=2 indivisible=pad}", "bad-option"), ("{mesh=x}", "bad-mesh")],
)
def test_bad_options(options: str, slug: str) -> None:
    (fault,) = faults(program(MESH, '<@mesh, [{"x"}, {}]>'), f"sp-retarget{options}")
    assert fault.slug == slug


# Programs out of jax.export ----------------------------------------------------------------------

A = np.arange(256, dtype=np.float32).reshape(16, 16) / 97
B = np.arange(512, dtype=np.float32).reshape(16, 32) / 131


def exported(function: Any) -> Any:
    """``function(A, B)`` as JAX exports it for eight devices."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y"))

    def on(*spec: Any) -> Any:
        return jax.sharding.NamedSharding(mesh, P(*spec))

    jitted = jax.jit(
        lambda a, b: function(mesh, a, b),
        in_shardings=(on("x", None), on(None, "y")),
        out_shardings=on("x"),
    )
    found = export.export(jitted)(A, B)
    assert found.nr_devices == 8
    return export.deserialize(found.serialize())


def constrained(mesh: Any, a: Any, b: Any) -> Any:
    def step(carry: Any, _: Any) -> Any:
        cut = jax.sharding.NamedSharding(mesh, P("x", "y"))
        return jax.lax.with_sharding_constraint(jnp.sin(carry), cut), None

    return jax.lax.scan(step, a @ b, None, length=2)[0] + b.sum(axis=0)


def partly_manual(mesh: Any, a: Any, b: Any) -> Any:
    def body(a: Any, b: Any) -> Any:
        return jnp.sin(a) @ b + a.sum(axis=1, keepdims=True)

    return jax.shard_map(
        body, mesh=mesh, in_specs=(P("x"), P()), out_specs=P("x"), axis_names={"x"}
    )(a, b)


@pytest.mark.parametrize("mesh", [{"x": 2, "y": 2}, {"y": 4, "x": 1}, {"y": 1, "x": 8}])
def test_an_exported_program_on_other_devices(mesh: dict[str, int]) -> None:
    module = load(exported(constrained).mlir_module())
    new = retargeted(module, mesh)
    assert num_partitions(new.root) == MeshShape(tuple(mesh.items())).size
    check(new, devices=MeshShape(tuple(mesh.items())).size).raise_if_failed()


def test_an_exported_region_over_an_axis_that_stays() -> None:
    module = load(exported(partly_manual).mlir_module())
    new = retargeted(module, {"x": 2, "y": 2})
    ran = run(new, devices=4, inputs={"a": A, "b": B})
    np.testing.assert_allclose(
        ran.arrays[0], np.sin(A) @ B + A.sum(axis=1, keepdims=True), rtol=2e-4, atol=1e-4
    )
    assert "not-supported" in {f.slug for f in faults(module, Retarget(mesh={"x": 4, "y": 2}))}


def summed(mesh: Any, a: Any, b: Any) -> Any:
    def body(a: Any, b: Any) -> Any:
        return jax.lax.psum(jnp.sin(a) @ b, "x")

    return jax.shard_map(
        body, mesh=mesh, in_specs=(P(None, "x"), P("x")), out_specs=P(), axis_names={"x"}
    )(a, b)


def test_an_exported_collective_follows_where_it_names_axes() -> None:
    """As JAX 0.12 writes it; the lists of older ones are refused."""
    module = load(exported(summed).mlir_module())
    if "replica_group_mesh_axes" not in module.text():
        assert {f.slug for f in faults(module, Retarget(mesh={"x": 2, "y": 2}))} == {
            "not-supported"
        }
        return
    new = retargeted(module, {"x": 2, "y": 2})
    ran = run(new, devices=4, inputs={"a": A, "b": B})
    np.testing.assert_allclose(ran.arrays[0], np.sin(A) @ B, rtol=2e-4, atol=1e-4)


def test_an_exported_program_on_more_devices_than_it_was_made_for(tmp_path: Path) -> None:
    """In a process of its own, which has sixteen, through the command line."""
    module = retargeted(load(exported(constrained).mlir_module()), {"x": 4, "y": 4})
    save(module, tmp_path / "step.mlir")
    command = [sys.executable, "-m", "shardpass", "run", "step.mlir", "--devices", "16", "--check"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "check passed" in ran.stdout + ran.stderr
