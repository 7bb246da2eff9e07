"""If this fails, JAX has moved what :mod:`shardpass.compat.program_calls` builds.

``shardpass.jit`` then cannot call the program that its plan was made for; the public road is
``jax.extend.core.jaxpr_as_fun``, at the price of a second trace.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardpass.compat.program_calls import call_program

X = np.arange(6.0, dtype=np.float32).reshape(2, 3)


def program() -> Any:
    return jax.jit(lambda x, y: (jnp.tanh(x) * y, x.sum())).trace(X, X).jaxpr


def called(x: Any, y: Any) -> list[Any]:
    return call_program(program(), [x, y], "name")


def test_the_parameters_of_a_nested_jit_are_those_that_are_filled_in():
    (equation,) = jax.make_jaxpr(jax.jit(lambda x: x))(X).eqns
    assert set(equation.params) == {
        "jaxpr",
        "name",
        "in_shardings",
        "out_shardings",
        "in_layouts",
        "out_layouts",
        "donated_invars",
        "ctx_mesh",
        "keep_unused",
        "inline",
        "compiler_options_kvs",
    }


def test_a_call_is_one_equation_with_the_program_in_it():
    found = jax.make_jaxpr(called)(X, X)
    (equation,) = found.eqns
    assert equation.primitive.name == "jit"
    assert equation.params["name"] == "name"
    inside = [e.primitive.name for e in equation.params["jaxpr"].eqns]
    assert inside == ["tanh", "mul", "reduce_sum"]


def test_its_numbers_and_those_of_what_is_made_of_it():
    with jax.enable_checks(True):
        product, total = jax.jit(called)(X, X)
        gradient = jax.jit(jax.grad(lambda x: called(x, X)[0].sum()))(X)
        batched = jax.jit(jax.vmap(called, in_axes=(0, None)))(np.stack([X, 2 * X]), X)[1]
    np.testing.assert_allclose(product, np.tanh(X) * X, rtol=1e-6)
    assert total == 15.0
    np.testing.assert_allclose(gradient, X / np.cosh(X) ** 2, rtol=1e-3)
    np.testing.assert_array_equal(batched, [15.0, 30.0])
