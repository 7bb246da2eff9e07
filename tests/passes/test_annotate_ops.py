"""``sp-annotate``: rules for ops, which put constraints behind them."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.extend.mlir.dialects import sdy

from shardpass.mlir import collect, load, operations
from shardpass.partition_rules import Rule
from tests.passes.annotating import EVERY, MESH, TEXT, annotate
from tests.passes.helpers import faults


def constraints(module: Any) -> list[tuple[str, str]]:
    """The op in front of each constraint, and its sharding."""
    return [
        (op.operands[0].owner.name, str(op.attributes["sharding"]).removeprefix("#sdy.sharding"))
        for op in collect(module.root, sdy.ShardingConstraintOp)
    ]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"op": "stablehlo.add"}, ["stablehlo.add"]),
        ({"op": "stablehlo.(add|dot_general)"}, ["stablehlo.dot_general", "stablehlo.add"]),
        ({"op": "stablehlo.subtract"}, []),
        ({"loc": "mlp/"}, ["stablehlo.dot_general"]),
        ({"loc": "jit\\(step\\)"}, ["stablehlo.dot_general", "stablehlo.add"]),
        ({"loc": r"model\.py:12$"}, ["stablehlo.add"]),
        ({"op": "stablehlo.add", "loc": "mlp"}, []),
        ({"op": ".*", "shape": [4, 16]}, ["stablehlo.dot_general", "stablehlo.add"]),
        ({"op": ".*", "shape": [4, 17]}, []),
        ({"op": ".*", "rank": 2, "loc": "head"}, ["stablehlo.add"]),
    ],
)
def test_op_and_loc_rules(rule: dict[str, Any], expected: list[str]) -> None:
    result = annotate(TEXT, [Rule(**rule, spec=["data"]), Rule(match="", spec=[])])
    assert constraints(result.module) == [(name, '<@mesh, [{"data"}, {}]>') for name in expected]
    unused = [d.slug for d in result.diagnostics]
    assert unused == ([] if expected else ["unused-rule"])


def test_a_constraint_stands_right_behind_its_op_and_takes_over_all_uses() -> None:
    result = annotate(TEXT, [Rule(op="stablehlo.dot_general", spec=["data"]), EVERY])
    ops = {op.operation.name: op for op in operations(result.module.root)}
    names = [op.operation.name for op in operations(result.module.root)]
    at = names.index("stablehlo.dot_general")
    assert names[at + 1] == "sdy.sharding_constraint"
    constraint = ops["sdy.sharding_constraint"]
    assert [v.owner.name for v in ops["stablehlo.add"].operands] == ["sdy.sharding_constraint"] * 2
    assert str(constraint.location) == str(ops["stablehlo.dot_general"].location)


def test_each_result_of_an_op_is_constrained() -> None:
    text = (
        "func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {\n"
        "  %0:3 = stablehlo.custom_call @f(%a)\n"
        "    : (tensor<8xf32>) -> (tensor<8xf32>, tensor<i32>, !stablehlo.token)\n"
        "  return %0#0 : tensor<8xf32>\n}\n"
    )
    result = annotate(text, [Rule(op="stablehlo.custom_call", spec=["data"]), EVERY])
    assert constraints(result.module) == [("stablehlo.custom_call", '<@mesh, [{"data"}]>')]


def test_an_op_rule_that_does_not_fit_is_reported_at_the_op() -> None:
    found = faults(
        TEXT, "sp-annotate", rules=[Rule(op="stablehlo.add", spec=["data", [], "model"])], mesh=MESH
    )
    assert [(d.slug, str(d.location)) for d in found if d.severity.value == "error"] == [
        ("rank-mismatch", "/src/model.py:12:3")
    ]


def test_rules_reach_into_loops_and_branches() -> None:
    def step(x: jax.Array, flag: jax.Array) -> jax.Array:
        def body(carry: jax.Array, _: Any) -> tuple[jax.Array, None]:
            inner = jax.lax.cond(flag, lambda c: jnp.sin(c), lambda c: jnp.cos(c), carry)
            return inner * 2, None

        return jax.lax.scan(body, x, None, length=3)[0]

    lowered = load(jax.jit(step).lower(jnp.zeros((8, 4)), True))
    rules = [Rule(op=r"stablehlo\.(sine|cosine|add)", spec=["data"]), EVERY]
    result = annotate(lowered, rules)
    assert sorted(constraints(result.module)) == [
        ("stablehlo.cosine", '<@mesh, [{"data"}, {}]>'),
        ("stablehlo.sine", '<@mesh, [{"data"}, {}]>'),
    ]


def test_rules_reach_into_functions_that_are_called() -> None:
    """Not into one that nobody calls, nor into one that a manual computation calls."""
    text = (
        'sdy.mesh @mesh = <["data"=2, "model"=4]>\n'
        "func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {\n"
        "  %0 = func.call @f(%a) : (tensor<8xf32>) -> tensor<8xf32>\n"
        '  %1 = sdy.manual_computation(%0) in_shardings=[<@mesh, [{"data"}]>]\n'
        '      out_shardings=[<@mesh, [{"data"}]>] manual_axes={"data", "model"}\n'
        "      (%b: tensor<4xf32>) {\n"
        "    %2 = func.call @local(%b) : (tensor<4xf32>) -> tensor<4xf32>\n"
        "    sdy.return %2 : tensor<4xf32>\n"
        "  } : (tensor<8xf32>) -> tensor<8xf32>\n"
        "  return %1 : tensor<8xf32>\n}\n"
    )
    for name, size, op in (("f", 8, "call @g"), ("g", 8, ""), ("local", 4, ""), ("dead", 8, "")):
        kind = f"tensor<{size}xf32>"
        line = (
            f"%0 = func.{op}(%a) : ({kind}) -> {kind}" if op else f"%0 = stablehlo.abs %a : {kind}"
        )
        text += (
            f"func.func private @{name}(%a: {kind}) -> {kind} {{\n{line}\nreturn %0 : {kind}\n}}\n"
        )
    result = annotate(text, [Rule(op="stablehlo.abs", spec=["data"]), EVERY])
    holders = [
        op.operation.parent.attributes["sym_name"]
        for op in collect(result.module.root, sdy.ShardingConstraintOp)
    ]
    assert [str(name) for name in holders] == ['"g"']


def test_regions_that_are_functions_of_scalars_stay_as_they_are() -> None:
    def step(x: jax.Array) -> Any:
        return jnp.sum(x), jnp.sort(x + 1), x.at[jnp.array([1, 2])].add(3.0)

    lowered = load(jax.jit(step).lower(jnp.zeros((8, 4))))
    result = annotate(lowered, [Rule(op=r"stablehlo\.(add|compare|reduce)", spec=["data"]), EVERY])
    inside = [
        op
        for op in collect(result.module.root, sdy.ShardingConstraintOp)
        if op.operation.parent.name != "func.func"
    ]
    assert inside == []
    assert ("stablehlo.add", '<@mesh, [{"data"}, {}]>') in constraints(result.module)


def test_manual_bodies_stay_as_they_are() -> None:
    text = (
        'sdy.mesh @mesh = <["data"=2, "model"=4]>\n'
        "func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {\n"
        '  %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"data"}]>]\n'
        '      out_shardings=[<@mesh, [{"data"}]>] manual_axes={"data", "model"}\n'
        "      (%b: tensor<4xf32>) {\n"
        "    %1 = stablehlo.abs %b : tensor<4xf32>\n"
        "    sdy.return %1 : tensor<4xf32>\n"
        "  } : (tensor<8xf32>) -> tensor<8xf32>\n"
        "  return %0 : tensor<8xf32>\n}\n"
    )
    result = annotate(text, [Rule(op="stablehlo.abs", spec=["data"]), EVERY])
    assert constraints(result.module) == []
