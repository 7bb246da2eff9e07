"""What is refused, when it is refused, and how it is said: one error, with the argument's path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import shardpass
from shardpass import ShardingError
from tests.runtime.jitted.steps import mesh_of, placed, same

X = np.arange(8, dtype=np.float32)
ON_X = [("^x$", P("data"))]
OTHER = jax.make_mesh((4, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
TURNED = Mesh(mesh_of().devices[::-1], ("data", "model"))


def double(x: Any) -> Any:
    return x * 2


def refused(slug: str, says: str, call: Any, *args: Any) -> ShardingError:
    with pytest.raises(ShardingError, match=says) as caught:
        call(*args)
    assert caught.value.slug == slug
    return caught.value


class TestWhenItIsDecorated:
    def test_meshes(self):
        refused(
            "not-enough-devices",
            "needs 16 devices, there are 8",
            lambda: shardpass.jit(double, mesh={"data": 16}),
        )
        refused("abstract-type", "mesh is None", lambda: shardpass.jit(double, mesh=None))

    def test_rules_and_pipelines(self):
        mesh = mesh_of()
        refused(
            "unknown-axis",
            '"no" is not an axis of the mesh data=2, model=4',
            lambda: shardpass.jit(double, mesh=mesh, rules=[("x", P("no"))]),
        )
        refused(
            "bad-regex",
            "missing",
            lambda: shardpass.jit(double, mesh=mesh, rules=[("(", P())]),
        )
        refused(
            "unreadable",
            "rules.toml",
            lambda: shardpass.jit(double, mesh=mesh, rules="no/rules.toml"),
        )
        refused(
            "unknown-pass",
            "sp-propagat",
            lambda: shardpass.jit(double, mesh=mesh, pipeline="sp-propagat"),
        )

    def test_what_is_no_function_and_names_of_no_parameter(self):
        refused(
            "abstract-type", "takes a function, not 3", lambda: shardpass.jit(3, mesh=mesh_of())
        )
        found = refused(
            "bad-argument",
            'static_argnames names "y", and double has no such parameter',
            lambda: shardpass.jit(double, mesh=mesh_of(), static_argnames="y"),
        )
        assert found.diagnostic.help is None or "x" in found.diagnostic.help

    def test_shardings_on_devices_in_another_order_and_on_others(self):
        found = refused(
            "device-order",
            "in_shardings is on the devices in another order than the mesh of the function",
            lambda: shardpass.jit(
                double, mesh=mesh_of(), in_shardings=NamedSharding(TURNED, P("data"))
            ),
        )
        assert found.diagnostic.notes == (
            "the mesh has cpu devices 0, 1, 2, 3, 4, 5, 6, 7",
            "in_shardings has cpu devices 4, 5, 6, 7, 0, 1, 2, 3",
        )
        four = NamedSharding(Mesh(np.array(jax.devices()[:4]), ("data",)), P("data"))
        refused(
            "mesh-mismatch",
            "out_shardings is on other devices",
            lambda: shardpass.jit(double, mesh=mesh_of(), out_shardings=four),
        )

    @pytest.mark.parametrize("which", ["in_shardings", "out_shardings"])
    @pytest.mark.parametrize(
        ("given", "slug", "says"),
        [
            (
                P("dta"),
                "unknown-axis",
                r"holds P\('dta',\): axis \"dta\" is not in the mesh data=2",
            ),
            (P("data", "data"), "duplicate-axis", 'axis "data" is used in dimension 0 and in'),
            (
                shardpass.GSPMDSharding(jax.devices(), "{devices=[4,2]<=[8]}"),
                "not-expressible",
                "is not on the mesh of the function, data=2, model=4: no PartitionSpec on the mesh",
            ),
            (
                shardpass.PositionalSharding(jax.devices()).reshape(4, 2),
                "not-expressible",
                "is not on the mesh of the function, data=2, model=4: no PartitionSpec on the mesh",
            ),
            (
                NamedSharding(OTHER, P("a")),
                "not-expressible",
                'it cuts by "model":\\(1\\)2, and a spec by whole axes',
            ),
            (
                NamedSharding(OTHER, P(P.UNCONSTRAINED, "a")),
                "not-expressible",
                "leaves dimensions to propagation on the mesh a=4, b=2, and the function",
            ),
        ],
    )
    def test_shardings_that_the_mesh_cannot_say(self, which: str, given: Any, slug: str, says: str):
        whole: dict[str, Any] = {which: given}
        found = refused(
            slug, f"^{which} .*{says}", lambda: shardpass.jit(double, mesh=mesh_of(), **whole)
        )
        if slug == "unknown-axis":
            assert found.diagnostic.help == 'did you mean "data"?'
        in_a_tree: dict[str, Any] = {which: ({"w": given},)}
        refused(
            slug,
            rf"^{which}\[0\]\['w'\] .*{says}",
            lambda: shardpass.jit(double, mesh=mesh_of(), **in_a_tree),
        )

    def test_what_rules_are_not(self):
        for rules in (3, b"x", object(), P("data")):
            found = refused(
                "bad-rules",
                f"^rules are .* of type {type(rules).__name__}",
                lambda rules=rules: shardpass.jit(double, mesh=mesh_of(), rules=rules),
            )
            assert "the path of a TOML file" in (found.diagnostic.help or "")
        refused(
            "bad-spec",
            'rule 2: a spec is a list with one entry per dimension, not the text "data"',
            lambda: shardpass.jit(double, mesh=mesh_of(), rules=[*ON_X, ("y", "data")]),
        )

    def test_a_mesh_without_axes(self):
        found = refused(
            "unknown-axis",
            "mesh without axes",
            lambda: shardpass.jit(double, mesh={}, rules=ON_X),
        )
        assert found.diagnostic.help == (
            "give a mesh with axes, as data=2,model=4, or rules that cut nothing"
        )

    def test_what_is_no_sharding(self):
        refused(
            "abstract-type",
            "in_shardings holds 'data' of type str",
            lambda: shardpass.jit(double, mesh=mesh_of(), in_shardings="data"),
        )


class TestWhenItIsCalled:
    def test_rules_of_another_mesh(self, tmp_path: Path):
        """Said once, by the functions of this mesh as by the passes over a module."""
        file = tmp_path / "rules.toml"
        file.write_text("[mesh]\ndata = 4\nmodel = 2\n[[rule]]\nmatch = '^x$'\nspec = ['data']\n")
        says = "written with the mesh data=4, model=2, and data=2, model=4 takes its place"
        f = shardpass.jit(double, mesh=mesh_of(), rules=file)
        with pytest.warns(UserWarning, match=says) as said:
            found = f(X)
        assert said[0].filename == __file__
        assert found.sharding.spec == P("data")
        with pytest.warns(UserWarning, match=says), shardpass.plugin(mesh=mesh_of(), rules=file):
            jax.jit(lambda x: x * 3)(X)
        lowered = jax.jit(double).lower(X)
        for rules in (file, shardpass.PartitionRules.load(file)):
            result = shardpass.run_pipeline(
                lowered, "sp-annotate{indivisible=error}", rules=rules, mesh=mesh_of()
            )
            (warning,) = [d for d in result.diagnostics if d.slug == "mesh-mismatch"]
            assert warning.severity.value == "warning"
        silent = shardpass.PartitionRules.load(file).with_mesh(mesh_of())
        assert not shardpass.run_pipeline(lowered, "sp-annotate", rules=silent).diagnostics

    def test_rules_that_match_nothing(self):
        f = shardpass.jit(double, mesh=mesh_of(), rules=[("^y$", P("data"))])
        found = refused("unused-rule", "no rule matches any argument, result or op", f, X)
        assert found.diagnostic.notes == ('rule 1: match = "^y$", spec = ["data"] matched nothing',)

    def test_a_rule_among_others_that_matches_nothing_is_a_warning(self):
        f = shardpass.jit(double, mesh=mesh_of(), rules=[*ON_X, ("^y$", P("data"))])
        with pytest.warns(UserWarning, match="rule 2.* matched nothing") as said:
            f(X)
        assert said[0].filename == __file__

    def test_a_batch_that_does_not_divide_on_the_last_step(self):
        f = shardpass.jit(double, mesh=mesh_of(), rules=ON_X)
        same(f(X), X * 2)
        found = refused(
            "indivisible", r'argument 0 \("x"\), dimension 0: 7 elements into 2 pieces', f, X[:7]
        )
        assert found.diagnostic.path == "x"
        assert "pad to 8" in (found.diagnostic.help or "")
        same(f(X), X * 2)

    def test_devices_in_another_order(self):
        """JAX itself takes them once, and then crashes (jaxlib 0.10) or has XLA refuse them."""
        f = shardpass.jit(double, mesh=mesh_of(), rules=ON_X)
        turned = jax.device_put(X, NamedSharding(TURNED, P("data")))
        for _ in range(3):
            found = refused(
                "device-order",
                r'argument 0 \("x"\) is on the devices of the mesh in another order',
                f,
                turned,
            )
            assert found.diagnostic.notes == (
                "the mesh has cpu devices 0, 1, 2, 3, 4, 5, 6, 7",
                "the array has cpu devices 4, 5, 6, 7, 0, 1, 2, 3",
            )
            same(f(X), X * 2)

    @pytest.mark.skipif(
        jax.__version_info__ < (0, 11),
        reason="jaxlib 0.10 crashes in plain jax.jit where a donated array is handed in again",
    )
    def test_a_donated_argument_again(self):
        f = shardpass.jit(double, mesh=mesh_of(), rules=ON_X, donate_argnums=0)
        x = jax.device_put(X, placed("data"))
        f(x)
        found = refused("deleted", r'argument 0 \("x"\) was donated to an earlier call', f, x)
        assert found.diagnostic.path == "x"

    def test_ordered_effects(self):
        def told(x: Any) -> Any:
            jax.debug.print("{x}", x=x.sum(), ordered=True)
            return x

        refused(
            "not-supported",
            "ordered effects, which JAX has on one device alone",
            shardpass.jit(told, mesh=mesh_of(), rules=ON_X),
            X,
        )

    def test_a_plan_in_gspmds_notation(self):
        f = shardpass.jit(
            double, mesh=mesh_of(), rules=ON_X, pipeline="sp-annotate,sp-propagate,sp-export-mhlo"
        )
        refused("bad-pipeline", "ends in GSPMD's notation", f, X)

    def test_shardings_that_do_not_fit_the_arguments(self):
        f = shardpass.jit(double, mesh=mesh_of(), in_shardings=(P("data"), P("data")))
        refused("bad-argument", "in_shardings does not fit the function", f, X)

    def test_errors_of_the_users_are_his_own_and_raised_once(self):
        ran: list[int] = []

        def failing(x: Any) -> Any:
            ran.append(1)
            raise ValueError("mine")

        f = shardpass.jit(failing, mesh=mesh_of(), rules=ON_X)
        with pytest.raises(ValueError, match=r"^mine") as caught:
            f(X)
        assert type(caught.value) is ValueError
        assert ran == [1]
        with pytest.raises(TypeError, match="missing 1 required positional argument"):
            f()
        with pytest.raises(TypeError, match="str"):
            f("a")


class TestInsideShardMap:
    def test_over_the_same_axes(self):
        f = shardpass.jit(double, mesh=mesh_of(), rules=ON_X)
        mapped = jax.shard_map(
            lambda x: f(x),
            mesh=mesh_of(),
            in_specs=P("data"),
            out_specs=P("data"),
        )
        f(X)  # The plan that it has outside is nothing to what it does inside.
        found = refused(
            "not-supported",
            r'argument 0 \("x"\) is to be cut over data, and .* inside a shard_map',
            mapped,
            X,
        )
        assert "the other axes" in (found.diagnostic.help or "")

    def test_over_other_axes(self):
        f = shardpass.jit(
            lambda x: x * 2 + jax.lax.psum(x.sum(), "data"),
            mesh=mesh_of(),
            rules=[("^x$", P("model"))],
        )
        mapped = jax.jit(
            jax.shard_map(
                lambda x: f(x),
                mesh=mesh_of(),
                in_specs=P("data"),
                out_specs=P("data"),
                axis_names={"data"},
            )
        )
        same(mapped(X), X * 2 + X.sum())
        assert mapped(X).sharding.spec == P(("data", "model"))

    def test_after_a_call_outside(self):
        f = shardpass.jit(double, mesh=mesh_of(), rules=[("^x$", P("model"))])
        f(X)
        mapped = jax.jit(
            jax.shard_map(
                lambda x: f(x),
                mesh=mesh_of(),
                in_specs=P("data"),
                out_specs=P("data"),
                axis_names={"data"},
            )
        )
        same(mapped(X), X * 2)
        same(f(X), X * 2)


def test_explicit_and_auto_meshes_of_one_order_are_one_mesh():
    explicit = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
    f = shardpass.jit(lambda x, y: x + y, mesh=explicit, rules=[("^x|y$", P("data"))])
    x = jax.device_put(jnp.asarray(X), placed("data"))
    y = jax.device_put(jnp.asarray(X), NamedSharding(explicit, P("data")))
    same(f(x, x), X * 2)
    same(f(y, y), X * 2)
