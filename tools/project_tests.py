"""One run of the tests, pytest's and lit's, in one environment; and a note of what passed.

Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from project_environment import OUT, PROJECT, Environment, child_environment, say

_NOTES = OUT / "tests-passed.json"
_LIT = ("-c", "from lit.main import main; main()")


class Counts(NamedTuple):
    """How many tests passed, failed (or could not run), and were skipped."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def plus(self, other: Counts) -> Counts:
        """The sum of both."""
        return Counts(*(a + b for a, b in zip(self, other, strict=True)))

    def __str__(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{skipped}"


class Outcome(NamedTuple):
    """What a run of one runner came to; ``status`` is its exit status."""

    counts: Counts
    status: int
    seconds: float

    @property
    def good(self) -> bool:
        """Whether every test passed, and there was one."""
        return self.status == 0 and self.counts.failed == 0 and self.counts.passed > 0


def workers() -> str:
    """How many tests to run at a time: one a core, and at most four."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return str(min(4, cores or 1))


def pytest_counts(report: Path) -> Counts:
    """The counts in a JUnit report of pytest."""
    suite = ElementTree.parse(report).getroot()
    if suite.tag == "testsuites":
        suite = suite[0]
    total, failures, errors, skipped = (
        int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")
    )
    failed = failures + errors
    return Counts(max(0, total - failed - skipped), failed, skipped)


def lit_counts(report: Path) -> Counts:
    """The counts in lit's JSON report."""
    tests = json.loads(report.read_text(encoding="utf-8"))["tests"]
    codes = Counter(test["code"] for test in tests)
    passed = codes.pop("PASS", 0)
    skipped = codes.pop("SKIPPED", 0) + codes.pop("UNSUPPORTED", 0)
    return Counts(passed, codes.total(), skipped)


def run_pytest(environment: Environment, arguments: Sequence[str] = ()) -> Outcome:
    """Run pytest: all tests over all cores, or what the arguments say."""
    report = _report_path(environment, "pytest.xml")
    options = list(arguments) or ["--quiet", "--numprocesses", workers()]
    command = [environment.program("python"), "-m", "pytest", f"--junitxml={report}", *options]
    return _run(command, report, pytest_counts)


def run_lit(environment: Environment, paths: Sequence[str] = ()) -> Outcome:
    """Run lit on all its tests, or on some."""
    report = _report_path(environment, "lit.json")
    command = [environment.program("python"), *_LIT, "--verbose", "--skip-test-time-recording"]
    command += ["--workers", workers(), "--output", str(report)]
    return _run([*command, *(paths or [str(PROJECT / "lit_tests")])], report, lit_counts)


def _report_path(environment: Environment, name: str) -> Path:
    folder = OUT / "tests" / f"{environment.python}-{environment.jax}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name


def _run(command, report, read_counts) -> Outcome:
    report.unlink(missing_ok=True)
    started = time.monotonic()
    status = subprocess.call(command, cwd=PROJECT, env=child_environment())
    counts = read_counts(report) if report.exists() else Counts()
    return Outcome(counts, status, time.monotonic() - started)


def run_all(environment: Environment) -> Counts | None:
    """Run both runners in full; the counts, or None where one came to no good end.

    A run in which all passed is noted, with the state of the files it tested.
    """
    tested = tree_digest(PROJECT)
    say(f"\n== pytest on {environment}")
    pytest = run_pytest(environment)
    say(f"\n== lit on {environment}")
    lit = run_lit(environment)
    counts = pytest.counts.plus(lit.counts)
    good = pytest.good and lit.good
    say(
        f"{environment}: pytest {pytest.counts} in {pytest.seconds:.0f} s; "
        f"lit {lit.counts} in {lit.seconds:.0f} s"
    )
    if good and tested and tested == tree_digest(PROJECT):
        note_passed(environment, tested, counts)
    return counts if good else None


def tree_digest(project: Path) -> str | None:
    """A digest of all files that git tracks or would track; None where git has no answer."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, cwd=project, capture_output=True, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    digest = hashlib.sha256()
    for name in sorted(filter(None, listed.stdout.decode().split("\0"))):
        path = project / name
        content = path.read_bytes() if path.is_file() else b"missing"
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _notes() -> dict[str, dict]:
    try:
        return json.loads(_NOTES.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def note_passed(environment: Environment, digest: str, counts: Counts) -> None:
    """Note that all tests passed in an environment, on files of that digest."""
    notes = _notes()
    notes[str(environment)] = {"digest": digest, "counts": counts, "at": time.time()}
    _NOTES.write_text(json.dumps(notes), encoding="utf-8")


def passed_before(environment: Environment) -> tuple[Counts, float] | None:
    """The counts of a full run that passed here on the very same files, and its age in seconds."""
    note = _notes().get(str(environment))
    digest = tree_digest(PROJECT)
    if note is None or digest is None or note["digest"] != digest:
        return None
    return Counts(*note["counts"]), time.time() - note["at"]
