"""Which partitioner compiles what, what is refused beforehand, and where results come to lie."""

from __future__ import annotations

import re
from collections.abc import Callable

import jax
import numpy as np
import pytest

from shardpass.diagnostics import ShardingError
from shardpass.mlir import Module, load
from shardpass.runtime import compile_module, run

ROWS = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"
COLUMNS = "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}"


def mhlo(a: str = ROWS, b: str = COLUMNS, result: str = "", body: str = "") -> Module:
    said = f' {{mhlo.sharding = "{result}"}}' if result else ""
    return load(
        f"""module @m {{
  func.func @main(%a: tensor<8x16xf32> {{mhlo.sharding = "{a}"}},
                  %b: tensor<16x32xf32> {{mhlo.sharding = "{b}"}}) -> (tensor<8x32xf32>{said}) {{
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>{body}
    return %0 : tensor<8x32xf32>
  }}
}}"""
    )


def refusal(module: Module, **options: object) -> ShardingError:
    with pytest.raises(ShardingError) as caught:
        compile_module(module, **options)
    return caught.value


class TestPartitioner:
    def test_shardy_for_its_own_notation(self, layer: Callable[..., Module]):
        executable = compile_module(layer())
        assert executable.partitioner == "shardy"
        assert len(executable.devices) == 8
        assert [str(x.sharding) for x in executable.argument_layouts] == [ROWS, COLUMNS]
        assert [str(x.sharding) for x in executable.result_layouts] == ["{devices=[2,4]<=[8]}"]

    def test_gspmd_for_mhlo_sharding_without_gathering_the_result(self):
        executable = compile_module(mhlo())
        assert executable.partitioner == "gspmd"
        assert [str(x.sharding) for x in executable.argument_layouts] == [ROWS, COLUMNS]
        assert [str(x.sharding) for x in executable.result_layouts] == ["{devices=[2,4]<=[8]}"]
        assert "all-gather" not in executable.hlo_text

    def test_a_result_that_is_annotated_is_left_there(self):
        executable = compile_module(mhlo(result=ROWS))
        assert [str(x.sharding) for x in executable.result_layouts] == [ROWS]

    def test_either_where_nothing_is_annotated(self):
        text = "func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> { return %a : tensor<8xf32> }"
        assert compile_module(load(text), devices=8).partitioner == "shardy"
        assert compile_module(load(text), devices=8, partitioner="gspmd").partitioner == "gspmd"
        assert compile_module(load(text)).partitioner is None

    @pytest.mark.parametrize("devices", [None, 8])
    def test_mhlo_sharding_under_shardy_is_refused(self, devices: int | None):
        """XLA aborts the process here on jaxlib 0.12.0.1, and ignores the text on 0.10.2."""
        error = refusal(mhlo(), devices=devices, partitioner="shardy")
        assert error.slug == "partitioner"
        assert "argument 0 of @main has mhlo.sharding" in str(error)

    def test_shardys_notation_under_gspmd_is_refused(self, layer: Callable[..., Module]):
        error = refusal(layer(), partitioner="gspmd")
        assert error.slug == "partitioner"
        assert "sp-export-mhlo" in str(error)

    def test_both_notations_are_refused(self):
        module = mhlo()
        text = module.text().replace(
            "return", "sdy.sharding_group %0 group_id=1 : tensor<8x32xf32>\n    return"
        )
        error = refusal(load(text))
        assert error.slug == "partitioner"
        assert error.diagnostic.notes == (
            "there is an sdy.sharding_group",
            "argument 0 of @main has mhlo.sharding",
        )

    def test_an_unknown_partitioner(self, layer: Callable[..., Module]):
        assert refusal(layer(), partitioner="shardly").slug == "partitioner"


class TestRefusedBeforehand:
    @pytest.mark.parametrize(
        ("text", "slug"),
        [
            ("{devices=[banana", "syntax"),
            ("{devices=[2,4]<=[8]} and more", "trailing-text"),
            ("{devices=[8]<=[8]}", "rank-mismatch"),
            ("{devices=[2,2]<=[4]}", "device-count"),
            ("{devices=[2,1,4]0,1,2,3,4,5,6,6 last_tile_dim_replicate}", "duplicate-device"),
        ],
    )
    def test_texts_that_xla_would_ignore_or_trip_over(self, text: str, slug: str):
        error = refusal(mhlo(a=text), devices=8)
        assert error.slug == slug
        assert error.diagnostic.message.startswith('argument 0 ("arg0")')

    @pytest.mark.parametrize(
        "text",
        [
            "{unreduced}",
            "{manual}",
            "{maximal device=0}",
            "{devices=[2,1,4]<=[8] last_tile_dims={manual}}",
            "{devices=[2,1,4]<=[8] last_tile_dims={unreduced}}",
        ],
    )
    def test_layouts_that_no_array_outside_has(self, text: str):
        """XLA ends the process over some of them, unreduced ones and manual subgroups."""
        for module, named in (
            (mhlo(a=text), 'argument 0 ("arg0")'),
            (mhlo(result=text), 'result 0 ("result")'),
        ):
            error = refusal(module, devices=8)
            assert error.slug == "not-supported"
            assert error.diagnostic.message == f"{named} is laid out as {text}"

    @pytest.mark.parametrize("sharding", ['<@mesh, [{"x"}, {}], unreduced={"y"}>', "<@one, []>"])
    def test_such_layouts_in_shardys_notation(self, layer: Callable[..., Module], sharding: str):
        text = layer().text().replace('<@mesh, [{"x"}, {}]>', sharding)
        text = text.replace("  sdy.mesh", "  sdy.mesh @one = <[], device_ids=[3]>\n  sdy.mesh", 1)
        error = refusal(load(text), devices=8)
        assert error.slug == "not-supported"
        assert error.diagnostic.path == "arg0"
        assert error.diagnostic.message.startswith('argument 0 ("arg0") is laid out as #sdy.')

    def test_one_device_of_one_may_be_named(self):
        assert (
            len(compile_module(mhlo("{maximal device=0}", "{replicated}"), devices=1).devices) == 1
        )

    def test_a_module_for_another_number_of_partitions(self):
        text = mhlo().text().replace("@m {", "@m attributes {mhlo.num_partitions = 4 : i32} {")
        error = refusal(load(text), devices=8)
        assert error.slug == "device-count"
        assert "mhlo.num_partitions = 4, the run has 8 devices" in error.diagnostic.message

    def test_every_bad_text_at_once(self):
        error = refusal(mhlo("{devices=[banana", "{devices=[8]<=[8]}", "{nonsense}"), devices=8)
        assert [d.path for d in error.diagnostics] == ["arg0", "arg1", "result"]

    def test_a_mesh_of_another_size(self, layer: Callable[..., Module]):
        error = refusal(layer(), devices=4)
        assert error.slug == "device-count"
        assert "mesh @mesh (x=2, y=4) has 8 devices, the run has 4" in str(error)

    def test_more_devices_than_there_are(self, layer: Callable[..., Module]):
        module = load(layer().text().replace('"x"=2', '"x"=4'))
        error = refusal(module)
        assert error.slug == "not-enough-devices"
        assert "XLA_FLAGS=--xla_force_host_platform_device_count=16" in str(error)

    def test_dynamic_shapes(self):
        text = "func.func @main(%a: tensor<?xf32>) -> tensor<?xf32> { return %a : tensor<?xf32> }"
        error = refusal(load(text), devices=8)
        assert [d.slug for d in error.diagnostics] == ["dynamic-shape", "dynamic-shape"]

    def test_host_callbacks(self):
        lowered = jax.jit(lambda x: jax.debug.print("{}", x) or x).lower(np.float32(1))
        error = refusal(load(lowered))
        assert error.slug == "not-supported"
        assert "calls back into the Python process" in str(error)

    def test_replicas(self):
        text = """module attributes {mhlo.num_replicas = 2 : i32} {
  func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
    return %a : tensor<8xf32>
  }
}"""
        assert refusal(load(text), devices=8).slug == "not-supported"

    def test_what_xla_refuses_is_told_in_one_sentence(self):
        text = """func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.custom_call @nobody_knows_me(%a) : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}"""
        error = refusal(load(text))
        assert error.slug == "compile-failed"
        assert "nobody_knows_me" in str(error)


def test_uneven_arguments_are_padded_under_gspmd():
    tiles = "{devices=[4,1,2]<=[8] last_tile_dim_replicate}"
    executable = compile_module(
        load(
            f"""func.func @main(%a: tensor<19x2xf32> {{mhlo.sharding = "{tiles}"}})
                    -> (tensor<19x2xf32> {{mhlo.sharding = "{tiles}"}}) {{
                  %0 = stablehlo.add %a, %a : tensor<19x2xf32>
                  return %0 : tensor<19x2xf32>
                }}"""
        )
    )
    assert executable.argument_layouts[0].padded_shape == (20, 2)
    array = np.arange(38, dtype=np.float32).reshape(19, 2)
    (blocks,) = executable.execute([executable.place(0, array)])
    assert [block.shape for block in blocks] == [(5, 2)] * 6 + [(4, 2)] * 2
    joined = executable.result_layouts[0].join([np.asarray(block) for block in blocks])
    np.testing.assert_array_equal(joined, array + array)


def test_memory_figures_are_for_one_device(layer: Callable[..., Module]):
    stats = compile_module(layer()).memory_stats
    assert stats.argument_size_in_bytes == 4 * (4 * 16 + 16 * 8)
    assert stats.output_size_in_bytes == 4 * 4 * 8


def test_hlo_text_is_the_per_device_program(layer: Callable[..., Module]):
    text = compile_module(layer(result="[{}, {}]")).hlo_text
    assert "num_partitions=8" in text
    assert re.search(r"all-gather", text)


def test_an_entry_function_of_another_name(layer: Callable[..., Module]):
    module = load(layer().text().replace("@main", "@forward"))
    assert compile_module(module).result_layouts[0].shard_shape == (4, 8)
    assert "@forward" in module.text()


def test_devices_may_be_named(layer: Callable[..., Module]):
    backwards = jax.devices()[::-1]
    executable = compile_module(layer(), devices=backwards)
    assert executable.devices == tuple(backwards)
    rng = np.random.default_rng(0)
    a, w = rng.standard_normal((8, 16), np.float32), rng.standard_normal((16, 32), np.float32)
    placed = [executable.place(0, a), executable.place(1, w)]
    # The mesh's first device is the last of the client's, and holds the first block.
    (first,) = [s.data for s in placed[1].addressable_shards if s.device == backwards[0]]
    np.testing.assert_array_equal(np.asarray(first), w[:, :8])
    (blocks,) = executable.execute(placed)
    assert [block.device for block in blocks] == backwards
    joined = executable.result_layouts[0].join([np.asarray(block) for block in blocks])
    np.testing.assert_allclose(joined, a @ w, rtol=1e-5, atol=1e-5)
    assert refusal(layer(), devices=[jax.devices()[0]] * 8).slug == "duplicate-device"


def test_a_part_of_the_devices_from_the_end():
    """One device that is not the first, and two of eight."""
    text = "func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> { return %a : tensor<8xf32> }"
    for devices in (jax.devices()[5:6], jax.devices()[6:8]):
        executable = compile_module(load(text), devices=devices)
        (blocks,) = executable.execute([executable.place(0, np.arange(8, dtype=np.float32))])
        assert [block.device for block in blocks] == devices
        np.testing.assert_array_equal(np.asarray(blocks[0]), np.arange(8))


@pytest.mark.parametrize("devices", [1, 8])
def test_a_program_without_results(devices: int):
    module = load("func.func @main(%a: tensor<8xf32>) { return }")
    executable = compile_module(module, devices=devices)
    assert executable.result_layouts == ()
    assert executable.execute([executable.place(0, np.zeros(8, np.float32))]) == []
    assert run(module, devices=devices).rows == ()
