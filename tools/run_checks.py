"""``./tools/check``: everything that a change must pass.

Static: ruff, basedpyright, the layers of imports, the linter of lit tests (which
also runs each pass's tests without the pass and wants them to fail). Then all
tests, warnings as errors, on Python 3.11 with jax 0.10.2 and on Python 3.12 with
the newest jax. Environments: .venv-3.11 and .venv-3.12, made on the first run, and
.venv-historical, whose older jax some tests compare with.

    ./tools/check            # all of it
    ./tools/check --static   # without the tests
    ./tools/check --again    # also tests that have passed on the very same files
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from historical_jax import offer_historical_jax
from project_environment import (
    PROJECT,
    Environment,
    child_environment,
    find_python,
    make_environment,
    say,
    this_python,
)
from project_tests import Counts, passed_before, run_all

# The oldest jax that the project works with, and the newest: see pyproject.toml.
VERSIONS = (("3.11", ("jax==0.10.2", "jaxlib==0.10.2")), ("3.12", ()))


class Step(NamedTuple):
    """One line of the summary."""

    name: str
    result: str  # "ok", "FAILED", "skipped: why"
    seconds: float = 0.0


def static_commands(environments: Sequence[Environment]) -> list[tuple[str, list[str]]]:
    """Name and command of each static check; types are checked against every version's."""
    first = environments[0]
    types = [first.program("basedpyright"), "--pythonpath"]
    return [
        ("ruff check", [first.program("ruff"), "check", "."]),
        ("ruff format", [first.program("ruff"), "format", "--check", "."]),
        *((f"types, {each}", [*types, each.program("python")]) for each in environments),
        ("import layers", [first.program("lint-imports")]),
        ("lit lint", [first.program("python"), "tools/lit_lint.py", "--prove"]),
    ]


def timed(name: str, work: Callable[[], str]) -> Step:
    """Do one step under its heading; ``work`` returns the result to note."""
    say(f"\n== {name}")
    started = time.monotonic()
    result = work()
    return Step(name, result, time.monotonic() - started)


def run_command(command: Sequence[str]) -> str:
    """Run a command in the project's folder: "ok" or "FAILED"."""
    status = subprocess.call(command, cwd=PROJECT, env=child_environment())
    return "ok" if status == 0 else "FAILED"


def run_tests(environment: Environment, again: bool) -> tuple[str, Counts]:
    """All tests in one environment, unless they passed there on the very same files."""
    before = None if again else passed_before(environment)
    if before:
        counts, age = before
        text = f"ok: {counts}, {age / 60:.0f} min ago on the very same files, not run again"
        say(text)
        return text, counts
    counts = run_all(environment)
    return ("FAILED", Counts()) if counts is None else (f"ok: {counts}", counts)


def main(arguments: Sequence[str]) -> int:
    """Run every step, whatever the ones before came to; 1 where any failed."""
    parser = argparse.ArgumentParser(prog="./tools/check", description="Check everything.")
    parser.add_argument("--static", action="store_true", help="leave out the tests")
    parser.add_argument(
        "--again", action="store_true", help="run tests that passed on the very same files as well"
    )
    options = parser.parse_args(arguments)

    steps: list[Step] = []
    total = Counts()
    environments = []
    for minor, pins in VERSIONS:
        python = find_python(minor)
        if python is None and not pins and this_python().minor not in dict(VERSIONS):
            python = this_python()  # newer than any that is named here
        if python is None:
            say(f"No Python {minor} on PATH or among pyenv's versions: its tests are skipped.")
            steps.append(Step(f"tests on Python {minor}", "skipped: no such Python here"))
            continue
        extras = ["examples", "test", "check"]
        environments.append(make_environment(f".venv-{python.minor}", python, extras, pins))
    if not environments:
        raise SystemExit("There is neither Python 3.11 nor 3.12 here: nothing was checked.")

    for name, command in static_commands(environments):
        steps.append(timed(name, lambda command=command: run_command(command)))
    if not options.static:
        fault = offer_historical_jax()
        if fault:
            steps.append(Step("tests beside jax 0.4.38", f"skipped: {fault}"))
    for environment in [] if options.static else environments:

        def tests(environment: Environment = environment) -> str:
            nonlocal total
            result, counts = run_tests(environment, options.again)
            total = total.plus(counts)
            return result

        steps.append(timed(f"tests on {environment}", tests))

    say("\n== summary")
    width = max(len(step.name) for step in steps)
    for step in steps:
        say(f"{step.name:<{width}}  {step.seconds:5.0f} s  {step.result}")
    failed = [step.name for step in steps if step.result == "FAILED"]
    if failed:
        say(f"FAILED: {', '.join(failed)}")
    elif not options.static:
        say(f"tests: {total}")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
