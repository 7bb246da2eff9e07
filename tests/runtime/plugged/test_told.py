"""What plugin mode says of functions without a plan, and of names that are nobody's."""

import functools
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, SingleDeviceSharding

import shardpass
from shardpass import P, ShardingError
from shardpass.runtime.plugged import Plugin, Why
from tests.runtime.plugged.programs import MESH, jax_mesh, numbers

X = numbers(8, 16)
ROWS = [("^x$", P("data"))]


def block(**options) -> Plugin:
    return shardpass.plugin(**{"mesh": MESH, "rules": ROWS, **options})


def is_planned(array):
    return isinstance(array.sharding, NamedSharding)


def left_alone(plugged: Plugin):
    return [
        (each.name, each.why) for each, _ in plugged.report().left_alone if each.why is not Why.JAX
    ]


def derivatives():
    """Ways to a derivative that JAX takes a function under ``jax.jit`` apart for."""
    return {
        "grad": lambda f: jax.grad(lambda x: f(x).sum()),
        "vjp": lambda f: lambda x: jax.vjp(f, x)[1](X)[0],
        "linearize": lambda f: lambda x: jax.linearize(f, x)[1](X),
        "jvp": lambda f: lambda x: jax.jvp(f, (x,), (X,))[1],
        "remat": lambda f: jax.grad(lambda x: jax.checkpoint(f)(x).sum()),
    }


@pytest.mark.parametrize("kind", list(derivatives()))
def test_a_piece_of_a_derivative(kind):
    """It has no plan, is not hidden among JAX's own, and is warned of once."""

    @jax.jit
    def apply(x):
        return jnp.tanh(jnp.where(x > 3, x, 0))

    with block() as plugged, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            assert not is_planned(derivatives()[kind](apply)(jnp.asarray(X)))
        assert is_planned(jax.jit(derivatives()[kind](apply))(X))
    (warning,) = [str(each.message) for each in caught]
    assert "[left-alone]: apply at " in warning
    assert __file__ in warning
    assert "help: take the gradient under jax.jit: jax.jit(jax.grad(...))" in warning
    assert left_alone(plugged) == [("apply", Why.PIECE)]
    assert "left alone: 1 function\n  apply at " in str(plugged.report())


def test_a_piece_that_is_to_be_left_alone():
    function = jax.jit(lambda x: x * x)
    with block(leave_alone="<lambda>") as plugged:
        jax.grad(lambda x: function(x).sum())(X)
    assert left_alone(plugged) == [("<lambda>", Why.ASKED)]


def test_pieces_of_jaxs_own_are_jaxs():
    with block() as plugged:
        jax.grad(lambda x: (jax.nn.relu(jnp.where(x > 3, x, 0)) + jnp.add(x, x)).sum())(X)
    assert left_alone(plugged) == []


def test_pieces_of_a_function_of_shardpass_jit():
    function = shardpass.jit(lambda x: (x * x).sum(), mesh=MESH, rules=ROWS)
    with block() as plugged:
        jax.grad(function)(X)
    assert {why for _, why in left_alone(plugged)} == {Why.SHARDPASS_JIT}


def test_an_object_that_is_called_is_the_users():
    """JAX does not know in which file it is."""

    class Double:
        def __call__(self, x):
            return x * 2

    with block() as plugged:
        assert is_planned(jax.jit(Double())(X))
        assert is_planned(jax.jit(functools.partial(lambda n, x: x * n, 3.0))(X))
    assert len(plugged.report().compiled) == 2


class Trainer:
    @staticmethod
    @jax.jit
    def step(x):
        return x * 4

    @functools.partial(jax.jit, static_argnums=0)
    def loss(self, x):
        return x * 5


class Critic:
    @staticmethod
    @jax.jit
    def step(x):
        return x * 6


@pytest.mark.parametrize(
    ("name", "alone"),
    [
        ("step", {"Trainer.step", "Critic.step"}),
        ("Trainer.step", {"Trainer.step"}),
        (r"Trainer\..*", {"Trainer.step", "Trainer.loss"}),
        (r".*\.step", {"Trainer.step", "Critic.step"}),
    ],
)
def test_names_of_methods(name, alone):
    calls = {
        "Trainer.step": Trainer.step,
        "Trainer.loss": Trainer().loss,
        "Critic.step": Critic.step,
    }
    with block(leave_alone=name):
        assert {called for called, call in calls.items() if not is_planned(call(X))} == alone


def test_the_name_of_a_method_of_a_local_class():
    class Local:
        @staticmethod
        @jax.jit
        def step(x):
            return x * 7

    for name in (
        "Local.step",
        "test_the_name_of_a_method_of_a_local_class.<locals>.Local.step",
    ):
        with block(leave_alone=name) as plugged:
            assert not is_planned(Local.step(X))
        assert left_alone(plugged) == [("step", Why.ASKED)]


def test_names_that_no_function_has():
    plugged = block(leave_alone=["<lambda>", "metrics", "Trainer.stop"]).__enter__()
    jax.jit(lambda x: x * 2)(X)
    with pytest.warns(UserWarning, match="unused-name") as told:
        plugged.__exit__(None, None, None)
    report = plugged.report()
    assert report.unused_names == ("metrics", "Trainer.stop")
    assert report.to_json()["unused_names"] == ["metrics", "Trainer.stop"]
    first, second = (str(each.message) for each in told)
    assert 'no function that JAX compiled is called "metrics", which was to be left' in first
    assert '"Trainer.stop"' in second
    assert "no function to leave alone has this name: metrics" in str(report)


def test_a_name_that_a_block_before_had_a_use_for():
    """The second block does not hear of a function that JAX has compiled."""

    @jax.jit
    def metrics(x):
        return x + 1

    for factor in (2, 3):
        with block(leave_alone="metrics"):
            metrics(X)
            jax.jit(lambda x, factor=factor: x * factor)(X)


def test_a_block_without_functions_says_nothing_of_names():
    with block(leave_alone="metrics"):
        jnp.asarray(X) + 1


def test_a_function_that_does_not_fit_is_in_the_report():
    """Also where the user has caught the error."""

    @jax.jit
    def step(x):
        return x * 2

    with block() as plugged:
        for _ in range(2):
            with pytest.raises(ShardingError, match="7 elements"):
                step(np.ones((7, 16), np.float32))
        step(X)
    ((failed, times),) = plugged.report().failed
    assert (failed.name, times) == ("step", 2)
    assert failed.place.startswith(f"step at {__file__}:")
    assert 'argument 0 ("x"), dimension 0: 7 elements into 2 pieces' in failed.message
    assert f"not compiled: 1 function\n  {failed.place}: {failed.message}" in str(plugged.report())
    assert plugged.report().to_json()["failed"][0]["times"] == 2


def test_an_array_from_one_device_is_reported_as_moved():
    """Also where the function has been compiled for one that was placed nowhere before."""
    function = jax.jit(lambda w, x: w + x)
    w = jax.device_put(X, jax.devices()[5])
    with block() as plugged:
        function(X, X)
        np.testing.assert_array_equal(function(w, X), 2 * X)
    placed_nowhere, from_one = plugged.report().compiled
    assert [each.moved for each in placed_nowhere.arguments] == [False, False]
    assert [each.moved for each in from_one.arguments] == [True, False]
    assert "w  P('data',), moved when it arrives" in str(plugged.report())


def test_arrays_on_two_devices_are_jaxs_matter():
    a, b = (jax.device_put(X, jax.devices()[n]) for n in (5, 3))
    function = jax.jit(lambda x, y: x + y)
    with block() as plugged:
        with pytest.raises(ValueError, match="incompatible devices"):
            function(a, b)
        jax.jit(lambda x: x * 2)(X)
    ((alone, _),) = [each for each in plugged.report().left_alone if each[0].why is not Why.JAX]
    assert alone.why is Why.DEVICES
    assert alone.detail == 'argument 0 ("x") is on device 5, and argument 1 ("y") on device 3'


def test_what_equinox_compiles_is_named_by_its_own_place():
    @eqx.filter_jit
    def go(x, flag):
        return x * 2 if flag else x

    @eqx.filter_jit
    def loss(x):
        return (x * x).sum()

    with block(leave_alone="loss") as plugged:
        assert is_planned(go(X, True))
        eqx.filter_grad(loss)(jnp.asarray(X))
    (row,) = plugged.report().compiled
    assert row.place.startswith(f"go at {__file__}:")
    places = {each.place for each, _ in plugged.report().left_alone if each.why is Why.ASKED}
    (place,) = places
    assert place.startswith(f"loss at {__file__}:")


# Blocks that do not end in the order in which they began.

COLUMNS = [("^x$", P(None, "model"))]


def spec_of(function):
    sharding = function(X).sharding
    return tuple(sharding.spec) if isinstance(sharding, NamedSharding) else None


def test_a_block_that_ends_before_a_later_one():
    function = jax.jit(lambda x: x * 2)
    first, second = block().__enter__(), block(rules=COLUMNS).__enter__()
    first.__exit__(None, None, None)
    assert spec_of(function) == (None, "model")
    second.__exit__(None, None, None)
    assert isinstance(function(X).sharding, SingleDeviceSharding)


def test_a_generator_that_holds_a_block():
    function = jax.jit(lambda x: x * 2)

    def batches():
        with block():
            yield X

    held = batches()
    next(held)
    with block(rules=COLUMNS), block(rules=[("^x$", P("model"))]):
        held.close()
        assert spec_of(function) == ("model",)
    assert spec_of(function) is None


def test_the_same_block_twice_with_another_between():
    function = jax.jit(lambda x: x * 2)
    outer, inner = block(), block(rules=COLUMNS)
    for each in (outer, inner, outer):
        each.__enter__()
    outer.__exit__(None, None, None)
    assert spec_of(function) == (None, "model")
    outer.__exit__(None, None, None)
    assert spec_of(function) == (None, "model")
    inner.__exit__(None, None, None)
    assert spec_of(function) is None


def test_enabled_everywhere_in_another_order():
    function = jax.jit(lambda x: x * 2)
    first, second = block(), block(rules=COLUMNS)
    first.enable()
    second.enable()
    first.disable()
    assert spec_of(function) == (None, "model")
    second.disable()
    assert spec_of(function) is None


# Pipelines that end somewhere else.


def test_a_pipeline_that_ends_in_gspmds_notation():
    pipeline = "sp-annotate,sp-propagate,sp-export-mhlo"
    with (
        block(pipeline=pipeline),
        pytest.raises(ShardingError, match="ends in GSPMD's notation") as caught,
    ):
        jax.jit(lambda x: x * 2)(X)
    assert caught.value.slug == "bad-pipeline"


def test_a_pipeline_that_ends_on_another_mesh():
    pipeline = "sp-annotate,sp-propagate,sp-retarget{mesh=data=4,model=2}"
    with (
        block(pipeline=pipeline),
        pytest.raises(ShardingError, match='has argument 0 \\("x"\\) as') as caught,
    ):
        jax.jit(lambda x: x * 2)(X)
    assert caught.value.slug == "mesh-mismatch"
    assert "on mesh data=4, model=2, and the mesh of plugin mode is data=2, model=4" in str(
        caught.value
    )


def test_what_another_mesh_says_in_whole_axes_is_said_on_the_blocks():
    rules = [("^x$", P(("data", "model")))]
    pipeline = "sp-annotate,sp-propagate,sp-retarget{mesh=data=4,model=2}"
    with block(rules=rules, pipeline=pipeline):
        result = jax.jit(lambda x: x * 2)(X)
    assert result.sharding.mesh == jax_mesh()
    assert tuple(result.sharding.spec) == (("data", "model"),)
    np.testing.assert_array_equal(result, 2 * X)


def test_meshes_of_the_code_itself_stay():
    """A function that nobody edits may constrain values on its own mesh of the same devices."""
    own = NamedSharding(jax_mesh(sizes=(4, 2), names=("rows", "columns")), P("columns", "rows"))
    function = jax.jit(lambda x, y: jax.lax.with_sharding_constraint(x + y, own))
    with block(), pytest.warns(UserWarning, match="propagation stops between the two"):
        result = function(X, X)
    assert result.sharding.is_equivalent_to(own, 2)


def test_collectives_of_shardys_come_to_a_program():
    rules = [("^x$", P("data", "model")), ("^w$", P("model"))]
    pipeline = "sp-annotate,sp-propagate,sp-explicit-collectives"
    w = numbers(16, 32) / 100

    def function(x, w):
        return jnp.tanh(x @ w).sum(0) + x @ w

    with block(rules=rules, pipeline=pipeline):
        result = jax.jit(lambda x, w: function(x, w))(X, w)
    assert tuple(result.sharding.spec) == ("data",)
    np.testing.assert_allclose(result, function(X, w), rtol=1e-5)
    decorated = shardpass.jit(function, mesh=MESH, rules=rules, pipeline=pipeline)
    np.testing.assert_allclose(decorated(X, w), function(X, w), rtol=1e-5)
