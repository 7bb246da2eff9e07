"""``./tools/test``: all tests, on this Python and the newest jax that it can have.

    ./tools/test                                # pytest, then lit
    ./tools/test tests/canon -k mesh            # arguments go to pytest ...
    ./tools/test lit_tests/passes/strip.mlir    # ... and paths of lit tests to lit

Makes the environment .venv on the first run, and .venv-historical, whose older jax some tests
compare with.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from historical_jax import offer_historical_jax
from project_environment import PROJECT, make_environment, say, this_python
from project_tests import Counts, run_all, run_lit, run_pytest


def absolute(argument: str) -> str:
    """An argument that names a file, from where the user stands or from the project, in full."""
    path, separator, inside = argument.partition("::")
    for base in (Path.cwd(), PROJECT):
        if not path.startswith("-") and (base / path).exists():
            return f"{(base / path).resolve()}{separator}{inside}"
    return argument


def main(arguments: Sequence[str]) -> int:
    """Run what was asked for; the exit status is 1 where anything failed."""
    if arguments and arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    environment = make_environment(".venv", this_python(), ["examples", "test"])
    offer_historical_jax()
    if not arguments:
        counts = run_all(environment)
        if counts is None:
            say("tests: some failed, or none ran; see above")
            return 1
        say(f"tests: {counts}")
        return 0
    named = [absolute(argument) for argument in arguments]
    lit_tests = PROJECT / "lit_tests"
    for_lit = [name for name in named if Path(name).is_relative_to(lit_tests)]
    for_pytest = [name for name in named if name not in for_lit]
    outcomes = [run_pytest(environment, for_pytest)] if for_pytest else []
    outcomes += [run_lit(environment, for_lit)] if for_lit else []
    total = Counts()
    for outcome in outcomes:
        total = total.plus(outcome.counts)
    say(f"tests: {total}")
    return 0 if all(outcome.good for outcome in outcomes) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
