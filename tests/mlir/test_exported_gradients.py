"""The gradient in a file of ``jax.export`` goes where passes bring the function."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from shardpass.diagnostics import Diagnostic, ShardingError, Sink
from shardpass.mlir import Module, load
from shardpass.passes import Pass, run_pipeline

X = np.arange(32, dtype=np.float32).reshape(8, 4)


def mesh_of(*sizes: int, names: tuple[str, ...] = ("data", "model")) -> jax.sharding.Mesh:
    return jax.make_mesh(sizes, names, axis_types=(AxisType.Auto,) * 2)


def exported(inner: P | None = None) -> export.Exported:
    """The sine on a mesh of 2x4."""
    place = NamedSharding(mesh_of(2, 4), P("data"))

    def sine(x: jax.Array) -> jax.Array:
        if inner is not None:
            x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh_of(2, 4), inner))
        return jnp.sin(x)

    function = jax.jit(sine, in_shardings=place, out_shardings=place)
    return export.export(function)(jax.ShapeDtypeStruct(X.shape, X.dtype))


@pytest.fixture(scope="module")
def file() -> bytes:
    return bytes(exported(inner=P(None, "model")).serialize(vjp_order=2))


def through(source: Any, pipeline: Any) -> Module:
    return run_pipeline(load(source, name="sine.exported"), pipeline).module


def read(data: bytes) -> export.Exported:
    return export.deserialize(bytearray(data))


def written(source: bytes, pipeline: Any) -> export.Exported:
    """What a file holds behind ``pipeline``, with nothing lost."""
    lost: list[Diagnostic] = []
    data = through(source, pipeline).to_bytes("exported", warn=lost.append)
    assert not lost
    return read(data)


def slope(each: export.Exported, mesh: jax.sharding.Mesh) -> jax.Array:
    """The gradient of the sum, at X."""
    (place,) = each.in_shardings_jax(mesh)
    placed = jax.device_put(X, place or NamedSharding(mesh, P()))
    return jax.jit(jax.grad(lambda x: each.call(x).sum()))(placed)


def meshes(each: export.Exported) -> list[str]:
    """The meshes of a program, and the number of its devices."""
    return re.findall(r"sdy.mesh @\w+ = (<.*?>)|num_partitions = (\d+)", each.mlir_module())


PLAIN_JAX = """
import sys, jax, numpy as np
exported = jax.export.deserialize(bytearray(open(sys.argv[1], "rb").read()))
sizes = tuple(map(int, sys.argv[2].split(",")))
mesh = jax.make_mesh(sizes, ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
x = np.arange(32, dtype=np.float32).reshape(8, 4)
placed = jax.device_put(x, exported.in_shardings_jax(mesh)[0])
first = jax.jit(jax.grad(lambda x: exported.call(x).sum()))(placed)
np.testing.assert_allclose(first, np.cos(x), rtol=1e-5)
second = jax.jit(jax.grad(lambda x: jax.grad(lambda x: exported.call(x).sum())(x).sum()))(placed)
np.testing.assert_allclose(second, -np.sin(x), rtol=1e-5, atol=1e-6)
assert "shardpass" not in sys.modules
print(first.sharding.spec, first.sharding.shard_shape((8, 4)))
"""


@pytest.mark.parametrize(("sizes", "shard"), [("4,2", "(2, 4)"), ("2,2", "(4, 4)")])
def test_retargeted_and_run_by_plain_jax(
    sizes: str, shard: str, file: bytes, tmp_path: Path
) -> None:
    """The gradients of both orders, on a mesh of other sizes and on one of fewer devices."""
    data, model = sizes.split(",")
    moved = through(file, f"sp-retarget{{mesh=data={data},model={model}}}")
    path = tmp_path / "sine.exported"
    path.write_bytes(moved.to_bytes("exported"))
    devices = int(data) * int(model)
    done = subprocess.run(
        [sys.executable, "-c", PLAIN_JAX, str(path), sizes],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ
        | {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}", "PYTHONPATH": ""},
    )
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout.strip().removeprefix("PartitionSpec").removeprefix("P").startswith("('data',")
    )
    assert done.stdout.strip().endswith(shard)
    function = read(path.read_bytes())
    both = [meshes(function), meshes(function.vjp()), meshes(function.vjp().vjp())]
    assert both == [both[0]] * 3
    assert f'<["data"={data}, "model"={model}]>' in str(both[0])


@pytest.mark.parametrize(
    ("pipeline", "mesh"),
    [
        ("sp-retarget{mesh=data=4,model=2}", mesh_of(4, 2)),
        ("sp-strip", mesh_of(2, 4)),
        ("sp-name-axes{mesh=a=2,b=4}", mesh_of(2, 4, names=("a", "b"))),
        ("sp-export-mhlo", mesh_of(2, 4)),
        ("sp-export-mhlo,sp-import-mhlo", mesh_of(2, 4, names=("_axis_0", "_axis_1"))),
        ("sp-merge-meshes", mesh_of(2, 4)),
        ("sp-name-axes{mesh=a=2,b=4},sp-retarget{mesh=a=2,b=2}", mesh_of(2, 2, names=("a", "b"))),
    ],
)
def test_gradients_go_along(pipeline: str, mesh: jax.sharding.Mesh, file: bytes) -> None:
    """The gradient speaks of what the function speaks of, and gives the cosine."""
    found = written(file, pipeline)
    gradient = found.vjp()
    assert gradient.nr_devices == found.nr_devices
    assert meshes(gradient) == meshes(found)
    for notation in ("sdy.sharding", "mhlo.sharding"):
        assert (notation in gradient.mlir_module()) == (notation in found.mlir_module())
    np.testing.assert_allclose(slope(found, mesh), np.cos(X), rtol=1e-5)
    assert gradient.has_vjp()


def test_nothing_done_is_nothing_changed(file: bytes) -> None:
    """Not a byte of the gradients' programs."""
    before, after = read(file), written(file, "sp-verify")
    assert after.vjp().mlir_module_serialized == before.vjp().mlir_module_serialized
    assert after.vjp().vjp().mlir_module_serialized == before.vjp().vjp().mlir_module_serialized


def test_arguments_say_what_a_caller_heeds(file: bytes) -> None:
    """Behind sp-annotate, the gradient's own arguments say the new layout, too."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Model(Pass):
        name = "test-model"

        def run(self, root: Any, sink: Sink) -> None:
            from jax.extend.mlir import ir

            from shardpass.mlir import argument_attributes, set_argument_attributes, with_entry
            from shardpass.mlir.entry import entry_function

            function = entry_function(root)
            said = ir.Attribute.parse('#sdy.sharding<@mesh, [{}, {"model"}]>', root.context)
            entries = argument_attributes(function)
            new = [with_entry(each, "sdy.sharding", said) for each in entries]
            set_argument_attributes(function, new)

    found = written(file, Model())
    (line,) = re.findall(r"func public @main\(.*", found.vjp().mlir_module())
    assert re.findall(r"sdy.sharding<@mesh, (.*?)>", line) == [
        '[{}, {"model"}]',
        '[{"data"}, {}]',
        '[{}, {"model"}]',
    ]
    np.testing.assert_allclose(slope(found, mesh_of(2, 4)), np.cos(X), rtol=1e-5)


def test_an_object_goes_along_when_asked() -> None:
    found = through(exported(), "sp-retarget{mesh=data=4,model=2}").exported()
    assert meshes(found.vjp()) == meshes(found)
    np.testing.assert_allclose(slope(found, mesh_of(4, 2)), np.cos(X), rtol=1e-5)


def test_a_gradient_that_says_nothing_goes_anywhere() -> None:
    plain = export.export(jax.jit(jnp.sin))(jax.ShapeDtypeStruct(X.shape, X.dtype))
    on_eight = through(bytes(plain.serialize(vjp_order=1)), "sp-retarget{mesh=data=8}")
    found = written(on_eight.to_bytes("exported"), "sp-retarget{mesh=data=4}")
    assert (found.nr_devices, found.vjp().nr_devices) == (4, 4)


def edited(source: Any) -> Module:
    """On another mesh of as many devices, by somebody who told nobody."""
    module = load(source, name="sine.exported")
    text = module.text().replace('"data"=2, "model"=4', '"data"=4, "model"=2')
    text = text.replace("size = 2", "size = 3").replace("size = 4", "size = 2")
    return dataclasses.replace(module, ir=load(text.replace("size = 3", "size = 4")).ir)


def test_one_that_contradicts_is_left_out_with_a_warning(file: bytes) -> None:
    lost: list[Diagnostic] = []
    found = read(edited(file).to_bytes("exported", warn=lost.append))
    assert not found.has_vjp()
    (warning,) = lost
    assert warning.message == (
        "sine.exported loses its gradient, whose program is for the mesh data=2, model=4 and not "
        "for data=4, model=2"
    )
    assert "export the function anew on the mesh" in (warning.help or "")


def test_one_that_contradicts_is_refused_when_asked_for() -> None:
    found = edited(exported()).exported()
    with pytest.raises(ShardingError, match="is for the mesh data=2, model=4 and not for data=4"):
        found.vjp()


def test_one_that_a_pass_refuses(file: bytes) -> None:
    """The reason stands in the warning."""
    axes_of_its_own = through(file, "sp-name-axes{mesh=a=2,b=4}")
    module = dataclasses.replace(load(file, name="sine.exported"), ir=axes_of_its_own.ir)
    again = run_pipeline(module, "sp-retarget{mesh=a=4,b=2}").module
    lost: list[Diagnostic] = []
    assert not read(again.to_bytes("exported", warn=lost.append)).has_vjp()
    (warning,) = lost
    assert "whose program cannot be brought to where the function is now" in warning.message
    assert "data" in warning.notes[0]


def test_the_other_notation_is_a_contradiction(file: bytes) -> None:
    in_gspmd = through(file, "sp-export-mhlo")
    module = dataclasses.replace(in_gspmd, changes=())
    lost: list[Diagnostic] = []
    assert not read(module.to_bytes("exported", warn=lost.append)).has_vjp()
    assert "is in Shardy's notation and not in GSPMD's" in lost[0].message
