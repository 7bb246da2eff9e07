"""Counting collectives: by hand on text, and on programs compiled by the jaxlib at hand."""

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec

from shardpass.report import CollectiveRow, Collectives, read_collectives
from tests.report.programs import (
    ASYNC,
    MESH,
    compiled_text,
    constrain,
    counted_loop,
    sharded,
    without_trip_counts,
)

X, W = sharded((16, 32), "x", "y"), sharded((32, 32), "y", None)
# What X @ W reduces over y, on one device: f32[8, 32].
PRODUCT = 8 * 32 * 4


def layer(x: jax.Array, w: jax.Array) -> jax.Array:
    return constrain(jnp.tanh(x @ w), "x", "y")


def rows(found: Collectives) -> list[tuple[str, int, int, int]]:
    return [(r.kind, r.count, r.bytes, r.instructions) for r in found.rows]


def test_asynchronous_forms_count_once() -> None:
    assert read_collectives(ASYNC).rows == (
        CollectiveRow("all-reduce", 1, 256, 1),
        CollectiveRow("all-gather", 2, 1024 + 1024 + 128, 2),
        CollectiveRow("reduce-scatter", 1, 2048, 1),
        CollectiveRow("collective-permute", 1, 256, 1),
    )


def test_a_text_without_any() -> None:
    assert read_collectives("") == Collectives((), ())
    assert rows(read_collectives(compiled_text(jnp.tanh, jnp.ones(4)))) == []


def test_one_matmul() -> None:
    found = read_collectives(compiled_text(lambda x, w: x @ w, X, W))
    assert rows(found) == [("all-reduce", 1, PRODUCT, 1)]


def test_a_scan_of_five_steps_counts_five() -> None:
    def program(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda c, _: (layer(c, w), None), x, None, length=5)[0]

    found = read_collectives(compiled_text(program, X, W))
    assert rows(found) == [("all-reduce", 5, 5 * PRODUCT, 1)]
    assert found.unknown_loops == ()


def nested(x: jax.Array, w: jax.Array) -> jax.Array:
    def outer(c: jax.Array, _: None) -> tuple[jax.Array, None]:
        return jax.lax.scan(lambda d, _: (layer(d, w), None), c, None, length=5)[0], None

    return jax.lax.scan(outer, x, None, length=3)[0]


def test_nested_scans_multiply() -> None:
    found = read_collectives(compiled_text(nested, X, W))
    assert rows(found) == [("all-reduce", 15, 15 * PRODUCT, 1)]


def test_loops_are_counted_without_the_compilers_help() -> None:
    text = without_trip_counts(compiled_text(nested, X, W))
    assert "known_trip_count" not in text
    found = read_collectives(text)
    assert (rows(found), found.unknown_loops) == ([("all-reduce", 15, 15 * PRODUCT, 1)], ())


def test_a_loop_that_does_not_start_at_zero() -> None:
    def program(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(2, 9, lambda i, c: layer(c, w) * i, x)

    text = compiled_text(program, X, W)
    assert rows(read_collectives(text)) == [("all-reduce", 7, 7 * PRODUCT, 1)]
    assert rows(read_collectives(without_trip_counts(text))) == [("all-reduce", 7, 7 * PRODUCT, 1)]


def test_a_loop_of_unknown_length_counts_once_and_says_so() -> None:
    def program(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda c: jnp.sum(c) < 100.0, lambda c: layer(c, w) + 1, x)

    found = read_collectives(compiled_text(program, X, W))
    (row,) = found.rows
    assert (row.kind, row.count, row.at_least) == ("all-reduce", row.instructions, True)
    assert row.bytes >= PRODUCT
    assert len(found.unknown_loops) == 1


def test_only_one_branch_of_a_conditional_counts() -> None:
    def program(p: jax.Array, x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.cond(p, lambda: layer(layer(x, w), w), lambda: layer(x, w))

    found = read_collectives(compiled_text(program, jax.ShapeDtypeStruct((), bool), X, W))
    assert rows(found) == [("all-reduce", 2, 2 * PRODUCT, 2)]


def test_every_kind() -> None:
    def local(b: jax.Array) -> jax.Array:
        a = jax.lax.all_to_all(b, "y", 0, 1, tiled=True)
        a = jax.lax.all_to_all(a, "y", 1, 0, tiled=True)
        p = jax.lax.ppermute(a, "y", [(i, (i + 1) % 4) for i in range(4)])
        s = jax.lax.psum_scatter(p, "y", scatter_dimension=0, tiled=True)
        return jax.lax.all_gather(s, "y", axis=0, tiled=True) + jax.lax.psum(p, "x")

    program = jax.shard_map(
        local, mesh=MESH, in_specs=PartitionSpec("x", "y"), out_specs=PartitionSpec("x", "y")
    )
    shard = 8 * 8 * 4
    assert rows(read_collectives(compiled_text(program, X))) == [
        ("all-reduce", 1, shard, 1),
        ("all-gather", 1, shard, 1),
        ("reduce-scatter", 1, shard, 1),
        ("all-to-all", 2, 2 * shard, 2),
        ("collective-permute", 1, shard, 1),
    ]


def test_totals() -> None:
    found = read_collectives(ASYNC)
    assert (found.count, found.bytes) == (5, 256 + 2176 + 2048 + 256)
    assert found.by_kind()["reduce-scatter"].bytes == 2048


@pytest.mark.parametrize(
    ("first", "bound", "step", "direction", "operands", "runs"),
    [
        (0, 12, 1, "LT", "i, n", 12),
        (2, 12, 3, "LT", "i, n", 4),
        (0, 12, 1, "LE", "i, n", 13),
        (0, 12, 1, "GT", "n, i", 12),
        (0, 12, 1, "GE", "n, i", 13),
        (12, 0, -1, "GT", "i, n", 12),
        (12, 0, -5, "GE", "i, n", 3),
        (0, 12, 4, "NE", "i, n", 3),
        (12, 12, 1, "LT", "i, n", 0),
        (20, 12, 1, "LT", "i, n", 0),
    ],
)
def test_counted_loops(
    first: int, bound: int, step: int, direction: str, operands: str, runs: int
) -> None:
    found = read_collectives(counted_loop(first, bound, step, direction, operands))
    assert rows(found) == [("all-reduce", runs, runs * 16, 1)]
    assert found.unknown_loops == ()


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(1, 7), st.sampled_from(["LT", "LE"]))
def test_counting_agrees_with_range(first: int, bound: int, step: int, direction: str) -> None:
    """The oracle is Python's ``range``."""
    expected = len(range(first, bound + (direction == "LE"), step))
    (row,) = read_collectives(counted_loop(first, bound, step, direction)).rows
    assert row.count == expected


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("next = s32[] add(i, step)", "next = s32[] multiply(i, step)"),
        ("first = s32[] constant(0)", "first = s32[] iota()"),
        ("n = s32[] constant(12)", "n = s32[] iota()"),
        ("compare(i, n)", "compare(n, n)"),
        ("condition=cond", "condition=gone"),
        ("tuple(next, g)", "tuple(i, g)"),
    ],
)
def test_other_loops_are_unknown(old: str, new: str) -> None:
    text = counted_loop(0, 12, 1)
    assert old in text
    found = read_collectives(text.replace(old, new))
    assert found.rows == (CollectiveRow("all-reduce", 1, 16, 1, at_least=True),)
    assert found.unknown_loops == ("loop",)
