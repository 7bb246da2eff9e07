"""Programs run in a Python of their own, in which nothing has been imported yet."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def run_python(program: str, **environment: str | None) -> str:
    """What ``program`` prints; warnings are errors in it.

    ``environment`` holds variables to set, or to take away where ``None``.
    """
    variables = {**os.environ, "PYTHONPATH": str(REPOSITORY), **environment}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={name: value for name, value in variables.items() if value is not None},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
