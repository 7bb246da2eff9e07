"""Prove lit tests: each must fail once a pass that it is about is switched off.

A test is about the pass that it is named after (``passes/strip.mlir``: ``sp-strip``), if that is on
one of its command lines; else about all passes there, which are switched off one at a time. The
suite runs once as it stands, since a test that fails anyway proves nothing, and which passes are on
the command lines shows by then; after that once for each pass of the test that has most.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shardpass.diagnostics import Diagnostic, ShardingError
from shardpass.lit.config import CONFIGURED, PROVE
from shardpass.lit.discovery import LIT, LitTest
from shardpass.lit.lint import fault
from shardpass.lit.passes_off import Options, named_after
from shardpass.lit.switch import Call, calls_in, write_plan

_SLUG = "not-a-proof"
_MOST_WORKERS = 4
#: Exit statuses of the command line that tell of no check: not understood, died.
_REFUSED, _DIED = 2, 3


@dataclass(frozen=True)
class Proof:
    """What came of it: how many tests failed as they should, and the faults of the others."""

    proven: int
    faults: list[Diagnostic]


def prove(tests: Sequence[LitTest], options: Options) -> Proof:
    """Run the tests without their passes.

    Args:
      tests: those to run; one without a pass on any command line is left alone.
      options: of ``shardpass opt``; every other flag is a pass.

    Raises:
      ShardingError: ``not-a-proof``, where no test has a pass, or the suite does not use this kit;
        ``no-tests``, where lit does not run.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve()
        codes = _run(folder, tests, options, {})
        if not (folder / CONFIGURED).exists():
            raise ShardingError(
                _SLUG,
                "the suite's lit.cfg.py does not call shardpass.lit.configure: nothing can be "
                "switched off",
            )
        before = {test: calls_in(folder, test.path) for test in tests}
        faults, about = [], {}
        for test in tests:
            passes = _about(test, before[test])
            if codes.get(test.name) in ("UNSUPPORTED", "SKIPPED", "XFAIL", "EXCLUDED"):
                continue
            if codes.get(test.name) not in ("PASS", "FLAKYPASS"):
                message = f"fails with its passes on as well (lit: {codes.get(test.name)})"
                faults.append(fault(test.path, 1, _SLUG, message))
            elif passes:
                about[test] = passes
        if not about and not faults:
            raise ShardingError(_SLUG, "no test runs a pass of `%shardpass opt`")
        unproven: set[LitTest] = set()
        for turn in range(max(map(len, about.values()), default=0)):
            chosen = {test: passes[turn] for test, passes in about.items() if len(passes) > turn}
            codes = _run(folder, list(chosen), options, {t.path: p for t, p in chosen.items()})
            for test, name in chosen.items():
                calls = calls_in(folder, test.path)
                if reason := verdict(codes[test.name], calls, before[test], name):
                    faults.append(fault(test.path, 1, _SLUG, reason))
                    unproven.add(test)
        return Proof(len(about) - len(unproven), faults)


def verdict(code: str, calls: Sequence[Call], before: Sequence[Call], name: str) -> str | None:
    """Why a run without a pass proves nothing, or None where it is a proof.

    Args:
      code: lit's verdict on the run.
      calls: what ran in it.
      before: what ran when all passes were on; a command that was refused then may be so now.
      name: the pass that was switched off.
    """
    if not any(call.switched_off for call in calls):
        return f"no command line with {name} on it was run"
    ended = {(tuple(call.words), call.status) for call in before}
    switched = {
        call.status
        for call in calls
        if call.switched_off and (tuple(call.words), call.status) not in ended
    }
    if any(status == _DIED or status < 0 for status in switched):
        return f"without {name} the command line dies, which says nothing about the checks"
    if _REFUSED in switched:
        return f"without {name} the command line is refused, which says nothing about the checks"
    if code == "FAIL":
        return None
    return f"passes without {name} as well: it checks nothing of what the pass does"


def _about(test: LitTest, calls: Sequence[Call]) -> list[str]:
    passes = list(dict.fromkeys(name for call in calls for name in call.passes))
    own = named_after(test.path, passes)
    return [own] if own else passes


def _run(
    folder: Path, tests: Sequence[LitTest], options: Options, off: Mapping[Path, str]
) -> dict[str, str]:
    """lit's verdict on each test, by name."""
    write_plan(folder, options, off)
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    words = ["--quiet", "--ignore-fail"]
    words += ["--workers", str(min(_MOST_WORKERS, os.cpu_count() or 1))]
    words += ["--param", f"{PROVE}={folder}", "--output", str(report)]
    command = [*LIT, *words, *(str(test.path) for test in tests)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if not report.exists():
        said = tuple((run.stderr + run.stdout).splitlines()[-12:])
        raise ShardingError("no-tests", "lit did not run", notes=said)
    results = json.loads(report.read_text("utf-8"))["tests"]
    return {result["name"]: result["code"] for result in results}
