"""What the exporters write: names, donation, shapes; and that the rules cover all of it."""

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from jax.extend.mlir.dialects import stablehlo

import shardpass
from shardpass.mlir import aliases_of, collect, entry_function
from shardpass.partition_rules import PartitionRules
from tests.examples.settings import EXAMPLES, SMALL_GPT2, Export


def paths(module: shardpass.Module) -> dict[str, tuple[int, ...]]:
    """Path and shape of every argument."""
    return {argument.path: argument.shape for argument in module.arguments}


def test_the_network_has_the_names_that_its_rules_speak_of(export: Export):
    module = shardpass.load(export("mlp"))
    assert paths(module) == {
        "state.momenta.fc.bias": (256,),
        "state.momenta.fc.kernel": (64, 256),
        "state.momenta.proj.bias": (16,),
        "state.momenta.proj.kernel": (256, 16),
        "state.weights.fc.bias": (256,),
        "state.weights.fc.kernel": (64, 256),
        "state.weights.proj.bias": (16,),
        "state.weights.proj.kernel": (256, 16),
        "batch.images": (32, 64),
        "batch.labels": (32,),
    }
    assert module.results[0].path == "result.0.momenta.fc.bias"
    assert module.results[-1].path == "result.1"


def test_gpt2_has_the_real_sizes(export: Export):
    """124,439,808 parameters with the 50,257 tokens of the paper, and 47 rows of padding."""
    shapes = paths(shardpass.load(export("gpt2")))
    model = {path: shape for path, shape in shapes.items() if path.startswith("state.model.")}
    assert sum(map(math.prod, model.values())) == 124_439_808 + 47 * 768
    assert len(model) == 148
    assert shapes["state.model.h.11.attn.qkv.kernel"] == (768, 3, 12, 64)
    assert shapes["state.model.wte.embedding"] == (50304, 768)
    assert shapes["batch.tokens"] == shapes["batch.targets"] == (8, 128)
    assert len(shapes) == 3 * 148 + 1 + 2


def test_moments_are_named_after_their_parameter(export: Export):
    shapes = paths(shardpass.load(export("gpt2", *SMALL_GPT2)))
    model = {
        path.removeprefix("state.model."): shape
        for path, shape in shapes.items()
        if path.startswith("state.model.")
    }
    for moment in ("mu", "nu"):
        start = f"state.optimizer.0.{moment}."
        moments = {p.removeprefix(start): s for p, s in shapes.items() if p.startswith(start)}
        assert moments == model


@pytest.mark.parametrize(("example", "options"), [("mlp", ()), ("gpt2", SMALL_GPT2)])
def test_the_whole_state_is_donated(example: str, options: tuple[str, ...], export: Export):
    module = shardpass.load(export(example, *options))
    donated = aliases_of(entry_function(module.ir.operation))
    state = [a for a in module.arguments if a.path.startswith("state.")]
    assert sorted(donated.values()) == [argument.index for argument in state]
    for result, argument in donated.items():
        new = module.results[result].path.removeprefix("result.0.")
        assert module.arguments[argument].path == f"state.{new}"


@pytest.mark.parametrize(
    ("example", "rules", "options"),
    [
        ("mlp", "rules.toml", ()),
        ("gpt2", "rules.toml", SMALL_GPT2),
        ("gpt2", "rules-scan.toml", (*SMALL_GPT2, "--scan")),
    ],
)
def test_the_rules_cover_every_argument_and_result_and_none_is_idle(
    example: str, rules: str, options: tuple[str, ...], export: Export
):
    module = shardpass.load(export(example, *options))
    read = PartitionRules.load(EXAMPLES / example / rules)
    values = [*module.arguments, *module.results]
    matches = {v.path: read.for_value(v.path, v.raw, v.shape) for v in values}
    assert [path for path, match in matches.items() if match is None] == []
    assert {match.index for match in matches.values() if match} == set(range(len(read.rules)))


def test_a_scanned_step_has_one_loop_each_way_and_stacked_weights(export: Export):
    module = shardpass.load(export("gpt2", *SMALL_GPT2, "--scan"))
    assert len(collect(module.ir.operation, stablehlo.WhileOp)) == 2
    assert paths(module)["state.model.h.mlp.fc.kernel"] == (2, 64, 256)


def test_bytecode_holds_the_module_of_the_text(export: Export):
    text = shardpass.load(export("gpt2", *SMALL_GPT2))
    path = export("gpt2", *SMALL_GPT2, "--emit", "bytecode")
    assert path.read_bytes().startswith(b"ML\xefR")
    assert shardpass.load(path).text(debug_info=False) == text.text(debug_info=False)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--sequence", "2048", "--sequence 2048 exceeds the context of 1024"),
        ("--width", "100", "--width 100 is not a multiple of --heads 12"),
    ],
)
def test_sizes_that_cannot_be_are_refused(option: str, value: str, message: str, tmp_path: Path):
    script = EXAMPLES / "gpt2" / "export_step.py"
    run = subprocess.run(
        [sys.executable, str(script), "-o", str(tmp_path / "step.mlir"), option, value],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 2
    assert re.sub(r"\s+", " ", run.stderr).strip().endswith(message)
    assert not (tmp_path / "step.mlir").exists()
