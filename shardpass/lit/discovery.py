"""Which tests there are: lit says so itself, by the configuration of each suite."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from shardpass.diagnostics import ShardingError
from shardpass.lit.config import INSTALL

# The package has no __main__, and its script may not be on PATH.
LIT = (sys.executable, "-c", "from lit.main import main; main()")

_SUITE = re.compile(r"  (?P<name>.*) - \d+ tests$")
_ROOT = re.compile(r"    Source Root: (?P<root>.*)$")
_TEST = re.compile(r"  (?P<name>.*?) :: (?P<inside>.*)$")
_PLACE_IN_LIT = re.compile(r"^\S+: .*?(?=(?:warning|error|fatal): )")
#: Lines of a message of lit's that are worth showing.
_TAIL = 12


class LitTest(NamedTuple):
    """A test by lit's name for it (``suite :: passes/strip.mlir``), and its file."""

    name: str
    path: Path


def find_tests(paths: Sequence[Path]) -> list[LitTest]:
    """The tests under folders of lit suites, in order of path; files among them are tests.

    Raises:
      ShardingError: ``missing-package`` without lit, ``unreadable`` where a path is not there,
        ``no-tests`` where lit finds none, or cannot read the suite's configuration.
    """
    for package in ("lit", "filecheck"):
        if importlib.util.find_spec(package) is None:
            raise ShardingError(
                "missing-package", f"the package {package} is not installed", help=INSTALL
            )
    tests: set[LitTest] = set()
    for path in paths:
        if not path.exists():
            raise ShardingError("unreadable", f"cannot read {path}: no such file or directory")
        tests.update(_tests_under(path))
    return sorted(tests, key=lambda test: test.path)


def _tests_under(path: Path) -> list[LitTest]:
    command = [*LIT, "--show-suites", "--show-tests", str(path.resolve())]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    found = list(_read(run.stdout)) if run.returncode == 0 else []
    if not found:
        said = [line for line in (run.stderr + run.stdout).splitlines() if line.strip()]
        raise ShardingError(
            "no-tests",
            f"lit finds no tests in {path}",
            notes=[_PLACE_IN_LIT.sub("", line) for line in said[-_TAIL:]],
            help="a suite is a folder with a lit.cfg.py that calls shardpass.lit.configure, and "
            "its tests are the files with one of its suffixes",
        )
    return found


def _read(listing: str) -> list[LitTest]:
    """The tests in what ``lit --show-suites --show-tests`` prints."""
    roots: dict[str, list[Path]] = {}
    tests: list[LitTest] = []
    suite = ""
    for line in listing.splitlines():
        if found := _TEST.match(line):
            for root in roots.get(found["name"], []):
                if (root / found["inside"]).is_file():
                    tests.append(LitTest(line.strip(), root / found["inside"]))
        elif found := _ROOT.match(line):
            roots.setdefault(suite, []).append(Path(found["root"]))
        elif found := _SUITE.match(line):
            suite = found["name"]
    return tests
