"""Which collectives the two partitioners make of one program, and why where they differ.

Shardy's partitioner is handed the propagated module, GSPMD's the same module behind
``sp-export-mhlo``. The two send the same (kinds, counts and bytes) but for two reasons, each of
which can be taken away:

* **ANEW**: XLA drops Shardy's annotations of inner ops and propagates anew from the arguments and
  results, the latter of which are known by then, so that it may find another layout for an inner
  value. GSPMD heeds what the first propagation found. Where the second propagation of the same
  annotations is exported, GSPMD sends what Shardy sends.
* **OPEN**: propagation found no layout for a result, since its operands ask for different ones.
  Shardy's partitioner leaves it whole on every device; GSPMD looks for a layout of its own. Where
  all such values are annotated as whole, GSPMD sends what Shardy sends.

The lists are the same on jaxlib 0.10.2 and 0.12.0.1.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.extend.mlir import ir
from jax.sharding import PartitionSpec as P

from shardpass.mlir import (
    ADVANCE,
    SDY_SHARDING,
    Module,
    result_attributes,
    set_result_attributes,
    visit,
    with_entry,
)
from shardpass.partition_rules import PartitionRules
from shardpass.passes import run_pipeline
from shardpass.report import compiled_figures
from shardpass.runtime import check, compile_module

MESH = {"data": 2, "model": 4}
ANEW = "XLA propagates anew, and finds another layout inside"
OPEN = "a result without a layout"

Sent = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Program:
    """A function of float arrays, and where its arguments lie.

    Attributes:
      function: what is run.
      arguments: the shape and the layout of each.
      shardy: kind of collective -> how many there are under Shardy, and their bytes a device.
      gspmd: the same under GSPMD, where it is another.
      why: the reason for that.
    """

    function: Callable[..., Any]
    arguments: tuple[tuple[tuple[int, ...], P], ...]
    shardy: Sent
    gspmd: Sent | None = None
    why: str | None = None


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    weights = jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k))
    return jnp.einsum("bqk,bkd->bqd", weights, v)


def normalised(a: jax.Array, g: jax.Array) -> jax.Array:
    return a / jnp.sqrt(jnp.mean(a * a, -1, keepdims=True) + 1e-5) * g


def loop(a: jax.Array) -> jax.Array:
    return lax.fori_loop(0, 3, lambda _, x: x @ x.T / 64.0, a)


ROWS = ((64, 8), P("data"))
BOTH = ((64, 64), P("data", "model"))
HEADS = ((4, 16, 8), P("data", "model"))
PROGRAMS: dict[str, Program] = {
    # Neighbours hand over what lies on their borders.
    "slice": Program(lambda a: a[1:33], (ROWS,), {"collective-permute": (1, 480)}),
    "reversed": Program(lambda a: a[::-1] + a, (ROWS,), {"collective-permute": (1, 1024)}),
    "concatenation": Program(
        lambda a, b: jnp.concatenate([a, b]), (ROWS, ROWS), {"all-to-all": (3, 4096)}
    ),
    # What is contracted or reduced over a cut dimension is summed up.
    "product": Program(
        lambda a, b: a @ b,
        (((64, 32), P("data", "model")), ((32, 64), P("model", "data"))),
        {"all-reduce": (1, 8192), "all-gather": (1, 2048)},
    ),
    "normalisation": Program(
        normalised, (((8, 64), P("data", "model")), ((64,), P("model"))), {"all-reduce": (1, 16)}
    ),
    "attention": Program(attention, (HEADS,) * 3, {"all-gather": (2, 2048)}),
    "loop": Program(loop, (BOTH,), {"all-reduce": (3, 24576), "all-gather": (3, 12288)}),
    # Biases and scales are stretched over the batch, which sends nothing.
    "bias": Program(lambda a, b: a * b + b[::-1], (((8, 16, 64), P("data")), ((64,), P())), {}),
    "outer product": Program(
        jnp.outer,
        (((64,), P("data")),) * 2,
        {"all-gather": (1, 256)},
        {"all-to-all": (1, 8192)},
        ANEW,
    ),
    "all distances": Program(
        lambda a, b: ((a[:, None, :] - b[None, :, :]) ** 2).sum(-1),
        (((16, 64), P("data", "model")),) * 2,
        {"all-reduce": (1, 512), "all-gather": (1, 1024)},
        {"all-reduce": (1, 512), "all-to-all": (1, 8192)},
        ANEW,
    ),
    "sum with a transpose": Program(
        lambda a, b: a + b.T,
        (BOTH, BOTH),
        {"all-gather": (4, 45056)},
        {"all-to-all": (1, 2048), "collective-permute": (1, 2048)},
        OPEN,
    ),
}


def propagated(program: Program) -> Module:
    names = list(inspect.signature(program.function).parameters)
    kinds = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape, _ in program.arguments]
    layouts = zip(names, program.arguments, strict=False)  # `outer` has an `out` behind.
    rules = PartitionRules([(f"^{n}$", layout) for n, (_, layout) in layouts], mesh=MESH)
    lowered = jax.jit(program.function).lower(*kinds)
    return run_pipeline(lowered, "sp-annotate,sp-propagate", rules=rules).module


def sent(module: Module) -> Sent:
    """How many collectives of each kind a run makes, and their bytes a device."""
    executable = compile_module(module, devices=8)
    figures = compiled_figures(executable.hlo_text, executable.memory_stats)
    return {row.kind: (row.count, row.bytes) for row in figures.collectives.rows}


def exported(module: Module) -> Module:
    return run_pipeline(module, "sp-export-mhlo").module


def propagated_anew(module: Module) -> Module:
    """As XLA does it: from the arguments and results alone."""

    def drop(op: ir.Operation) -> ir.WalkResult:
        if SDY_SHARDING in op.attributes:
            del op.attributes[SDY_SHARDING]
        return ADVANCE

    bare = module.clone()
    visit(bare.root, drop)
    return run_pipeline(bare, "sp-propagate").module


def with_the_rest_whole(module: Module) -> Module:
    """Each value without a layout, inside or a result, is to lie whole on every device."""
    whole = module.clone()

    def complete(op: ir.Operation) -> ir.WalkResult:
        ranks = [r.type.rank for r in op.results if isinstance(r.type, ir.RankedTensorType)]
        if ranks and SDY_SHARDING not in op.attributes:
            said = ", ".join(map(_whole, ranks))
            text = f"#sdy.sharding_per_value<[{said}]>"
            op.attributes[SDY_SHARDING] = ir.Attribute.parse(text, op.context)
        return ADVANCE

    visit(whole.root, complete)
    entries = [
        given
        if SDY_SHARDING in given
        else with_entry(
            given,
            SDY_SHARDING,
            ir.Attribute.parse(f"#sdy.sharding{_whole(len(result.shape))}", whole.ir.context),
        )
        for given, result in zip(result_attributes(whole.main), whole.results, strict=True)
    ]
    set_result_attributes(whole.main, entries)
    return whole


def _whole(rank: int) -> str:
    return f"<@mesh, [{', '.join(['{}'] * rank)}]>"


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_sent_under_each(name: str) -> None:
    program = PROGRAMS[name]
    module = propagated(program)
    assert sent(module) == program.shardy
    assert sent(exported(module)) == (program.shardy if program.gspmd is None else program.gspmd)
    found_again = propagated_anew(module)
    moved = module.text(debug_info=False) != found_again.text(debug_info=False)
    unknown = any(SDY_SHARDING not in e for e in result_attributes(module.main))
    assert (moved, unknown) == (program.why == ANEW, program.why == OPEN)
    if moved:
        assert sent(exported(found_again)) == program.shardy
    if unknown:
        assert sent(exported(with_the_rest_whole(module))) == program.shardy


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_give_the_unsharded_numbers(name: str) -> None:
    module = propagated(PROGRAMS[name])
    for sharded in (module, exported(module)):
        result = check(sharded, devices=8)
        assert result.ok, result
