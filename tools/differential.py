"""The converters against XLA's own, on modules that nobody wrote.

    python tools/differential.py                   # 1,000 modules, both ways
    python tools/differential.py --count 60 --seed 5

Each module is made from a seed of its own, which is printed with what differs: ``--seed N --count
1`` makes it again. Of each kind of difference that is not known, the smallest module is looked for
that still shows it. Three questions are asked:

* **export**: what XLA writes as ``mhlo.sharding`` on the way to HLO, against ``sp-export-mhlo``;
* **round trip**: the module that XLA hands back from HLO, through ``sp-import-mhlo``, against the
  module itself;
* **import**: what XLA's importer makes of a module in GSPMD's notation, against ``sp-import-mhlo``.

XLA aborts the process on some modules, so it is asked in a child, many modules to one, and the next
child begins behind the module that killed the last. Where it aborts, ours must give the same layout
back from its own export, or an error.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from differential_modules import gspmd_module, shardy_module
from differential_shrinking import Make, shrink
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, sdy

from shardpass import Module, ShardingError, load, run_pipeline
from shardpass.canon import TensorSharding, is_equivalent, to_hlo
from shardpass.mlir import (
    MHLO_SHARDING,
    SDY_SHARDING,
    Shardings,
    argument_attributes,
    operations,
    read_mhlo,
    result_attributes,
)
from shardpass.passes.inlining import callees_of, functions_of

Question = Literal["export", "round trip", "import"]
Oracle = Literal["export", "import"]

#: Ours says the axes that the tiles say. jaxlib 0.10 drops them; 0.12 adds those of the replicas,
#: which hold finished values.
PARTIAL = "the axes of partial results"
#: Differences in which ours is right.
KNOWN = frozenset({PARTIAL})
PROJECT = Path(__file__).resolve().parents[1]
ORACLE = Path(__file__).with_name("differential_oracle.py")


@dataclass(frozen=True)
class Difference:
    """Where ours and XLA's differ, or one of them fails.

    ``kind`` is short and the same for all of its kind; ``told`` has the values.
    """

    question: Question
    seed: int
    kind: str
    told: str


def ask(texts: Sequence[str], what: Oracle) -> list[str | None]:
    """What XLA makes of each module: text, or ``None`` where it aborted or gave nothing."""
    answers: list[str | None] = []
    with tempfile.TemporaryDirectory() as folder:
        while len(answers) < len(texts):
            rest = texts[len(answers) :]
            done = subprocess.run(
                [sys.executable, str(ORACLE), what, folder],
                input=json.dumps(rest),
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "PYTHONPATH": str(PROJECT), "JAX_PLATFORMS": "cpu"},
            )
            lines = [json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{"]
            answers += [line["answer"] for line in lines]
            if len(lines) < len(rest):
                if not lines and done.returncode > 0:
                    raise RuntimeError(f"the oracle itself failed:\n{done.stderr[-2000:]}")
                answers.append(_left_behind(folder))
    return answers


def _left_behind(folder: str) -> str | None:
    """The dump of a module that killed the child after it was imported."""
    dumps = sorted(Path(folder).glob("**/*before_propagation.mlir"))
    text = dumps[0].read_text() if dumps else None
    for dump in Path(folder).glob("**/*.mlir"):
        dump.unlink()
    return text


# What a module says ------------------------------------------------------------------------------


def _reached(module: Module) -> Iterator[ir.OpView]:
    """The ops that a run may come to: HLO leaves the bodies of loops behind as functions."""
    functions = functions_of(module.root)
    waiting, done = [module.main.name.value], set()
    while waiting:
        name = waiting.pop()
        if name in done or name not in functions:
            continue
        done.add(name)
        yield functions[name]
        yield from operations(functions[name])
        waiting += callees_of(functions[name])


def said_in_mhlo(module: Module) -> dict[str, Any]:
    """Every ``mhlo.sharding`` by where it stands; those of ``@Sharding`` calls without order."""
    found: dict[str, Any] = {}
    constraints: list[str] = []
    for op in _reached(module):
        if isinstance(op, func.FuncOp):
            name = op.name.value.split(".")[0]
            for kind, read in (("argument", argument_attributes), ("result", result_attributes)):
                for index, entries in enumerate(read(op)):
                    if MHLO_SHARDING in entries:
                        found[f"{kind} {index} of {name}"] = read_mhlo(entries[MHLO_SHARDING])
        elif MHLO_SHARDING in op.attributes and "call_target_name" in op.attributes:
            target = ir.StringAttr(op.attributes["call_target_name"]).value
            sharding = read_mhlo(op.attributes[MHLO_SHARDING])
            if sharding.group:  # XLA has a call of its own for those.
                continue
            if target == "Sharding":
                constraints.append(str(sharding.without_metadata()))
            else:
                found[f"call {target}"] = sharding
    found["constraints"] = sorted(constraints)
    return found


def said_in_sdy(module: Module) -> dict[str, Any]:
    """Every sharding of Shardy's by where it stands; those of ops without names, sorted."""
    shardings = Shardings(module.root)

    def told(sharding: TensorSharding) -> str:
        return sharding.to_sdy().removeprefix("#sdy.sharding")

    found: dict[str, Any] = {}
    rest: list[str] = []
    for op in _reached(module):
        if isinstance(op, func.FuncOp):
            name = op.name.value.split(".")[0]
            for kind, read in (("argument", argument_attributes), ("result", result_attributes)):
                for index, entries in enumerate(read(op)):
                    if SDY_SHARDING in entries:
                        sharding = shardings.read(entries[SDY_SHARDING])
                        found[f"{kind} {index} of {name}"] = told(sharding)
        elif isinstance(op, sdy.ShardingConstraintOp):
            rest.append("constraint " + told(shardings.read(op.attributes["sharding"])))
        elif isinstance(op, sdy.ManualComputationOp):
            parts = [
                str([told(s) for s in shardings.read_per_value(op.attributes[name])])
                for name in ("in_shardings", "out_shardings")
            ]
            rest.append(f"region {parts} {op.attributes['manual_axes']}")
        elif isinstance(op, (sdy.ShardingGroupOp, sdy.PropagationBarrierOp)):
            rest.append(f"{op.operation.name} {[str(op.attributes[n]) for n in op.attributes]}")
        elif SDY_SHARDING in op.attributes and "call_target_name" in op.attributes:
            target = ir.StringAttr(op.attributes["call_target_name"]).value
            placed = shardings.read_per_value(op.attributes[SDY_SHARDING])
            found[f"call {target}"] = [told(s) for s in placed]
    found["rest"] = sorted(rest)
    return found


# The questions -----------------------------------------------------------------------------------


def compare_exports(seed: int, text: str, answer: str | None) -> Iterator[Difference]:
    """Where XLA's ``mhlo.sharding`` is not ours."""
    ours = _pipeline(text, "sp-export-mhlo")
    if answer is None or isinstance(ours, ShardingError):
        yield _one_failed("export", seed, text, answer, ours)
        return
    mine, theirs = said_in_mhlo(ours), said_in_mhlo(load(answer.encode()))
    for place, sharding in mine.items():
        other = theirs.get(place)
        if other != sharding:
            told = f"{place}: ours {sharding}, XLA's {other}"
            yield Difference("export", seed, f"another {place.split()[0]}", told)
        elif str(other) != str(sharding):
            yield Difference("export", seed, "another text", f"{sharding} and {other}")


def compare_round_trips(seed: int, text: str, answer: str | None) -> Iterator[Difference]:
    """Where a module does not come back from HLO as it was."""
    if answer is None:
        yield Difference("round trip", seed, "XLA aborts", text)
        return
    ours = _pipeline(answer, "sp-import-mhlo")
    if isinstance(ours, ShardingError):
        yield Difference("round trip", seed, f"ours refuses: {ours.slug}", f"{ours}")
        return
    before, after = said_in_sdy(load(text.encode())), said_in_sdy(ours)
    for place in {**before, **after}:
        if before.get(place) != after.get(place):
            told = f"{place}: before {before.get(place)}, after {after.get(place)}"
            yield Difference("round trip", seed, f"another {place.split()[0]}", told)


def compare_imports(seed: int, text: str, answer: str | None) -> Iterator[Difference]:
    """Where XLA's importer makes something else of a module."""
    ours = _pipeline(text, "sp-import-mhlo")
    if isinstance(ours, ShardingError):
        if answer is not None:
            yield Difference("import", seed, f"ours refuses: {ours.slug}", f"{ours}")
        elif not ours.diagnostics[0].location:
            yield Difference("import", seed, "an error without a place", f"{ours}")
        return
    yield from _keeps_layouts(seed, text, ours)
    if answer is None:
        return
    mine, theirs = said_in_sdy(ours), said_in_sdy(load(answer.encode()))
    for place in {**mine, **theirs}:
        if place.startswith("result "):  # The compiler closes those itself, where nothing is said.
            continue
        if mine.get(place) != theirs.get(place):
            known = place != "rest" and _is_of_partial_results(mine[place], theirs.get(place))
            kind = PARTIAL if known else f"another {place.split()[0]}"
            told = f"{place}: ours {mine.get(place)}, XLA's {theirs.get(place)}"
            yield Difference("import", seed, kind, told)


def _is_of_partial_results(mine: Any, theirs: Any) -> bool:
    """Whether the two differ in the axes alone over which results are partial."""
    bare = [re.sub(r", (replicated|unreduced)=\{[^}]*\}", "", str(said)) for said in (mine, theirs)]
    return bare[0] == bare[1] and "unreduced" in str(mine)


def _keeps_layouts(seed: int, text: str, imported: Module) -> Iterator[Difference]:
    """Each argument lies after the import as its text says."""
    shardings = Shardings(imported.root)
    before = argument_attributes(load(text.encode()).main)
    for index, (was, now) in enumerate(
        zip(before, argument_attributes(imported.main), strict=True)
    ):
        said = read_mhlo(was[MHLO_SHARDING])
        if SDY_SHARDING not in now:
            same = said.tile is None
        else:
            sharding = shardings.read(now[SDY_SHARDING])
            same = said.tile is None or is_equivalent(to_hlo(sharding), said, sharding.rank)
        if not same:
            yield Difference("import", seed, "another layout", f"argument {index}: {said}")


def _pipeline(text: str, pipeline: str) -> Module | ShardingError:
    try:
        return run_pipeline(load(text.encode()), pipeline).module
    except ShardingError as error:
        return error


def _one_failed(
    question: Question, seed: int, text: str, answer: str | None, ours: Module | ShardingError
) -> Difference:
    if isinstance(ours, ShardingError):
        who = "both refuse" if answer is None else f"ours refuses: {ours.slug}"
        return Difference(question, seed, who, f"{ours}\n{text}")
    return Difference(question, seed, "XLA aborts", text)


#: Compares ours with XLA's answer to the module of a seed.
Compare = Callable[[int, str, str | None], Iterator[Difference]]


@dataclass(frozen=True)
class Way:
    """How a question is asked: of which modules, of whom, and how the answers are compared."""

    make: Make
    oracle: Oracle
    compare: Compare


def _without_regions(chance: random.Random) -> str:
    return shardy_module(chance, regions=False)


WAYS: dict[Question, Way] = {
    "export": Way(_without_regions, "export", compare_exports),
    "round trip": Way(shardy_module, "export", compare_round_trips),
    "import": Way(gspmd_module, "import", compare_imports),
}


def run(seed: int, count: int) -> tuple[list[Difference], Counter[str]]:
    """All differences in ``count`` modules each way, from ``seed`` on, and what was counted."""
    found: list[Difference] = []
    counted: Counter[str] = Counter()
    for question, way in WAYS.items():
        texts = {number: way.make(random.Random(number)) for number in range(seed, seed + count)}
        answers = ask(list(texts.values()), way.oracle)
        counted[f"{question}: modules"] = count
        counted[f"{question}: XLA aborts or gives nothing"] = answers.count(None)
        for (number, text), answer in zip(texts.items(), answers, strict=True):
            differences = list(way.compare(number, text, answer))
            counted[f"{question}: alike"] += not differences
            found += differences
    return found, counted


def smallest(difference: Difference) -> str:
    """The smallest module that is found to differ in the same way."""
    way = WAYS[difference.question]

    def shows(texts: list[str]) -> list[bool]:
        answers = ask(texts, way.oracle)
        return [
            any(found.kind == difference.kind for found in way.compare(0, text, answer))
            for text, answer in zip(texts, answers, strict=True)
        ]

    return shrink(difference.seed, way.make, shows)


def main() -> int:
    """Ask, and print what differs: how often each kind, and the smallest of each."""
    parser = argparse.ArgumentParser(description="Compare the converters with XLA's.")
    parser.add_argument("--count", type=int, default=1000, help="modules each way (1,000)")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first (0)")
    parser.add_argument(
        "--shrink-known", action="store_true", help="shrink modules of known differences too"
    )
    options = parser.parse_args()
    found, counted = run(options.seed, options.count)
    for what, number in counted.items():
        print(f"{what:<44} {number:>6}")
    kinds = Counter((d.question, d.kind) for d in found)
    for (question, kind), number in kinds.most_common():
        least = min(
            (d for d in found if (d.question, d.kind) == (question, kind)),
            key=lambda d: len(d.told),
        )
        known = " (known, ours is right)" if kind in KNOWN else ""
        print(f"\n{question}: {kind}{known}, {number} times; the shortest, of seed {least.seed}:")
        print(least.told)
        if kind not in KNOWN or options.shrink_known:
            print(f"\nthe smallest module that shows it:\n{smallest(least)}")
    return 1 if any(difference.kind not in KNOWN for difference in found) else 0


if __name__ == "__main__":
    sys.exit(main())
