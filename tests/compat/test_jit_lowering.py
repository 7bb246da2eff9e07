"""Where ``jax.jit`` lowers functions: one test per name. Plugin mode alone needs them."""

import inspect

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from shardpass.compat import jit_lowering

X = np.ones((8, 4), np.float32)


def seen(function, *args, **options):
    """What the hook is called with when ``jax.jit`` lowers ``function``, and what it returns."""
    return seen_of(lambda: jax.jit(function, **options)(*args))


def seen_of(call, name=None):
    """The last of all that the hook is called with in ``call``, for functions of that name."""
    original = jit_lowering.lowering()
    calls = []

    def hook(*given, **named):
        program = original(*given, **named)
        calls.append((given, named, program))
        return program

    jit_lowering.set_lowering(hook)
    try:
        call()
    finally:
        jit_lowering.set_lowering(original)
    return [each for each in calls if name in (None, each[1]["name"])][-1]


def test_lowering_is_looked_up_at_each_call():
    """By a call of a compiled function, and by ``lower``."""
    original = jit_lowering.lowering()
    assert jit_lowering.parameters() == jit_lowering.PARAMETERS
    calls = []

    def hook(*given, **named):
        calls.append(named["name"])
        return original(*given, **named)

    jit_lowering.set_lowering(hook)
    try:
        jax.jit(lambda x: x * 2)(X)
        jax.jit(lambda x: x * 3).lower(X)
    finally:
        jit_lowering.set_lowering(original)
    assert calls == ["<lambda>", "<lambda>"]
    assert jit_lowering.lowering() is original


def test_parameters_of_a_program():
    """``MeshComputation(...)`` and the fields that :func:`with_module` reads."""
    assert jit_lowering.program_parameters() == jit_lowering.PROGRAM_PARAMETERS
    _, _, program = seen(lambda x: x * 5, X)
    again = jit_lowering.with_module(program, jit_lowering.module_of(program))
    assert jit_lowering.own_options(again) == jit_lowering.own_options(program)
    assert jit_lowering.own_options(program)[2] == ("cpu",)
    assert jit_lowering.compile_arguments(again) == jit_lowering.compile_arguments(program)
    assert again.compile() is not None


def test_compile_arguments():
    """All that plugin mode reads or changes of them is there."""
    _, _, program = seen(lambda x: x * 7, X)
    assert {
        "global_in_avals",
        "global_out_avals",
        "in_shardings",
        "out_shardings",
        "in_layouts",
        "out_layouts",
        "host_callbacks",
        "keepalive",
        "kept_var_idx",
        "mut",
        "shape_poly_state",
    } <= jit_lowering.compile_arguments(program).keys()
    assert list(program.const_args) == []


def test_open_shardings_and_arguments():
    """``UnspecifiedValue``, and the fields of JAX's description of an argument."""
    mesh = jax.make_mesh((8,), ("x",), (AxisType.Auto,))
    there = NamedSharding(mesh, PartitionSpec("x"))
    (arguments,), named, _ = seen(lambda x: x * 11, jax.device_put(X, there))
    assert jit_lowering.is_open(named["in_shardings"][0])
    assert arguments[0].sharding == there
    assert arguments[0].committed
    bare = jit_lowering.open_argument(arguments[0])
    assert (bare.sharding, bare.committed, bare.format) == (None, False, None)
    assert bare.aval == arguments[0].aval
    _, named, _ = seen(lambda x: x * 13, X, in_shardings=there)
    assert not jit_lowering.is_open(named["in_shardings"][0])


def test_types_of_values():
    mesh = jax.make_mesh((8,), ("x",), (AxisType.Explicit,))
    there = NamedSharding(mesh, PartitionSpec("x"))
    bare = jax.typeof(X)
    assert not jit_lowering.is_explicit_type(bare)
    typed = jit_lowering.with_sharding(bare, there)
    assert jit_lowering.is_explicit_type(typed)
    assert typed == jax.typeof(jax.device_put(X, there))


def test_names_and_places():
    def mine(first, *rest):
        return first + sum(rest)

    _, named, _ = seen(mine, X, X, X)
    assert tuple(jit_lowering.argument_names(named["jaxpr"])) == ("first", "rest[0]", "rest[1]")
    file, place = jit_lowering.written_in(named["jaxpr"])
    assert file == __file__
    line = inspect.getsourcelines(mine)[1]
    assert place == f"mine at {__file__}:{line}"


def test_where_a_function_begins():
    """``DebugInfo.func_lineno``: the line of its first decorator."""

    @jax.jit
    def function(x):
        return x * 11

    line = function.__wrapped__.__code__.co_firstlineno
    (_, named, _) = seen(function.__wrapped__, X)
    assert jit_lowering.written_at(named["jaxpr"]) == line
    assert jit_lowering.written_in(named["jaxpr"])[0] == __file__


def test_an_object_that_is_called_is_in_no_file():
    class Function:
        def __call__(self, x):
            return x * 13

    (_, named, _) = seen(Function(), X)
    assert jit_lowering.written_at(named["jaxpr"]) is None
    assert jit_lowering.written_in(named["jaxpr"])[0] is None
    assert list(jit_lowering.argument_names(named["jaxpr"])) == ["x"]


def test_a_piece_of_a_derivative_has_no_names():
    function = jax.jit(lambda x: (x * x).sum())
    (_, named, _) = seen_of(lambda: jax.grad(lambda x: function(x) * 2)(X), "<lambda>")
    assert jit_lowering.argument_names(named["jaxpr"]) is None
    assert jit_lowering.written_in(named["jaxpr"])[0] == __file__
