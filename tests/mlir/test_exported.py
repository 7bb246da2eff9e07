"""``jax.export.Exported``: read without its classes, written back sharded, called by plain JAX."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.extend.mlir.dialects import stablehlo
from jax.sharding import AxisType, PartitionSpec

from shardpass.compat import exporting
from shardpass.diagnostics import Diagnostic, ShardingError
from shardpass.mlir import Module, load, portable, save
from shardpass.mlir.exported import Container
from shardpass.mlir.exported_file import is_exported, program_of
from shardpass.partition_rules import PartitionRules
from shardpass.passes import run_pipeline
from shardpass.sharding import P

W = jax.ShapeDtypeStruct((16, 8), "float32")
X = jax.ShapeDtypeStruct((4, 16), "float32")


def step(params: dict[str, jax.Array], x: jax.Array) -> Any:
    hidden = jnp.tanh(x @ params["w"])
    return {"out": hidden @ params["w"].T, "sum": hidden.sum()}, params


def exported(function: Callable[..., Any] = step, *shapes: Any, **options: Any) -> export.Exported:
    return export.export(jax.jit(function, **options))(*(shapes or ({"w": W}, X)))


def sharded(source: Any, pipeline: str = "sp-annotate,sp-propagate") -> Module:
    rules = PartitionRules(
        [(r"^x$", P("data")), (r"^params\.w$", P(None, "model"))], mesh={"data": 2, "model": 4}
    )
    return run_pipeline(load(source), pipeline, rules=rules).module


def specs(shardings: Sequence[Any]) -> list[PartitionSpec | None]:
    return [None if sharding is None else sharding.spec for sharding in shardings]


def mesh_of(each: export.Exported) -> jax.sharding.Mesh:
    found = next(s for s in each.in_shardings_jax(None) if s is not None).mesh
    return jax.make_mesh(found.axis_sizes, found.axis_names, axis_types=found.axis_types)


def called(each: export.Exported, *arguments: Any) -> Any:
    """What a call gives, its arguments placed as it wants them."""
    leaves, tree = jax.tree.flatten(arguments)
    wanted = each.in_shardings_jax(mesh_of(each))
    placed = [a if s is None else jax.device_put(a, s) for a, s in zip(leaves, wanted, strict=True)]
    return jax.jit(each.call)(*jax.tree.unflatten(tree, placed))


def drawn(*shapes: Any) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.standard_normal(shape.shape).astype(shape.dtype) for shape in shapes]


def assert_equal(found: Any, expected: Any) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=2e-5, atol=2e-5)


@pytest.fixture(scope="module")
def file() -> bytes:
    return bytes(exported(donate_argnums=0).serialize(vjp_order=2))


def test_a_file_is_known_by_its_content(file: bytes, tmp_path: Path) -> None:
    assert is_exported(file)
    (tmp_path / "step.txt").write_bytes(file)
    for source in (file, tmp_path / "step.txt", gzip.compress(file)):
        module = load(source)
        assert module.form == "exported"
        assert [value.path for value in module.arguments] == ["params.w", "x"]
        assert [v.path for v in module.results] == ["result.0.out", "result.0.sum", "result.1.w"]
    assert load(program_of(file, "step")).form == "portable"


def test_an_object_is_as_good_as_a_file() -> None:
    module = load(exported())
    assert (module.form, module.name) == ("exported", "<exported>")
    assert sharded(module).exported().nr_devices == 8


@pytest.mark.parametrize(
    ("pipeline", "names"),
    [
        ("sp-annotate,sp-propagate", ("data", "model")),
        ("sp-annotate,sp-propagate,sp-export-mhlo", ("_axis_0", "_axis_1")),
        # What leaves reshards behind, which XLA does not read.
        ("sp-annotate,sdy-propagation-pipeline", ("data", "model")),
    ],
)
def test_written_back_and_called(
    pipeline: str, names: tuple[str, str], file: bytes, tmp_path: Path
) -> None:
    """In either notation: sharded as annotated, with the numbers of the unsharded call."""
    module = sharded(file, pipeline)
    save(module, tmp_path / "sharded")
    written = export.deserialize(bytearray((tmp_path / "sharded").read_bytes()))
    assert written.nr_devices == 8
    assert specs(written.in_shardings_jax(None)) == [P(None, names[1]), P(names[0], None)]
    assert specs(written.out_shardings_jax(mesh_of(written)))[0] == P(names[0], None)
    w, x = drawn(W, X)
    found = called(written, {"w": w}, x)
    assert_equal(found, step({"w": w}, x))
    assert found[0]["out"].sharding.shard_shape((4, 16)) == (2, 16)
    assert found[1]["w"].sharding.shard_shape((16, 8)) == (16, 2)
    # And what was written reads as what was saved, finished for XLA.
    finished = run_pipeline(module, "sp-prepare-for-xla").module
    again = load(tmp_path / "sharded")
    assert again.text(debug_info=False) == finished.text(debug_info=False)


def test_everything_else_stays(file: bytes) -> None:
    before = export.deserialize(bytearray(file))
    after = export.deserialize(bytearray(sharded(file).to_bytes("exported")))
    changing = {
        "mlir_module_serialized",
        "nr_devices",
        "_in_named_shardings",
        "_out_named_shardings",
        "_get_vjp",
        "in_shardings_hlo",
        "out_shardings_hlo",
        "in_avals",  # JAX notes the sharding on these when it reads a file
        "out_avals",
    }
    for field in dataclasses.fields(before):
        if field.name not in changing:
            assert getattr(after, field.name) == getattr(before, field.name), field.name
    kinds = [(a.shape, a.dtype, a.weak_type) for a in before.in_avals + before.out_avals]
    assert [(a.shape, a.dtype, a.weak_type) for a in after.in_avals + after.out_avals] == kinds


def test_gradients_go_along(file: bytes) -> None:
    """Of every order that the file had, with the shardings of arguments and results."""
    after = export.deserialize(bytearray(sharded(file).to_bytes("exported")))
    gradient = after.vjp()
    assert gradient.nr_devices == 8
    inside = specs(after.in_shardings_jax(None))
    outside = [None if s is None else s.spec for s in exporting.named_shardings(after)[1]]
    assert specs(gradient.in_shardings_jax(None)) == inside + outside
    assert gradient.has_vjp()
    assert not gradient.vjp().has_vjp()
    w, x = drawn(W, X)

    def loss(params: Any, x: Any, of: Callable[..., Any]) -> Any:
        return (of(params, x)[0]["out"] ** 2).sum()

    mesh = mesh_of(after)
    wanted = after.in_shardings_jax(mesh)
    placed = [jax.device_put(array, wanted[index]) for index, array in enumerate((w, x))]
    found = jax.jit(jax.grad(lambda p, x: loss(p, x, after.call)))({"w": placed[0]}, placed[1])
    assert_equal(found, jax.grad(lambda p, x: loss(p, x, step))({"w": w}, x))
    assert found["w"].sharding.shard_shape((16, 8)) == (16, 2)


def test_the_gradient_of_an_object_is_made_when_asked_for() -> None:
    found = sharded(exported()).exported()
    gradient = found.vjp()
    assert gradient.nr_devices == 8
    assert specs(gradient.in_shardings_jax(None))[:2] == specs(found.in_shardings_jax(None))


def test_a_gradient_for_other_devices_is_lost_with_a_warning() -> None:
    on_eight = bytes(sharded(exported()).exported().serialize(vjp_order=1))
    text = load(on_eight).text().replace('"model"=4', '"model"=2').replace("size = 4", "size = 2")
    text = text.replace("num_partitions = 8", "num_partitions = 4")
    smaller = dataclasses.replace(load(on_eight), ir=load(text).ir)
    lost: list[Diagnostic] = []
    found = smaller.exported(warn=lost.append)
    assert found.nr_devices == 4
    assert not found.has_vjp()
    assert [each.message for each in lost] == [
        "<bytes> loses its gradient, whose program is for 8 devices and not for 4"
    ]


class State(NamedTuple):
    count: Any
    moments: Any


@pytest.fixture
def unknown_class() -> bytes:
    """A file with a named tuple that whoever reads it has never heard of."""
    export.register_namedtuple_serialization(State, serialized_name="elsewhere.State")

    def update(state: State, x: Any) -> State:
        return State(state.count + 1, state.moments + x)

    data = export.export(jax.jit(update))(State(jax.ShapeDtypeStruct((), "int32"), X), X)
    file = bytes(data.serialize())
    del exporting.classes_by_name["elsewhere.State"]
    del exporting.names_by_class[State]
    return file


def test_classes_that_are_not_known_here(unknown_class: bytes) -> None:
    """They are copied; whoever registers them afterwards has them back."""
    with pytest.raises(ValueError, match=r"unregistered type `elsewhere.State`"):
        export.deserialize(bytearray(unknown_class))
    rules = PartitionRules([(r"moments|^x$", P("data"))], mesh={"data": 4})
    module = run_pipeline(load(unknown_class), "sp-annotate,sp-propagate", rules=rules).module
    written = module.to_bytes("exported")
    assert "elsewhere.State" not in exporting.classes_by_name
    export.register_namedtuple_serialization(State, serialized_name="elsewhere.State")
    try:
        found = export.deserialize(bytearray(written))
    finally:
        del exporting.classes_by_name["elsewhere.State"]
        del exporting.names_by_class[State]
    assert found.in_tree == jax.tree.structure(((State(0, 0), 0), {}))
    assert specs(found.in_shardings_jax(None)) == [None, P("data", None), P("data", None)]
    x, moments = drawn(X, X)
    result = called(found, State(np.int32(2), moments), x)
    assert isinstance(result, State)
    assert_equal(result, State(3, moments + x))


@pytest.mark.parametrize(
    ("sharding", "constraint"),
    [
        ('[{"model":(1)2}, {}]', True),
        ('[{"data", ?}, {}]', True),
        ("[{}, {?}]", True),
        ("[{?}, {?}]", False),
    ],
)
def test_what_a_named_sharding_cannot_say(sharding: str, constraint: bool) -> None:
    """Parts of axes and open dimensions become constraints, once; what says nothing does not."""
    text = load(exported()).text()
    head, tail = text.split("module @jit_step", 1)
    place = tail.index("\n") + 1
    tail = tail[:place] + 'sdy.mesh @mesh = <["data"=2, "model"=4]>\n' + tail[place:]
    annotated = f"{{sdy.sharding = #sdy.sharding<@mesh, {sharding}>}} loc("
    tail = tail.replace("tensor<4x16xf32> loc(", f"tensor<4x16xf32> {annotated}", 1)
    module = dataclasses.replace(load(exported()), ir=load(head + "module @jit_step" + tail).ir)
    found = module.exported()
    assert specs(found.in_shardings_jax(None)) == [None, None]
    program = load(found.mlir_module_serialized).text(debug_info=False)
    assert program.count("sdy.sharding_constraint") == constraint
    assert program.count(f"sdy.sharding_constraint %arg1 <@mesh, {sharding}>") == constraint
    again = load(found).exported()
    assert load(again.mlir_module_serialized).text(debug_info=False) == program
    w, x = drawn(W, X)
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    here = jax.sharding.NamedSharding(mesh, PartitionSpec())
    placed = jax.device_put(({"w": w}, x), here)
    assert_equal(jax.jit(found.call)(*placed), step({"w": w}, x))


def test_tiles_that_no_mesh_has_become_constraints() -> None:
    text = load(exported()).text()
    for shape, tiles in (
        ("16x8", "[4,1,2]<=[8] last_tile_dim_replicate"),
        ("4x16", "[2,4]7,1,2,3,0,4,5,6"),
    ):
        text = text.replace(
            f"tensor<{shape}xf32> loc(",
            f'tensor<{shape}xf32> {{mhlo.sharding = "{{devices={tiles}}}"}} loc(',
            1,
        )
    module = dataclasses.replace(load(exported()), ir=load(text).ir)
    found = module.exported()
    assert found.nr_devices == 8
    assert specs(found.in_shardings_jax(None)) == [None, None]
    program = load(found.mlir_module_serialized).text(debug_info=False)
    assert program.count("stablehlo.custom_call @Sharding(%arg") == 2
    again = load(found).exported()
    assert load(again.mlir_module_serialized).text(debug_info=False) == program


def test_axis_types_and_kept_meshes() -> None:
    """A mesh that the function was exported with keeps its axis types, and its names under mhlo."""
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
    placed = jax.sharding.NamedSharding(mesh, PartitionSpec("data", None))
    given = export.export(jax.jit(lambda x: x * 2))(
        jax.ShapeDtypeStruct((4, 16), "float32", sharding=placed)
    )
    for pipeline in ("sp-verify", "sp-export-mhlo"):
        module = run_pipeline(load(bytes(given.serialize())), pipeline).module
        found = export.deserialize(bytearray(module.to_bytes("exported")))
        (one,) = found.in_shardings_jax(None)
        assert one.spec == PartitionSpec("data", None)
        assert one.mesh == mesh.abstract_mesh
        assert one.mesh.axis_types == (AxisType.Explicit,) * 2


def test_arguments_that_jax_dropped_and_keys() -> None:
    """Places are those of the function, not of its program; keys have their logical rank."""

    def draw(unused: Any, key: Any, x: Any) -> Any:
        return x + jax.random.normal(key[0], x.shape)

    key = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 4))
    given = bytes(export.export(jax.jit(draw))(W, key, X).serialize())
    rules = PartitionRules([(r"^x$", P("data")), (r"^key", P("data"))], mesh={"data": 4})
    module = run_pipeline(load(given), "sp-annotate,sp-propagate", rules=rules).module
    found = export.deserialize(bytearray(module.to_bytes("exported")))
    assert specs(found.in_shardings_jax(None)) == [None, P("data"), P("data", None)]
    keys = jax.random.split(jax.random.key(3), 4)
    w, x = drawn(W, X)
    assert_equal(called(found, w, keys, x), draw(w, keys, x))


def test_several_platforms() -> None:
    """Their index stands in front of the arguments."""
    given = export.export(jax.jit(step), platforms=["cpu", "tpu"])({"w": W}, X)
    found = sharded(bytes(given.serialize())).exported()
    assert specs(found.in_shardings_jax(None)) == [P(None, "model"), P("data", None)]
    w, x = drawn(W, X)
    assert_equal(called(found, {"w": w}, x), step({"w": w}, x))


def test_symbolic_shapes_pass_through() -> None:
    (batch,) = export.symbolic_shape("batch")
    given = export.export(jax.jit(lambda x: jnp.tanh(x) * 2))(
        jax.ShapeDtypeStruct((batch, 16), "float32")
    )
    found = export.deserialize(bytearray(load(bytes(given.serialize())).to_bytes("exported")))
    assert str(found.in_avals[0].shape) == "(batch, 16)"
    x = np.ones((3, 16), np.float32)
    assert_equal(found.call(x), np.tanh(x) * 2)


def refused(source: Any) -> ShardingError:
    with pytest.raises(ShardingError) as caught:
        load(source, name="step.exported").to_bytes("exported")
    return caught.value


def test_a_module_that_was_none() -> None:
    error = refused(jax.jit(step).lower({"w": W}, X))
    assert error.slug == "not-expressible"
    assert "it came from memory, without the pytrees" in str(error)
    assert "came as MLIR text" in str(refused(load(exported()).text()))


def test_collectives_for_reading_are_refused(file: bytes) -> None:
    """A file with them would load, and fail in XLA when it is called."""
    shown = sharded(file, "sp-annotate,sp-propagate,sp-explicit-collectives")
    with pytest.raises(ShardingError, match=r"Shardy's collectives \(sdy\.\w+\) are for reading"):
        shown.to_bytes("exported")
    assert b"sdy.all_reduce" in shown.to_bytes("text")


def test_another_signature(file: bytes) -> None:
    module = load(file, name="step.exported")
    for text, said in (
        (module.text().replace("tensor<4x", "tensor<2x"), 'argument 1 ("x") is tensor<2x16xf32>'),
        ("func.func @main() { return }", "the program has 0 arguments"),
    ):
        changed = dataclasses.replace(module, ir=load(text).ir)
        with pytest.raises(ShardingError) as caught:
            changed.exported()
        assert caught.value.slug == "not-expressible"
        assert said in str(caught.value)


def test_cut_short_at_every_place(file: bytes) -> None:
    """One message, that says what it is; no crash, and nothing else that it could be taken for."""
    start = file.index(b"StableHLO_v")
    for end in [*range(400, start, 997), start + 20, start + 200]:
        error = refused(file[:end])
        assert error.slug == "unreadable", end
        assert "a serialized jax.export.Exported that is cut short" in str(error)


def test_what_only_the_newest_stablehlo_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the version for JAX cannot hold a program, the newest one does, and nothing is lost."""
    text = """func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.abs %a : tensor<4xf32>
      %1 = stablehlo.custom_call @f(%0) {backend_config = {b = 1 : i32}, api_version = 4 : i32}
        : (tensor<4xf32>) -> tensor<4xf32>
      return %1 : tensor<4xf32>
    }"""
    newest = portable.write(load(text).ir, stablehlo.get_current_version(), "a")
    for least in (stablehlo.get_minimum_version(), stablehlo.get_current_version()):
        monkeypatch.setattr(
            stablehlo, "get_version_from_compatibility_requirement", lambda _, v=least: v
        )
        module = load(text).ir
        assert Container(b"", "a")._portable(module) == newest  # pyright: ignore[reportPrivateUsage]


def test_damaged_around_the_program(file: bytes) -> None:
    """The program can be used still."""
    name = file.rindex(b"step")
    damaged = file[:name] + b"\xff\xff\xff\xff" + file[name + 4 :]
    assert [value.path for value in load(damaged).arguments] == ["params.w", "x"]
    error = refused(damaged)
    assert error.slug == "unreadable"
    assert "that JAX cannot read: " in str(error)


def test_without_flatbuffers(file: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading does not need it, and writing says so."""
    monkeypatch.setitem(sys.modules, "jax._src.export.serialization", None)
    assert load(file).form == "exported"
    error = refused(file)
    assert (error.slug, error.diagnostic.help) == ("unreadable", "pip install flatbuffers")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(64),
        b"\x04\x00\x00\x00" + bytes(60),
        b"\xff" * 200,
        b"\x20\x00\x00\x00" + b"\x10\x00" * 100,
        bytes(range(256)) * 4,
    ],
)
def test_what_is_no_flatbuffer_of_this_kind(data: bytes) -> None:
    assert not is_exported(data)


def test_what_jax_exported_long_ago() -> None:
    """Read by every JAX, written back by those that still read the rest of it."""
    text = Path(__file__).with_name("exported_by_jax_0_4_38.b64").read_bytes()
    file = base64.b64decode(text)
    module = load(file, name="old.exported")
    assert module.form == "exported"
    assert [value.path for value in module.arguments] == ["p.w", "x"]
    rules = PartitionRules([(r"^x$", P("data"))], mesh={"data": 4})
    result = run_pipeline(module, "sp-annotate,sp-propagate", rules=rules).module
    assert load(result.to_bytes("portable")).form == "portable"
    if not is_read_by_jax(file):
        with pytest.raises(ShardingError, match="older than the 6-month") as caught:
            result.exported()
        assert caught.value.slug == "unreadable"
        assert "its program can be used still" in str(caught.value)
        return
    found = result.exported()
    assert specs(found.in_shardings_jax(None)) == [None, P("data", None)]
    w, x = drawn(W, X)
    assert_equal(called(found, {"w": w}, x), step({"w": w}, x))


def is_read_by_jax(file: bytes) -> bool:
    try:
        export.deserialize(bytearray(file))
    except ValueError:
        return False
    return True
