"""Programs compiled with our shardings: under Shardy and GSPMD, on Auto and Explicit meshes."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardpass.sharding import GSPMDSharding, PmapSharding
from tests.sharding.alive import (
    ALL,
    NAMED,
    X,
    both_ways,
    comes_back,
    compiles,
    partitioned_by,
    same,
    under_both,
)

CAN_CONSTRAIN = [case for case in ALL if not case.is_explicit]


@pytest.fixture(params=under_both(ALL), ids=str)
def case(request):
    with partitioned_by(request.param.partitioner):
        yield request.param.case


@pytest.fixture(params=under_both(CAN_CONSTRAIN), ids=str)
def constrained(request):
    with partitioned_by(request.param.partitioner):
        yield request.param.case


def counting():
    """A function, and the list of its traces."""
    traced = []

    def f(a):
        traced.append(a)
        return a + 1

    return f, traced


def test_jit_follows_its_arguments(case):
    out = both_ways(case, lambda s: jax.jit(lambda a: a * 2 + 1)(jax.device_put(X, s)), X * 2 + 1)
    comes_back(out, case)
    assert out.sharding.is_equivalent_to(case.ours, 2)


def test_jit_in_and_out_shardings(case):
    def run(s):
        return jax.jit(lambda a: a * 2, in_shardings=s, out_shardings=s)(X)

    out = both_ways(case, run, X * 2)
    assert out.sharding == case.ours
    comes_back(out, case)


def test_jit_out_shardings_alone(case):
    def run(s):
        return jax.jit(lambda: jnp.arange(64.0).reshape(8, 8), out_shardings=s)()

    assert both_ways(case, run, X).sharding == case.ours


def test_jit_in_shardings_alone(case):
    out = both_ways(case, lambda s: jax.jit(lambda a: a - 3, in_shardings=s)(X), X - 3)
    comes_back(out, case)


def test_jit_of_trees(case):
    def run(s):
        step = jax.jit(
            lambda tree, scale: jax.tree.map(lambda a: a * scale, tree),
            in_shardings=({"w": s, "b": None}, None),
            out_shardings={"w": s, "b": s},
        )
        return step({"w": X, "b": X + 1}, 3)

    ours, theirs = run(case.ours), run(case.theirs)
    same(ours["w"], theirs["w"], X * 3)
    same(ours["b"], theirs["b"], (X + 1) * 3)
    assert ours["w"].sharding == ours["b"].sharding == case.ours


def test_one_sharding_for_a_whole_tree(case):
    step = jax.jit(lambda pair: (pair[1], pair[0]), in_shardings=case.ours, out_shardings=case.ours)
    for out, whole in zip(step((X, X + 1)), (X + 1, X), strict=True):
        same(out, jax.device_put(whole, case.theirs), whole)


def test_one_trace_and_one_compile(case):
    """Called with ours and with JAX's, each twice; the shardings are made anew each time."""
    for order in ((case.ours, case.theirs), (case.theirs, case.ours)):
        f, traced = counting()
        step = jax.jit(f)
        arguments = [jax.device_put(X, sharding) for sharding in (*order, *order)]
        with compiles() as compiled:
            outs = [step(argument) for argument in arguments]
        for out in outs:
            same(out, jax.device_put(X + 1, case.theirs), X + 1)
        if case.equal:
            assert len(traced) == len(compiled) == 1
        else:
            assert len(compiled) <= 2


def test_one_trace_for_in_and_out_shardings(case):
    f, traced = counting()
    for sharding in (case.ours, case.theirs, case.ours, case.theirs):
        out = jax.jit(f, in_shardings=sharding, out_shardings=sharding)(X)
        same(out, jax.device_put(X + 1, case.theirs), X + 1)
    assert len(traced) == 1


def test_one_trace_for_the_same_sharding_made_again(case):
    f, traced = counting()
    step = jax.jit(f)
    arguments = [jax.device_put(X, case.ours) for _ in range(3)]
    with compiles() as compiled:
        for argument in arguments:
            step(argument)
    assert len(traced) == len(compiled) == 1
    if not case.is_explicit:
        assert step._cache_size() == 1


def test_results_go_round(case):
    """A step that is fed its own results compiles once: they come back as they went in."""
    f, traced = counting()
    step = jax.jit(f)
    value = jax.device_put(X, case.ours)
    with compiles() as compiled:
        for _ in range(4):
            value = step(value)
    assert len(traced) == len(compiled) == 1
    if not case.is_explicit:
        assert step._cache_size() == 1
    same(value, jax.device_put(X + 4, case.theirs), X + 4)
    comes_back(value, case)


def test_constraint(constrained):
    def run(s):
        return jax.jit(lambda a: jax.lax.with_sharding_constraint(a * 2, s))(X)

    out = both_ways(constrained, run, X * 2)
    if type(constrained.ours) is PmapSharding:
        # JAX does not say the shape of the result, without which there is no PmapSharding.
        assert type(out.sharding) is GSPMDSharding
    else:
        comes_back(out, constrained)


def test_constraint_against_the_arguments(constrained):
    """The constraint wins over what the argument brings."""

    def run(s):
        turned = jax.device_put(X.T, s)
        return jax.jit(lambda a: jax.lax.with_sharding_constraint(a.T, s))(turned)

    out = both_ways(constrained, run, X)
    assert out.sharding.is_equivalent_to(constrained.ours, 2)


def test_constraint_outside_jit(constrained):
    def run(s):
        return jax.lax.with_sharding_constraint(jnp.asarray(X), s)

    out = both_ways(constrained, run, X)
    assert out.sharding.is_equivalent_to(constrained.ours, 2)


def test_shape_dtype_struct(case):
    abstract = jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=case.ours)
    assert abstract.sharding == case.ours
    assert type(abstract.sharding) is type(case.ours)
    theirs = jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=case.theirs)
    assert (abstract == theirs) == case.equal
    assert abstract.update(dtype=np.int32).sharding == case.ours


def test_eval_shape(case):
    sources = [
        lambda s: jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=s),
        lambda s: jax.device_put(X, s),
    ]
    for source in sources:
        ours, theirs = (
            jax.eval_shape(lambda a: a * 2, source(s)) for s in (case.ours, case.theirs)
        )
        assert (ours.shape, ours.dtype) == ((8, 8), np.float32)
        assert ours == theirs
        told = jax.eval_shape(jax.jit(lambda a: a * 2, out_shardings=case.ours), source(case.ours))
        assert told.shape == (8, 8)


def test_ahead_of_time(case):
    def run(s):
        abstract = jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=s)
        traced = jax.jit(lambda a: a * 2).trace(abstract)
        compiled = traced.lower().compile()
        ((wanted,), _) = compiled.input_shardings
        assert wanted.is_equivalent_to(s, 2)
        assert s.is_equivalent_to(wanted, 2)
        (given,) = jax.tree.leaves(compiled.output_shardings)
        assert given.is_equivalent_to(s, 2)
        out = compiled(jax.device_put(X, s))
        assert out.sharding.is_equivalent_to(s, 2)
        for other in (case.ours, case.theirs):
            same(compiled(jax.device_put(X, other)), out, X * 2)
        return out

    comes_back(both_ways(case, run, X * 2), case)


def test_ahead_of_time_with_shardings_of_the_function(case):
    def run(s):
        step = jax.jit(lambda a: a + 1, in_shardings=s, out_shardings=s)
        compiled = step.lower(jax.ShapeDtypeStruct(X.shape, X.dtype)).compile()
        return compiled(jax.device_put(X, s))

    out = both_ways(case, run, X + 1)
    assert out.sharding.is_equivalent_to(case.ours, 2)


def test_lowers_to_what_jax_lowers_to(case):
    def text(s):
        step = jax.jit(lambda a: a + 1, in_shardings=s, out_shardings=s)
        return step.lower(jax.ShapeDtypeStruct(X.shape, X.dtype)).as_text()

    if case.equal:
        assert text(case.ours) == text(case.theirs)
    else:
        assert "sharding" in text(case.ours)


def test_donated_arguments(case):
    def run(s):
        step = jax.jit(lambda a: a + 1, donate_argnums=0)
        source = jax.device_put(X, s)
        # Of its own, not the host's memory, which cannot be given away.
        source = jax.device_put(source.copy(), s)
        out = step(source)
        assert source.is_deleted()
        return out

    comes_back(both_ways(case, run, X + 1), case)


def test_donated_arguments_with_out_shardings(case):
    def run(s):
        step = jax.jit(lambda a: a * 2, in_shardings=s, out_shardings=s, donate_argnums=0)
        source = jax.device_put(X, s).copy()
        out = step(source)
        assert source.is_deleted()
        return out

    both_ways(case, run, X * 2)


def test_eager_ops(case):
    def run(s):
        a = jax.device_put(X, s)
        return jnp.maximum(a + 1, 2) * a - a

    comes_back(both_ways(case, run, np.maximum(X + 1, 2) * X - X), case)
    for op, whole in (
        (lambda a: a.T, X.T),
        (lambda a: a.sum(axis=0), X.sum(axis=0)),
        (lambda a: -a, -X),
        (lambda a: a == a, X == X),
        (lambda a: a.astype(jnp.int32), X.astype(np.int32)),
    ):
        ours, theirs = (op(jax.device_put(X, s)) for s in (case.ours, case.theirs))
        same(ours, theirs, whole)
        comes_back(ours, case)


def test_beside_jax_own_in_one_call(case):
    for order in ((case.ours, case.theirs), (case.theirs, case.ours)):
        one, other = (jax.device_put(X, s) for s in order)
        same(jax.jit(lambda a, b: a + b)(one, other), one * 2, X + X)
        same(one + other, one * 2, X + X)


def test_as_a_static_argument(case):
    def run(s):
        step = jax.jit(lambda a, s: jax.device_put(a, s) + 1, static_argnums=1)
        return step(jax.device_put(X, s), s)

    out = both_ways(case, run, X + 1)
    assert out.sharding.is_equivalent_to(case.ours, 2)


@pytest.fixture(params=under_both(NAMED), ids=str)
def named(request):
    with partitioned_by(request.param.partitioner):
        yield request.param.case


def test_export(named):
    """Written, read again and called: the names survive."""

    def written_and_read(s):
        step = jax.jit(lambda a: a * 2, in_shardings=s, out_shardings=s)
        exported = jax.export.export(step)(jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=s))
        again = jax.export.deserialize(exported.serialize())
        (wanted,) = again.in_shardings_jax(s.mesh)
        assert wanted.is_equivalent_to(s, 2)
        (given,) = again.out_shardings_jax(s.mesh)
        assert given.is_equivalent_to(s, 2)
        assert again.nr_devices == s.num_devices
        return again

    ours, theirs = written_and_read(named.ours), written_and_read(named.theirs)
    # The lines of this file at which the two were made are part of the text.
    assert _without_locations(ours.mlir_module()) == _without_locations(theirs.mlir_module())
    if not jax.config.jax_use_shardy_partitioner:
        return  # JAX lowers no call of an exported program under GSPMD, with its own class neither
    one = jax.jit(ours.call)(jax.device_put(X, named.ours))
    other = jax.jit(theirs.call)(jax.device_put(X, named.theirs))
    same(one, other, X * 2)
    assert one.sharding.is_equivalent_to(named.ours, 2)


def _without_locations(text):
    return re.sub(r"(?m)^#loc.*|loc\(.*\)", "", text)
