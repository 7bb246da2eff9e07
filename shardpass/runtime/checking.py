"""Proof by numbers: the sharded program gives what the unsharded one gives.

The unsharded program is the same module with its annotations stripped, on one device. One variant
is in memory at a time: reference results wait in a temporary file, arguments are made one by one on
their way to the devices. A comparison that could not have failed is reported as such, not passed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from shardpass.diagnostics import Diagnostic, Severity, ShardingError
from shardpass.mlir import EntryValue, Module, aliases_of, load
from shardpass.passes import run_pipeline
from shardpass.passes.strip import Strip
from shardpass.report.layouts import layouts_not_applied
from shardpass.runtime.compare import all_finite, error_of, only_value, tolerance_of
from shardpass.runtime.compile import Executable, compile_module
from shardpass.runtime.dataflow import influenced_results
from shardpass.runtime.devices import Device, devices_for
from shardpass.runtime.element_types import dtype_of, is_complex, is_float
from shardpass.runtime.evidence import Evidence
from shardpass.runtime.inputs import Inputs, InputSource, input_source
from shardpass.runtime.moved import MovedInputs
from shardpass.runtime.preflight import (
    PartitionerChoice,
    check_before_compiling,
    choose_partitioner,
)
from shardpass.runtime.probing import Probes
from shardpass.runtime.result import (
    LARGEST_NOISE_LIMIT,
    NOISE_FACTOR,
    ArgumentRow,
    CheckResult,
    ResultRow,
)
from shardpass.runtime.seeded import SeededInputs
from shardpass.runtime.store import ResultStore, result_store

#: Puts argument ``index`` on the devices of an executable.
Place = Callable[[Executable, int, np.ndarray], jax.Array]
#: Is told what is being done, before it is.
Progress = Callable[[str], None]


def check(
    module: Any,
    *,
    devices: int | Sequence[Device] = 8,
    inputs: Inputs = None,
    seed: int = 0,
    tolerance: float | None = None,
    partitioner: PartitionerChoice = "auto",
    progress: Progress | None = None,
    place: Place = Executable.place,
) -> CheckResult:
    """Run a sharded module and its unsharded self, and compare every result.

    A result passes if its error is within ``tolerance`` (by default that of its element type), or
    else within 8 times the program's own noise (:mod:`shardpass.runtime.moved`); integers and
    booleans have to be equal, or within the same 8 times. It proves nothing, and fails, if it is
    not finite, if no argument influences it, if it has no elements, if its noise is so large that a
    wrong layout would pass, or if the arguments could not have shown one
    (:mod:`shardpass.runtime.evidence`). An argument or result that does not lie as it is annotated
    fails the check as well.

    Once all results have passed, it is measured what the comparison is worth: the unsharded program
    runs again with the shards of arguments in each other's places, all at once and then one
    argument at a time, for a bounded number of runs (:mod:`shardpass.runtime.probing`). Where no
    result leaves its limit in any of them, nothing was proven, and the check fails; so it does
    where a result stays as it is whatever the inputs. Where that is so of single arguments beside
    others that do show, the check passes and warns of them: the placement of an argument whose
    whole effect is smaller than what rounding may do (a batch, under a tiny learning rate) is
    beyond any comparison of results. What is established for an argument is in
    :attr:`CheckResult.arguments`; that no *combination* of faults cancels out is not.

    Args:
      module: whatever :func:`shardpass.load` takes, annotated.
      devices: the devices of the sharded run, or how many.
      inputs: see :func:`shardpass.runtime.input_source`; made up from ``seed`` by default.
      seed: what made-up inputs are drawn from.
      tolerance: relative L2 error to allow for float results of every type, from 0 to below 1.
      partitioner: see :func:`shardpass.runtime.compile_module`.
      progress: is told each step as it begins.
      place: puts the sharded run's arguments on devices; tests plant wrong layouts through it.

    Returns:
      What was found; look at ``.ok``, or call ``.raise_if_failed()``.

    Raises:
      ShardingError: if there is nothing to compare, since a program does not compile or run:
        as :func:`compile_module`, :func:`input_source`; ``not-supported`` for manual computations;
        ``usage`` for a tolerance that is none.
    """
    _check_tolerance(tolerance)
    loaded = load(module)
    choose_partitioner(loaded, partitioner)
    used = devices_for(devices)
    check_before_compiling(loaded, len(used))
    source = input_source(loaded, inputs, seed=seed)
    run = _Check(loaded, source, seed, tolerance, progress or (lambda step: None))
    with result_store() as store:
        with run.step("compile unsharded"):
            stripped = _unsharded(loaded)
            plain = compile_module(stripped, devices=_one_of(used))
        with run.step("run unsharded"):
            looks = _run_reference(plain, source, store)
        with run.step("compile sharded"):
            sharded = compile_module(loaded, devices=used, partitioner=partitioner)
        evidence = Evidence(loaded, sharded.argument_layouts)

        def place_and_look(executable: Executable, index: int, array: np.ndarray) -> jax.Array:
            evidence.look_at(index, array)
            return place(executable, index, array)

        with run.step("run sharded"):
            errors = _run_against(sharded, source, store, place_and_look)
        run.judge(sharded.results, looks, errors)
        noises: list[float] = []

        def measure_noise() -> list[float]:
            if not noises:
                with run.step("run unsharded, inputs moved by one unit"):
                    moved = MovedInputs.of(source, stripped, seed)
                    noises.extend(_run_against(plain, moved, store, Executable.place))
            return noises

        if any(row.decided_by == "noise" for row in run.rows):
            run.use_noise(measure_noise())
        run.look_for_constants(plain, store, looks)
        run.ask_for_evidence(evidence)
        faults = [*_faults_of_layout(loaded, sharded), *_faults_of_plan(sharded, evidence)]
        if not faults and all(row.ok for row in run.rows):
            faults += run.measure_evidence(plain, store, looks, evidence, measure_noise)
    return CheckResult(
        len(used),
        sharded.partitioner,
        tuple(run.rows),
        (*faults, *run.diagnostics()),
        run.seconds,
        tuple(run.arguments),
        tuple(evidence.warnings(run.arguments)),
    )


def _one_of(devices: Sequence[Device]) -> list[Device]:
    """The first of ``devices`` that this process holds."""
    process = devices[0].client.process_index()
    return [device for device in devices if device.process_index == process][:1]


def _unsharded(module: Module) -> Module:
    try:
        return run_pipeline(module, [Strip()]).module
    except ShardingError as error:
        advice = (
            "run it without the check: a program in local shapes has no unsharded self; or export "
            "it without shard_map, and check that"
        )
        raise ShardingError.of(
            [
                replace(found, help=advice) if found.slug == "not-supported" else found
                for found in error.diagnostics
            ]
        ) from error


def _check_tolerance(tolerance: object) -> None:
    if tolerance is None:
        return
    number = isinstance(tolerance, (int, float, np.integer, np.floating))
    # NaN is not below 1. An error of 1 is that of a result which is all zeros.
    if isinstance(tolerance, bool) or not number or not 0 <= tolerance < 1:
        raise ShardingError(
            "usage",
            f"tolerance = {tolerance!r}",
            help="a tolerance is a relative error: a number from 0 to below 1",
        )


@dataclass(frozen=True)
class _Looks:
    """What a reference result looks like by itself."""

    finite: bool
    only_value: object | None


@dataclass
class _Check:
    module: Module
    source: InputSource
    seed: int
    tolerance: float | None
    progress: Progress
    seconds: dict[str, float] = field(default_factory=dict)
    rows: list[ResultRow] = field(default_factory=list)
    arguments: list[ArgumentRow] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        self.progress(name)
        start, counted = time.monotonic(), sum(self.seconds.values())
        yield
        # Less the steps that were taken meanwhile.
        inside = sum(self.seconds.values()) - counted
        self.seconds[name] = time.monotonic() - start - inside

    def judge(
        self, results: Sequence[EntryValue], looks: Sequence[_Looks], errors: Sequence[float]
    ) -> None:
        """A row for each result, as far as its element type's tolerance settles it."""
        influenced = influenced_results(self.module.root)
        for value, look, error in zip(results, looks, errors, strict=True):
            dtype = dtype_of(value)
            given = self.tolerance if is_float(dtype) or is_complex(dtype) else None
            allowed = tolerance_of(dtype) if given is None else given
            row = ResultRow(
                value.index, value.path, value.shape, dtype.name, error, allowed, None,
                "tolerance", error <= allowed,
            )  # fmt: skip
            if not value.size:
                row = _no_proof(row, "it has no elements", _NOT_A_RESULT)
            elif not influenced[value.index]:
                row = _no_proof(row, "no argument influences it", _NOT_A_RESULT)
            elif not look.finite:
                row = _no_proof(
                    row,
                    "it is not finite, sharded or not",
                    "give inputs for which it is finite, or make up others from another seed",
                )
            elif not row.ok:
                row = replace(row, decided_by="noise")
            self.rows.append(row)

    def use_noise(self, noises: Sequence[float]) -> None:
        """Settle what the tolerance did not by what the program makes of rounding alone."""
        for number, row in enumerate(self.rows):
            if row.decided_by == "noise":
                self.rows[number] = _settled_by_noise(replace(row, noise=noises[row.index]))

    def look_for_constants(
        self, plain: Executable, store: ResultStore, looks: Sequence[_Looks]
    ) -> None:
        """Find results that stay as they are when every argument changes.

        Only a result whose elements are all alike is suspected; a single number only if it is 0.
        If the arguments are the user's, the suspicion is enough: others, with which the elements
        would differ, were not compared.
        """
        suspects = [
            row
            for row in self.rows
            if row.ok
            and looks[row.index].only_value is not None
            and (math.prod(row.shape) > 1 or looks[row.index].only_value == 0)
        ]
        if not suspects:
            return
        if not isinstance(self.source, SeededInputs):
            for row in suspects:
                reason = f"every element is {looks[row.index].only_value} with these inputs"
                self.rows[row.index] = _no_proof(row, reason, _OTHER_INPUTS)
            return
        self._try_other_inputs(
            plain,
            store,
            {
                row.index: f"every element is {looks[row.index].only_value}, whatever the inputs"
                for row in suspects
            },
        )

    def _try_other_inputs(
        self, plain: Executable, store: ResultStore, reasons: Mapping[int, str]
    ) -> None:
        """Take back those results, with the reasons given, that other inputs leave as they are."""
        with self.step("run unsharded, with other inputs"):
            other = SeededInputs.of(self.module, self.seed + 1)
            changes = _run_against(plain, other, store, Executable.place)
        for index, reason in reasons.items():
            if changes[index] == 0.0:
                self.rows[index] = _no_proof(self.rows[index], reason, _NOT_A_RESULT)

    def limits(self, noises: Sequence[float]) -> list[float]:
        """For each result the largest error that would have passed, its noise counted in."""
        return [
            max(row.tolerance, NOISE_FACTOR * noise)
            for row, noise in zip(self.rows, noises, strict=True)
        ]

    def measure_evidence(
        self,
        plain: Executable,
        store: ResultStore,
        looks: Sequence[_Looks],
        evidence: Evidence,
        measure_noise: Callable[[], Sequence[float]],
    ) -> list[Diagnostic]:
        """Run with shards in wrong places; the error of a check that nothing could have failed."""
        layouts = plain.result_layouts

        def pairs(inputs: InputSource) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
            for number, blocks in enumerate(_run(plain, inputs, Executable.place)):
                yield number, store.get(number), layouts[number].join(blocks)

        probes = Probes(
            plain.arguments,
            plain.results,
            aliases_of(self.module.main),
            evidence.layouts,
            # Noise can set no larger limit, so that a run for it is seldom needed.
            [max(row.tolerance, LARGEST_NOISE_LIMIT) for row in self.rows],
            lambda: self.limits(measure_noise()),
            self.source,
            pairs,
            lambda number, reference, found: error_of(reference, layouts[number], [found]),
        )
        trying = sorted(evidence.telling)
        with self.step("run unsharded, shards rolled"):
            settled = probes.all_at_once(trying)
        moved = probes.any_beyond()
        if alone := [index for index in trying if index not in settled]:
            with self.step("run unsharded, shards of one argument rolled at a time"):
                settled |= {row.index: row for row in probes.one_at_a_time(alone)}
        for index in sorted(evidence.sharded):
            unseen = ArgumentRow(index, plain.arguments[index].path, "none", None)
            self.arguments.append(settled.get(index, unseen))
        still = {
            row.index: "it stays as it is, whatever the inputs"
            for row, far in zip(self.rows, probes.furthest, strict=True)
            if far == 0.0
            and evidence.reached[row.index]
            and (math.prod(row.shape) > 1 or looks[row.index].only_value == 0)
        }
        if still:
            self._try_other_inputs(plain, store, still)
        fault = evidence.fault_of_probes(self.arguments, moved)
        if fault is None or not all(row.ok for row in self.rows):
            return []
        return [Diagnostic(Severity.ERROR, "not-a-proof", fault, help=_MORE_TELLING)]

    def ask_for_evidence(self, evidence: Evidence) -> None:
        """Take back what passed on arguments that could not have shown a wrong layout."""
        for row, fault in zip(list(self.rows), evidence.faults_of_arguments(), strict=True):
            if row.ok and fault is not None:
                self.rows[row.index] = _no_proof(row, fault, _OTHER_INPUTS)

    def diagnostics(self) -> list[Diagnostic]:
        """An error for each row that did not pass."""
        return [
            Diagnostic(
                Severity.ERROR,
                "not-a-proof" if row.decided_by == "not-a-proof" else "results-differ",
                f'result {row.index} ("{row.path}"): {row.reason}',
                path=row.path,
                help=row.help,
            )
            for row in self.rows
            if not row.ok
        ]


_MORE_TELLING = "return what depends on it more strongly, or allow a smaller tolerance"
#: What to do about a result that no run can prove anything about.
_NOT_A_RESULT = "leave it out of the program's results: it is the same under every layout"
_OTHER_INPUTS = (
    "give inputs that differ from shard to shard (a seed's, say), or none: made-up ones differ"
)


def _no_proof(row: ResultRow, reason: str, advice: str) -> ResultRow:
    return replace(row, decided_by="not-a-proof", ok=False, reason=reason, help=advice)


def _settled_by_noise(row: ResultRow) -> ResultRow:
    own = NOISE_FACTOR * (row.noise or 0.0)
    # An error of 1 is that of a result which is all zeros.
    if row.error > row.limit and own < 1.0:
        return replace(row, reason=_excess(row))
    if own > LARGEST_NOISE_LIMIT:
        return _no_proof(
            row,
            f"rounding alone changes it by {row.noise:.3g}, and {NOISE_FACTOR:g} times that, "
            f"{own:.3g}, is beyond {LARGEST_NOISE_LIMIT:g}: a wrong layout could hide in it",
            "compute in a wider type, give inputs where the program is less steep, or allow a "
            "tolerance of your own",
        )
    return replace(row, ok=True)


def _excess(row: ResultRow) -> str:
    measure = "relative L2 error" if row.tolerance else "share of differing elements"
    return (
        f"{measure} {row.error:.3g} against the unsharded program; {row.dtype} allows "
        f"{row.tolerance:.3g}, {NOISE_FACTOR:g} times the program's own noise is "
        f"{NOISE_FACTOR * (row.noise or 0.0):.3g}"
    )


def _faults_of_plan(sharded: Executable, evidence: Evidence) -> list[Diagnostic]:
    """The diagnostics of a plan under which a wrong layout could not show."""
    if not sharded.results:
        message, advice = "the program has no results: nothing was compared", "return something"
    elif len(sharded.devices) == 1:
        message = "the run had one device: nothing was sharded"
        advice = "shard at least one argument of the module"
    elif (fault := evidence.fault_of_plan) is not None:
        message, advice = fault, "shard at least one argument that a result depends on"
    else:
        return []
    return [Diagnostic(Severity.ERROR, "not-a-proof", message, help=advice)]


def _faults_of_layout(module: Module, sharded: Executable) -> list[Diagnostic]:
    """An error for each argument and result that does not lie as it is annotated."""
    return layouts_not_applied(
        module,
        [layout.sharding for layout in sharded.argument_layouts],
        [layout.sharding for layout in sharded.result_layouts],
        len(sharded.devices),
        Severity.ERROR,
    )


def _run_reference(plain: Executable, source: InputSource, store: ResultStore) -> list[_Looks]:
    looks: list[_Looks] = []
    for index, blocks in enumerate(_run(plain, source, Executable.place)):
        whole = plain.result_layouts[index].join(blocks)
        store.put(index, whole)
        looks.append(_Looks(all_finite(whole), only_value(whole)))
    return looks


def _run_against(
    executable: Executable, source: InputSource, store: ResultStore, place: Place
) -> list[float]:
    """The error of each result against the one in ``store``."""
    return [
        error_of(store.get(index), executable.result_layouts[index], blocks)
        for index, blocks in enumerate(_run(executable, source, place))
    ]


def _run(executable: Executable, source: InputSource, place: Place) -> Iterator[list[np.ndarray]]:
    """The blocks of each result in turn, each freed when the next is asked for."""
    outcome = executable.execute(
        [place(executable, i, source.array(i)) for i in range(len(executable.arguments))]
    )
    for index in range(len(outcome)):
        yield executable.blocks(index, outcome[index])
        outcome[index].clear()
