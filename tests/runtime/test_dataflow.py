"""Which results any argument can influence."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from shardpass.mlir import load
from shardpass.runtime.dataflow import influenced_results


def influenced(function: Callable[..., object], *arguments: jax.ShapeDtypeStruct) -> list[bool]:
    lowered = jax.jit(function, keep_unused=True).lower(*arguments)
    return influenced_results(load(lowered.as_text()).root)


X = jax.ShapeDtypeStruct((4,), jnp.float32)
N = jax.ShapeDtypeStruct((), jnp.int32)


def test_straight_code():
    assert influenced(lambda x: (x + 1, jnp.arange(3), jnp.zeros_like(x)), X) == [
        True,
        False,
        False,
    ]


def test_each_carry_of_a_loop_by_itself():
    def program(x):
        def body(carry, _):
            moved, still = carry
            return (moved * 2 + still, still + 1), still

        (moved, still), trail = jax.lax.scan(body, (x, jnp.zeros(4)), None, length=3)
        return moved, still, trail

    assert influenced(program, X) == [True, False, False]


def test_a_trip_count_influences_all_that_is_carried():
    def program(n):
        return jax.lax.while_loop(
            lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 2.0), (0, jnp.ones(3))
        )

    assert influenced(program, N) == [True, True]


def test_a_value_captured_by_a_loop():
    def program(x):
        return jax.lax.fori_loop(0, 3, lambda i, c: c + x, jnp.zeros(4)), jnp.ones(2)

    assert influenced(program, X) == [True, False]


def test_the_selector_of_a_branch():
    def program(n):
        return jax.lax.switch(n, [lambda: (1.0, 5), lambda: (2.0, 5)])

    assert influenced(program, N)[0] is True


@pytest.mark.parametrize("wrap", [jax.jit, jax.checkpoint])
def test_through_functions(wrap: Callable[..., Callable[..., object]]):
    inner = wrap(lambda x: (jnp.sin(x), jnp.arange(2)))
    found = influenced(lambda x: inner(x), X)
    assert found == [True, False]


def test_reductions_and_sorts():
    assert influenced(lambda x: (x.sum(), jnp.sort(x), jnp.cumsum(x)), X) == [True, True, True]
