"""The rules of each example give the plan that they promise, and the numbers stay the same."""

import pytest

from shardpass import Module, run_pipeline
from shardpass.report import compiled_figures
from shardpass.runtime import check, compile_module
from tests.examples.settings import EXAMPLES, SMALL_GPT2, Export

CASES = [
    ("mlp", "rules.toml", ()),
    ("gpt2", "rules.toml", SMALL_GPT2),
    ("gpt2", "rules-scan.toml", (*SMALL_GPT2, "--scan")),
]


@pytest.fixture(params=CASES, ids=["mlp", "gpt2", "gpt2-scan"])
def annotated(request: pytest.FixtureRequest, export: Export) -> Module:
    example, rules, options = request.param
    path = export(example, *options)
    result = run_pipeline(path, "sp-annotate", rules=EXAMPLES / example / rules)
    assert result.diagnostics == ()
    return result.module


@pytest.mark.parametrize(
    "tail",
    [
        "sp-propagate",
        "sp-propagate,sp-export-mhlo",
        "sp-propagate,sp-export-mhlo,sp-import-mhlo",
    ],
)
def test_the_sharded_step_computes_what_the_step_computes(annotated: Module, tail: str):
    sharded = run_pipeline(annotated, tail).module
    result = check(sharded, devices=8)
    assert result.ok, result
    assert len(result.rows) == len(annotated.results)


def collectives(module: Module) -> dict[str, int]:
    """How many collectives of each kind a run of the compiled module makes."""
    executable = compile_module(module, devices=8)
    figures = compiled_figures(executable.hlo_text, executable.memory_stats)
    return {row.kind: row.count for row in figures.collectives.rows}


def test_a_step_that_was_exported_and_imported_is_the_same_program(annotated: Module):
    here = run_pipeline(annotated, "sp-propagate").module
    back = run_pipeline(here, "sp-export-mhlo,sp-import-mhlo").module
    assert collectives(back) == collectives(here)


def test_gspmd_sends_what_shardy_sends(annotated: Module):
    """The collectives of both partitioners are the same: kinds, counts and bytes.

    ``tests/passes/test_partitioners.py`` lists programs for which they are not. Without the
    reshapes that ``sp-prepare-for-xla`` puts in front of broadcasts, GSPMD would cut each dimension
    of one element that a step stretches (biases over the batch) and send it around.
    """
    here = run_pipeline(annotated, "sp-propagate").module
    there = run_pipeline(here, "sp-export-mhlo").module
    assert collectives(there) == collectives(here)
    assert sent(there) == sent(here)


def sent(module: Module) -> int:
    """The bytes of all collectives in a run, a device."""
    executable = compile_module(module, devices=8)
    figures = compiled_figures(executable.hlo_text, executable.memory_stats)
    return sum(row.bytes for row in figures.collectives.rows)


def test_gpt2_is_parallel_as_megatron_is(export: Export):
    """All-reduces, and no device is ever sent another's weights or activations.

    For each block two in the forward pass (behind ``attn.out`` and ``mlp.proj``) and two in the
    backward pass; one for the embedding of tokens, three for the softmax over a cut vocabulary and
    the gradient of its logits' input, and one for all gradients over ``data``.
    """
    path = export("gpt2", *SMALL_GPT2)
    rules = EXAMPLES / "gpt2" / "rules.toml"
    sharded = run_pipeline(path, "sp-annotate,sp-propagate", rules=rules).module
    found = collectives(sharded)
    assert set(found) == {"all-reduce"}
    assert 2 * 4 + 4 <= found["all-reduce"] <= 2 * 4 + 6
