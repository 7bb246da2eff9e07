"""What a block changes, and that nothing of it is left behind."""

import threading
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, SingleDeviceSharding

import shardpass
from shardpass import P, ShardingError
from shardpass.compat import jit_lowering
from shardpass.runtime.plugged import Plugin, Why
from tests.runtime.fresh import run_python
from tests.runtime.plugged.programs import (
    MESH,
    RULES,
    counted,
    jax_mesh,
    new_batch,
    new_step,
    new_weights,
    numbers,
)

X = numbers(8, 16)
ROWS = [("^x$", P("data"))]


def is_planned(array):
    return isinstance(array.sharding, NamedSharding)


def block(**options) -> Plugin:
    return shardpass.plugin(**{"mesh": MESH, "rules": ROWS, **options})


def test_hook_and_executables_are_as_before():
    before = jit_lowering.lowering()
    function = jax.jit(lambda x: x * 2)
    function(X)
    with block():
        assert jit_lowering.lowering() is not before
        assert is_planned(function(X))
    assert jit_lowering.lowering() is before
    with counted() as events:
        assert isinstance(function(X).sharding, SingleDeviceSharding)
    assert events == {}


def test_on_again_compiles_nothing():
    """Under the same block, and under one of the same content."""
    function = jax.jit(lambda x: x * 2)
    with block() as plugged:
        function(X)
    for again in (plugged, block(rules=[("^x$", P("data"))])):
        with counted() as events, again:
            assert is_planned(function(X))
        assert events == {}
    with counted() as events, block(rules=[("^x$", P("model"))]):
        assert tuple(function(X).sharding.spec) == ("model",)
    assert events["compiles"] == 1


def test_a_step_from_numpy_is_compiled_once():
    """Plain ``jax.jit`` with the same shardings traces, lowers and compiles it twice."""
    step = new_step(donate_argnums=0)
    with block(rules=RULES), counted() as events:
        state, _ = step(new_weights(), new_batch())
        for _ in range(3):
            state, _ = step(state, new_batch())
    assert events == {"traces": 2, "lowerings": 2, "compiles": 1}


def test_the_persistent_cache(tmp_path):
    """Off, on, and with other rules: three programs, each found again by another process."""
    found = run_python(
        f"""
        import jax, jax.monitoring, numpy as np
        import shardpass
        from shardpass import P
        shardpass.request_cpu_devices(8)
        jax.config.update("jax_compilation_cache_dir", {str(tmp_path)!r})
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        hits = []
        name = "/jax/compilation_cache/cache_hits"
        jax.monitoring.register_event_listener(lambda e, **_: hits.append(e) if e == name else None)
        function = jax.jit(lambda x: x * 2)
        mesh = {{"data": 2, "model": 4}}
        for _ in range(2):
            function(np.ones((8, 16), np.float32))
            for axis in mesh:
                with shardpass.plugin(mesh=mesh, rules=[("^x$", P(axis))]):
                    function(np.ones((8, 16), np.float32))
            print(len(hits), len([f for f in __import__("os").listdir({str(tmp_path)!r})
                                  if f.endswith("-cache")]))
            jax.clear_caches()
        """,
        JAX_PLATFORMS="cpu",
    )
    assert found == "0 3\n3 3\n"


def test_clear_caches():
    function = jax.jit(lambda x: x * 2)
    with block():
        function(X)
        jax.clear_caches()
        with counted() as events:
            function(X)
    assert events["compiles"] == 1


def test_an_exception_inside():
    before = jit_lowering.lowering()
    with pytest.raises(ZeroDivisionError), block():
        raise ZeroDivisionError
    assert jit_lowering.lowering() is before
    assert not is_planned(jax.jit(lambda x: x * 2)(X))


def test_an_exception_while_tracing():
    @jax.jit
    def function(x):
        raise KeyError("mine")

    with block(), pytest.raises(KeyError, match="mine"):
        function(X)


def test_nested_blocks():
    """The innermost policy holds, and the same block may stand inside itself."""
    function = jax.jit(lambda x: x * 2)
    before = jit_lowering.lowering()
    outer, inner = block(), block(rules=[("^x$", P(None, "model"))])
    with outer:
        assert tuple(function(X).sharding.spec) == ("data",)
        with inner:
            assert tuple(function(X).sharding.spec) == (None, "model")
            with outer:
                assert tuple(function(X).sharding.spec) == ("data",)
            assert tuple(function(X).sharding.spec) == (None, "model")
        assert tuple(function(X).sharding.spec) == ("data",)
        assert jit_lowering.lowering() is not before
    assert jit_lowering.lowering() is before


def test_a_block_is_for_its_thread_and_enable_for_all():
    def in_a_thread(work):
        found = []
        thread = threading.Thread(target=lambda: found.append(work()))
        thread.start()
        thread.join()
        return found[0]

    function = jax.jit(lambda x: x * 2)
    before = jit_lowering.lowering()
    with block():
        assert not is_planned(in_a_thread(lambda: function(X)))
    everywhere = block()
    everywhere.enable()
    try:
        assert is_planned(function(X))
        assert is_planned(in_a_thread(lambda: function(X)))
    finally:
        everywhere.disable()
    assert not is_planned(function(X))
    assert not is_planned(in_a_thread(lambda: function(X)))
    assert jit_lowering.lowering() is before


def test_eager_code_is_untouched():
    """Also where JAX's own functions have arguments of the names that rules speak of."""
    with block(rules=[("x|key", P("data"))]) as plugged:
        x = jnp.asarray(X)
        for array in (
            x,
            jnp.where(x > 3, x, 0),
            x @ x.T,
            jax.random.normal(jax.random.key(0), (8,)),
        ):
            assert isinstance(array.sharding, SingleDeviceSharding)
        gradient = jax.grad(lambda x: jnp.sum(jnp.sin(x)))(x)
        assert isinstance(gradient.sharding, SingleDeviceSharding)
        np.testing.assert_allclose(gradient, np.cos(X), rtol=1e-5, atol=1e-6)
        jax.jit(lambda x: x * 2)(X)
    why = {each.why for each, _ in plugged.report().left_alone}
    assert why == {Why.JAX}


def left_alone(plugged: Plugin) -> dict[str, tuple[Why, str]]:
    return {
        each.name: (each.why, each.detail)
        for each, _ in plugged.report().left_alone
        if each.why is not Why.JAX
    }


def test_functions_to_leave_alone_by_name():
    @jax.jit
    def metrics(x):
        return x + 1

    @jax.jit
    def metrics_of_test(x):
        return x + 2

    @jax.jit
    def step(x):
        return x * 2

    with block(leave_alone=["metrics.*"]) as plugged:
        assert not is_planned(metrics(X))
        assert not is_planned(metrics_of_test(X))
        assert is_planned(step(X))
    with block(leave_alone="metrics") as again:
        assert not is_planned(metrics(X))
        assert is_planned(metrics_of_test(X))
    asked = (Why.ASKED, "")
    assert left_alone(plugged) == {"metrics": asked, "metrics_of_test": asked}
    assert left_alone(again) == {"metrics": asked}


def test_a_function_without_anything_to_plan():
    with block() as plugged:
        assert isinstance(jax.jit(lambda y: y * 2)(X).sharding, SingleDeviceSharding)
        jax.jit(lambda x: x * 2)(X)
    assert left_alone(plugged) == {"<lambda>": (Why.NOTHING, "")}


def test_a_function_of_shardpass_jit_has_its_own_plan():
    mine = shardpass.jit(lambda x: x * 2, mesh=MESH, rules=[("^x$", P(None, "model"))])
    with block() as plugged:
        assert tuple(mine(X).sharding.spec) == (None, "model")
        jax.jit(lambda x: x * 3)(X)
    assert {why for why, _ in left_alone(plugged).values()} == {Why.SHARDPASS_JIT}


def test_another_order_of_devices():
    """Left alone with both orders named, for placed arguments and for what the function says."""
    turned = jax_mesh(devices=jax.devices()[::-1])
    x = jax.device_put(X, NamedSharding(turned, P("data")))
    asked = jax.jit(lambda x: x * 2, in_shardings=NamedSharding(turned, P("data")))
    with block() as plugged:
        for call in (lambda: jax.jit(lambda x: x * 4)(x), lambda: asked(X)):
            with pytest.warns(UserWarning, match=r"left-alone") as told:
                result = call()
            assert "order [7, 6, 5, 4, 3, 2, 1, 0]; the mesh has [0, 1, 2, 3, 4, 5, 6, 7]" in str(
                told[0].message
            )
            assert result.sharding.mesh == turned
        jax.jit(lambda x: x * 3)(X)
    assert {why for why, _ in left_alone(plugged).values()} == {Why.DEVICES}


def test_other_devices():
    few = jax_mesh(sizes=(2,), names=("data",), devices=jax.devices()[:2])
    x = jax.device_put(X, NamedSharding(few, P("data")))
    with block() as plugged:
        with pytest.warns(UserWarning, match=r'argument 0 \("x"\) is for cpu \[0, 1\]; the mesh'):
            np.testing.assert_array_equal(jax.jit(lambda x: x * 2)(x), X * 2)
        jax.jit(lambda x: x * 3)(X)
    assert {why for why, _ in left_alone(plugged).values()} == {Why.DEVICES}


def test_another_memory():
    x = jax.device_put(X, SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host"))
    with block() as plugged:
        with pytest.warns(UserWarning, match=r'argument 0 \("x"\) lies in pinned_host'):
            jax.jit(lambda x: x * 2).lower(x)
        jax.jit(lambda x: x * 3)(X)
    assert {why for why, _ in left_alone(plugged).values()} == {Why.MEMORY}


def test_a_constraint_on_other_devices():
    """JAX cannot lower that for the mesh, and lowers it for the devices that it names."""
    few = jax_mesh(sizes=(2,), names=("data",), devices=jax.devices()[:2])
    there = NamedSharding(few, P("data"))
    function = jax.jit(lambda x: jax.lax.with_sharding_constraint(x, there) * 2)
    with block() as plugged:
        with pytest.warns(UserWarning, match="JAX refuses it on the mesh"):
            result = function(X)
        assert result.sharding.device_set == set(few.devices.flat)
        jax.jit(lambda x: x * 3)(X)
    assert {why for why, _ in left_alone(plugged).values()} == {Why.REFUSED}


def test_ordered_effects_are_jaxs_matter(capfd):
    @jax.jit
    def function(x):
        jax.debug.print("in order", ordered=True)
        return x * 2

    with block() as plugged:
        with pytest.warns(UserWarning, match="ordered effects are not supported for more than"):
            np.testing.assert_array_equal(function(X), X * 2)
        jax.effects_barrier()
        jax.jit(lambda x: x * 3)(X)
    assert "in order" in capfd.readouterr().out
    assert {why for why, _ in left_alone(plugged).values()} == {Why.REFUSED}


def test_several_platforms_and_dynamic_shapes():
    x = jax.ShapeDtypeStruct(X.shape, X.dtype)
    with block() as plugged:
        exported = jax.export.export(jax.jit(lambda x: x * 2), platforms=("cpu", "tpu"))(x)
        assert exported.nr_devices == 1
        (rows,) = jax.export.symbolic_shape("b")
        symbolic = jax.ShapeDtypeStruct((rows, 16), X.dtype)
        with pytest.warns(UserWarning, match="without a static size"):
            jax.export.export(jax.jit(lambda x: x * 3))(symbolic)
        jax.jit(lambda x: x * 3)(X)
    assert {each.why for each, _ in plugged.report().left_alone} >= {Why.PLATFORMS, Why.DYNAMIC}


def test_gspmd_is_left_alone():
    with jax.enable_custom_prng(False), block() as plugged:
        jax.config.update("jax_use_shardy_partitioner", False)
        try:
            assert not is_planned(jax.jit(lambda x: x * 2)(X))
        finally:
            jax.config.update("jax_use_shardy_partitioner", True)
        jax.jit(lambda x: x * 3)(X)
    assert {why for why, _ in left_alone(plugged).values()} == {Why.GSPMD}


def test_report():
    step = new_step()
    with block(rules=RULES) as plugged:
        step(new_weights(), new_batch())
    report = plugged.report()
    (row,) = report.compiled
    assert row.name == "<lambda>"
    assert [(each.path, each.spec) for each in row.arguments] == [
        ("weights.w1", "P(None, 'model')"),
        ("weights.w2", "P('model',)"),
        ("batch", "P('data',)"),
    ]
    assert [(each.path, each.spec) for each in row.results] == [
        ("result.0.w1", "P(None, 'model')"),
        ("result.0.w2", "P('model',)"),
        ("result.1", "P()"),
    ]
    text = str(report)
    assert "shardpass plugin on mesh data=2, model=4" in text
    assert "<lambda> at " in text
    assert "    weights.w2  P('model',)" in text
    assert report.to_json()["compiled"][0]["arguments"][2]["path"] == "batch"


def test_report_at_the_end(capsys):
    with block(report=True):
        jax.jit(lambda x: x * 2)(X)
    assert "compiled with a plan: 1 function" in capsys.readouterr().err


def test_a_moved_argument_is_reported():
    x = jax.device_put(X, NamedSharding(jax_mesh(), P("model")))
    with block() as plugged:
        jax.jit(lambda x: x * 2)(x)
    assert plugged.report().compiled[0].arguments[0].moved
    assert "moved when it arrives" in str(plugged.report())


def test_rules_that_match_nothing_are_told_at_the_end():
    """Of several functions; a rule that one of them has a use for is fine."""
    rules = [("^x$", P("data")), ("^y$", P("data")), ("kernle$", P("model"))]
    plugged = block(rules=rules).__enter__()
    jax.jit(lambda x: x * 2)(X)
    jax.jit(lambda y: y * 2)(X)
    with pytest.warns(UserWarning, match="unused-rule") as told:
        plugged.__exit__(None, None, None)
    (warning,) = told
    assert "kernle" in str(warning.message)


@pytest.mark.parametrize(
    ("options", "slug"),
    [
        ({"mesh": None}, "bad-mesh"),
        ({"mesh": {"data": 16}}, "not-enough-devices"),
        ({"mesh": 8}, "abstract-type"),
        ({"mesh": {"rows": 8}}, "unknown-axis"),
        ({"rules": [("(", P("data"))]}, "bad-regex"),
        ({"rules": "no-such.toml"}, "unreadable"),
        ({"pipeline": "sp-anotate"}, "unknown-pass"),
        ({"leave_alone": ["("]}, "bad-regex"),
        ({"leave_alone": [8]}, "abstract-type"),
    ],
)
def test_bad_input(options, slug):
    before = jit_lowering.lowering()
    with pytest.raises(ShardingError) as caught:
        block(**options)
    assert caught.value.slug == slug
    assert jit_lowering.lowering() is before


def test_a_mesh_without_devices():
    with pytest.raises(ShardingError, match="has none") as caught:
        block(mesh=jax_mesh().abstract_mesh)
    assert caught.value.slug == "bad-mesh"


def test_the_mesh_of_the_rules():
    rules = shardpass.PartitionRules(ROWS, mesh=MESH)
    with shardpass.plugin(rules=rules):
        assert is_planned(jax.jit(lambda x: x * 2)(X))


def test_a_jax_whose_programs_are_made_of_other_things(monkeypatch):
    monkeypatch.setattr(jit_lowering, "program_parameters", lambda: ("self", "hlo"))
    with pytest.raises(ShardingError, match="makes programs of self, hlo") as caught, block():
        pass
    assert caught.value.slug == "unknown-jax"


def test_a_jax_without_the_function(monkeypatch):
    monkeypatch.setattr(jit_lowering, "parameters", lambda: None)
    with pytest.raises(ShardingError, match="lowers with nothing of a known name"), block():
        pass


def test_an_unknown_jax():
    """Refused by plugin mode, and by nothing else."""
    known = jit_lowering.lowering()

    def renamed(arguments, **rest):
        return known(arguments, **rest)

    jit_lowering.set_lowering(renamed)
    try:
        with pytest.raises(ShardingError, match="lowers with arguments, rest") as caught, block():
            pass
        assert caught.value.slug == "unknown-jax"
        assert "shardpass.jit" in str(caught.value)
        assert is_planned(shardpass.jit(lambda x: x * 2, mesh=MESH, rules=ROWS)(X))
    finally:
        jit_lowering.set_lowering(known)
    with block():
        assert is_planned(jax.jit(lambda x: x * 2)(X))


def test_what_is_said_of_rules_is_not_hidden_by_a_block_of_the_same_content():
    text = "[mesh]\ndata = 4\nmodel = 2\n[[rule]]\nmatch = '^x$'\nspec = ['data']"
    rules = shardpass.PartitionRules.loads(text)
    silent = shardpass.plugin(mesh=MESH, rules=rules.with_mesh(MESH))
    told = pytest.warns(UserWarning, match="written with the mesh data=4, model=2")
    with told, shardpass.plugin(mesh=MESH, rules=rules):
        jax.jit(lambda x: x * 3)(np.ones((8, 4), np.float32))
    with warnings.catch_warnings(action="error"), silent:
        jax.jit(lambda x: x * 3)(np.ones((8, 4), np.float32))
