"""The user's arrays, and made-up ones that a program can do something with."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardpass.diagnostics import ShardingError
from shardpass.mlir import Module, load
from shardpass.runtime import input_source
from shardpass.runtime.demands import ArgumentDemands, demands_of
from shardpass.runtime.moved import MovedInputs, narrowest_mantissa


def lower(function: Callable[..., object], *arguments: object) -> Module:
    """``function`` for ``arguments``, with the names of its parameters."""
    lowered = jax.jit(function, keep_unused=True).lower(*arguments)
    return load(lowered.as_text(debug_info=True))


def array(*shape: int, dtype: object = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def demanded(function: Callable[..., object], *arguments: object) -> dict[str, ArgumentDemands]:
    module = lower(function, *arguments)
    paths = [argument.path for argument in module.arguments]
    return dict(zip(paths, demands_of(module.root), strict=True))


TOKENS = array(4, 7, dtype=jnp.int32)


class TestIndices:
    def test_a_gather(self):
        found = demanded(lambda table, tokens: table[tokens], array(50, 8), TOKENS)
        assert found["tokens"].below == 50
        assert found["table"].below is None

    def test_one_hot(self):
        found = demanded(lambda labels: jax.nn.one_hot(labels, 11), TOKENS)
        assert found["labels"].below == 11

    def test_a_length_against_positions(self):
        found = demanded(lambda n: jnp.arange(9) < n, array(dtype=jnp.int32))
        assert found["n"].below == 9

    def test_positions_in_a_constant(self):
        positions = np.arange(6)[None, :]
        found = demanded(lambda n: n[:, None] == positions, array(4, dtype=jnp.int32))
        assert found["n"].below == 6

    def test_the_start_of_a_slice(self):
        found = demanded(
            lambda x, i: jax.lax.dynamic_slice(x, (i, 0), (3, 8)),
            array(10, 8),
            array(dtype=jnp.int32),
        )
        assert found["i"].below == 8

    def test_where_an_update_goes(self):
        found = demanded(
            lambda x, u, i: jax.lax.dynamic_update_slice(x, u, (i,)),
            array(10),
            array(4),
            array(dtype=jnp.int32),
        )
        assert found["i"].below == 7

    def test_a_scatter(self):
        found = demanded(lambda x, i: x.at[i].add(1.0), array(12, 3), array(5, dtype=jnp.int32))
        assert found["i"].below == 12

    def test_each_index_of_several_has_its_own_limit(self):
        found = demanded(lambda x, i, j: x[i, j], array(30, 6), *[array(5, dtype=jnp.int32)] * 2)
        assert (found["i"].below, found["j"].below) == (30, 6)

    def test_take_along_axis(self):
        found = demanded(
            lambda x, i: jnp.take_along_axis(x, i[:, None], axis=1),
            array(4, 13),
            array(4, dtype=jnp.int32),
        )
        assert found["i"].below == 13

    def test_through_a_loop_a_branch_and_a_function(self):
        @jax.jit
        def look_up(table, row):
            return table[row]

        def program(table, tokens, flag):
            def body(carry, row):
                here = jax.lax.cond(flag, lambda r: look_up(table, r), lambda r: table[r] * 2, row)
                return carry + here.sum(), here

            return jax.lax.scan(body, 0.0, tokens)

        found = demanded(program, array(21, 8), TOKENS, array(dtype=jnp.bool_))
        assert found["tokens"].below == 21

    def test_through_reshapes_conversions_and_parts(self):
        def program(table, tokens):
            flat = tokens.reshape(-1)[2:20].astype(jnp.int32)
            return table[jnp.concatenate([flat, flat])]

        found = demanded(program, array(17, 8), array(4, 7, dtype=jnp.int16))
        assert found["tokens"].below == 17

    def test_values_stay_in_range(self):
        module = lower(
            lambda table, tokens: table[tokens], array(50, 8), array(1000, dtype="int32")
        )
        values = input_source(module).array(1)
        assert (values.min(), values.max()) == (0, 49)


class TestFloats:
    def test_what_has_to_be_positive(self):
        def program(a, b, c, d, e, f, g):
            return (
                jnp.sqrt(a), jax.lax.rsqrt(b + 1e-6), jnp.log(c), d / e, jnp.log1p(-f), g ** 0.3
            )  # fmt: skip

        found = demanded(program, *[array(4)] * 7)
        positive = {name for name, demand in found.items() if demand.positive}
        assert positive == {"a", "b", "c", "e", "g"}

    def test_values_below_one(self):
        found = demanded(lambda p: jnp.log(1 - p) + jnp.log(p), array(64))
        assert found["p"] == ArgumentDemands(positive=True, unit=True)
        module = lower(lambda p: jnp.log(1 - p), array(64))
        values = input_source(module).array(0)
        assert 0 < values.min() < values.max() < 1

    def test_a_square_demands_nothing(self):
        found = demanded(lambda x: jnp.sqrt((x * x).sum() + 1e-6), array(4))
        assert found["x"].positive is False

    def test_matrices_are_scaled_by_what_a_product_sums_up(self):
        found = demanded(lambda x, w: jnp.tanh(x @ w) @ w.T, array(4, 256), array(256, 64))
        assert (found["x"].terms, found["w"].terms) == (256, 256)
        module = lower(lambda x, w: x @ w, array(4, 256), array(256, 64))
        values = input_source(module).array(1)
        assert np.std(values) == pytest.approx(1 / 16, rel=0.05)

    def test_moments_are_small_beside_gradients(self):
        def adam(weights, mu, nu, x):
            gradient = jax.grad(lambda w: jnp.square(x @ w).mean())(weights)
            mu = 0.9 * mu + 0.1 * gradient
            nu = 0.99 * nu + 0.01 * gradient**2
            return weights - 0.1 * mu / (jnp.sqrt(nu) + 1e-8), mu, nu

        found = demanded(adam, *[array(8, 8)] * 3, array(4, 8))
        assert {name for name, demand in found.items() if demand.decayed} == {"mu", "nu"}
        source = input_source(lower(adam, *[array(8, 8)] * 3, array(4, 8)))
        assert 1e-5 < np.abs(source.array(1)).mean() < 1e-3
        assert 5e-9 <= source.array(2).min() <= source.array(2).max() <= 1.5e-8

    def test_a_bias_that_decays_is_no_moment(self):
        def program(x, bias):
            return x + bias, bias - 0.1 * (x.sum(0) + 0.01 * bias)

        assert demanded(program, array(4, 8), array(8))["bias"].decayed is False

    def test_deep_networks_stay_finite(self):
        def program(x, weights):
            return jax.lax.scan(lambda c, w: (jax.nn.relu(c @ w) * 1.4, None), x, weights)[0]

        module = lower(program, array(4, 64), array(100, 64, 64))
        source = input_source(module)
        value = program(source.array(0), source.array(1))
        assert 1e-6 < float(jnp.abs(value).max()) < 1e6


class TestOthers:
    def test_counters_keys_masks_and_the_rest(self):
        def program(step, key, mask, counts, bits):
            return step + 1, jax.random.normal(key, (3,)), ~mask, counts * 2, bits ^ 1

        module = lower(
            program,
            array(dtype=jnp.int32),
            jax.random.key(0),
            array(1000, dtype=jnp.bool_),
            array(1000, dtype=jnp.int32),
            array(1000, dtype=jnp.uint8),
        )
        source = input_source(module)
        step, key, mask, counts, bits = (source.array(index) for index in range(5))
        assert 1 <= step <= 5
        assert (key.shape, key.dtype) == ((2,), np.uint32)
        assert 0.6 < mask.mean() < 0.9
        assert (counts.min(), counts.max()) == (1, 100)
        assert (bits.min(), bits.max()) == (0, 255)

    @pytest.mark.parametrize(
        "dtype", ["bfloat16", "float16", "float8_e4m3fn", "float64", "complex64", "int4", "uint64"]
    )
    def test_every_element_type(self, dtype: str):
        with jax.enable_x64(True):
            module = lower(lambda x: x, array(16, dtype=dtype))
        value = input_source(module).array(0)
        assert value.dtype == np.dtype(dtype)
        assert len(set(value.astype(np.complex128).tolist())) > 4

    def test_seeds(self):
        module = lower(lambda x, y: x + y, array(64), array(64))
        first, again, other = (input_source(module, seed=seed) for seed in (1, 1, 2))
        np.testing.assert_array_equal(first.array(0), again.array(0))
        assert not np.array_equal(first.array(0), other.array(0))
        assert not np.array_equal(first.array(0), first.array(1))


def two() -> Module:
    return lower(
        lambda params, n: (params["w"] * 2, n),
        {"w": array(4, 3, dtype=jnp.bfloat16)},
        array(2, dtype=jnp.int32),
    )


W = np.arange(12, dtype=np.float32).reshape(4, 3).astype(jnp.bfloat16)
N = np.array([3, 4], np.int32)


class TestNpz:
    def save(self, path: Path, **arrays: np.ndarray) -> Path:
        np.savez(path, **arrays)
        return path

    @pytest.mark.parametrize(
        ("w", "n"), [("params.w", "n"), ("params['w']", "n"), ("arg0", "1"), ("arr_0", "arr_1")]
    )
    def test_names(self, tmp_path: Path, w: str, n: str):
        source = input_source(two(), self.save(tmp_path / "in.npz", **{w: W, n: N}))
        assert source.array(0).dtype == jnp.bfloat16
        np.testing.assert_array_equal(source.array(0), W)
        np.testing.assert_array_equal(source.array(1), N)

    def test_every_fault_has_its_own_message(self, tmp_path: Path):
        path = self.save(
            tmp_path / "in.npz",
            **{"params.w": np.zeros((3, 4), np.float32), "m": N.astype(np.int64)},
        )
        with pytest.raises(ShardingError) as caught:
            input_source(two(), path)
        assert {d.slug for d in caught.value.diagnostics} == {"bad-inputs"}
        told = [d.message.replace(f"{path}", "in.npz") for d in caught.value.diagnostics]
        assert told == [
            'in.npz: "params.w" has shape [3, 4], argument 0 ("params.w") needs [4, 3]',
            'in.npz: "params.w" holds float32, argument 0 ("params.w") needs bfloat16',
            'in.npz has no value for argument 1 ("n")',
            'in.npz has "m", which is no argument',
        ]

    def test_a_mapping_is_named(self):
        with pytest.raises(ShardingError) as caught:
            input_source(two(), {})
        assert caught.value.diagnostic.message == (
            'the mapping of inputs has no value for argument 0 ("params.w")'
        )

    def test_pickles_are_never_loaded(self, tmp_path: Path):
        class Bomb:
            def __reduce__(self):
                return (pytest.fail, ("unpickled",))

        path = tmp_path / "in.npz"
        np.savez(path, n=np.array([Bomb()], object), allow_pickle=True)
        with pytest.raises(ShardingError, match="never loaded") as caught:
            input_source(two(), path)
        assert caught.value.slug == "bad-inputs"

    @pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and then nothing", pickle.dumps([1])])
    def test_files_that_are_no_npz(self, tmp_path: Path, content: bytes):
        path = tmp_path / "in.npz"
        path.write_bytes(content)
        with pytest.raises(ShardingError, match=r"is not an \.npz file") as caught:
            input_source(two(), path)
        assert caught.value.slug == "unreadable"

    def test_a_member_cut_short(self, tmp_path: Path):
        path = tmp_path / "in.npz"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("n.npy", b"\x93NUMPY\x01\x00")
        with pytest.raises(ShardingError) as caught:
            input_source(two(), path)
        assert caught.value.slug == "unreadable"

    def test_a_file_that_is_not_there(self, tmp_path: Path):
        with pytest.raises(ShardingError, match="No such file") as caught:
            input_source(two(), tmp_path / "in.npz")
        assert caught.value.slug == "unreadable"


class TestGiven:
    def test_a_mapping_and_a_sequence(self):
        for given in ({"params.w": W, "n": N}, [W, N]):
            np.testing.assert_array_equal(input_source(two(), given).array(1), N)

    def test_scalars_stay_scalars(self):
        module = lower(lambda x, n: x * n, array(4), array(dtype=jnp.int32))
        given = input_source(module, [np.ones(4, np.float32), np.int32(3)])
        assert given.array(1).shape == ()
        assert MovedInputs(given, 0).array(1).shape == ()
        assert (
            MovedInputs(input_source(lower(jnp.sin, array()), [np.float32(2)]), 0).array(0).shape
            == ()
        )

    def test_too_few(self):
        with pytest.raises(ShardingError, match="1 arrays given for 2 arguments"):
            input_source(two(), [W])

    def test_typed_keys_are_taken_as_their_bits(self):
        module = lower(lambda keys: jax.random.bits(keys[0], (2,)), jax.random.split(
            jax.random.key(3), 4))  # fmt: skip
        keys = jax.random.split(jax.random.key(7), 4)
        source = input_source(module, {"keys": keys})
        np.testing.assert_array_equal(source.array(0), jax.random.key_data(keys))


class TestMovedByOneUnit:
    def moved(self, values: np.ndarray, bits: int | None = None) -> np.ndarray:
        source = input_source(lower(lambda x: x, values), [values])
        return MovedInputs(source, 0, bits).array(0)

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8_e4m3fn"])
    def test_to_the_next_number_up_or_down(self, dtype: str):
        values = np.linspace(-2, 2, 41, dtype=np.float32).astype(dtype)
        moved = self.moved(values)
        up = np.nextafter(values, np.array(np.inf).astype(dtype))
        down = np.nextafter(values, np.array(-np.inf).astype(dtype))
        if not np.isfinite(up.astype(np.float32)).all():  # float8_e4m3fn has no infinity.
            up = np.nextafter(values, np.array(448.0).astype(dtype))
            down = np.nextafter(values, np.array(-448.0).astype(dtype))
        changed = values != 0
        assert ((moved == up) | (moved == down))[changed].all()
        assert {True, False} == set((moved == up)[changed].tolist())
        assert (moved == values)[~changed].all()

    def test_what_is_not_a_float_stays(self):
        values = np.arange(8, dtype=np.int32)
        np.testing.assert_array_equal(self.moved(values), values)

    def test_infinities_stay(self):
        values = np.array([np.inf, -np.inf, 1.0], np.float32)
        assert np.isinf(self.moved(values)).tolist() == [True, True, False]

    def test_by_the_unit_of_a_narrower_type(self):
        values = np.full(64, 1.5, np.float32)
        moved = self.moved(values, bits=7)
        assert set(np.abs(moved - 1.5).tolist()) == {2.0**-7}

    def test_the_narrowest_type_that_a_program_computes_with(self):
        wide = lower(lambda x: x + 1, array(4))
        mixed = lower(lambda x: (x.astype(jnp.bfloat16) + 1).astype(jnp.float32), array(4))
        rounded = lower(lambda x: (x + 1).astype(jnp.bfloat16), array(4))
        assert [narrowest_mantissa(m) for m in (wide, mixed, rounded)] == [23, 7, 23]
