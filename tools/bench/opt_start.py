"""What ``shardpass opt`` on a small file costs beside importing jax, each in a new process.

    python tools/bench/opt_start.py

The processes run in turn, from the first instruction of the interpreter to its end, as somebody
waits for them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from side_by_side import Contender, Ratios, best_times, parser_of, print_environment

MODULE = """\
sdy.mesh @mesh = <["x"=2, "y"=4]>
func.func @main(%x: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
                %w: tensor<16x32xf32>) -> tensor<8x32xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %1 = stablehlo.tanh %0 : tensor<8x32xf32>
  %2 = stablehlo.add %0, %1 : tensor<8x32xf32>
  return %2 : tensor<8x32xf32>
}
"""
PEER = "import jax"
#: A pass of ours and Shardy's whole propagation; one native pass; and the file printed alone.
PASSES = (["--sp-verify", "--sp-propagate"], ["--sdy-basic-propagate"], [])


def start(name: str, *words: str) -> Contender:
    """A process that is this Python, run with ``words``."""
    command = [sys.executable, *words]
    return Contender(name, lambda _: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))


def main() -> int:
    """Measure, print, and answer for the bound."""
    parser = parser_of("Time shardpass opt on ten lines beside importing jax.", repeat=9)
    options = parser.parse_args()
    print_environment()
    ratios = Ratios()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "ten.mlir")
        file.write_text(MODULE)
        rivals = [start(PEER, "-c", PEER)] + [
            start(
                " ".join(["shardpass opt", *passes]), "-m", "shardpass", "opt", str(file), *passes
            )
            for passes in PASSES
        ]
        # One of each first: reading from a cold disk, and compiling to bytecode, is not the
        # question.
        best_times(rivals, 1)
        peer, *ours = best_times(rivals, options.repeat, options.clock)
    for rival, took in zip(rivals[1:], ours, strict=True):
        ratios.add(f'"{rival.name}" over "{PEER}"', took / peer, 1.5)
    return ratios.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
