"""What importing the package costs beside importing jax, each in a process of its own.

    python tools/bench/import_time.py

The processes run in turn, from the first instruction of the interpreter to its end, as somebody
waits for them.
"""

from __future__ import annotations

import subprocess
import sys

from side_by_side import Contender, Ratios, best_times, parser_of, print_environment

OURS = "import shardpass; shardpass.NamedSharding"
PEER = "import jax"


def start(code: str) -> Contender:
    """A process that runs ``code`` and nothing else."""
    command = [sys.executable, "-c", code]
    return Contender(code, lambda _: subprocess.run(command, check=True))


def main() -> int:
    """Measure, print, and answer for the bound."""
    parser = parser_of("Time importing the package beside importing jax.", repeat=9)
    options = parser.parse_args()
    print_environment()
    ratios = Ratios()
    # One of each first: reading from a cold disk, and compiling to bytecode, is not the question.
    best_times([start(OURS), start(PEER)], 1)
    ours, peer = best_times([start(OURS), start(PEER)], options.repeat, options.clock)
    ratios.add(f'"{OURS}" over "{PEER}"', ours / peer, 1.15)
    return ratios.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
