"""What the sharding objects cost beside those of ``jax.sharding``, call by call.

    python tools/bench/sharding_objects.py                     # on 8, 512 and 4096 virtual devices
    python tools/bench/sharding_objects.py --devices 8 --repeat 9

Six specs with swapped, grouped and unused axes, on a mesh of three axes. *Cold* is a question that
neither side has met: a new shape for index maps and shard shapes, a mesh with new axis names for
what depends on no shape. An index map is read to the end, and has to be a plain dict of the
caller's own: JAX keeps the one that it returns, so that it is copied there. *Warm* is the same
call again.

Placing an array and calling a jitted function are compared with JAX's ``NamedSharding`` of the same
layout, on the first eight devices.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from side_by_side import Contender, Ratios, best_times, parser_of, print_environment

COUNTS = (8, 512, 4096)
#: Major to minor, over axes of these letters; the mesh of 8 is 2x2x2.
SIZES = {8: (2, 2, 2), 512: (8, 8, 8), 4096: (16, 16, 16)}
SPECS: tuple[tuple[Any, ...], ...] = (
    ("a", "b"),
    ("b", "a"),
    (("a", "b"), "c"),
    (("c", "a"), None),
    (None, "b"),
    (("c", "b", "a"), None),
)
_numbers = itertools.count()


class Side:
    """One library's classes, with the same call for each question."""

    def __init__(self, name: str, sharding: Any, own_dict: bool) -> None:
        self.name = name
        self.mesh: Callable[..., Any] = sharding.Mesh
        self.spec: Callable[..., Any] = sharding.PartitionSpec
        self.named: Callable[..., Any] = sharding.NamedSharding
        self._own_dict = own_dict

    def shardings(self, devices: Any, names: Sequence[str] = "abc") -> list[Any]:
        """The six specs on a mesh of ``devices`` with axes of these names."""
        mesh, new = self.mesh(devices, tuple(names)), dict(zip("abc", names, strict=True))
        return [self.named(mesh, self.spec(*_renamed(spec, new))) for spec in SPECS]

    def index_map(self, sharding: Any, shape: tuple[int, ...]) -> dict[Any, Any]:
        """The index map as the caller's own."""
        found = sharding.devices_indices_map(shape)
        return found if self._own_dict else dict(found)

    def text(self, sharding: Any) -> str:
        """The ``mhlo.sharding`` on two dimensions."""
        if self._own_dict:
            return sharding.to_mhlo(2)
        return repr(sharding._to_xla_hlo_sharding(2))


def _renamed(spec: tuple[Any, ...], new: dict[str, str]) -> list[Any]:
    return [
        None if e is None else tuple(map(new.get, e)) if isinstance(e, tuple) else new[e]
        for e in spec
    ]


def new_names() -> list[str]:
    """Axis names that no mesh has had."""
    return [f"{letter}{next(_numbers)}" for letter in "abc"]


def new_shape(devices: int) -> tuple[int, int]:
    """A shape that every spec divides and that no call has had."""
    return devices * (next(_numbers) + 1), devices * 2


def members(side: Side, devices: Any) -> Iterator[tuple[str, Contender, Contender]]:
    """What is asked of one side: the name of the question, cold and warm."""
    known, count = side.shardings(devices), devices.size

    def read(job: tuple[list[Any], tuple[int, ...]]) -> int:
        shardings, shape = job
        total = 0
        for sharding in shardings:
            for index in side.index_map(sharding, shape).values():
                total += len(index)
        return total

    def shapes(job: tuple[list[Any], list[tuple[int, ...]]]) -> int:
        shardings, asked = job
        return sum(len(s.shard_shape(shape)) for s in shardings for shape in asked)

    def equivalent(job: list[tuple[Any, Any]]) -> bool:
        return all(one.is_equivalent_to(other, 2) for one, other in job)

    def texts(job: list[Any]) -> int:
        return sum(len(side.text(sharding)) for sharding in job)

    def fresh_pairs(times: int) -> list[tuple[Any, Any]]:
        return [
            pair
            for _ in range(times)
            for pair in zip(
                side.shardings(devices, new_names()),
                side.shardings(devices, new_names()),
                strict=True,
            )
        ]

    def fresh(times: int) -> list[Any]:
        return [s for _ in range(times) for s in side.shardings(devices, new_names())]

    def contender(run: Callable[[Any], object], prepare: Callable[[], Any]) -> Contender:
        return Contender(side.name, run, prepare)

    maps = (known, new_shape(count))
    yield (
        "devices_indices_map",
        contender(read, lambda: (known, new_shape(count))),
        contender(read, lambda: (read(maps), maps)[1]),
    )
    same = (known, [new_shape(count) for _ in range(200)])
    yield (
        "shard_shape",
        contender(shapes, lambda: (known, [new_shape(count) for _ in range(50)])),
        contender(shapes, lambda: (shapes(same), same)[1]),
    )
    pairs, many = fresh_pairs(1), fresh(1)
    yield (
        "is_equivalent_to",
        contender(equivalent, lambda: fresh_pairs(10)),
        contender(equivalent, lambda: (equivalent(pairs), pairs * 200)[1]),
    )
    yield (
        "lowering to mhlo text",
        contender(texts, lambda: fresh(10)),
        contender(texts, lambda: (texts(many), many * 200)[1]),
    )


def construction(side: Side, devices: Any) -> Contender:
    """A thousand times a spec, and a sharding with it."""
    mesh = side.mesh(devices, ("a", "b", "c"))
    named, spec = side.named, side.spec

    def build(_: None) -> None:
        for _ in range(1000):
            for entries in SPECS:
                named(mesh, spec(*entries))

    return Contender(side.name, build)


def measure_members(
    ours: Side, theirs: Side, count: int, devices: Sequence[Any], options: argparse.Namespace
) -> Iterator[tuple[str, float, float]]:
    """Every question on ``count`` devices: its name, the ratio, the bound."""
    import numpy as np

    array = np.array(devices[:count], dtype=object).reshape(SIZES[count])
    cold_bounds = {"devices_indices_map": 0.5 if count >= 4096 else 1.0}
    questions = zip(members(ours, array), members(theirs, array), strict=True)
    for (what, our_cold, our_warm), (_, their_cold, their_warm) in questions:
        a, b = best_times((our_cold, their_cold), options.repeat, options.clock)
        yield f"{count} devices, cold: {what}", a / b, cold_bounds.get(what, 1.0)
        a, b = best_times((our_warm, their_warm), options.repeat, options.clock)
        yield f"{count} devices, warm: {what}", a / b, 1.5
    a, b = best_times(
        (construction(ours, array), construction(theirs, array)), options.repeat, options.clock
    )
    yield f"{count} devices: construction with its spec", a / b, 2.0


def main() -> int:
    """Measure, print, and answer for the bounds."""
    parser = parser_of("Time our sharding objects beside JAX's.")
    parser.add_argument(
        "--devices",
        type=int,
        nargs="+",
        choices=COUNTS,
        default=COUNTS,
        help="how many virtual devices (8 512 4096)",
    )
    parser.add_argument(
        "--calls", type=int, default=200, help="placements and jitted calls in a round (200)"
    )
    options = parser.parse_args()
    # Before JAX starts. The devices are pieces of the host, and nothing runs on more than eight.
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={max(*options.devices, 8)}"
    import jax
    import live_shardings

    import shardpass.sharding

    print_environment()
    ratios = Ratios()
    ours = Side("ours", shardpass.sharding, own_dict=True)
    theirs = Side("theirs", jax.sharding, own_dict=False)
    for count in options.devices:
        for what, figure, bound in measure_members(ours, theirs, count, jax.devices(), options):
            ratios.add(what, figure, bound)
    for what, figure, bound in live_shardings.measure(jax.devices()[:8], options):
        ratios.add(what, figure, bound)
    return ratios.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
