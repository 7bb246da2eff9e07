"""The first call of GPT-2's training step under ``shardpass.jit``, beside ``jax.jit``.

Trace, lower, passes and compile, with nothing run: both are lowered and compiled ahead of time from
shapes, alternating, with JAX's caches cleared before each. The peer has the shardings that the plan
found. The passes' own share is printed apart.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import warnings
from pathlib import Path
from typing import Any

from side_by_side import CLOCKS, Ratios, parser_of, print_environment

import shardpass

shardpass.request_cpu_devices(8)
sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "gpt2"))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax.sharding import AxisType  # noqa: E402
from model import Batch, Config, abstract_state, make_step  # noqa: E402

from shardpass.runtime.jitted import planning  # noqa: E402

FOLDER = Path(__file__).parents[2] / "examples" / "gpt2"
#: What the bound allows instead of a ratio, in seconds.
SPARE = 0.5


def measure(*, scan: bool, options: Any) -> tuple[float, float, float]:
    """Median seconds of ours, of the peer's, and of the passes in ours."""
    config = Config(layers=options.layers, scan=scan)
    graph, state = abstract_state(config)
    tokens = jax.ShapeDtypeStruct((8, 128), jnp.int32)
    arguments = (state, Batch(tokens, tokens))
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    rules = FOLDER / ("rules-scan.toml" if scan else "rules.toml")
    now = CLOCKS[options.clock]
    passes: list[float] = []
    derive = planning.derive

    def timed(*args: Any) -> Any:
        traced, *rest = args
        traced.lower()  # Lowered once; what is timed is what passes take.
        started = now()
        found = derive(traced, *rest)
        passes.append(now() - started)
        return found

    def ours() -> Any:
        step = shardpass.jit(make_step(graph), mesh=mesh, rules=rules, donate_argnums=0)
        return step.lower(*arguments).compile()

    with warnings.catch_warnings(action="ignore"):
        compiled = ours()
    places = compiled.input_shardings[0]
    results = compiled.output_shardings

    def theirs() -> Any:
        step = jax.jit(
            make_step(graph), in_shardings=places, out_shardings=results, donate_argnums=0
        )
        return step.lower(*arguments).compile()

    planning.derive = timed
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    with warnings.catch_warnings(action="ignore"):
        for number in range(options.repeat):
            pair = [("ours", ours), ("theirs", theirs)]
            for name, call in pair if number % 2 == 0 else reversed(pair):
                jax.clear_caches()
                gc.collect()
                started = now()
                call()
                times[name].append(now() - started)
    planning.derive = derive
    return tuple(map(statistics.median, (times["ours"], times["theirs"], passes)))


def main() -> int:
    """Print the table."""
    parser = parser_of(__doc__ or "", repeat=5)
    parser.add_argument("--layers", type=int, default=12, help="blocks (12)")
    options = parser.parse_args()
    print_environment()
    ratios = Ratios()
    for what, scan in (("unrolled", False), ("scanned", True)):
        ours, theirs, passes = measure(scan=scan, options=options)
        bound = max(1.10, (theirs + SPARE) / theirs)
        ratios.add(f"GPT-2, {what}: shardpass.jit / jax.jit", ours / theirs, round(bound, 3))
        ratios.add(f"GPT-2, {what}: passes / jax.jit", passes / theirs)
    return ratios.exit_code(options)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
