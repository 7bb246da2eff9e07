"""What ``to_mhlo`` costs on a mesh of a million devices, beside the same on eight.

    python tools/bench/mhlo_text.py

The meshes are device-free, and no two have the same axis names, so that nothing remembered from the
last one is timed. How far the peak of resident memory grows is measured in a fresh process,
between the small mesh and the large one.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import resource
import subprocess
import sys
from pathlib import Path

from side_by_side import Contender, Ratios, best_times, parser_of, print_environment

from shardpass import Mesh, NamedSharding, P

# Over the same axes, so that rank and number of axes are equal.
AXES = ("pod", "data", "fsdp", "model")
SMALL = (2, 1, 2, 2)
LARGE = (16, 64, 64, 16)
SPECS = (
    (("data",), ("model",)),
    (("pod", "data"), (), ("model",)),
    ((), ("model", "fsdp")),
    (("fsdp", "pod"), ("model",)),
    ((), ()),
)
#: Meshes a round; one text takes microseconds.
COUNT = 20
_numbers = itertools.count()


def texts(sizes: tuple[int, ...], count: int = COUNT) -> list[str]:
    """Each spec on ``count`` device-free meshes, as ``mhlo.sharding``."""
    found: list[str] = []
    for number in itertools.islice(_numbers, count):
        mesh = Mesh(axis_names=[f"{axis}{number}" for axis in AXES], axis_sizes=sizes)
        for spec in SPECS:
            named = P(*(tuple(f"{axis}{number}" for axis in entry) for entry in spec))
            found.append(NamedSharding(mesh, named).to_mhlo(3))
    return found


def grown_peak() -> int:
    """By how many bytes the peak of this process grows for a million devices after eight."""
    texts(SMALL)
    before = peak_bytes()
    texts(LARGE)
    return peak_bytes(forget=False) - before


def peak_bytes(*, forget: bool = True) -> int:
    """The peak of resident memory; ``forget`` lowers it to what is in use now, where Linux lets us.

    The imports reach a peak that is some MiB above what they leave, which growth would hide in.
    """
    if forget:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def main() -> int:
    """Measure, print, and answer for the bounds."""
    parser = parser_of("Time mhlo text on a mesh of a million devices.", repeat=9)
    parser.add_argument("--peak", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print(grown_peak())
        return 0
    print_environment()
    ratios = Ratios()
    large, small = best_times(
        [
            Contender("1,048,576 devices", lambda _: texts(LARGE)),
            Contender("8 devices", lambda _: texts(SMALL)),
        ],
        options.repeat,
        options.clock,
    )
    ratios.add("mhlo text on 1,048,576 devices over 8 devices", large / small, 3.0)
    child = [sys.executable, __file__, "--peak"]
    peaks = [
        int(subprocess.run(child, check=True, capture_output=True, text=True).stdout)
        for _ in range(min(3, options.repeat))
    ]
    ratios.add("growth of the peak of resident memory", min(peaks) / 2**20, 1.0, " MiB")
    return ratios.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
