"""What our passes cost beside Shardy's own pipeline, on GPT-2 and on a Llama-shaped step.

    python tools/bench/passes.py                  # both models, Llama with 126 layers
    python tools/bench/passes.py --layers 12      # quicker
    python tools/bench/passes.py --module step.mlir --rules rules.toml

Two comparisons for each module, both with MLIR's verifier behind every pass:

* sp-annotate, sp-propagate and sp-export-mhlo, beside ``sdy-propagation-pipeline`` with its default
  options on the module that sp-annotate makes;
* all that ``shardpass shard IN -o OUT`` does in its process (read, verify, annotate, propagate,
  print, write), beside parsing the annotated text, that pipeline, and printing.

What an earlier round left in shardpass's caches is forgotten before each round, so that each costs
what the first in a process does.

And how the time per op grows from a few layers to all of them. Shardy's own growth is printed for
context, and that of what our passes add to it.
"""

from __future__ import annotations

import argparse
import functools
import gc
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import llama
from jax.extend.mlir import ir, passmanager
from side_by_side import Contender, Ratios, best_times, parser_of, print_environment

from shardpass import PartitionRules, load, run_pipeline, save
from shardpass.mlir import Module, make_context, operations
from shardpass.passes.annotate import Annotate
from shardpass.passes.export_mhlo import ExportMhlo
from shardpass.passes.propagate import Propagate
from shardpass.passes.verify import Verify

EXAMPLE = Path(__file__).parents[2] / "examples" / "gpt2"
Given = TypeVar("Given")
NATIVE = "builtin.module(sdy-propagation-pipeline)"


@dataclass(frozen=True)
class Subject:
    """A module that nobody has annotated, and the rules for it."""

    name: str
    text: str
    rules: Path

    @cached_property
    def module(self) -> Module:
        """The module, parsed once; each round takes a clone."""
        return load(self.text.encode(), name=self.name)

    @cached_property
    def annotated(self) -> Module:
        """What the peer starts from."""
        return run_pipeline(self.module, Annotate(rules=self.rules)).module

    @cached_property
    def ops(self) -> int:
        """How many ops the module has."""
        return sum(1 for _ in operations(self.module.root))

    def passes(self) -> tuple[Contender, Contender]:
        """Our passes and the native pipeline, both on a module in memory."""
        steps = [Annotate(rules=PartitionRules.load(self.rules)), Propagate(), ExportMhlo()]
        return (
            Contender(
                "ours",
                lambda module: run_pipeline(module, steps, in_place=True),
                lambda: forget(self.module.clone()),
            ),
            Contender("native", lambda module: propagate(module.ir), self.annotated.clone),
        )

    def whole(self, folder: Path) -> tuple[Contender, Contender]:
        """From a file to a file as ``shardpass shard`` does it, and the native way."""
        source, annotated = folder / "in.mlir", folder / "annotated.mlir"
        source.write_text(self.text)
        annotated.write_text(self.annotated.text(debug_info=True))

        def shard(_: None) -> Module:
            module = load(source)
            steps = [Verify(), Annotate(rules=str(self.rules)), Propagate()]
            result = run_pipeline(module, steps, in_place=True)
            save(result.module, folder / "out.mlir")
            return result.module

        def native(_: None) -> str:
            with make_context():
                module = ir.Module.parse(annotated.read_text())
            propagate(module)
            return module.operation.get_asm(enable_debug_info=True)

        return Contender("ours", shard, lambda: forget(None)), Contender("native", native)


def forget(argument: Given) -> Given:
    """Empty what shardpass remembers from one call to the next, and hand the argument on."""
    caches = (o for o in gc.get_objects() if isinstance(o, functools._lru_cache_wrapper))
    for cache in caches:
        if cache.__module__.startswith("shardpass."):
            cache.cache_clear()
    re.purge()
    return argument


def propagate(module: ir.Module) -> ir.Module:
    """Shardy's pipeline with default options and the verifier on, which is MLIR's default."""
    with module.context:
        passmanager.PassManager.parse(NATIVE).run(module.operation)
    return module


def gpt2(layers: int) -> Subject:
    """The demo's step; the real model has twelve layers."""
    sys.path.insert(0, str(EXAMPLE))
    from export_step import lower_step
    from model import Config

    lowered = lower_step(Config(layers=min(layers, Config.layers)), 8, 128)
    return Subject("gpt2", lowered.as_text(debug_info=True), EXAMPLE / "rules.toml")


def llama_step(options: argparse.Namespace, layers: int) -> Subject:
    """The Llama-shaped step."""
    lowered = llama.lower_step(llama.config_of(options, layers))
    return Subject(f"llama, {layers} layers", lowered.as_text(debug_info=True), llama.RULES)


def subjects(options: argparse.Namespace) -> Iterator[Subject]:
    """The modules to measure, each made when its turn comes."""
    if options.module:
        yield Subject(options.module.name, load(options.module).text(), options.rules)
        return
    if options.model in ("gpt2", "both"):
        yield gpt2(options.layers)
    if options.model in ("llama", "both"):
        yield llama_step(options, options.layers)


def measure_growth(
    few: Subject, many: Subject, ratios: Ratios, options: argparse.Namespace
) -> None:
    """Print the time per op of ``many`` over that of ``few``."""
    contenders = [*few.passes(), *many.passes()]
    ours_few, native_few, ours_many, native_many = best_times(
        contenders, options.repeat, options.clock
    )
    grown = many.ops / few.ops
    what = f"time per op, {many.name} ({many.ops} ops) over {few.name}"
    ratios.add(f"{what}: ours", ours_many / ours_few / grown, 1.2)
    ratios.add(f"{what}: native", native_many / native_few / grown)
    added_few, added_many = ours_few - native_few, ours_many - native_many
    if added_few > 0:
        ratios.add(f"{what}: ours minus native", added_many / added_few / grown)


def main() -> int:
    """Measure, print, and answer for the bounds."""
    parser = parser_of("Time our passes beside Shardy's own pipeline.")
    parser.add_argument("--model", choices=("gpt2", "llama", "both"), default="both")
    parser.add_argument("--few-layers", type=int, default=12, help="where growth starts (12)")
    parser.add_argument("--module", type=Path, help="a module of yours, instead of the models")
    parser.add_argument("--rules", type=Path, help="the rules for --module, with their mesh")
    llama.add_options(parser)
    options = parser.parse_args()
    if options.module and not options.rules:
        parser.error("--module needs --rules")
    print_environment()
    ratios = Ratios()
    for subject in subjects(options):
        print(f"# {subject.name}: {subject.ops} ops, {len(subject.text) / 1e6:.1f} MB of text")
        ours, native = best_times(subject.passes(), options.repeat, options.clock)
        ratios.add(
            f"{subject.name}: annotate + propagate + export-mhlo over native", ours / native, 1.10
        )
        with tempfile.TemporaryDirectory() as folder:
            contenders = subject.whole(Path(folder))
            ours, native = best_times(contenders, options.repeat, options.clock)
        ratios.add(f"{subject.name}: shard IN -o OUT over parse, native, print", ours / native, 1.3)
        if subject.name.startswith("llama") and options.few_layers < options.layers:
            few = llama_step(options, options.few_layers)
            measure_growth(few, subject, ratios, options)
    return ratios.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
