"""Prove lit tests: each must fail once the pass it is about is switched off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from lit_passes import PROJECT, pass_of, passes_in
from without_pass import log_of

# The package has no __main__, and its script may not be on PATH.
LIT = (sys.executable, "-c", "from lit.main import main; main()")


def verdict(code: str, log: str | None, name: str) -> str | None:
    """Why a run without the pass proves nothing, or None where it is a proof.

    Args:
      code: lit's verdict on the run.
      log: what the command wrote on standard error without the pass, and its
        exit status; None where no command line had the pass on it.
      name: the pass that was switched off.
    """
    if log is None:
        return f"no command line with {name} on it was run"
    if "Traceback (most recent call last)" in log:
        return f"without {name} the command line crashes, which says nothing about the checks"
    if "exit status 2\n" in log:
        return f"without {name} the command line is refused, which says nothing about the checks"
    if code != "FAIL":
        return f"passes without {name} as well: it checks nothing of what the pass does"
    return None


def prove(tests: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Run the tests without their passes; yield those that are no proof, with the reason."""
    if not tests:
        return
    names = [found.name for found in passes_in(PROJECT / "shardpass" / "passes")]
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.json")
        options = ["--quiet", "--ignore-fail", "--skip-test-time-recording"]
        options += ["--workers", str(min(4, os.cpu_count() or 1))]
        options += ["--param", f"prove={scratch}", "--output", str(report)]
        command = [*LIT, *options, *map(str, tests)]
        run = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
        if not report.exists():
            raise SystemExit(f"lit did not run:\n{run.stdout}{run.stderr}")
        results = json.loads(report.read_text("utf-8"))["tests"]
        codes = {result["name"]: result["code"] for result in results}
        for test in tests:
            inside = test.relative_to(PROJECT / "lit_tests").as_posix()
            log = log_of(Path(scratch), test)
            text = log.read_text("utf-8", "replace") if log.exists() else None
            reason = verdict(codes[f"shardpass :: {inside}"], text, pass_of(test, names) or "")
            if reason:
                yield test, reason
