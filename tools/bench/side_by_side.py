"""Two ways to do one thing, timed in turn, and the table of ratios that comes of it.

A time says more of the machine than of the program. So every figure here is a ratio to a named peer
that ran in the same process, in turn with it: what slows the machine for a while slows both, and
the best of several rounds is what is left when nothing did.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


def processor_seconds() -> float:
    """User and system time of this process, its threads and its finished children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": processor_seconds}


@dataclass(frozen=True)
class Contender:
    """One of the things that are timed in turn.

    Attributes:
      name: what the table calls it.
      run: what is timed.
      prepare: makes the argument of ``run`` for each round, untimed.
    """

    name: str
    run: Callable[[Any], object]
    prepare: Callable[[], Any] = lambda: None


def best_times(contenders: Sequence[Contender], repeat: int, clock: str = "wall") -> list[float]:
    """The least seconds that each took in ``repeat`` rounds; who goes first changes each round."""
    now = CLOCKS[clock]
    best = [float("inf")] * len(contenders)
    for number in range(repeat):
        order = range(len(contenders))
        for index in order if number % 2 == 0 else reversed(order):
            argument = contenders[index].prepare()
            # What the one left behind must not be collected while the other is timed.
            gc.collect()
            started = now()
            kept = contenders[index].run(argument)
            best[index] = min(best[index], now() - started)
            del kept, argument
    return best


@dataclass
class Ratios:
    """The figures of one program, printed as they come, and whether any missed its bound."""

    missed: list[str] = field(default_factory=list)

    def add(self, what: str, figure: float, bound: float | None = None, unit: str = "") -> None:
        """Print one figure beside its bound; without a bound it is there for context."""
        text = f"{figure:.3f}{unit}"
        if bound is None:
            print(f"{what:<72} {text:>12}", flush=True)
            return
        held = figure <= bound
        if not held:
            self.missed.append(what)
        verdict = "ok" if held else "MISSED"
        print(f"{what:<72} {text:>12}  at most {bound:g}{unit}  {verdict}", flush=True)

    def exit_code(self, options: argparse.Namespace) -> int:
        """1 where a bound was missed and ``--assert`` was given."""
        return 1 if self.missed and options.insist else 0


def parser_of(description: str, *, repeat: int = 5) -> argparse.ArgumentParser:
    """A command line with the options that all benches share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--repeat", type=int, default=repeat, help=f"rounds, of which the best counts ({repeat})"
    )
    parser.add_argument(
        "--clock",
        choices=tuple(CLOCKS),
        default="wall",
        help="wall, or cpu: processor time, steadier on a busy machine (wall)",
    )
    parser.add_argument(
        "--assert",
        dest="insist",
        action="store_true",
        help="exit with 1 where a bound is missed; by default it is only printed",
    )
    return parser


def print_environment() -> None:
    """What the figures below were measured on."""
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("jax", "jaxlib", "numpy")
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(f"# {versions}, Python {platform.python_version()}, {sys.platform}, {cores} cores")
    if hasattr(os, "getloadavg"):
        print(f"# load average {os.getloadavg()[0]:.1f}: above the cores, expect noise")
    print(
        f"# a page that rested for a second: {resting_page() * 1e6:.1f} us to touch; above 1, the "
        "machine under this one takes memory back, and Python pays more for that than C++"
    )


def resting_page() -> float:
    """Seconds that a page of memory takes which nobody touched for a second; the median of 5.

    Some virtual machines lose the mapping of a page that rests. Code that runs once in a round then
    pays for each page that it meets, and the interpreter and its objects are spread over many.
    """
    pages = 256
    memory = bytearray(pages * 4096)
    found: list[float] = []
    for _ in range(5):
        sum(memory[::4096])
        time.sleep(1)
        started = time.perf_counter()
        sum(memory[::4096])
        found.append((time.perf_counter() - started) / pages)
    return sorted(found)[2]
