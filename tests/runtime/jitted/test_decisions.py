"""What rules and passes decide about values inside a function, bound in the program."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy, stablehlo
from jax.sharding import PartitionSpec

import shardpass
from shardpass.compat import jit_lowering
from shardpass.diagnostics import Sink
from shardpass.mlir import collect
from shardpass.passes import Pass
from shardpass.runtime.jitted.decisions import bound, numbered
from tests.runtime.jitted.steps import (
    batch,
    constraints,
    mesh_of,
    parameters,
    placed,
    same,
    spec_of,
)

RULES = shardpass.PartitionRules.loads("""
[[rule]]
match = '^x$'
spec = ["data"]
[[rule]]
op = "stablehlo.tanh"
spec = ["data", "model"]
[[rule]]
op = "stablehlo.sine"
spec = ["model", "data"]
[[rule]]
op = "stablehlo.dot_general"
loc = "layer/dot_general"
spec = ["data", "model"]
""")


def forward(w: Any, x: Any) -> Any:
    with jax.named_scope("layer"):
        y = jax.nn.silu(x @ w)
    y, _ = jax.lax.scan(lambda c, _: (jnp.tanh(c @ w.T @ w), None), y, None, length=3)
    return jax.checkpoint(lambda y: jnp.sin(y))(y).sum()


class TestRulesOnOps:
    def test_each_is_bound_where_the_op_came_from(self):
        f = shardpass.jit(forward, mesh=mesh_of(), rules=RULES)
        w, x = parameters()["up"] * 0.1, batch()["x"]
        same(f(w, x), forward(w, x))
        assert constraints(f.trace(w, x).jaxpr.jaxpr) == [
            ("dot_general", PartitionSpec("data", "model")),
            ("tanh", PartitionSpec("data", "model")),
            ("sin", PartitionSpec("model", "data")),
        ]

    def test_the_compiled_program_is_that_of_constraints_by_hand(self):
        def by_hand(w: Any, x: Any) -> Any:
            hidden = jax.lax.with_sharding_constraint(x @ w, placed("data", "model"))
            return (jnp.tanh(hidden) ** 2).sum()

        def by_rule(w: Any, x: Any) -> Any:
            return (jnp.tanh(x @ w) ** 2).sum()

        rules = shardpass.PartitionRules.loads(
            '[[rule]]\nop = "stablehlo.dot_general"\nspec = ["data", "model"]'
        )
        w, x = parameters()["up"], batch()["x"]
        ours = shardpass.jit(by_rule, mesh=mesh_of(), rules=rules)
        theirs = shardpass.jit(by_hand, mesh=mesh_of())
        texts = [f.lower(w, x).as_text() for f in (ours, theirs)]
        assert texts[0].replace("by_rule", "by_hand") == texts[1]
        assert "sdy.sharding_constraint" in texts[0]

    def test_they_hold_under_derivatives(self):
        f = shardpass.jit(forward, mesh=mesh_of(), rules=RULES)
        w, x = parameters()["up"] * 0.1, batch()["x"]
        same(jax.grad(f)(w, x), jax.grad(forward)(w, x))

    def test_a_function_that_is_called_twice_has_one_program(self):
        @jax.jit
        def inner(x: Any) -> Any:
            return jnp.tanh(x)

        rules = shardpass.PartitionRules.loads('[[rule]]\nop = "stablehlo.tanh"\nspec = ["data"]')
        f = shardpass.jit(lambda x: inner(x) + inner(x * 2), mesh=mesh_of(), rules=rules)
        x = np.ones((8, 4), np.float32)
        same(f(x), np.tanh(x) + np.tanh(2 * x))
        assert [name for name, _ in constraints(f.trace(x).jaxpr.jaxpr)].count("tanh") == 2
        assert f.lower(x).as_text().count("stablehlo.tanh") == 1


@dataclass(frozen=True, kw_only=True)
class ConstrainExponentials(Pass):
    """Cut the results of exponentials over ``model``."""

    name: ClassVar[str] = "acme-constrain-exponentials"

    def run(self, root: ir.Operation, sink: Sink) -> None:
        """Constrain."""
        for op in collect(root, stablehlo.ExpOp):
            dims = ", ".join(['{"model"}', *["{}"] * (ir.ShapedType(op.result.type).rank - 1)])
            attribute = ir.Attribute.parse(f"#sdy.sharding<@mesh, [{dims}]>", root.context)
            with op.location, ir.InsertionPoint.after(op):
                made = sdy.ShardingConstraintOp(op.result, attribute)
            op.result.replace_all_uses_except(made.result, made.operation)


class TestPasses:
    @pytest.mark.parametrize(
        "pipeline",
        [
            ["sp-annotate", ConstrainExponentials(), "sp-propagate"],
            ["sp-annotate", ConstrainExponentials()],
        ],
    )
    def test_what_a_pass_constrains_is_bound(self, pipeline: list[Any]):
        f = shardpass.jit(
            lambda x: jnp.exp(x) * 2,
            mesh=mesh_of(),
            rules=[("^x$", PartitionSpec("data"))],
            pipeline=pipeline,
        )
        x = np.arange(8, dtype=np.float32)
        same(f(x), np.exp(x) * 2)
        assert ("exp", PartitionSpec("model")) in constraints(f.trace(x).jaxpr.jaxpr)

    def test_constraints_of_the_user_are_not_taken_for_decisions(self):
        def f(x: Any) -> Any:
            y = jnp.exp(x)
            return jax.lax.with_sharding_constraint(y, placed("model")) + y

        jitted = shardpass.jit(
            f,
            mesh=mesh_of(),
            rules=[("^x$", PartitionSpec("data"))],
            pipeline=["sp-annotate", "sp-verify", "sp-propagate"],
        )
        x = np.arange(8, dtype=np.float32)
        same(jitted(x), 2 * np.exp(x))
        on_exponentials = [c for c in constraints(jitted.trace(x).jaxpr.jaxpr) if c[0] == "exp"]
        assert on_exponentials == [("exp", PartitionSpec("model"))]


@dataclass(frozen=True, kw_only=True)
class NegateTwice(Pass):
    """Put two negations behind every exponential."""

    name: ClassVar[str] = "acme-negate-twice"

    def run(self, root: ir.Operation, sink: Sink) -> None:
        """Rewrite."""
        for op in collect(root, stablehlo.ExpOp):
            with op.location, ir.InsertionPoint.after(op):
                first = stablehlo.NegOp(op.result)
                second = stablehlo.NegOp(first.result)
            op.result.replace_all_uses_except(second.result, first.operation)


@dataclass(frozen=True, kw_only=True)
class DropNegations(Pass):
    """Take out negations."""

    name: ClassVar[str] = "acme-drop-negations"

    def run(self, root: ir.Operation, sink: Sink) -> None:
        """Rewrite."""
        for op in collect(root, stablehlo.NegOp):
            op.result.replace_all_uses_with(op.operands[0])
            op.erase()


@dataclass(frozen=True, kw_only=True)
class SwapOperands(Pass):
    """Subtract the other way round."""

    name: ClassVar[str] = "acme-swap-operands"

    def run(self, root: ir.Operation, sink: Sink) -> None:
        """Rewrite."""
        for op in collect(root, stablehlo.SubtractOp):
            op.operation.operands[0], op.operation.operands[1] = op.operands[1], op.operands[0]


@dataclass(frozen=True, kw_only=True)
class LowerPrecision(Pass):
    """Set an attribute that changes numbers, and no op."""

    name: ClassVar[str] = "acme-lower-precision"

    def run(self, root: ir.Operation, sink: Sink) -> None:
        """Rewrite."""
        low = ir.Attribute.parse(
            "[#stablehlo<precision DEFAULT>, #stablehlo<precision HIGHEST>]", root.context
        )
        for op in collect(root, stablehlo.DotGeneralOp):
            op.attributes["precision_config"] = low


def subtracted(x: Any) -> Any:
    return jnp.exp(-x) - x @ x.T


def rewriting(rewrite: Any) -> Any:
    return shardpass.jit(
        subtracted,
        mesh=mesh_of(),
        rules=[("^x$", PartitionSpec("data")), ("^result", PartitionSpec("data"))],
        pipeline=["sp-annotate", rewrite, "sp-propagate"],
    )


@pytest.mark.parametrize(
    ("rewrite", "name", "expected"),
    [
        (NegateTwice(), "acme-negate-twice", subtracted),
        (DropNegations(), "acme-drop-negations", lambda x: jnp.exp(x) - x @ x.T),
        (SwapOperands(), "acme-swap-operands", lambda x: x @ x.T - jnp.exp(-x)),
        (LowerPrecision(), "acme-lower-precision", subtracted),
    ],
)
class TestPassesThatRewrite:
    def test_what_they_make_is_compiled(self, rewrite: Any, name: str, expected: Any):
        f = rewriting(rewrite)
        x = np.arange(64, dtype=np.float32).reshape(8, 8) / 64
        with warnings.catch_warnings(action="error"):
            for _ in range(2):
                same(f(x), expected(x))
        assert spec_of(f(x)) == ("data",)
        assert f(x).sharding.mesh == mesh_of()
        same(f.lower(x).compile()(x), expected(x))

    def test_inside_other_transformations_it_is_said_that_they_are_not_bound(
        self, rewrite: Any, name: str, expected: Any
    ):
        f = rewriting(rewrite)
        x = np.arange(64, dtype=np.float32).reshape(8, 8) / 64
        with pytest.warns(UserWarning, match=f"is not changed, as {name} would have it"):
            same(jax.jit(f)(x), subtracted(x))
        with warnings.catch_warnings(action="error"):  # It is said once.
            same(jax.jit(lambda x: f(x * 2))(x), subtracted(2 * x))
            same(jax.grad(lambda x: f(x).sum())(x), jax.grad(lambda x: subtracted(x).sum())(x))
            same(f(x), expected(x))
            same(jax.jit(f)(x), subtracted(x))

    def test_on_a_jax_that_is_not_known_it_is_said_too(
        self, rewrite: Any, name: str, expected: Any, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(jit_lowering, "PARAMETERS", ("others",))
        f = rewriting(rewrite)
        x = np.arange(64, dtype=np.float32).reshape(8, 8) / 64
        with pytest.warns(UserWarning, match=f"is not changed, as {name} would have it"):
            same(f(x), subtracted(x))


def test_passes_that_only_constrain_do_not_rewrite():
    f = shardpass.jit(
        forward,
        mesh=mesh_of(),
        rules=RULES,
        pipeline=[
            "sp-annotate",
            ConstrainExponentials(),
            "sp-verify",
            "sdy-propagation-pipeline",
            "sp-explicit-collectives",
        ],
    )
    w, x = parameters()["up"] * 0.1, batch()["x"]
    with warnings.catch_warnings(action="error"):
        f(w, x)


class TestRewriting:
    def test_numbers_and_no_decisions_leave_the_program_as_it_is(self):
        program = jax.make_jaxpr(forward)(parameters()["up"], batch()["x"])
        assert str(numbered(program)) == str(program)
        assert str(bound(program, {})) == str(program)

    def test_results_are_counted_from_the_last(self):
        """As in a module, where a loop has its counter in front of what it makes."""
        program = jax.make_jaxpr(lambda x: jax.lax.top_k(x, 2))(np.ones(8, np.float32))
        number = [e.primitive.name for e in program.eqns].index("top_k")
        found = bound(program, {(number, -2): placed()})
        constraint = found.eqns[number + 1]
        assert constraint.outvars[0] is found.jaxpr.outvars[0]
        assert constraint.invars[0] is found.eqns[number].outvars[0]
