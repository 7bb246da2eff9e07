"""Running a module once."""

from __future__ import annotations

import io
import json
import os
import stat
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardpass.diagnostics import ShardingError
from shardpass.mlir import Module, load
from shardpass.runtime import input_source, run
from shardpass.runtime.npz import NpzWriter


def test_results_and_where_they_lay(layer: Callable[..., Module]):
    module = layer()
    result = run(module)
    source = input_source(module)
    (row,) = result.rows
    assert (row.path, row.shape, row.dtype) == ("result", (8, 32), "float32")
    assert (row.sharding, row.shard_shape) == ("{devices=[2,4]<=[8]}", (4, 8))
    expected = source.array(0) @ source.array(1)
    np.testing.assert_allclose(result.arrays[0], expected, rtol=1e-5, atol=1e-6)
    assert row.norm == pytest.approx(np.linalg.norm(expected), rel=1e-6)
    assert json.loads(json.dumps(result.to_json()))["devices"] == 8


@pytest.mark.parametrize("notation", ["sdy", "mhlo"])
def test_donated_state_can_be_run_again(step: Callable[..., Module], notation: str):
    """The user's arrays are not what is given away."""
    module = step(notation)
    source = input_source(module)
    inputs = [source.array(index) for index in range(len(module.arguments))]
    before = [array.copy() for array in inputs]
    first, second = run(module, inputs=inputs), run(module, inputs=inputs)
    for one, other in zip(first.arrays, second.arrays, strict=True):
        np.testing.assert_array_equal(one, other)
    for array, kept in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(array, kept)


def test_an_npz_in_and_an_npz_out(layer: Callable[..., Module], tmp_path: Path):
    a = np.arange(128, dtype=np.float32).reshape(8, 16)
    w = np.eye(16, 32, dtype=np.float32)
    np.savez(tmp_path / "in.npz", arg0=a, arg1=w)
    result = run(layer(), inputs=tmp_path / "in.npz", save=tmp_path / "out.npz", keep=False)
    assert result.arrays == ()
    with np.load(tmp_path / "out.npz", allow_pickle=False) as written:
        np.testing.assert_array_equal(written["result"], a @ w)
    assert sorted(os.listdir(tmp_path)) == ["in.npz", "out.npz"]


def test_an_npz_into_a_pipe(layer: Callable[..., Module], tmp_path: Path):
    """The pipe is written to, and is a pipe afterwards."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    result = run(layer(), save=pipe)
    reader.join(10)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    with np.load(io.BytesIO(read[0]), allow_pickle=False) as written:
        np.testing.assert_array_equal(written["result"], result.arrays[0])


def test_an_npz_through_a_link_keeps_the_mode(layer: Callable[..., Module], tmp_path: Path):
    target = tmp_path / "target"
    target.write_bytes(b"old")
    target.chmod(0o604)
    (tmp_path / "link.npz").symlink_to("target")
    run(layer(), save=tmp_path / "link.npz", keep=False)
    assert (tmp_path / "link.npz").is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o604
    assert zipfile.is_zipfile(target)


def test_a_failure_between_two_arrays_leaves_the_old_file(tmp_path: Path):
    target = tmp_path / "out.npz"
    target.write_bytes(b"old")

    def fail() -> None:
        with NpzWriter(target) as writer:
            writer.write("a", np.zeros(3))
            raise KeyError("second")

    with pytest.raises(KeyError, match="second"):
        fail()
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out.npz"]


def test_no_results_are_an_empty_archive(tmp_path: Path):
    run("func.func @main() { return }\n", save=tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz", allow_pickle=False) as written:
        assert list(written) == []


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "bool", "complex64"]
)
def test_saved_results_are_inputs_again(dtype: str, tmp_path: Path):
    lowered = jax.jit(lambda result: result[::-1]).lower(
        jax.ShapeDtypeStruct((8, 2), jnp.dtype(dtype))
    )
    module = load(lowered.as_text(debug_info=True))
    first = run(module, devices=1, save=tmp_path / "r.npz").arrays[0]
    assert first.tobytes() != first[::-1].tobytes()
    again = run(module, devices=1, inputs=tmp_path / "r.npz").arrays[0]
    assert again.dtype == jnp.dtype(dtype)
    assert again.tobytes() == first[::-1].tobytes()


def test_a_folder_that_does_not_exist(layer: Callable[..., Module], tmp_path: Path):
    with pytest.raises(ShardingError) as caught:
        run(layer(), save=tmp_path / "no" / "out.npz")
    assert caught.value.slug == "unwritable"


def test_typed_keys_in_and_out():
    def program(key, keys):
        return jax.random.normal(key, (4,)), jax.random.split(keys[1], 2), keys

    key, keys = jax.random.key(3), jax.random.split(jax.random.key(4), 3)
    module = load(jax.jit(program).lower(key, keys).as_text(debug_info=True))
    result = run(module, devices=8, inputs=[key, keys])
    drawn, split, same = jax.jit(program)(key, keys)
    np.testing.assert_array_equal(result.arrays[0], drawn)
    np.testing.assert_array_equal(result.arrays[1], jax.random.key_data(split))
    np.testing.assert_array_equal(result.arrays[2], jax.random.key_data(same))


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int4", "bool", "float64"])
def test_element_types(dtype: str):
    with jax.enable_x64(True):
        lowered = jax.jit(lambda x: x[::-1]).lower(jax.ShapeDtypeStruct((8, 2), jnp.dtype(dtype)))
    module = load(lowered.as_text(debug_info=True))
    result = run(module, devices=8)
    np.testing.assert_array_equal(result.arrays[0], input_source(module).array(0)[::-1])
