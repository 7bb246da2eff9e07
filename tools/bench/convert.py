"""What the converters between GSPMD's notation and Shardy's cost beside Shardy's own pipeline.

    python tools/bench/convert.py                 # Llama with 126 layers
    python tools/bench/convert.py --layers 24     # quicker

* sp-export-mhlo on the propagated step, and sp-import-mhlo on what it gives, each beside
  ``sdy-propagation-pipeline`` on the annotated step: all with MLIR's verifier behind every pass;
* how the time per op of each grows from a few layers to all of them;
* the one mesh for 500 distinct tile assignments over 4,096 devices, beside that pipeline on the
  module that holds them on its arguments; and what it takes to read them from their texts first.

What an earlier round left in shardpass's caches is forgotten before each round.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import llama
from passes import Subject, forget, llama_step, propagate
from side_by_side import Contender, Ratios, best_times, parser_of, print_environment

from shardpass import load, run_pipeline
from shardpass.canon import (
    AxisRef,
    DimSharding,
    HloSharding,
    MeshShape,
    TensorSharding,
    common_mesh,
    to_hlo,
)
from shardpass.mlir import Module
from shardpass.passes.base import Pass
from shardpass.passes.export_mhlo import ExportMhlo
from shardpass.passes.import_mhlo import ImportMhlo
from shardpass.passes.propagate import Propagate

DEVICES = 4096
ASSIGNMENTS = 500


@dataclass(frozen=True)
class Step:
    """The step in every form that a contender starts from."""

    subject: Subject

    @cached_property
    def propagated(self) -> Module:
        """In Shardy's notation."""
        return run_pipeline(self.subject.annotated, Propagate()).module

    @cached_property
    def exported(self) -> Module:
        """In GSPMD's."""
        return run_pipeline(self.propagated, ExportMhlo()).module

    def contenders(self) -> list[Contender]:
        """Export, import, and Shardy's pipeline."""
        return [
            Contender("export", _through(ExportMhlo()), lambda: forget(self.propagated.clone())),
            Contender("import", _through(ImportMhlo()), lambda: forget(self.exported.clone())),
            Contender("native", lambda m: propagate(m.ir), self.subject.annotated.clone),
        ]


def _through(step: Pass) -> Callable[[Module], object]:
    return lambda module: run_pipeline(module, step, in_place=True)


def assignments() -> list[HloSharding]:
    """Distinct tile assignments over the 4,096 devices, all of the axes of one mesh; seeded."""
    chance = random.Random(7)
    names = [f"a{index}" for index in range(DEVICES.bit_length() - 1)]
    mesh = MeshShape(tuple((name, 2) for name in names))
    found: dict[HloSharding, None] = {}
    while len(found) < ASSIGNMENTS:
        axes = [AxisRef(name) for name in chance.sample(names, chance.randint(1, len(names)))]
        cut = chance.randint(0, len(axes))
        dims = (DimSharding(tuple(axes[:cut])), DimSharding(tuple(axes[cut:])))
        found.setdefault(to_hlo(TensorSharding(mesh, dims)))
    return list(found)


def holding(shardings: list[HloSharding]) -> Module:
    """A module with one argument, and one op on it, for each of ``shardings``."""
    kind = f"tensor<{DEVICES}x{DEVICES}xf32>"
    arguments = ", ".join(
        f'%a{i}: {kind} {{mhlo.sharding = "{sharding}"}}' for i, sharding in enumerate(shardings)
    )
    ops = "\n".join(f"  %{i} = stablehlo.abs %a{i} : {kind}" for i in range(len(shardings)))
    return load(f"func.func @main({arguments}) {{\n{ops}\n  return\n}}\n".encode())


def measure_step(step: Step, ratios: Ratios, options: argparse.Namespace) -> None:
    """Print what either direction takes beside the native pipeline."""
    export, back, native = best_times(step.contenders(), options.repeat, options.clock)
    ratios.add(f"{step.subject.name}: export over native", export / native, 1.0)
    ratios.add(f"{step.subject.name}: import over native", back / native, 1.0)


def measure_growth(few: Step, many: Step, ratios: Ratios, options: argparse.Namespace) -> None:
    """Print the time per op of ``many`` over that of ``few``."""
    contenders = [*few.contenders()[:2], *many.contenders()[:2]]
    times = best_times(contenders, options.repeat, options.clock)
    grown = many.subject.ops / few.subject.ops
    what = f"time per op, {many.subject.name} over {few.subject.name}"
    for index, name in enumerate(("export", "import")):
        ratios.add(f"{what}: {name}", times[2 + index] / times[index] / grown, 1.2)


def measure_mesh(ratios: Ratios, options: argparse.Namespace) -> None:
    """Print what finding the mesh takes beside the native pipeline."""
    shardings = assignments()
    texts = [str(sharding) for sharding in shardings]
    imported = run_pipeline(holding(shardings), ImportMhlo()).module
    contenders = [
        Contender("mesh", common_mesh, lambda: read_anew(texts)),
        Contender("reading", lambda _: read_anew(texts), lambda: None),
        Contender("native", lambda m: propagate(m.ir), imported.clone),
    ]
    mesh, reading, native = best_times(contenders, options.repeat, options.clock)
    what = f"{ASSIGNMENTS} assignments over {DEVICES:,} devices"
    ratios.add(f"the mesh of {what} over native", mesh / native, 1.0)
    ratios.add(f"reading {what} over native", reading / native)


def read_anew(texts: list[str]) -> list[HloSharding]:
    """The shardings that ``texts`` say, with nothing remembered of them."""
    forget(0)
    return [HloSharding.parse(text) for text in texts]


def main() -> int:
    """Measure, print, and answer for the bounds."""
    parser = parser_of("Time the converters beside Shardy's own pipeline.")
    parser.add_argument("--few-layers", type=int, default=24, help="where growth starts (24)")
    llama.add_options(parser)
    options = parser.parse_args()
    print_environment()
    ratios = Ratios()
    many = Step(llama_step(options, options.layers))
    print(f"# {many.subject.name}: {many.subject.ops} ops")
    measure_step(many, ratios, options)
    if options.few_layers < options.layers:
        few = Step(llama_step(options, options.few_layers))
        measure_growth(few, many, ratios, options)
    measure_mesh(ratios, options)
    return ratios.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
