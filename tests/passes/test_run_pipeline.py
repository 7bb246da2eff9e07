"""Pipelines from Python: what comes out, what stays as it was, and who may fail how."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec

from shardpass.canon import MeshShape
from shardpass.diagnostics import ShardingError
from shardpass.mlir import load
from shardpass.passes import run_pipeline
from shardpass.passes.annotate import Annotate
from shardpass.passes.strip import Strip
from tests.passes.helpers import faults, said, shardings
from tests.passes.own_passes import TEXT, Break, CountOps, Raise


def test_the_callers_module_stays_as_it_was() -> None:
    module = load(TEXT)
    before = module.text(debug_info=True)
    result = run_pipeline(module, "sp-strip")
    assert module.text(debug_info=True) == before
    assert result.module.ir is not module.ir
    assert "sdy" not in result.module.text()
    assert result.diagnostics == ()


def test_the_callers_module_stays_as_it_was_when_a_pass_fails_half_way() -> None:
    module = load(TEXT)
    before = module.text(debug_info=True)
    for pipeline in (Raise(what=RuntimeError("no")), Break(), [Strip, CountOps(most=0)]):
        with pytest.raises(Exception, match=r"no|terminator|there is an add|empty block"):
            run_pipeline(module, pipeline)
        assert module.text(debug_info=True) == before


def test_in_place() -> None:
    module = load(TEXT)
    result = run_pipeline(module, "sp-strip", in_place=True)
    assert result.module is module
    assert "sdy" not in module.text()


def test_in_place_on_an_ir_module() -> None:
    module = load(TEXT)
    run_pipeline(module.ir, "sp-strip", in_place=True)
    assert "sdy" not in str(module.ir)


@pytest.mark.parametrize("where", ["seen", "failed"])
def test_the_pass_manager_can_be_instrumented(
    where: str, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []

    def instrument(manager: Any) -> None:
        seen.append(str(manager))
        manager.enable_timing()

    passes = ["cse", CountOps(most=0 if where == "failed" else 9)]
    if where == "failed":
        with pytest.raises(ShardingError):
            run_pipeline(TEXT, passes, instrument=instrument)
    else:
        run_pipeline(TEXT, passes, instrument=instrument)
    assert seen == ["builtin.module(cse,acme-count-ops)"]
    # MLIR prints it when the manager goes, and an error must not keep that.
    assert "acme-count-ops" in capfd.readouterr().err


def test_mesh_and_rules_reach_every_pass_that_has_none() -> None:
    rules = [("a", PartitionSpec(None, "y"))]
    text = TEXT.replace(' {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}', "")
    named = text.replace("%a: tensor<8x8xf32>", '%a: tensor<8x8xf32> loc("a")')
    result = run_pipeline(named, ["sp-annotate", CountOps], mesh={"x": 2, "y": 4}, rules=rules)
    assert shardings(result.module) == ['<@mesh, [{}, {"y"}]>']
    own = Annotate(rules=[("a", PartitionSpec("x"))])
    result = run_pipeline(named, [own, Annotate], mesh={"x": 2, "y": 4}, rules=rules)
    assert shardings(result.module) == ['<@mesh, [{"x"}, {}]>']


def test_what_no_pass_takes_or_all_have_is_refused() -> None:
    annotate = Annotate(rules=[("a", PartitionSpec("x"))], mesh=MeshShape.of(x=8))
    found = faults(TEXT, [annotate], rules=[("a", PartitionSpec())], mesh={"x": 2})
    assert said(found) == [
        (
            "error",
            "bad-pipeline",
            "rules= is given twice: sp-annotate has rules of its own in the pipeline",
        ),
        (
            "error",
            "bad-pipeline",
            "mesh= is given twice: sp-annotate has mesh of its own in the pipeline",
        ),
    ]
    found = faults(TEXT, "sp-strip,sdy-close-shardings", mesh={"x": 2})
    assert said(found) == [
        ("error", "bad-pipeline", "mesh= is given, and no pass of the pipeline takes it")
    ]


def test_the_lowered_step_of_a_jitted_function() -> None:
    lowered = jax.jit(lambda w, x: x @ w).lower(jnp.zeros((8, 4)), jnp.zeros((2, 8)))
    result = run_pipeline(
        lowered,
        "sp-annotate,sp-propagate",
        mesh={"x": 2, "y": 4},
        rules=[("^w$", PartitionSpec(None, "y"))],
    )
    assert shardings(result.module) == ['<@mesh, [{}, {"y"}]>', None]
    assert shardings(result.module, results=True) == ['<@mesh, [{}, {"y"}]>']
    assert "sdy" not in str(lowered.compiler_ir("stablehlo"))
